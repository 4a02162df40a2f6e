"""The input of a decision about one HPA, and the settings and feature gates it depends on."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, MetricStatus, Scale
from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.api.selector import Selector
from hpad.engine import conditions, schedule
from hpad.engine.controls import NO_CONTROLS, Controls
from hpad.engine.fallback_policy import FallbackPolicy
from hpad.engine.history import History
from hpad.engine.schedule import Bounds
from hpad.engine.spec import CompiledMetric, CompiledSpec, compiled_spec


class Gates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Feature gates. The first two are those of Kubernetes, with its defaults (pkg/features/kube_features.go).

    Each of the others fixes one known defect of Kubernetes; off means the behavior of Kubernetes 1.36. A replayed
    scenario has all gates off that it does not name.
    """

    HPAScaleToZero: bool = False
    HPAConfigurableTolerance: bool = True
    HPASucceededPodsIgnored: bool = True
    """Succeeded pods are dropped like failed ones (Kubernetes: they count as missing and limit a scale-down)."""
    HPANegativeExternalSum: bool = True
    """A negative External sum proposes no replicas above the minimum (Kubernetes: to max, as after an overflow)."""
    HPAZeroStatusReplicas: bool = True
    """With zero status replicas no average is reported (Kubernetes divides by zero)."""
    HPAHugeProposals: bool = True
    """A proposal, a count that a policy allows, or a percentage beyond an int32 is the largest int32.

    Kubernetes wraps them around, and the sum of a Utilization beyond an int64, too: it scales to the minimum, or a
    policy such as 2147483647 pods lets nothing grow (kubernetes/kubernetes#141397, #142192).
    """

    HPASpecReplicasKept: bool = True
    """Within the tolerance a metric with an average per replica of the whole target keeps the count of the spec.

    Kubernetes takes that of the status, so that the surplus pod of a rolling update stays for good
    (kubernetes/kubernetes#138505).
    """
    HPASurplusPodsIgnored: bool = True
    """Ready pods beyond the replicas of the spec do not count for a Value metric.

    Kubernetes multiplies the ratio by all of them: by the surge of a rolling update, by pods that end, and by a canary
    on top of the replicas, which takes the target to its maximum (argoproj/argo-rollouts#2857).
    """
    HPANoReadyPodsKept: bool = True
    """While no pod is ready, the ratio of a Value metric says nothing, and the count stays.

    Kubernetes multiplies the ratio by zero ready pods, and scales an overloaded target to the minimum
    (kubernetes/kubernetes#130130). A value of 0 asks for 0 with any number of pods.
    """

    HPAOwnZeroOnly: bool = True
    """Zero replicas are left only if the HPA took the last one and no other client has set the count since.

    In Kubernetes ScaledToZero stays True when another client sets the count, so a target that is stopped by hand later
    is started again.
    """
    HPATargetHistory: bool = True
    """The history belongs to one target, and starts empty when the HPA gets another target (Kubernetes keeps it)."""

    HPAMissingContainerIgnored: bool = True
    """Pods without the container of a ContainerResource metric are left out, as the Kubernetes documentation says.

    In Kubernetes the metric fails while any pod lacks the container, so no container can be renamed.
    """

    InPlacePodVerticalScaling: bool = True
    """While a pod is resized in place, the requests count that its node applies, as its status has them.

    Kubernetes takes those of the spec, which nothing may ever apply (kubernetes/kubernetes#142157).
    """
    HPAPodOverheadIgnored: bool = True
    """The overhead of a RuntimeClass is no part of pod-level requests, as no usage contains it.

    As in Kubernetes since kubernetes/kubernetes#142154; 1.36 adds it, and scales late.
    """

    HPAMinimumOfOne: bool = True
    """Without HPAScaleToZero metrics never ask for less than one replica.

    In Kubernetes minReplicas 0, which its API server rejects without the gate, scales the target to zero for good.
    """

    @classmethod
    def replayed(cls, named: dict[str, bool]) -> "Gates":
        """Returns the gates of a recorded scenario: those it does not name are off. Unknown names raise TypeError."""
        off = dict.fromkeys(cls.__struct_fields__, False)
        return cls(**{**off, **{name: on for name, on in named.items() if name not in REMOVED_GATES}})


