"""The past of one HPA, as far as it can be read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.engine.annotations import PLAIN
from hpad.simulation.backlog import Rates
from hpad.simulation.history import Column, LoadHistory


class MetricReading(NamedTuple):
    """Where the values of one metric are from.

    `source`: in a few words ("cAdvisor and the requests", "the status of the HPA", "hpad's history"), "" if it has
    none. `expression`: the PromQL, "" without one. `problem`: why there are no values, "" if there are.
    """

    source: str
    expression: str = ""
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class HpaPast:
    """What is known of one HPA over a time.

    `hpa` has the spec of now. `load` has the metrics that could be read by their addresses (`engine.addresses`), in
    the units of their metric targets, and `replicas`, the current count of the status; a metric that could not be
    read has no column. All other columns have the times of `load`.
    """

    hpa: HorizontalPodAutoscaler
    load: LoadHistory
    desired: Column
    """The desired count of the status."""
    minimum: Column
    """spec.minReplicas as it was, which may have been another one than now."""
    maximum: Column
    failing: Mapping[str, Column] = field(default_factory=dict)
    """1 where the HPA could not read metrics or its target, by reason: FailedGetResourceMetric, or the name of the
    condition (ScalingActive) where the reason is not known; 0 where it could; None where nothing is known."""
    readings: Mapping[str, MetricReading] = field(default_factory=dict)
    """By the address of the metric; each metric of the spec has one."""
    unrequested: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By the address of a Resource or ContainerResource metric: containers without a request for it."""
    queues: Mapping[str, Rates] = field(default_factory=dict)
    """By the address of a metric that is the backlog of a queue: the columns of its rates in `load`."""
    seen: Mapping[str, Column] = field(default_factory=dict)
    """By the address of a Resource or ContainerResource metric: its value in the status, which the HPA decided on.

    It is that of ready pods, so that times the replicas it is no load while others start.
    """
    samples: int = 0
    """Values read for it."""
    problem: str = ""
    """Why nothing could be read of it; "" otherwise."""

    @property
    def is_paused(self) -> bool:
        """Whether an annotation (`hpad.io/mode`, `hpad.io/paused-until`) pauses the HPA at the end of the time."""
        own = PLAIN.of(self.hpa).controls
        return bool(own.texts) and own.is_paused(self.load.end)
