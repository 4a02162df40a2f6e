"""Is there anything to measure?"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from hpad.api import selector
from hpad.api.hpa import HorizontalPodAutoscaler, Scale
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, Query
from hpad.api.selector import Selector, SelectorError
from hpad.model import conditions
from hpad.model import intent as intents
from hpad.model.goal import Goal
from hpad.model.history import History
from hpad.model.intent import Intent
from hpad.model.terms import Terms
from hpad.model.tunables import Tunables
from hpad.model.writers import Competitor

UNREACHABLE: Final = "unreachable"
STALE_CACHE: Final = "StaleCache"
DISABLED: Final = "disabled"
UNOBSERVABLE: Final = "unobservable"
ZERO_DISABLED: Final = "ScaleToZeroDisabled"
"""A reason of its own for what only the feature gate HPAScaleToZero can change."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a decision about one HPA sees; `now` is the only time there is.

    `scale` or `scale_error` (the text of the error that reading it gave) is set; with `stale` it was not read at all,
    since what is known of the cluster is too old, and `scale_error` says of what. `pods` are those that match the
    scale's selector, in the order they were listed; `rivals` the names of other HPAs of the namespace whose own
    selectors match any of them. `terms` are those of each metric beyond the API, () where there are none; `terms_flaw`
    says what is wrong with how they were put. `set_by_other`: a client that is no HPA controller is known to have set
    the target's replicas since this HPA did. `competitors` are other writers of the target or of the HPA's status;
    they do not change a decision.
    """

    hpa: HorizontalPodAutoscaler
    now: datetime
    tunables: Tunables = Tunables()
    history: History = History()
    scale: Scale | None = None
    scale_error: str | None = None
    stale: bool = False
    pods: Sequence[Pod] = ()
    rivals: tuple[str, ...] = ()
    terms: tuple[Terms, ...] = ()
    terms_flaw: str | None = None
    set_by_other: bool = False
    competitors: tuple[Competitor, ...] = ()

    @property
    def intent(self) -> Intent:
        """What the spec asks for."""
        return intents.of(self.hpa)

    @property
    def replicas(self) -> int:
        """The replica count the target is set to; 0 where it is unknown."""
        return 0 if self.scale is None else self.scale.spec.replicas

    @property
    def zero_is_off(self) -> bool:
        """Whether minReplicas is 0 while hpad must not take the last replica: it could not give it back."""
        gates = self.tunables.gates
        return gates.HPAMinimumOfOne and not gates.HPAScaleToZero and self.intent.min_replicas == 0

    @property
    def min_replicas(self) -> int:
        """The least that metrics may ask for."""
        return 1 if self.zero_is_off else self.intent.min_replicas

    @property
    def woken_from_zero(self) -> bool:
        """Whether the target has no replicas because this HPA took them away: only then may it give some back."""
        return self._marked_zero and not self.stale_zero

    @property
    def stale_zero(self) -> bool:
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


class Halt(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing can or may be measured; the target stays as it is.

    `kind` is unreachable (its scale can't be read, or what is known is too old), disabled (it was set to zero) or
    unobservable (its pods can't be told). `reason` and `message` are those of the condition, `event` the reason of the
    event and `text` its message.
    """

    kind: str
    reason: str
    message: str
    event: str = ""
    text: str = ""
    spec_error: bool = False

    def __str__(self) -> str:
        if self.kind == DISABLED:
            return f"keep 0: scaling is disabled while the target is set to zero replicas{self.text}"
        return f"cannot decide: {self.text}"


class Clamp(msgspec.Struct, frozen=True):
    """The replica count lies outside min and max: it is set to the nearer one, whatever the metrics say."""

    replicas: int
    reason: str

    def __str__(self) -> str:
        return f"the {'maximum' if 'above' in self.reason else 'minimum'} is {self.replicas}"


