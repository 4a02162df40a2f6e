"""The numbers and gates a decision depends on beside the HPA itself.

The names and defaults of kube-controller-manager 1.36 (`--horizontal-pod-autoscaler-*`, `--feature-gates`).
"""

from datetime import timedelta

import msgspec


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
