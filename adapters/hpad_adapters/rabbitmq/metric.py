"""A metric that the operator defines on a RabbitMQ source."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, get_args

import msgspec

from hpad.adapter import shown
from hpad_adapters import selection
from hpad_adapters.clearing.goal import GOAL, ClearingGoal, parsed_goal

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
    "workers_to_clear",
    "time_to_clear",
    "growth",
    "head_age",
    "lag",
]
Aggregate = Literal["sum", "max", "avg", "min"]
OnMissing = Literal["error", "zero"]
OnStalled = Literal["hold", "up"]
NoOffset = Literal["error", "earliest", "latest"]

LAG, WORKERS = "lag", "workers_to_clear"
"""The modes of streams."""
MODES: tuple[str, ...] = tuple(mode for mode in get_args(Mode) if mode != LAG)
"""The modes of queues."""
AGGREGATES: tuple[str, ...] = get_args(Aggregate)
COUNTS = frozenset({"messages", "ready", "unacked"})
"""Modes that the broker counts as of now. All others come from its statistics, which are up to five seconds old."""
CLEARING = frozenset({"workers_to_clear", "time_to_clear"})
"""Modes with a goal in seconds."""
EXTENDED = frozenset({"utilisation", "head_age"})
"""Modes that need statistics of which there are many per queue: the plugin is asked for them apart."""
UNSUMMABLE = frozenset({"drain_time", "utilisation", "time_to_clear", "head_age"})
"""Modes whose sum over queues has no meaning: two queues that drain in a minute each are both empty after a minute."""
ANY_VHOST = "*"
_NOT_OF_STREAMS = ("exclude_regex", "aggregate", "on_missing_queue", "on_stalled", "prefetch")


class MetricFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fields of a metric of the operator that an Autoscaler may write as well."""

    queue: str = ""
    queues: list[str] = []
    vhost: str | list[str] = []
    mode: Mode | None = None
    include_unacked: bool = True
    aggregate: Aggregate | None = None
    on_missing_queue: OnMissing | None = None
    on_stalled: OnStalled | None = None
    goal: str = ""
    startup: str = ""
    service_time: str = ""
    prefetch: Annotated[int, msgspec.Meta(ge=1)] | None = None
    concurrency: Annotated[int, msgspec.Meta(ge=1)] | None = None
    stream: str = ""
    group: str = ""
    offset_reset_policy: NoOffset | None = None


