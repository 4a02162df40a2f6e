"""What is said of one HPA: facts, faults, how far the model can be trusted, and what would have been better."""

import enum
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from hpad.api.metadata import Key
from hpad.engine.view import Tunables
from hpad.simulation.advice.past import MetricReading
from hpad.simulation.history import DAY
from hpad.simulation.thinning import MetricChart, Steps


class AdviceOptions(NamedTuple):
    """How advice is found. Durations are in seconds.

    `period` between reconciles, `startup` until a replica is ready, `lag` until a value is seen. `budget`: the share of
    replica-hours that less overload may cost. `saving`: the least share of them that is worth an advice.
    """

    tunables: Tunables
    period: float = 15.0
    startup: float = 30.0
    lag: float = 15.0
    budget: float = 0.25
    saving: float = 0.15


class HpaFault(enum.StrEnum):
    """A kind of fault; the value is its name in JSON, in links and in filters."""

    AT_MAXIMUM = "at-maximum"
    """At the maximum for hours while the metrics ask for more."""
    FLAPPING = "flapping"
    """The count goes up and down again in a sawtooth that the load does not ask for."""
    IDLE_MINIMUM = "idle-minimum"
    """The minimum is far above what the load needs."""
    GOAL_LOW = "goal-low"
    """The metric target is so low that most of what is paid for does nothing."""
    GOAL_HIGH = "goal-high"
    """The metric target is so high that pods are overloaded before more are there."""
    WINDOW_SHORT = "window-short"
    """Replicas are removed and needed again soon after, as the window of scale-downs is short."""
    WINDOW_USELESS = "window-useless"
    """A stabilization window that costs replicas or time and prevents nothing."""
    POLICY_SLOW = "policy-slow"
    """A policy or window delays scale-ups so that the load is above the goal."""
    REQUESTS_MISSING = "requests-missing"
    """Containers without the request that a utilization needs."""
    METRIC_FAILING = "metric-failing"
    """Metrics could not be read for a part of the time."""
    MINIMUM_IS_MAXIMUM = "minimum-is-maximum"
    """minReplicas equals maxReplicas: the HPA never scales."""
    QUEUE_SLOW = "queue-slow"
    """A queue stays above its goal although replicas could be added."""
    GOAL_BELOW_ONE_POD = "goal-below-one-pod"
    """Each pod exceeds the goal however many there are."""
    NOT_SCALING = "not-scaling"
    """The metrics ask for more replicas for hours, and nothing in the spec keeps it from scaling."""
    PAUSED = "paused"
    """An annotation of hpad pauses the HPA, so nothing scales it."""


class Severity(enum.StrEnum):
    """How much a fault matters, the most severe first."""

    ERROR = "error"
    """It does not scale, or the load is not served."""
    WARNING = "warning"
    """Something is lost: replicas, time above goal, or calm."""
    NOTE = "note"
    """Worth knowing; nothing is lost now."""


class FoundFault(msgspec.Struct, frozen=True):
    """One fault of one HPA. `text` is a sentence with the figures that show it, without the name of the HPA.

    `brief` is its core for a line of 100 characters; "" where the text is short enough.
    """

    fault: HpaFault
    severity: Severity
    text: str
    brief: str = ""