class Proceed(msgspec.Struct, frozen=True):
    """The metrics decide."""

    goals: tuple[Goal, ...]
    pods: Selector

    @property
    def queries(self) -> tuple[Query | AdapterError, ...]:
        """What to ask, one entry per metric of the spec and in its order; an error where there is nothing to ask."""
        return tuple(
            msgspec.structs.replace(goal.query, pods=self.pods if goal.of_pods else None)
            if goal.flaw is None
            else AdapterError(goal.flaw, blame="spec")
            for goal in self.goals
        )

    def __str__(self) -> str:
        return f"{len(self.goals)} metrics to measure over the pods of {self.pods}"


Verdict = Proceed | Clamp | Halt


def examine(view: View) -> Verdict:
    """Decide whether metrics are needed at all; the order of the checks is that of the HPA controller."""
    intent, scale = view.intent, view.scale
    if intent.version_flaw is not None:
        return _unreachable(intent.version_flaw, spec_error=True)
    if scale is None or view.scale_error is not None:
        text = view.scale_error or "the target's scale is unknown"
        return _stale(text) if view.stale else _unreachable(text, spec_error=False)
    current = scale.spec.replicas
    if current == 0:
        if not (view.woken_from_zero and (intent.min_replicas != 0 or intent.wakes)):
            return _DISABLED_FOR_GOOD if view.zero_is_off else _DISABLED
    elif current > intent.max_replicas:
        return Clamp(intent.max_replicas, "Current number of replicas above Spec.MaxReplicas")
    elif current < intent.min_replicas:
        return Clamp(intent.min_replicas, "Current number of replicas below Spec.MinReplicas")
    return _observe(view, intent, scale.status.selector)


def _observe(view: View, intent: Intent, text: str) -> Proceed | Halt:
    """Tell the target's pods, or why they can't be told."""
    if not text:
        return _NO_SELECTOR
    try:
        pods = selector.parse(text)
    except SelectorError as error:
        flaw = f"couldn't convert selector into a corresponding internal selector object: {error}"
        return _unobservable("InvalidSelector", flaw)
    if view.rivals:
        namespace, name = intent.key
        names = " ".join(sorted(f"{namespace}/{rival}" for rival in {name, *view.rivals}))
        flaw = f"pods by selector {text} are controlled by multiple HPAs: [{names}]"
        return _unobservable("AmbiguousSelector", flaw)
    return Proceed(intent.goals, pods)


def _unreachable(text: str, *, spec_error: bool) -> Halt:
    message = f"the HPA controller was unable to get the target's current scale: {text}"
    event = "FailedGetScale"
    return Halt(kind=UNREACHABLE, reason=event, message=message, event=event, text=text, spec_error=spec_error)


def _stale(text: str) -> Halt:
    """A reason of its own: nothing is wrong with the target, and alerts are to tell the two apart."""
    message = f"the HPA controller does not decide on what may be out of date: {text}"
    return Halt(kind=UNREACHABLE, reason=STALE_CACHE, message=message, event=STALE_CACHE, text=text)


def _unobservable(reason: str, text: str) -> Halt:
    return Halt(kind=UNOBSERVABLE, reason=reason, message=text, event=reason, text=text)


_DISABLED: Final = Halt(
    kind=DISABLED,
    reason="ScalingDisabled",
    message="scaling is disabled since the replica count of the target is zero",
)
_DISABLED_FOR_GOOD: Final = Halt(
    kind=DISABLED,
    reason=ZERO_DISABLED,
    message=(
        "scaling is disabled since the replica count of the target is zero; minReplicas 0 does not wake it while the"
        " feature gate HPAScaleToZero is off"
    ),
    text="; minReplicas 0 does not wake it without the feature gate HPAScaleToZero",
)
_NO_SELECTOR: Final = Halt(
    kind=UNOBSERVABLE,
    reason="InvalidSelector",
    message="the HPA target's scale is missing a selector",
    event="SelectorRequired",
    text="selector is required",
)
