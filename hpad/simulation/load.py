"""Synthetic loads: units of work per second as a function of time.

A load is written as SHAPE:PARAMETERS, such as `step:from=20,to=80,at=10m`; several loads add up. What a unit is, the
workload says: a request, a message.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hpad.api.numbers import number, seconds, some_seconds
from hpad.api.text import shown
from hpad.simulation.history import read_csv


class LoadError(ValueError):
    """A load that cannot be read. The message names its text, the parameter, the value and what would be right."""


Load = Callable[[float], float]
"""Units of work per second at a time, in seconds since the start."""


class _Parameter(NamedTuple):
    read: Callable[[str], float]
    default: float | None = None


def _constant(rate: float) -> Load:
    return lambda at: rate


def _step(before: float, after: float, begin: float, length: float) -> Load:
    return lambda at: after if begin <= at < begin + length else before


def _ramp(first: float, last: float, begin: float, length: float) -> Load:
    return lambda at: first + (last - first) * min(max((at - begin) / length, 0.0), 1.0)


def _sine(mean: float, amplitude: float, period: float) -> Load:
    """Begins at the mean and rises; never below zero."""
    return lambda at: max(0.0, mean + amplitude * math.sin(2 * math.pi * at / period))


def _spikes(height: float, every: float, length: float) -> Load:
    """The first spike begins after the first interval."""
    return lambda at: height if at >= every and at % every < length else 0.0


def _at_random(rate: float, seed: int) -> Load:
    """Arrivals at random with a mean rate: the count of each second, the same for the same seed."""
    return lambda at: float(poisson(random.Random(f"{seed} {math.floor(at)}"), rate))


def poisson(chance: random.Random, mean: float) -> int:
    """Returns a Poisson variate; for a large mean by the normal approximation (error below 1 % from 100 on)."""
    if mean >= 100:
        return max(0, round(chance.gauss(mean, math.sqrt(mean))))
    limit, count, product = math.exp(-mean), 0, chance.random()
    while product > limit:
        count += 1
        product *= chance.random()
    return count


_MOST: Final = 1e12
"""The largest load, in units of work per second: above any real one, and far below what overflows a float."""


def _rate(text: str) -> float:
    value = number(text)
    if value > _MOST:
        raise ValueError(f"{shown(text)} is more than {_MOST:g}")
    return value


_RATE: Final = _Parameter(_rate)
_SHAPES: Final[dict[str, tuple[dict[str, _Parameter], Callable[..., Load]]]] = {
    "constant": ({"rate": _RATE}, _constant),
    "step": (
        {"from": _RATE, "to": _RATE, "at": _Parameter(seconds), "for": _Parameter(some_seconds, math.inf)},
        _step,
    ),
    "ramp": (
        {"from": _RATE, "to": _RATE, "at": _Parameter(seconds, 0.0), "over": _Parameter(some_seconds)},
        _ramp,
    ),
    "sine": ({"mean": _RATE, "amplitude": _RATE, "period": _Parameter(some_seconds)}, _sine),
    "spikes": ({"height": _RATE, "every": _Parameter(some_seconds), "for": _Parameter(some_seconds)}, _spikes),
}
FORMS: Final = (
    "constant:rate=40",
    "step:from=20,to=80,at=10m[,for=5m]",
    "ramp:from=10,to=100,over=30m[,at=5m]",
    "sine:mean=50,amplitude=30,period=1h",
    "spikes:height=200,every=30m,for=1m",
    "poisson:rate=40",
    "csv:FILE",
)
"""The forms of a load, for help texts."""


def parse(text: str, seed: int = 0) -> Load:
    """Reads one load. Raises LoadError. Blocks: reads the file of `csv:FILE`."""
    shape, colon, rest = text.partition(":")
    if not colon or shape not in {*_SHAPES, "poisson", "csv"}:
        raise LoadError(f"--load {shown(text)}: there is no shape {shown(shape)}; there are {', '.join(FORMS)}")
    try:
        if shape == "csv":
            return _series(Path(rest))
        if shape == "poisson":
            return _at_random(_values(rest, {"rate": _RATE})["rate"], seed)
        parameters, make = _SHAPES[shape]
        return make(*_values(rest, parameters).values())
    except ValueError as error:
        raise LoadError(f"--load {shown(text)}: {error}") from None


def _values(text: str, parameters: Mapping[str, _Parameter]) -> dict[str, float]:
    """Returns the value of each parameter, in their order. Raises ValueError."""
    given: dict[str, float] = {}
    if "=" not in text and len(parameters) == 1:
        text = f"{next(iter(parameters))}={text}"
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name not in parameters:
            raise ValueError(f"{shown(part.strip())} is not one of {', '.join(f'{each}=…' for each in parameters)}")
        if name in given:
            raise ValueError(f"{name} is given twice")
        try:
            given[name] = parameters[name].read(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    missing = [name for name, parameter in parameters.items() if parameter.default is None and name not in given]
    if missing:
        raise ValueError(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    return {name: given.get(name, parameter.default or 0.0) for name, parameter in parameters.items()}


def together(loads: Sequence[Load]) -> Load:
    """Returns the sum of the loads."""
    return lambda at: sum(load(at) for load in loads)


class LoadSeries:
    """Recorded values, each in force until the next one: pairs of seconds since the begin, and the value.

    Before the first value and after the last one the nearest value holds. `length`: seconds from the begin to the end,
    which may be those of a gap.
    """

    def __init__(self, pairs: Sequence[tuple[float, float]], length: float) -> None:
        self._times = [at for at, _ in pairs]
        self._values = [value for _, value in pairs]
        self.length = length

    def __call__(self, at: float) -> float:
        return self._values[max(0, bisect_right(self._times, at) - 1)]


def _series(path: Path) -> LoadSeries:
    """Reads a CSV file (`history.read_csv`) of times and values. Raises ValueError. Blocks."""
    found = read_csv(path, unnamed=("time", "load"))
    if len(found.columns) > 1:
        raise ValueError(f"{path}, line 1: the columns must be time and a load, not {', '.join(found.columns)}")
    [values] = found.columns.values()
    known = [(at - found.times[0], each) for at, each in zip(found.times, values, strict=True) if each is not None]
    if not known:
        raise ValueError(f"{path}: there is no load: all of its cells are empty")
    lowest, highest = min(value for _, value in known), max(value for _, value in known)
    if lowest < 0:
        raise ValueError(f"{path}: there is a load of {lowest:g}; 0 or more are needed")
    if highest > _MOST:
        raise ValueError(f"{path}: there is a load of {highest:g}, which is more than {_MOST:g}")
    return LoadSeries(known, found.times[-1] - found.times[0])
