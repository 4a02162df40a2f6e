"""The trace of one decision: every number that determined the replica count, from the samples to the write.

It is the format of the API and of `hpad explain -o json`. Amounts are Kubernetes quantities, exact to milli-units
("250m"); the amounts of a Utilization target are percentages ("50"). Times are RFC 3339 in UTC; durations are seconds.
"""

from datetime import datetime
from typing import Final

import msgspec

from hpad.api.hpa import KIND, CrossVersionObjectReference, key_of
from hpad.api.metadata import Key
from hpad.engine.budget import Budgeted
from hpad.engine.conditions import Event
from hpad.engine.deletion_costs import Spared
from hpad.engine.spare import WithSpare
from hpad.engine.trace.metric_types import MetricTrace, Step
from hpad.engine.turn import TimingTrace

WRITTEN: Final = "written"
FAILED: Final = "failed"
UNCERTAIN: Final = "uncertain"
WITHHELD: Final = "withheld"
"""The outcomes of a write. UNCERTAIN: the last attempt may or may not have been carried out."""

UP: Final = "up"
DOWN: Final = "down"


class NextBoundsTrace(Step, frozen=True):
    """The bounds that the schedule of the HPA sets from `at` on."""

    at: datetime
    min: int
    max: int


class ScheduleTrace(Step, frozen=True):
    """The schedule of the HPA as written, and the bounds outside its windows."""

    text: str
    min: int
    max: int


class ReplicasTrace(Step, frozen=True):
    """The counts of the target (`current`: spec.replicas, `observed`: status.replicas), and the bounds of the HPA.

    `min` is the lowest count that metrics may ask for. `desired` is the decided count. `zero_disabled`: minReplicas is
    0, which counts as 1 while the feature gate HPAScaleToZero is off. `schedule`: the open windows that set `min` and
    `max`, with their ends ("": none). `windows` is the whole schedule, and
    `next_bounds` the bounds that it sets next (None: they stay). In shadow mode
    `current`, `observed` and `desired` are those of the shadow, and `target` is the count of the target; None in other
    modes.
    """

    current: int
    observed: int
    min: int
    max: int
    desired: int
    zero_disabled: bool = False
    schedule: str = ""
    windows: ScheduleTrace | None = None
    next_bounds: NextBoundsTrace | None = None
    target: int | None = None


class PauseTrace(Step, frozen=True):
    """The pause of the HPA. `until` is its end, None where it lasts until the HPA is active again."""

    until: datetime | None = None


class HaltTrace(Step, frozen=True):
    """Why nothing was measured: the scale is unknown, the target is stopped, or its pods are unknown."""

    kind: str
    reason: str
    message: str


class ChosenTrace(Step, frozen=True):
    """The recommendation: the largest proposal and its metric, and the number of metrics that failed.

    `policy` is the metric policy of the HPA with the addresses of the metrics ("": the largest proposal). `combined`:
    `replicas` is not what `metric` proposes, but a sum, a share, or the current count. `metric` and `replicas` are None
    where the count stays because metrics failed.
    """

    invalid: int
    metric: str | None = None
    replicas: int | None = None
    error: str = ""
    policy: str = ""
    combined: bool = False


class RecommendationTrace(Step, frozen=True):
    """A past recommendation. Of several with the same count, the latest stands for all.

    `uncertain`: it may stand for lost ones, and counts with the present count of the target.
    """

    time: datetime
    replicas: int
    uncertain: bool = False


class StabilizationTrace(Step, frozen=True):
    """The stabilization windows: the counts before and after them, and the past recommendations they look at.

    Without spec.behavior there is no window for scaling up (`up_window_seconds` is None). `held_by` is the
    recommendation that changed the count; it counts until `frees_at`. `first`: the HPA is new, so its current count
    stands for its past.
    """

    recommended: int
    stabilized: int
    down_window_seconds: float
    up_window_seconds: float | None = None
    recommendations: tuple[RecommendationTrace, ...] = ()
    held_by: RecommendationTrace | None = None
    frees_at: datetime | None = None
    first: bool = False


class PolicyTrace(Step, frozen=True):
    """One scaling policy: the count at the start of its period, and the count it allows now.

    `used` pods of its budget are used up by rescales within the period; the oldest of them leaves it at `frees_at`.
    """

    type: str
    value: int
    period_seconds: float
    start: int
    allows: int
    used: int
    frees_at: datetime | None = None


