"""Fallback policies: what a metric proposes while it fails, and from which value on it counts as active.

They come from annotations of the HPA (`hpad.engine.annotations`), else from the settings of the metric source
(`fallback:`). Without them a failing metric has the effect it has in Kubernetes. docs/reference/annotations.md
describes the policies.

A policy may end in ` after DURATION` ("replicas:5 after 60s"), which replaces the failure duration. `replicas` follows
KEP-5679 (`fallback.replicas`, `failureDurationSeconds`), for metrics of all types; the others go beyond it.
`at-least` and `at-most` are the larger and the smaller one of N and the current count (KEDA: currentReplicasIfHigher
and currentReplicasIfLower). No policy hides the failure.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec

from hpad.api import duration
from hpad.api.sample import Query
from hpad.api.text import shown

HOLD: Final = "hold"
REPLICAS: Final = "replicas"
AT_LEAST: Final = "at-least"
AT_MOST: Final = "at-most"
COUNTED: Final = (REPLICAS, AT_LEAST, AT_MOST)
"""The kinds that have a number of replicas."""
LAST_GOOD: Final = "last-good"
IGNORE: Final = "ignore"
DEFAULT_AFTER: Final = timedelta(seconds=180)
MOST_SECONDS: Final = 10**9
"""Of a failure duration; a number of 64 bits would not fit into a timedelta."""

_POLICY = re.compile(r"(?P<kind>[a-z-]+)(:(?P<value>[^ ]+))?( after (?P<after>[^ ]+))?")
_FORMS: Final = "hold, ignore, replicas:N, at-least:N, at-most:N or last-good:AGE, such as replicas:5 or last-good:10m"
_MOST: Final = 2**31 - 1
_MOST_DIGITS: Final = 10


class Fallback(msgspec.Struct, frozen=True, kw_only=True):
    """One policy. `after` is None where the failure duration applies (last-good: at once)."""

    kind: str
    replicas: int = 0
    age: timedelta = timedelta()
    after: timedelta | None = None

    def __str__(self) -> str:
        counts = dict.fromkeys(COUNTED, f":{self.replicas}")
        value = {**counts, LAST_GOOD: f":{duration.write(self.age)}"}.get(self.kind, "")
        return f"{self.kind}{value}" + ("" if self.after is None else f" after {duration.write(self.after)}")


class FallbackPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The fallback and the activation threshold, in milli-units, of one metric."""

    fallback: Fallback | None = None
    activation: int | None = None


Fallbacks = Callable[[Query], Fallback | None]
"""Returns the fallback that the settings of a query's source name, if any."""


def parse(text: str) -> Fallback:
    """Parses one policy. Raises ValueError that names the valid forms."""
    match = _POLICY.fullmatch(text.strip())
    kind, value, after = match.group("kind", "value", "after") if match else ("", None, None)
    needs_value = {HOLD: False, IGNORE: False, LAST_GOOD: True, **dict.fromkeys(COUNTED, True)}
    if needs_value.get(kind) is not (value is not None):
        raise ValueError(f"{shown(text)} is not one of {_FORMS}")
    delay = None if after is None else _duration(after)
    if kind in COUNTED:
        return Fallback(kind=kind, replicas=whole_number(value or "", 1, _MOST), after=delay)
    age = _duration(value) if value is not None else timedelta()
    return Fallback(kind=kind, age=age, after=delay)


def whole_number(text: str, low: int, high: int) -> int:
    """Parses a number written in digits. Raises ValueError outside of `low` to `high`."""
    if len(text) > _MOST_DIGITS or not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise ValueError(f"{shown(text)} is not a whole number of {low} or more")
    return int(text)


def _duration(text: str) -> timedelta:
    parsed = duration.parse(text)
    if parsed < timedelta(0):
        raise ValueError(f"{shown(text)} is negative: a duration such as 3m is needed")
    return parsed