class Metric(MetricFields, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A metric that the operator defines. An HPA's selector may set what it leaves open.

    queue: one queue, by its name; queues: several; queue_regex: all queues whose whole name matches, case-sensitive,
        but delay queues (docs/rabbitmq.md). Without any of the three the selector must name the `queue`.
    exclude_regex: leaves out queues that queue_regex matches.
    vhost: one, or a list; "*" with a queue_regex stands for all vhosts that the user may see.
    mode: messages (ready and unacknowledged), ready, unacked (counts); publish_rate, deliver_rate, ack_rate (per
        second); drain_time (seconds until the queue is empty at the rate of delivery); consumers; utilisation (the
        share of time, 0 to 1, in which no consumer could take another message: it grows when consumers are too few).
        Counts are as of now. The others come from the broker's statistics, which are five seconds old, or ten for a new
        queue.
        workers_to_clear (the workers that clear the backlog within `goal` while messages are published as now) and
        time_to_clear (seconds: `goal`, times those workers by the present ones): docs/rabbitmq.md.
        growth (messages per second, below zero while the queue shrinks). head_age (seconds since the oldest message was
        published; of classic queues without priorities whose publishers set the property timestamp: docs/rabbitmq.md).
    include_unacked: false leaves messages that consumers hold out of messages and drain_time.
    aggregate: of several queues: sum, max, avg or min; by default sum, or max for drain_time, utilisation,
        time_to_clear and head_age.
    on_missing_queue, on_stalled: as for the source, for this metric.
    stream: a stream or super stream, by its name, instead of queues; group: the name of its consumers. mode is lag
        (messages behind the stored offset of the group), or workers_to_clear, which needs service_time then:
        docs/rabbitmq.md. offset_reset_policy: as for the source, for this metric.
    goal: the time in which the backlog is to be gone, such as "60s". startup: how much of it passes until new workers
        work. service_time: how long a message takes, until the broker's statistics show it.
    prefetch: how many messages a consumer holds for each that it works on; concurrency: how many it works on at once.
    """

    queue_regex: str = ""
    exclude_regex: str = ""

    def __post_init__(self) -> None:
        present = [name for name in ("queue", "queues", "queue_regex", "stream") if getattr(self, name)]
        if len(present) > 1:
            raise ValueError(f"{present[1]}: write only one of {' and '.join(present)}")
        if self.exclude_regex and not self.queue_regex:
            raise ValueError("exclude_regex: leaves out queues of a queue_regex, but there is none")
        for name in ("queue_regex", "exclude_regex"):
            compiled(name, getattr(self, name))
        if ANY_VHOST in self.vhosts and (not self.queue_regex or len(self.vhosts) > 1):
            raise ValueError(f'vhost: "{ANY_VHOST}" stands for all vhosts and needs a queue_regex')
        if self.aggregate == "sum" and self.mode in UNSUMMABLE:
            raise ValueError(f"aggregate: a sum of {self.mode} has no meaning; write max, avg or min")
        self._check_stream()
        self._check_goal()

    def _check_goal(self) -> None:
        clearing = {WORKERS} if self.of_stream else CLEARING
        if self.mode is not None and self.mode not in clearing:  # without a mode, a selector may name it
            for name in GOAL:
                if getattr(self, name):
                    raise ValueError(f"{name}: belongs to {' and '.join(sorted(clearing))}, not to {self.mode}")
        if self.goal:
            self.goal_with({})

    def _check_stream(self) -> None:
        if not self.of_stream:
            if self.offset_reset_policy:
                raise ValueError("offset_reset_policy: belongs to a metric with stream and group")
            return
        if self.names or self.queue_regex:
            raise ValueError("queue: write queues, or stream and group")
        if self.mode not in (None, LAG, WORKERS):
            raise ValueError(f"mode: of a stream there are {LAG} and {WORKERS}, not {self.mode}")
        for name in _NOT_OF_STREAMS:
            if getattr(self, name):
                raise ValueError(f"{name}: has no effect on a stream; leave it out")

    @property
    def of_stream(self) -> bool:
        """Whether the metric is about a stream."""
        return bool(self.stream or self.group) or self.mode == LAG

    @property
    def vhosts(self) -> tuple[str, ...]:
        """The vhosts that the metric names, () where the selector or the source names them."""
        named = [self.vhost] if isinstance(self.vhost, str) else self.vhost
        return tuple(name for name in named if name)

    @property
    def names(self) -> tuple[str, ...]:
        """The queues that the metric names."""
        return (self.queue,) if self.queue else tuple(self.queues)

    def goal_with(self, selected: Mapping[str, str]) -> ClearingGoal:
        """Returns the goal, with what a selector sets; raises ValueError, "field: text"."""
        return parsed_goal({name: selected.get(name) or str(getattr(self, name) or "") for name in GOAL})


class OwnQueues(MetricFields, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A metric that an Autoscaler brings along.

    queue: one queue, by its name; queues: several. vhost: one, or a list. Names in `queues` and `vhosts` of the source
        stand for others there, as in selectors, and only_queues and only_vhosts hold. stream: a stream or super stream
        instead of queues; group: the name of its consumers.
    All other fields are those of a metric that the operator defines.
    """

    def __post_init__(self) -> None:
        """Raises ValueError."""
        metric = self.as_metric
        if metric.of_stream and not (metric.stream and metric.group):
            raise ValueError("stream: write both stream and group")
        if not metric.names and not metric.of_stream:
            raise ValueError("queue: is missing; write queue or queues, or stream and group")

    @property
    def as_metric(self) -> Metric:
        """The same as a metric of the configuration; raises ValueError."""
        return Metric(**msgspec.structs.asdict(self))


def compiled(field: str, pattern: str) -> re.Pattern[str] | None:
    """Returns the compiled pattern, None for an empty one; raises ValueError."""
    try:
        return selection.pattern(pattern) if pattern else None
    except re.error as error:
        raise ValueError(f"{field}: {shown(pattern)} is not a regular expression: {error}") from None
