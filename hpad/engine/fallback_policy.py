"""Fallback policies: what a metric proposes while it fails, and from which value on it counts as active.

They come from annotations of the HPA, else from the settings of the metric source. Without them a failing
metric has the effect it has in Kubernetes.

| annotation of the HPA              | value                      | meaning                                         |
| ---------------------------------- | -------------------------- | ----------------------------------------------- |
| `hpad.io/fallback`                 | POLICY, or METRIC=POLICY,… | what a metric proposes while it has no sample   |
| `hpad.io/failure-duration-seconds` | whole number, default 180  | how long it must have failed before that        |
| `hpad.io/activation`               | NUMBER, or METRIC=NUMBER,… | with minReplicas 0: the metric is active above  |
|                                    |                            | this value only (Object, External)              |

| POLICY          | while the metric fails                                                                       |
| --------------- | -------------------------------------------------------------------------------------------- |
| `hold`          | as Kubernetes: no scale-down, and no change at all if every metric fails                      |
| `replicas:N`    | proposes N replicas; the largest proposal wins; min, max and behavior apply                   |
| `last-good:AGE` | proposes, at once, its last successful proposal, for no longer than AGE ("10m")               |
| `ignore`        | the other metrics decide alone, also on a scale-down; as hold if there is no other            |

A policy may end in ` after DURATION` ("replicas:5 after 60s"), which replaces the failure duration. `replicas` follows
KEP-5679 (`fallback.replicas`, `failureDurationSeconds`), for metrics of all types; the others go beyond it. The
annotations take precedence over the settings of a source (`fallback:`). No policy hides the failure.
"""

import difflib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple, TypeVar

import msgspec

from hpad.api import duration
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.quantity import QuantityError, parse_milli
from hpad.api.sample import Query
from hpad.api.text import shown
from hpad.engine.spec import compiled_spec

T = TypeVar("T")

PREFIX: Final = "hpad.io/"
FALLBACK: Final = "hpad.io/fallback"
FAILURE_DURATION: Final = "hpad.io/failure-duration-seconds"
ACTIVATION: Final = "hpad.io/activation"
ANNOTATIONS: Final = (FALLBACK, FAILURE_DURATION, ACTIVATION)

HOLD: Final = "hold"
REPLICAS: Final = "replicas"
LAST_GOOD: Final = "last-good"
IGNORE: Final = "ignore"
DEFAULT_AFTER: Final = timedelta(seconds=180)

_POLICY = re.compile(r"(?P<kind>[a-z-]+)(:(?P<value>[^ ]+))?( after (?P<after>[^ ]+))?")
_FORMS: Final = "hold, ignore, replicas:N or last-good:AGE, such as replicas:5 or last-good:10m"
_MOST: Final = 2**31 - 1


class Fallback(msgspec.Struct, frozen=True, kw_only=True):
    """One policy. `after` is None where the failure duration applies (last-good: at once)."""

    kind: str
    replicas: int = 0
    age: timedelta = timedelta()
    after: timedelta | None = None

    def __str__(self) -> str:
        value = {REPLICAS: f":{self.replicas}", LAST_GOOD: f":{duration.write(self.age)}"}.get(self.kind, "")
        return f"{self.kind}{value}" + ("" if self.after is None else f" after {duration.write(self.after)}")


class FallbackPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The fallback and the activation threshold, in milli-units, of one metric."""

    fallback: Fallback | None = None
    activation: int | None = None


class FallbackPolicies(NamedTuple):
    """The policy of each metric, in order (empty: none), and what is wrong with the annotations, if anything."""

    policies: tuple[FallbackPolicy, ...]
    error: str | None


NO_POLICIES: Final = FallbackPolicies((), None)


def from_annotations(annotations: Mapping[str, str] | None, metrics: Sequence[str]) -> FallbackPolicies:
    """Returns the policies of the metrics with these names. Never raises: `error` names invalid annotations."""
    if not annotations:
        return NO_POLICIES
    fallback, activation = annotations.get(FALLBACK), annotations.get(ACTIVATION)
    if fallback is None and activation is None:
        return NO_POLICIES
    return _read(fallback, annotations.get(FAILURE_DURATION), activation, tuple(metrics))


def annotation_errors(annotations: Mapping[str, str] | None, metrics: Sequence[str]) -> dict[str, str]:
    """Returns what is wrong with the annotations under `hpad.io/`, by annotation.

    Includes unknown annotations, and known ones that have no effect.
    """
    own = {name: text for name, text in (annotations or {}).items() if name.startswith(PREFIX)}
    if not own:
        return {}
    found = {name: _unknown(name) for name in own if name not in ANNOTATIONS}
    result = _parsed(own.get(FALLBACK), own.get(FAILURE_DURATION), own.get(ACTIVATION), tuple(metrics))
    return found | dict(result.errors)


def parse(text: str) -> Fallback:
    """Parses one policy. Raises ValueError that names the valid forms."""
    found = _POLICY.fullmatch(text.strip())
    kind, value, after = found.group("kind", "value", "after") if found else ("", None, None)
    takes = {HOLD: False, IGNORE: False, REPLICAS: True, LAST_GOOD: True}
    if takes.get(kind) is not (value is not None):
        raise ValueError(f"{shown(text)} is not one of {_FORMS}")
    delay = None if after is None else _duration(after)
    if kind == REPLICAS:
        return Fallback(kind=kind, replicas=_count(value or "", 1, _MOST), after=delay)
    age = _duration(value) if value is not None else timedelta()
    return Fallback(kind=kind, age=age, after=delay)


class _Parsed(NamedTuple):
    """The policy of each metric, and the error of each invalid annotation."""

    policies: tuple[FallbackPolicy, ...]
    errors: tuple[tuple[str, str], ...]


@functools.lru_cache(4096)
def _read(
    fallback: str | None, failure: str | None, activation: str | None, metrics: tuple[str, ...]
) -> FallbackPolicies:
    result = _parsed(fallback, failure, activation, metrics)
    return FallbackPolicies(
        result.policies, "; ".join(f"annotation {name}: {error}" for name, error in result.errors) or None
    )


def _parsed(fallback: str | None, failure: str | None, activation: str | None, metrics: tuple[str, ...]) -> _Parsed:
    found: list[tuple[str, str]] = []

    def parsed(name: str, text: str | None, one: Callable[[str], T]) -> dict[str, T]:
        try:
            return {} if text is None else _by_metric(text, one, metrics)
        except ValueError as error:
            found.append((name, str(error)))
            return {}

    after = parsed(FAILURE_DURATION, failure, lambda text: timedelta(seconds=_count(text, 0, 10**9)))
    fallbacks, thresholds = parsed(FALLBACK, fallback, parse), parsed(ACTIVATION, activation, _threshold)
    policies = tuple(
        FallbackPolicy(fallback=_timed(fallbacks.get(name), after.get(name)), activation=thresholds.get(name))
        for name in metrics
    )
    return _Parsed(policies if fallbacks or thresholds else (), tuple(found))


def _unknown(name: str) -> str:
    known = [each.removeprefix(PREFIX) for each in ANNOTATIONS]
    close = difflib.get_close_matches(name.removeprefix(PREFIX), known, n=1)
    advice = f'did you mean "{PREFIX}{close[0]}"?' if close else f"there are {', '.join(ANNOTATIONS)}"
    return f"there is no such annotation; {advice}"


def _by_metric(text: str, one: Callable[[str], T], metrics: tuple[str, ...]) -> dict[str, T]:
    """Returns the value for each metric: the one with its name, else the one without a name."""
    named: dict[str, T] = {}
    for part in text.split(","):
        name, equals, value = part.strip().rpartition("=")
        if equals and name not in metrics:
            raise ValueError(
                f"there is no metric {shown(name)} here; there are {', '.join(dict.fromkeys(metrics)) or 'none'}"
            )
        named[name] = one(value)
    return {name: named[name] if name in named else named[""] for name in metrics if name in named or "" in named}


def _timed(fallback: Fallback | None, after: timedelta | None) -> Fallback | None:
    if fallback is None or after is None or fallback.after is not None or fallback.kind == LAST_GOOD:
        return fallback
    return msgspec.structs.replace(fallback, after=after)


def _threshold(text: str) -> int:
    try:
        return parse_milli(text)
    except QuantityError:
        raise ValueError(f"{shown(text)} is not a number such as 5 or 500m") from None


def _duration(text: str) -> timedelta:
    parsed = duration.parse(text)
    if parsed < timedelta(0):
        raise ValueError(f"{shown(text)} is negative: a duration such as 3m is needed")
    return parsed


def _count(text: str, low: int, high: int) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise ValueError(f"{shown(text)} is not a whole number of {low} or more")
    return int(text)


Fallbacks = Callable[[Query], Fallback | None]
"""Returns the fallback that the settings of a query's source name, if any."""


def policies_of(hpa: HorizontalPodAutoscaler, fallbacks: Fallbacks | None) -> FallbackPolicies:
    """Returns the policy of each metric of the HPA, in order; none where neither it nor a source has any."""
    if fallbacks is None and not hpa.metadata.annotations:
        return NO_POLICIES
    metrics = compiled_spec(hpa).metrics
    own = from_annotations(hpa.metadata.annotations, [metric.name for metric in metrics])
    if fallbacks is None:
        return own
    offered = [None if metric.error is not None else fallbacks(metric.query) for metric in metrics]
    if not any(offered):
        return own
    policies = own.policies or (FallbackPolicy(),) * len(metrics)
    merged = tuple(
        each if each.fallback is not None else msgspec.structs.replace(each, fallback=fallback)
        for each, fallback in zip(policies, offered, strict=True)
    )
    return FallbackPolicies(merged, own.error)
