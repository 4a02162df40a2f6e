"""A queue as the goal in seconds sees it, whatever the broker."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]


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