class Sawtooth(msgspec.Struct, frozen=True):
    """Rescales in turn up and down: the longest such series.

    `rescales` is their number; several in one direction, one soon after the other, are one.
    """

    begin: datetime
    end: datetime
    rescales: int
    lowest: int
    highest: int


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the past shows without a model. Durations are in seconds; None where the past does not tell."""

    seconds: float
    """The time with a known replica count; all else is within it."""
    replica_seconds: float
    lowest: int
    highest: int
    at_maximum: float
    """With the count at the maximum, while it was above the minimum."""
    longest_at_maximum: float
    at_minimum: float
    above_goal: float | None
    """With a metric above its goal beyond the tolerance."""
    rescales: int
    flaps: int
    """Rescales within five minutes after one in the other direction."""
    sawtooth: Sawtooth | None
    failing: Mapping[str, float]
    """Seconds by reason."""
    idle: float | None
    """Replica-seconds above what the work took with the goals of now, bounds left out; None where that is not known."""
    peak: int | None
    """The highest count that the metrics asked for with the goals of now, bounds left out."""
    measured: float = 0.0
    """The time in which the metrics told what they asked for."""
    starved: float | None = None
    """At the maximum with a metric above its goal beyond the tolerance."""
    held_back: float | None = None
    """Below the maximum with fewer replicas than the metrics asked for, for three minutes or longer."""
    unread: float = 0.0
    """The time in which the HPA could not read a metric or its target, for any reason."""
    regretted: int = 0
    """Scale-downs by 15 % or more, but not to zero, that were followed by a scale-up within ten minutes."""
    exceeded: tuple[str, ...] = ()
    """The addresses of metrics that each pod exceeds however many there are."""
    unrequested: Mapping[str, Sequence[str]] = {}
    """Containers without the request that a metric needs, by its address."""

    @property
    def days(self) -> float:
        return self.seconds / DAY

    @property
    def hides_load(self) -> bool:
        """Whether the metrics have values that do not tell how many replicas the load needed (PastRecord.need)."""
        return self.idle is None and self.peak is not None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """How one spec did over a part of the past, by the model. Durations are in seconds."""

    seconds: float
    replica_seconds: float
    above_goal: float
    """With a metric above its goal beyond the tolerance."""
    overloaded: float
    """With a metric above its level of overload, which is the same for all candidates (`overload`)."""
    rescales: int
    flaps: int
    lowest: int
    highest: int


class Level(enum.StrEnum):
    """How far the model is trusted."""

    GOOD = "good"
    FAIR = "fair"
    """Advice is given, with a warning."""
    POOR = "poor"
    """No advice, only facts."""
    UNKNOWN = "unknown"
    """There is too little to judge the model by: the same."""


class ModelTrust(msgspec.Struct, frozen=True):
    """How well the spec of now, run over the load, gives the replica curve that was.

    `agreement` is 1 less the area between both curves over the area below the recorded one; None without a curve.
    `text` is one sentence with the reason.
    """

    agreement: float | None
    level: Level
    text: str

    @property
    def suffices(self) -> bool:
        """Whether advice is given."""
        return self.level in (Level.GOOD, Level.FAIR)


class SettingChange(msgspec.Struct, frozen=True):
    """One changed setting: its path as for `--set`, its value before (None: not set) and after."""

    path: str
    before: Any
    after: Any


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that would have served better.

    They are chosen on the first days (`before`, `after`), and checked on the last ones (`checked_before`,
    `checked_after`), which a past of less than two days does not have: those figures are then of no time at all.
    """

    changes: tuple[SettingChange, ...]
    text: str
    """One sentence: the changes, what they save, and what they risk."""
    before: Figures
    after: Figures
    checked_before: Figures
    checked_after: Figures

    @property
    def is_checked(self) -> bool:
        """Whether there are days on which the advice was checked."""
        return self.checked_before.seconds > 0

    @property
    def saved(self) -> float:
        """The share of the replica-hours of all days that is saved; negative if it costs more."""
        before = self.before.replica_seconds + self.checked_before.replica_seconds
        after = self.after.replica_seconds + self.checked_after.replica_seconds
        return 1 - after / before if before else 0.0


Curve = Sequence[tuple[float, int]]
"""Times in seconds since 1970, and the replica count from then on; only changes and the last time."""


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn of one HPA, thinned to the width of a chart. Times are in seconds since 1970.

    `metrics`: the one nearest to its goal, or farthest above it, first. `minimum` and `maximum` as they were.
    """

    begin: float
    end: float
    metrics: tuple[MetricChart, ...]
    recorded: Steps
    modelled: Steps
    advised: Steps
    minimum: Steps
    maximum: Steps


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """All that is said of one HPA."""

    key: Key
    facts: Facts
    findings: tuple[FoundFault, ...]
    trust: ModelTrust
    advice: Advice | None
    verdict: str
    """One line: what matters most."""
    readings: Mapping[str, MetricReading]
    unadvised: str = ""
    """Why there is no advice for the faults: one sentence; "" with advice, and where there are notes at the most."""
    notes: tuple[str, ...] = ()
    """What was assumed: the model of the load of each metric."""
    samples: int = 0
    """Values read for it."""
    chart: Chart | None = None
    """None: there is no time in the past."""


class NotAssessed(msgspec.Struct, frozen=True):
    """An HPA of which nothing can be said. `problem` is a sentence."""

    key: Key
    problem: str
