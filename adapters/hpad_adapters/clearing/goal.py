"""A goal in seconds, within which the backlog of a queue is to be gone, and what has to be measured of the queue."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec

from hpad.adapter import parse_duration, positive_duration, shown

Count = Annotated[int, msgspec.Meta(ge=0)]
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


class CounterPoint(msgspec.Struct, frozen=True):
    """A counter at a time (milliseconds since 1970)."""

    sample: Count
    timestamp: int


class MeasuredQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a queue as of now, and its counters over the last minutes.

    `place` tells it from other queues; `name` stands for it in sentences. `ready` messages can be got by new workers;
    `held` ones are with consumers. Of these `at_work` are worked on, None where that is not known exactly.
    `capacity`: how many messages the present consumers work on at once, None where `no_capacity` says why it is
    unknown. `single`: only one of the consumers gets messages.
    `published` and `done`: counters of messages that came and that were finished, in the order of time. `working`: how
    many messages consumers held then, or worked on where `at_work` is known, by the time.
    """

    place: Hashable
    name: str
    ready: float
    held: float
    at_work: float | None = None
    capacity: float | None = None
    no_capacity: str = ""
    single: bool = False
    published: Sequence[CounterPoint] = ()
    done: Sequence[CounterPoint] = ()
    working: Mapping[int, int] = {}