REMOVED_GATES: Final = {"HPAZeroTakenOver": "was removed, since no API server records who has set a scale of 0"}
"""Gates of hpad that recordings may name, and why they are gone."""


class Tunables(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that change decisions, with the defaults of kube-controller-manager 1.36."""

    tolerance: float = 0.1
    downscale_stabilization: timedelta = timedelta(seconds=300)
    cpu_initialization_period: timedelta = timedelta(seconds=300)
    initial_readiness_delay: timedelta = timedelta(seconds=30)
    gates: Gates = Gates()

    def of_hpa(self, own: Controls) -> "Tunables":
        """Returns the settings with the periods that an HPA sets for itself."""
        initialization, delay = own.initialization_period, own.readiness_delay
        if initialization is None and delay is None:
            return self
        return msgspec.structs.replace(
            self,
            cpu_initialization_period=self.cpu_initialization_period if initialization is None else initialization,
            initial_readiness_delay=self.initial_readiness_delay if delay is None else delay,
        )


HPAD: Final = "hpad"
"""hpad as a manager in metadata.managedFields: its user agent up to the first slash."""

HPA: Final = "hpa"
SCALE: Final = "scale"
STATUS: Final = "status"
UNNAMED: Final = "another client"


class Competitor(msgspec.Struct, frozen=True, gc=False):
    """Another writer of an HPA's target or status.

    `what` is HPA (an HPA of the API server scales the same target), SCALE (a client set the target's replicas after
    hpad did) or STATUS (a client writes the status of the HPA). `name` is namespace/name of the HPA, or the manager in
    `metadata.managedFields` (UNNAMED where there is none).
    """

    what: str
    name: str

    def __str__(self) -> str:
        if self.what == HPA:
            return f"the HPA {self.name} of the API server scales the same target"
        if self.what == SCALE:
            return f"{self.name} sets the replicas of the target, too"
        return f"{self.name} writes the status of this HPA, too"


COMPETING_REASONS: Final = {HPA: "OtherHPA", SCALE: "ScaleWritten", STATUS: "StatusWritten"}
"""The reasons of the condition CompetingWriters, the most severe first."""


class Withheld(msgspec.Struct, frozen=True, gc=False):
    """Why a decided count was not sent. `reason` and `message` belong to the condition AbleToScale.

    `able`: the target could have been scaled, but hpad is not allowed to, as in a dry run.
    """

    reason: Literal["DryRun", "Shadow", "Paused", "CompetingHPA"]
    message: str
    able: bool = True


DRY_RUN: Final = Withheld("DryRun", "this is a dry run")
SHADOW: Final = Withheld("Shadow", "the HPA is in shadow mode")


class Shadow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What is real for an HPA in shadow mode, which decides for a count of its own and writes nothing to its target.

    `withheld` is why: DRY_RUN or SHADOW. `replicas` and `observed` are spec.replicas and status.replicas of the target,
    the count of the HPA's status where they are unknown. `metrics` are the values of its pods, None where none were
    measured. All else in the View of such an HPA, its answers and its history belong to the count of its own
    (`hpad.engine.shadow`).
    """

    withheld: Withheld
    replicas: int
    observed: int
    metrics: tuple[MetricStatus, ...] | None = None


def paused(until: datetime | None) -> Withheld:
    """Returns the reason for leaving the count of a paused HPA alone; `until` None: until it is active again."""
    return Withheld(PAUSED, "the HPA is paused" + ("" if until is None else f" until {until:%Y-%m-%dT%H:%M:%SZ}"))


PAUSED: Final = "Paused"


def yielded(to: Competitor) -> Withheld:
    """Returns the reason for leaving the count to the HPA of the API server that scales the same target."""
    return Withheld("CompetingHPA", f"{to}, and is left to it", able=False)


def yields_to(competitors: tuple[Competitor, ...]) -> Withheld | None:
    """Returns why the target is left to another HPA; None if no other HPA scales it."""
    return next((yielded(competitor) for competitor in competitors if competitor.what == HPA), None)


READ_FAILED: Final = "ReadFailed"
ABSENT: Final = "Absent"
NO_MATCH: Final = "NoMatch"
STALE: Final = "Stale"
TOO_LARGE: Final = "TooLarge"


class ScaleError(msgspec.Struct, frozen=True, gc=False):
    """Why the scale of the target is unknown.

    `reason` is READ_FAILED, ABSENT (the target does not exist), NO_MATCH (the API server has no resource of its kind),
    STALE (the scale was not read, because a cache of the cluster is out of date) or TOO_LARGE (its pods are too many to
    be compared).
    """

    message: str
    reason: str = READ_FAILED


_OF_HPA: Final[Any] = None


class View(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Everything that a decision about one HPA depends on. `now` is the only time the engine knows.

    Either `scale` or `scale_error` is set. `pods` match the scale's selector, in the order of the list.
    `overlapping_hpas` are the names of the other HPAs in the namespace whose selectors match any of these pods.
    `fallback_policies` has one entry per metric, or none where the HPA has no policy; `annotation_error` are the errors
    in the annotations under `hpad.io/`, and `annotation_reason` is the reason of the condition HpadAnnotationsValid
    (None: the condition is absent). `set_by_other`: a client that is no HPA controller has set the target's replicas
    after this HPA did. `zero_by`: the client that set the target to zero, by metadata.managedFields; "" if that is not
    known, as after any write of a scale of 0, whose JSON has no replicas (k8s.io/api, autoscaling/v1: ScaleSpec), or
    if there are replicas. `competitors` are other writers of the target or of the HPA's status; they are
    reported and do not change a decision. `values_held`: a change of measured values alone does not change the status
    in this turn. `controls` are those of the HPA; `tunables` have its own periods already. `shadow` is set in shadow
    mode. `spec` is always the compiled one of `hpa`, whatever is passed.
    """

    hpa: HorizontalPodAutoscaler
    now: datetime
    tunables: Tunables = Tunables()
    history: History = History()
    scale: Scale | None = None
    scale_error: ScaleError | None = None
    pods: Sequence[Pod] = ()
    overlapping_hpas: tuple[str, ...] = ()
    fallback_policies: tuple[FallbackPolicy, ...] = ()
    annotation_error: str | None = None
    annotation_reason: str | None = None
    set_by_other: bool = False
    zero_by: str = ""
    competitors: tuple[Competitor, ...] = ()
    values_held: bool = False
    controls: Controls = NO_CONTROLS
    shadow: Shadow | None = None
    spec: CompiledSpec = _OF_HPA

    def __post_init__(self) -> None:
        # Once for each View: a turn reads it in some fifteen places.
        msgspec.structs.force_setattr(self, "spec", compiled_spec(self.hpa))

    def window(self, *, up: bool) -> timedelta:
        """Returns the stabilization window of one direction; without spec.behavior there is none for growth."""
        behavior = self.spec.behavior
        own = None if behavior is None else (behavior.up if up else behavior.down).window
        return (timedelta(0) if up else self.tunables.downscale_stabilization) if own is None else own

    @property
    def counted_pods(self) -> Sequence[Pod]:
        """The pods with the requests that count, as the gates say: those in force, and without an overhead."""
        for pod in self.pods:
            if pod.other_requests is not None:
                return [_with_counted_requests(each, self.tunables.gates) for each in self.pods]
        return self.pods

    def chosen_by(self, metric: CompiledMetric) -> Selector | None:
        """Returns the labels of the pods that a metric is about (`hpad.io/pods`); None: it is about all of them."""
        return None if self.controls.pods is None else self.controls.pods.of(metric)

    def pods_of(self, metric: CompiledMetric) -> Sequence[Pod]:
        """Returns the pods that a metric is about, with the requests that count."""
        pods, selector = self.counted_pods, self.chosen_by(metric)
        return pods if selector is None else [pod for pod in pods if selector.matches(pod.labels)]

    @property
    def key(self) -> Key:
        """The key of the HPA, one object for all turns with the same spec."""
        return self.spec.key

    @property
    def paused(self) -> Withheld | None:
        """Why the HPA itself wants nothing to be written now; None if it does not."""
        own = self.controls
        return paused(own.paused_until) if own.texts and own.is_paused(self.now) else None

    @property
    def replicas(self) -> int:
        """The replica count to decide for, in shadow mode that of the shadow; 0 where the scale is unknown."""
        return 0 if self.scale is None else self.scale.spec.replicas

    @property
    def target_replicas(self) -> int:
        """The replica count of the target, also in shadow mode; 0 where the scale is unknown."""
        return self.replicas if self.shadow is None or self.scale is None else self.shadow.replicas

    @property
    def keeps_last(self) -> bool:
        """Whether the last replica has times of its own (`hpad.engine.zero`)."""
        return self.controls.zero_after is not None or self.controls.initial_delay is not None

    @property
    def scale_to_zero_disabled(self) -> bool:
        """Whether minReplicas is 0 without the gate HPAScaleToZero: a target at zero could not be scaled up again."""
        gates = self.tunables.gates
        return self.hpa.spec.min_replicas == 0 and gates.HPAMinimumOfOne and not gates.HPAScaleToZero

    @property
    def bounds(self) -> Bounds:
        """Minimum and maximum at this time, by the spec and the HPA's schedule."""
        spec, windows = self.spec, self.controls.schedule
        if windows is None:
            return spec.bounds
        return schedule.bounds(windows, self.now, spec.min_replicas, spec.max_replicas)

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest and the highest count that metrics may ask for."""
        bounds = self.bounds
        return max(1, bounds.low) if self.scale_to_zero_disabled else bounds.low, bounds.high

    @property
    def min_replicas(self) -> int:
        """The lowest count that metrics may ask for."""
        return self.limits[0]

    @property
    def max_replicas(self) -> int:
        """The highest count that metrics may ask for."""
        return self.bounds.high

    @property
    def scaled_to_zero(self) -> bool:
        """Whether this HPA took the last replica: only then may it scale the target up from zero (KEP-2021)."""
        if self.shadow is not None and self.shadow.replicas > 0:  # only hpad changes the count of a shadow
            return self.tunables.gates.HPAScaleToZero and self.replicas == 0
        return self._marked_scaled_to_zero and not self.scaled_to_zero_is_outdated

    @property
    def zero_stays(self) -> str:
        """Why a target at zero is not woken although its HPA is meant to; "" where Kubernetes' own rule says enough."""
        gates = self.tunables.gates
        if self.hpa.spec.min_replicas != 0 or not (gates.HPAScaleToZero and gates.HPAOwnZeroOnly):
            return ""
        setter = f"{self.zero_by} has set it" if self.zero_by else "nothing tells who has set it"
        return f"{setter}, and metrics wake only what the HPA has put to sleep"

    @property
    def scaled_to_zero_is_outdated(self) -> bool:
        """Whether ScaledToZero is True although another client has set the count since (HPAOwnZeroOnly).

        Every rescale by an HPA controller sets the condition, True where it took the last replica. So another client
        set the count where there are replicas now, or where the last reconcile left some.
        """
        if not self._marked_scaled_to_zero or not self.tunables.gates.HPAOwnZeroOnly:
            return False
        status = self.hpa.status
        # The smaller one: after scaling to zero, currentReplicas is still the count before (horizontal.go: setStatus).
        reported = min(status.current_replicas, status.desired_replicas)
        return self.target_replicas > 0 or reported > 0 or self.set_by_other

    @property
    def _marked_scaled_to_zero(self) -> bool:
        if not self.tunables.gates.HPAScaleToZero:
            return False
        condition = conditions.find(self.hpa.status.conditions, conditions.SCALED_TO_ZERO)
        return condition is not None and condition.status == conditions.TRUE


def _with_counted_requests(pod: Pod, gates: Gates) -> Pod:
    other = pod.other_requests
    if other is None:
        return pod
    chosen = other if gates.InPlacePodVerticalScaling else pod
    whole = chosen.pod_requests
    if whole is not None and not gates.HPAPodOverheadIgnored:
        names = {**whole, **other.overhead}
        whole = {name: whole.get(name, 0) + other.overhead.get(name, 0) for name in names}
    return msgspec.structs.replace(pod, containers=chosen.containers, pod_requests=whole, other_requests=None)
