"""A goal in seconds: the time within which the backlog of a queue is to be gone."""

from collections.abc import Mapping
from typing import NamedTuple

from hpad.adapter import parse_duration, positive_duration, shown

GOAL = ("goal", "startup", "service_time", "prefetch", "concurrency")
"""The parameters of a goal."""
_MOST = 100_000


class ClearingGoal(NamedTuple):
    """Durations in seconds. `service`: the time of a message while none was measured, 0 if it is not given.

    `prefetch`: messages that a consumer holds for each that it works on; `concurrency`: those that it works on at once.
    """

    seconds: float
    startup: float = 0.0
    service: float = 0.0
    prefetch: int = 1
    concurrency: int = 1


def parsed_goal(texts: Mapping[str, str]) -> ClearingGoal:
    """Returns the goal that texts by parameter set, "" for the default; raises ValueError, "field: text"."""
    if not texts["goal"]:
        raise ValueError("goal: is missing; write the time in which the backlog is to be gone, such as 60s")
    seconds = positive_duration("goal", texts["goal"]).total_seconds()
    startup = _duration("startup", texts["startup"])
    if not 0 <= startup < seconds:
        raise ValueError(f"startup: {shown(texts['startup'])} is not between 0s and the goal of {texts['goal']}")
    service = positive_duration("service_time", texts["service_time"] or "1s").total_seconds()
    prefetch, concurrency = (_whole(name, texts[name]) for name in ("prefetch", "concurrency"))
    return ClearingGoal(seconds, startup, service if texts["service_time"] else 0.0, prefetch, concurrency)


def _duration(field: str, text: str) -> float:
    try:
        return parse_duration(text or "0s").total_seconds()
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None


def _whole(field: str, text: str) -> int:
    if text and (not text.isdecimal() or not 1 <= int(text) <= _MOST):
        raise ValueError(f"{field}: {shown(text)} is not a whole number from 1 to {_MOST}")
    return int(text or 1)