class PoliciesTrace(Step, frozen=True):
    """The limit of one step: the policies of one direction, and the count they allow.

    `select` is Max, Min or Disabled; "" without spec.behavior, where the limit is twice the count, or 4.
    """

    direction: str
    allows: int
    limited: bool
    select: str = ""
    rules: tuple[PolicyTrace, ...] = ()


class ScalingPolicyTrace(Step, frozen=True):
    """A scaling policy of the spec: a change of at most `value` pods, or percent, within the period."""

    type: str
    value: int
    period_seconds: float


class DirectionTrace(Step, frozen=True):
    """The rules of one direction with all defaults: `select` is Max, Min or Disabled."""

    window_seconds: float
    select: str = ""
    policies: tuple[ScalingPolicyTrace, ...] = ()


class BehaviorTrace(Step, frozen=True):
    """The rules for each direction. Without spec.behavior `up` is None, and `down` is a window alone."""

    down: DirectionTrace
    up: DirectionTrace | None = None


class RescaleTrace(Step, frozen=True):
    """A past rescale: the number of pods added or removed. `uncertain`: it may not have happened."""

    time: datetime
    change: int
    uncertain: bool = False


class PastTrace(Step, frozen=True):
    """The rescales that the policies look at.

    `recommendations` are those that the windows look at, where `stabilization` does not have them.
    """

    scale_ups: tuple[RescaleTrace, ...] = ()
    scale_downs: tuple[RescaleTrace, ...] = ()
    recommendations: tuple[RecommendationTrace, ...] = ()


class BoundsTrace(Step, frozen=True):
    """Minimum and maximum: which of them changed the count ("minimum", "maximum", "": none), and to what.

    `applied` is "last_replica", and `why` says why, where the last replica has to stay for a while.
    """

    before: int
    after: int
    applied: str = ""
    why: str = ""


class WriteTrace(Step, frozen=True):
    """The write of the scale: every count that was sent, the outcome, and the reason of a failure.

    `outcome` is written, failed, uncertain (it may or may not have been carried out) or withheld. `withheld` is the
    reason of the condition where nothing was sent: DryRun, Shadow, Paused or CompetingHPA.
    """

    outcome: str
    attempts: tuple[int, ...] = ()
    reason: str = ""
    withheld: str = ""


class StageTrace(Step, frozen=True):
    """A stage from the metrics to the written count, in words: the count after it (None: there is none), and why.

    `stage` is now, halt, metrics, spare, windows, policies, bounds, budget, busy or write, and `label` its
    name for people. `held_by` is the reason, as in the series, for which the target does not get the count that its
    metrics ask for ("": not because of this stage).
    """

    stage: str
    label: str
    replicas: int | None = None
    text: str = ""
    more: tuple[str, ...] = ()
    held_by: str = ""


class Trace(Step, frozen=True):
    """One decision, stage by stage. A stage that was not reached is None.

    `kind` is HorizontalPodAutoscaler or Autoscaler. `sentence` says the same in one sentence, and `stages` in one line
    each. `action` is scale_up, scale_down or none. `reason` is that of the rescale event ("": none). `error` is the
    error of the reconcile. `behavior` and `past`, where metrics were measured, are the rules for both directions and
    what they look at. `gates` are the feature gates that are on.
    """

    namespace: str
    name: str
    time: datetime
    sentence: str
    action: str
    target: CrossVersionObjectReference
    replicas: ReplicasTrace
    kind: str = msgspec.field(default_factory=lambda: KIND)
    stages: tuple[StageTrace, ...] = ()
    pause: PauseTrace | None = None
    reason: str = ""
    error: str = ""
    halt: HaltTrace | None = None
    metrics: tuple[MetricTrace, ...] = ()
    chosen: ChosenTrace | None = None
    spare: WithSpare | None = None
    behavior: BehaviorTrace | None = None
    past: PastTrace | None = None
    stabilization: StabilizationTrace | None = None
    policies: PoliciesTrace | None = None
    bounds: BoundsTrace | None = None
    budgeted: Budgeted | None = None
    spared: Spared | None = None
    write: WriteTrace | None = None
    events: tuple[Event, ...] = ()
    timing: TimingTrace | None = None
    gates: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        return key_of(self.namespace, self.name, self.kind)
