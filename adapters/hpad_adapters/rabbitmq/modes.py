"""What can be asked of queues, and the operator's own metrics."""

import re
from typing import Literal, get_args

import msgspec

from hpad.adapter import shown

Mode = Literal[
    "messages",
    "ready",
    "unacked",
    "publish_rate",
    "deliver_rate",
    "ack_rate",
    "drain_time",
    "consumers",
    "utilisation",
]
Aggregate = Literal["sum", "max", "avg", "min"]
OnMissing = Literal["error", "zero"]
OnStalled = Literal["hold", "up"]

MODES: tuple[str, ...] = get_args(Mode)
AGGREGATES: tuple[str, ...] = get_args(Aggregate)
COUNTS = frozenset({"messages", "ready", "unacked"})
"""Modes that the broker counts at once; all others come from its statistics, which are up to five seconds old."""
UNSUMMABLE = frozenset({"drain_time", "utilisation"})
"""Modes whose sum over queues means nothing: two queues that take a minute each are gone in a minute."""
ANY_VHOST = "*"


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A metric by a name of the operator's choice. What it leaves open, an HPA's selector may say.

    queue: one queue, by its name; queues: several; queue_regex: all that the pattern matches as a whole, case and all.
        With none of the three the selector must say `queue`.
    exclude_regex: takes some away again from those of a queue_regex.
    vhost: one, or a list; "*" with a queue_regex is all that the user may see.
    mode: messages, ready, unacked (counts); publish_rate, deliver_rate, ack_rate (a second); drain_time (seconds until
        the queue is empty at the rate of delivery); consumers; utilisation (the share of time in which no consumer
        could take another message, 0 to 1: it grows when consumers are too few). Counts are as of now; the others come
        from the broker's statistics, which are five seconds old, those of a new queue ten.
    include_unacked: false leaves out, of messages and drain_time, what consumers hold already.
    aggregate: of several queues: sum, max, avg or min; without it sum, or max for drain_time and utilisation.
    on_missing_queue, on_stalled: as those of the source, for this metric.
    """

    queue: str = ""
    queues: list[str] = []
    queue_regex: str = ""
    exclude_regex: str = ""
    vhost: str | list[str] = []
    mode: Mode | None = None
    include_unacked: bool = True
    aggregate: Aggregate | None = None
    on_missing_queue: OnMissing | None = None
    on_stalled: OnStalled | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("queue", "queues", "queue_regex") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"{given[1]}: {' and '.join(given)} are given; one of them is enough")
        if self.exclude_regex and not self.queue_regex:
            raise ValueError("exclude_regex: takes queues away from those of a queue_regex, but there is none")
        for name in ("queue_regex", "exclude_regex"):
            compiled(name, getattr(self, name))
        if ANY_VHOST in self.vhosts and (not self.queue_regex or len(self.vhosts) > 1):
            raise ValueError(f'vhost: "{ANY_VHOST}" stands for all vhosts and needs a queue_regex')
        if self.aggregate == "sum" and self.mode in UNSUMMABLE:
            raise ValueError(f"aggregate: a sum of {self.mode} means nothing; write max, avg or min")

    @property
    def vhosts(self) -> tuple[str, ...]:
        """The vhosts it names; none: the selector's, or the source's."""
        named = [self.vhost] if isinstance(self.vhost, str) else self.vhost
        return tuple(name for name in named if name)

    @property
    def names(self) -> tuple[str, ...]:
        """The queues it names."""
        return (self.queue,) if self.queue else tuple(self.queues)


def compiled(field: str, pattern: str) -> re.Pattern[str] | None:
    """The pattern, None for an empty one; raises ValueError."""
    try:
        return re.compile(pattern) if pattern else None
    except re.error as error:
        raise ValueError(f"{field}: {shown(pattern)} is not a regular expression: {error}") from None
