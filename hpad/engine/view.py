"""Everything that a decision about one HPA sees.

The numbers and gates a decision depends on beside the HPA itself.

The names and defaults of kube-controller-manager 1.36 (`--horizontal-pod-autoscaler-*`, `--feature-gates`).

Who else writes what an HPA writes, and counts that are decided but not written.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, Scale
from hpad.api.pod import Pod
from hpad.engine import conditions
from hpad.engine.fallback_policy import FallbackPolicy
from hpad.engine.history import History
from hpad.engine.spec import CompiledSpec, compiled_spec


class Gates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Feature gates. The first two are Kubernetes' own, with its defaults.

    The others leave out known defects of the original, each for itself; off reproduces the original exactly, as every
    replayed scenario does unless it names the gate.
    """

    HPAScaleToZero: bool = False
    HPAConfigurableTolerance: bool = True
    HPASucceededPodsIgnored: bool = True
    """Succeeded pods are dropped like failed ones (original: they count as missing and hold a scale-down)."""
    HPANegativeExternalSum: bool = True
    """A negative External sum proposes no replicas above the minimum (original: taken for an overflow, goes to max)."""
    HPAZeroStatusReplicas: bool = True
    """With zero status replicas no average is reported (original: divides by zero and writes garbage)."""
    HPAHugeProposals: bool = True
    """A proposal beyond an int32 is the largest int32 (original: for pods' metrics the most negative one, to min)."""

    HPAOwnZeroOnly: bool = True
    """A target is woken only if the HPA took it to zero and nothing has set it since (original: ScaledToZero stays True
    when another client sets the count, so that a target which was then stopped by hand is started again)."""
    HPATargetHistory: bool = True
    """What is remembered of one target says nothing of another that the HPA is pointed at (original: it is kept)."""

    HPAMissingContainerIgnored: bool = True
    """Pods without the container of a ContainerResource metric are left out, as the documentation of Kubernetes
    promises (original: the metric fails while any pod lacks the container, so that none can be renamed)."""

    HPAMinimumOfOne: bool = True
    """Without HPAScaleToZero metrics never ask for less than one replica (original: minReplicas 0, which its API server
    refuses then, takes the target to zero, where nothing wakes it)."""

    @classmethod
    def replayed(cls, named: dict[str, bool]) -> "Gates":
        """The gates of a recorded scenario: those not named are off. Unknown names raise TypeError."""
        off = dict.fromkeys(cls.__struct_fields__, False)
        return cls(**{**off, **named})


class Tunables(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon's flags say about decisions; a further number here needs the review of an API field."""

    tolerance: float = 0.1
    downscale_stabilization: timedelta = timedelta(seconds=300)
    cpu_initialization_period: timedelta = timedelta(seconds=300)
    initial_readiness_delay: timedelta = timedelta(seconds=30)
    gates: Gates = Gates()


HPA: Final = "hpa"
SCALE: Final = "scale"
STATUS: Final = "status"
UNNAMED: Final = "another client"


class Competitor(msgspec.Struct, frozen=True):
    """Another writer of an HPA's target or status.

    `what` is HPA (an HPA that is not hpad's scales the same target), SCALE (a client has set the target's replicas
    after hpad did) or STATUS (a client writes the status of the HPA). `name` is the HPA's namespace/name, or the
    client as `metadata.managedFields` names it (UNNAMED where it cannot be told).
    """

    what: str
    name: str

    def __str__(self) -> str:
        if self.what == HPA:
            return f"the HPA {self.name} of the API server scales the same target"
        if self.what == SCALE:
            return f"{self.name} sets the replicas of the target, too"
        return f"{self.name} writes the status of this HPA, too"


REASONS: Final = {HPA: "OtherHPA", SCALE: "ScaleWritten", STATUS: "StatusWritten"}
"""The reasons of the condition CompetingWriters, the gravest first."""


class Withheld(msgspec.Struct, frozen=True):
    """Why a decided count was not sent at all. `reason` is that of the condition AbleToScale, `message` says more.

    `able`: only hpad itself was told not to write, as in a dry run; the target could have been scaled.
    """

    reason: str
    message: str
    able: bool = True


DRY_RUN: Final = Withheld("DryRun", "this is a dry run")


def yielded(to: Competitor) -> Withheld:
    """A count that is left to the HPA of the API server that scales the same target."""
    return Withheld("CompetingHPA", f"{to}, and is left to it", able=False)


READ_FAILED: Final = "ReadFailed"
NO_MATCH: Final = "NoMatch"
STALE: Final = "Stale"


class ScaleError(msgspec.Struct, frozen=True):
    """Why the scale of the target is unknown.

    `reason` is READ_FAILED, NO_MATCH (the API server has no resource of the target's kind) or STALE (the scale was not
    read, because a cache of the cluster is out of date).
    """

    message: str
    reason: str = READ_FAILED


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a decision about one HPA depends on. `now` is the only time the engine knows.

    Either `scale` or `scale_error` is set. `pods` match the scale's selector, in the order of the list.
    `competing_hpas` are the names of the other HPAs in the namespace whose selectors match any of these pods.
    `fallback_policies` has one entry per metric, or none where the HPA has no policy; `fallback_error` says what is
    wrong with the annotations. `set_by_other`: a client that is no HPA controller has set the target's replicas after
    this HPA did. `competitors` are other writers of the target or of the HPA's status; they are reported and do not
    change a decision.
    """

    hpa: HorizontalPodAutoscaler
    now: datetime
    tunables: Tunables = Tunables()
    history: History = History()
    scale: Scale | None = None
    scale_error: ScaleError | None = None
    pods: Sequence[Pod] = ()
    competing_hpas: tuple[str, ...] = ()
    fallback_policies: tuple[FallbackPolicy, ...] = ()
    fallback_error: str | None = None
    set_by_other: bool = False
    competitors: tuple[Competitor, ...] = ()

    @property
    def spec(self) -> CompiledSpec:
        """What the spec asks for."""
        return compiled_spec(self.hpa)

    @property
    def replicas(self) -> int:
        """The replica count the target is set to; 0 where it is unknown."""
        return 0 if self.scale is None else self.scale.spec.replicas

    @property
    def scale_to_zero_disabled(self) -> bool:
        """Whether minReplicas is 0 while hpad must not take the last replica: it could not give it back."""
        gates = self.tunables.gates
        return gates.HPAMinimumOfOne and not gates.HPAScaleToZero and self.spec.min_replicas == 0

    @property
    def min_replicas(self) -> int:
        """The least that metrics may ask for."""
        return 1 if self.scale_to_zero_disabled else self.spec.min_replicas

    @property
    def scaled_to_zero(self) -> bool:
        """Whether the target has no replicas because this HPA took them away: only then may it give some back."""
        return self._marked_zero and not self.scaled_to_zero_is_outdated

    @property
    def scaled_to_zero_is_outdated(self) -> bool:
        """Whether ScaledToZero is True and no longer says how the target came to its count (HPAOwnZeroOnly).

        Each rescale of an HPA controller sets it, True where it took the last replica. So the count was set by another
        client where there are replicas, or where the last reconcile found some and left some.
        """
        if not self._marked_zero or not self.tunables.gates.HPAOwnZeroOnly:
            return False
        status = self.hpa.status
        left = min(status.current_replicas, status.desired_replicas)
        return self.replicas > 0 or left > 0 or self.set_by_other

    @property
    def _marked_zero(self) -> bool:
        held = conditions.find(self.hpa.status.conditions, conditions.SCALED_TO_ZERO)
        return self.tunables.gates.HPAScaleToZero and held is not None and held.status == conditions.TRUE
