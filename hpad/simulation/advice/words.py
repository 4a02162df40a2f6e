"""Words of the advice that the terminal and the page share: durations, shares, replica-hours, settings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from hpad.engine.conditions import ABLE_TO_SCALE, SCALING_ACTIVE
from hpad.engine.words import percent, span
from hpad.simulation.advice.assessment import Figures
from hpad.simulation.history import DAY

UNKNOWN_LOAD: Final = (
    "how many replicas the load needed is not known: its metric may be the length of a queue, which may be empty while"
    " they all work; queues in the file of --series give the rates"
)
_SOME: Final = 600.0
"""Seconds from which on a duration has no seconds."""
_NOT_KNOWN: Final = frozenset({SCALING_ACTIVE, ABLE_TO_SCALE})
_SOME_DAYS: Final = 1.97
"""Two days, less what a reading lacks at its end."""


def hours(replica_seconds: float, price: float | None = None, of_money: str = "for") -> str:
    """Returns replica-hours, with what they cost if the price is known: "30 replica-hours for 1.20"."""
    text = f"{hours_only(replica_seconds)} replica-hours"
    return text if price is None else f"{text} {of_money} {money(replica_seconds, price)}"


def hours_only(replica_seconds: float) -> str:
    """Returns the number of replica-hours."""
    found = replica_seconds / 3600
    return f"{found:,.0f}" if abs(found) >= 10 or not found else f"{found:.1f}"


def amount_of_load(replicas: float) -> str:
    """Returns how many replicas a load needs, with one digit behind the point below ten."""
    return f"{replicas:.0f}" if replicas >= 10 else f"{replicas:.1f}"


def money(replica_seconds: float, price: float) -> str:
    """Returns the cost at a price per replica and hour."""
    return f"{replica_seconds / 3600 * price:,.2f}"


def share(seconds: float, of: float) -> str:
    """Returns a part of a time in percent."""
    return percent(seconds / of) if of else "0 %"


def per_day(count: int, seconds: float) -> str:
    """Returns how often something happened a day."""
    found = count * DAY / seconds if seconds else 0.0
    return f"{found:.0f}" if found >= 10 else f"{found:.1f}".removesuffix(".0")


def often(count: int, noun: str, seconds: float) -> str:
    """Returns "12 rescales a day", or the number itself if it is of less than a day."""
    if seconds < DAY:
        return f"{count:,} {noun}{'' if count == 1 else 's'}"
    rate = per_day(count, seconds)
    return f"{rate} {noun}{'' if rate == '1' else 's'} a day"


def rounded(seconds: float) -> str:
    """Returns a duration, in days from two days on, in whole minutes if it is longer than ten."""
    if seconds >= 2 * DAY:
        decimals = 0 if seconds >= 10 * DAY else 1
        return f"{seconds / DAY:.{decimals}f}d".replace(".0d", "d")
    return span(round(seconds / 60) * 60 if seconds >= _SOME else round(seconds))


def short(seconds: float) -> str:
    """Returns a duration with two digits where it is shorter than ten seconds."""
    return f"{seconds:.2g}s" if seconds < 10 else rounded(seconds)


def days(seconds: float) -> str:
    """Returns a time: "5 days", or hours below two days."""
    count = seconds / DAY
    return f"{count:.0f} days" if count >= _SOME_DAYS else rounded(seconds)


def reason_of(failure: str) -> str:
    """Returns the reason of a failure (HpaPast.failing); the condition that was then false is none."""
    return "reason not known" if failure in _NOT_KNOWN else failure


def written(value: Any) -> str:
    """Returns the value of a setting as in a manifest, on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {written(each)}' for name, each in value.items())}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(written, value))}]"
    return "not set" if value is None else str(value)


def figures(price: float | None) -> Iterator[tuple[str, Callable[[Figures], str]]]:
    """Yields the rows of the table that compares specs: the label, and the text of the value."""
    yield "replica-hours", lambda each: f"{each.replica_seconds / 3600:,.1f}"
    if price is not None:
        yield "cost", lambda each: money(each.replica_seconds, price)
    yield "above goal", lambda each: share(each.above_goal, each.seconds)
    yield "overloaded", lambda each: share(each.overloaded, each.seconds)
    yield "rescales", lambda each: str(each.rescales)
    yield "flaps", lambda each: str(each.flaps)
    yield "lowest, highest", lambda each: f"{each.lowest}, {each.highest}"
