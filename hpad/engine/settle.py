"""Stage settle: from the decision and the outcome of the write to status, conditions, events and history.

Source of conditions, events and error texts: Kubernetes 1.36, horizontal.go: reconcileAutoscaler.
"""

import functools
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from hpad.api.hpa import ExternalMetricStatus, HorizontalPodAutoscalerStatus, MetricStatus
from hpad.api.sample import EXTERNAL
from hpad.engine import marks, zero
from hpad.engine.conditions import (
    ABLE_TO_SCALE,
    FALLBACK_ACTIVE,
    FALSE,
    NORMAL,
    SCALED_TO_ZERO,
    SCALING_ACTIVE,
    SCALING_LIMITED,
    TRUE,
    Event,
    differs_in_values_alone,
    find,
    same,
    truncated_to_seconds,
    without_condition,
)
from hpad.engine.decision import Decision
from hpad.engine.examine import DISABLED, UNREACHABLE, Halt
from hpad.engine.history import History, LastSample, PastRecommendation, Rescale
from hpad.engine.marks import Draft
from hpad.engine.propose import Proposal, metric_status
from hpad.engine.recommend import last_samples
from hpad.engine.view import Shadow, View, Withheld

NONE = "none"
INTERNAL = "internal"
SPEC = "spec"
SCALE_UP = "scale_up"
SCALE_DOWN = "scale_down"
NOT_WRITTEN = "; not written: "
"""Between a decision and the reason why it was not written, in a sentence."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The outcome of writing the scale: every count that was sent, and the last error.

    Without an error the count was written, unless it was `withheld`: then nothing was sent. `unsure`: after this error
    the last count may or may not have been written.
    """

    attempts: tuple[int, ...]
    error: str | None = None
    withheld: Withheld | None = None
    unsure: bool = False

    @property
    def written(self) -> bool:
        """Whether the target has the count now."""
        return self.error is None and self.withheld is None

    @property
    def failure(self) -> str | None:
        """Why the target does not have the count; None where it has."""
        return self.error if self.withheld is None else self.withheld.message


class Settlement(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The results of a reconcile.

    `status` is to be written where `status_changed` (`is_to_write`); `events` are in order. `error` is the
    text for the log. `action`, `error_label` and `metric_computations` ([type, action, error] per metric) are label
    values of series.
    `rescaled`: the target was scaled. In shadow mode `action` is the decided one, and `rescaled` is False.
    """

    status: HorizontalPodAutoscalerStatus
    status_changed: bool
    events: tuple[Event, ...]
    history: History
    error: str | None
    action: str
    error_label: str
    metric_computations: tuple[tuple[str, str, str], ...]
    rescaled: bool = False

    def __str__(self) -> str:
        return self.error or f"{self.action}: {self.status.current_replicas} -> {self.status.desired_replicas}"


def sentence(decision: Decision, outcome: Outcome | None) -> str:
    """Returns the decision as one sentence, with the reason why it was not written."""
    failure = None if outcome is None else outcome.failure
    return str(decision) if failure is None else f"{decision}{NOT_WRITTEN}{failure}"


_SCALE_READ: Final = ("SucceededGetScale", "the HPA controller was able to get the target's current scale")
"""Reason and message of AbleToScale where no metric was measured."""


def settle(view: View, decision: Decision, outcome: Outcome | None) -> Settlement:
    """Returns the results of the reconcile. `outcome` is None where there was nothing to write.

    Raises ValueError where decision and outcome do not fit.
    """
    if (decision.scale_to is None) != (outcome is None):
        raise ValueError(f"decision ({decision}) and outcome ({outcome}) do not belong together")
    generation = view.hpa.metadata.generation or None
    draft = Draft(view.hpa.status.conditions, [], truncated_to_seconds(view.now), generation)
    # With the metrics and counts of the previous status: nothing is known of the target.
    if isinstance(decision.verdict, Halt) and decision.verdict.kind == UNREACHABLE:
        return _unreachable(view, draft, decision, decision.verdict)
    draft.condition(ABLE_TO_SCALE, TRUE, *(_SCALE_READ if decision.restrained is None else decision.restrained.able))
    _unmark_zero(view, draft)
    if isinstance(decision.verdict, Halt):
        return _halted(view, draft, decision, decision.verdict)
    for proposal in decision.proposals:
        if proposal.error is not None:
            draft.warn(proposal.metric.wording.reason, proposal.error)
    _mark_fallback(view, draft, decision)
    if decision.undecided:
        return _undecided(view, draft, decision)
    _explain(draft, decision)
    marks.mark_budget(draft, decision)
    marks.mark_spared(view, draft, decision)
    if outcome is None:
        return _settlement(view, draft, decision, desired=decision.desired, error=_partial(decision))
    if outcome.error is not None:
        return _not_written(view, draft, decision, outcome.error)
    if outcome.withheld is not None:
        return _withheld(view, draft, decision, outcome.withheld)
    return _written(view, draft, decision)


def _unreachable(view: View, draft: Draft, decision: Decision, verdict: Halt) -> Settlement:
    draft.condition(ABLE_TO_SCALE, FALSE, verdict.reason, verdict.message)
    draft.warn(verdict.event, verdict.text)
    marks.mark_own(view, draft, None)
    observed = draft.generation or view.hpa.status.observed_generation
    status = msgspec.structs.replace(view.hpa.status, conditions=draft.conditions, observed_generation=observed)
    return Settlement(
        status=status,
        status_changed=is_to_write(view, status),
        events=tuple(draft.events),
        history=view.history,
        error=verdict.error,
        action=NONE,
        error_label=SPEC if verdict.spec_error else INTERNAL,
        metric_computations=(),
    )


def _halted(view: View, draft: Draft, decision: Decision, verdict: Halt) -> Settlement:
    draft.condition(SCALING_ACTIVE, FALSE, verdict.reason, verdict.message)
    if verdict.kind == DISABLED:
        if not view.tunables.gates.HPAScaleToZero:
            draft.conditions = without_condition(draft.conditions, SCALED_TO_ZERO)
        return _settlement(view, draft, decision, desired=decision.desired)
    draft.warn(verdict.event, verdict.text)
    return _not_computed(view, draft, decision, verdict.text)


def _undecided(view: View, draft: Draft, decision: Decision) -> Settlement:
    recommendation = decision.recommendation
    error = "" if recommendation is None else recommendation.error or ""
    failed = None if recommendation is None else recommendation.failed
    reason, cause = ("NoMetrics", error) if failed is None else (failed.metric.wording.reason, failed.error)
    draft.condition(SCALING_ACTIVE, FALSE, reason, f"the HPA was unable to compute the replica count: {cause}")
    return _not_computed(view, draft, decision, error)


def _not_computed(view: View, draft: Draft, decision: Decision, text: str) -> Settlement:
    draft.warn("FailedComputeMetricsReplicas", text)
    error = f"failed to compute desired number of replicas based on listed metrics for {view.spec.reference}: {text}"
    return _settlement(view, draft, decision, desired=view.hpa.status.desired_replicas, error=error)


def _explain(draft: Draft, decision: Decision) -> None:
    """Sets the conditions from recommendation and limits; only what hpad adds to them where no metric was measured.

    Each is set once: the time of its transition would be that of this turn if it was set to False and then to True.
    """
    recommendation, restrained, held = decision.recommendation, decision.restrained, marks.limit(decision)
    if recommendation is not None and recommendation.leader is not None and restrained is not None:
        draft.condition(SCALING_ACTIVE, TRUE, "ValidMetricFound", _found(recommendation.source))
        if held is None:
            draft.condition(SCALING_LIMITED, TRUE if restrained.is_limited else FALSE, *restrained.limited)
    if held is not None:
        draft.condition(SCALING_LIMITED, TRUE, *held)


@functools.lru_cache(maxsize=1 << 10)
def _found(source: str) -> str:
    """Returns the message of ScalingActive; the conditions of all HPAs with the same metric share it."""
    return f"the HPA was able to successfully calculate a replica count from {source}"


def _partial(decision: Decision) -> str | None:
    """Returns the error of the metrics that failed while others decided."""
    return None if decision.recommendation is None else decision.recommendation.error


def _not_written(view: View, draft: Draft, decision: Decision, error: str) -> Settlement:
    text = f"New size: {decision.desired}; reason: {decision.reason}; error: {error}"
    draft.warn("FailedRescale", text, _detail(decision))
    message = f"the HPA controller was unable to update the target scale: {error}"
    draft.condition(ABLE_TO_SCALE, FALSE, "FailedUpdateScale", message)
    text = f"failed to rescale {view.spec.reference}: {error}"
    return _settlement(view, draft, decision, desired=view.hpa.status.desired_replicas, error=text)


def _withheld(view: View, draft: Draft, decision: Decision, withheld: Withheld) -> Settlement:
    """The status gives the decided count; the history has no rescale, since nothing was written."""
    desired = decision.desired
    message = f"the HPA controller did not update the target scale to {desired}: {withheld.message}"
    before = find(view.hpa.status.conditions, ABLE_TO_SCALE)
    if not withheld.able and before is not None and before.status == FALSE:
        # It stays False: with the time of the True that was set before, the status would be written in each turn.
        draft.conditions = tuple([before if each.type == ABLE_TO_SCALE else each for each in draft.conditions])
    draft.condition(ABLE_TO_SCALE, TRUE if withheld.able else FALSE, withheld.reason, message)
    action = _direction(decision) if withheld.able else NONE
    return _settlement(view, draft, decision, desired=desired, error=_partial(decision), action=action)


def _detail(decision: Decision) -> str:
    """Returns what the event of a rescale does not say in Kubernetes: the count before it, and the whole reason."""
    return f"from {decision.current}: {decision.why}"


def _direction(decision: Decision) -> str:
    return SCALE_UP if decision.desired > decision.current else SCALE_DOWN


def _written(view: View, draft: Draft, decision: Decision) -> Settlement:
    desired = decision.desired
    message = f"the HPA controller was able to update the target scale to {desired}"
    draft.condition(ABLE_TO_SCALE, TRUE, "SucceededRescale", message)
    text = f"New size: {desired}; reason: {decision.reason}"
    draft.events.append(Event(NORMAL, "SuccessfulRescale", text, _detail(decision)))
    _mark_zero(view, draft, decision)
    error, action = _partial(decision), _direction(decision)
    return _settlement(view, draft, decision, desired=desired, error=error, action=action, rescaled=True)


def _mark_zero(view: View, draft: Draft, decision: Decision) -> None:
    """Sets ScaledToZero: whether this HPA took the last replica, so that it may scale up again (KEP-2021)."""
    # At each rescale, even far from zero: a condition that stays True would later wake a stopped target.
    spec = view.spec
    if not view.tunables.gates.HPAScaleToZero:
        draft.conditions = without_condition(draft.conditions, SCALED_TO_ZERO)
    elif decision.current > 0 and decision.desired == 0 and spec.min_replicas == 0 and spec.has_object_or_external:
        message = "the HPA controller scaled the workload to zero"
        draft.condition(SCALED_TO_ZERO, TRUE, "ScaledToZero", message)
    else:
        message = "the HPA controller did not scale the workload to zero"
        draft.condition(SCALED_TO_ZERO, FALSE, "NotScaledToZero", message)


def _unmark_zero(view: View, draft: Draft) -> None:
    """Clears ScaledToZero where another client has set the count, so that zero stays zero (HPAOwnZeroOnly)."""
    if view.scaled_to_zero_is_outdated:
        message = "another client has set the replica count since the HPA controller scaled the workload to zero"
        draft.condition(SCALED_TO_ZERO, FALSE, "NotScaledToZero", message)


def _mark_fallback(view: View, draft: Draft, decision: Decision) -> None:
    """Sets the condition ExternalMetricFallbackActive (KEP-5679); none without a fallback policy."""
    if view.annotation_error is not None:
        draft.warn("InvalidAnnotation", view.annotation_error)
    policies = view.fallback_policies
    if not policies or not any(policy.fallback is not None for policy in policies):
        draft.conditions = without_condition(draft.conditions, FALLBACK_ACTIVE)
        return
    replaced = [proposal for proposal in decision.proposals if proposal.fallback]
    if not replaced:
        message = "no metric of the HPA is replaced by a fallback"
        draft.condition(FALLBACK_ACTIVE, FALSE, "NoFallback", message)
        return
    named = [f"{proposal.metric.label}: {proposal.error}" for proposal in replaced]
    draft.condition(FALLBACK_ACTIVE, TRUE, "FallbackActive", f"a fallback stands in for {'; '.join(named)}")


def _settlement(
    view: View,
    draft: Draft,
    decision: Decision,
    *,
    desired: int,
    error: str | None = None,
    action: str = NONE,
    rescaled: bool = False,
) -> Settlement:
    """Closes with a new status; currentMetrics is null where no metric was measured."""
    marks.mark_own(view, draft, decision.desired)
    metrics = _metrics(view, decision) if decision.recommendation is not None else None
    status = HorizontalPodAutoscalerStatus(
        observed_generation=draft.generation,
        last_scale_time=draft.now if rescaled else view.hpa.status.last_scale_time,
        current_replicas=decision.current,
        desired_replicas=desired,
        current_metrics=metrics,
        conditions=draft.conditions,
    )
    if view.shadow is not None:
        status = _real(status, view.shadow)
    # In shadow mode each decided rescale counts, as if it had been written.
    counts = rescaled or (view.shadow is not None and decision.scale_to is not None)
    return Settlement(
        status=status,
        status_changed=is_to_write(view, status),
        events=tuple(draft.events),
        history=next_history(view, decision, rescaled=counts),
        error=error,
        action=action,
        error_label=NONE if error is None else INTERNAL,
        metric_computations=tuple([_computation(proposal, _counted(view)) for proposal in decision.proposals]),
        rescaled=rescaled,
    )


def _metrics(view: View, decision: Decision) -> tuple[MetricStatus, ...]:
    """Returns currentMetrics; a metric whose spec has a fallback says whether that stands in for it (KEP-5679)."""
    found = tuple(map(metric_status, decision.proposals))
    if not view.spec.has_fallback:
        return found
    known = last_samples(view, decision.proposals)
    return tuple([_with_fallback(*each) for each in zip(found, decision.proposals, known, strict=True)])


def _with_fallback(status: MetricStatus, proposal: Proposal, known: LastSample) -> MetricStatus:
    spec = proposal.metric.spec.external
    if spec is None or spec.fallback is None:
        return status
    since = known.failing_since
    external = msgspec.structs.replace(
        status.external or ExternalMetricStatus(spec.metric),
        fallback_status="Fallback" if proposal.fallback else "Normal",
        first_failure_time=None if since is None else truncated_to_seconds(since),
    )
    return msgspec.structs.replace(status, type=EXTERNAL, external=external)


def _real(status: HorizontalPodAutoscalerStatus, shadow: Shadow) -> HorizontalPodAutoscalerStatus:
    """Returns the status with the counts of the target, and the values of its pods."""
    count = shadow.replicas
    metrics = None if status.current_metrics is None else shadow.metrics
    return msgspec.structs.replace(status, current_replicas=count, desired_replicas=count, current_metrics=metrics)


def _counted(view: View) -> int:
    """Returns the count that the status had, without its spare replicas."""
    own, count = view.controls.spare, view.hpa.status.current_replicas
    return count if own is None else own.beneath(count)


def _computation(proposal: Proposal, before: int) -> tuple[str, str, str]:
    if proposal.error is not None:
        return proposal.metric.type, NONE, SPEC if proposal.metric.spec_error else INTERNAL
    if proposal.replicas == before:
        return proposal.metric.type, NONE, NONE
    return proposal.metric.type, SCALE_UP if proposal.replicas > before else SCALE_DOWN, NONE


def is_to_write(view: View, status: HorizontalPodAutoscalerStatus) -> bool:
    """Whether a new status has to be written; measured values alone may be held back (`View.values_held`)."""
    old = view.hpa.status
    return not same(old, status) and not (view.values_held and differs_in_values_alone(old, status))


def next_history(view: View, decision: Decision, *, rescaled: bool) -> History:
    """Returns the history with the recommendation of this decision, and with the rescale if one was written."""
    history, now = view.history, view.now
    # A turn without a decision adds no recommendation, but starts the history of a new HPA
    # (horizontal.go: recordInitialRecommendation).
    if decision.restrained is not None:
        recommendations: Sequence[PastRecommendation] = decision.restrained.recommendations
        idleness = decision.restrained.idleness
    else:
        recommendations = history.recommendations or (PastRecommendation(now, decision.current),)
        idleness = zero.unread(view) if view.keeps_last else msgspec.UNSET
    ups, downs, behavior = history.scale_ups, history.scale_downs, view.spec.behavior
    if rescaled and behavior is not None:  # without spec.behavior there are no policies
        if decision.desired > decision.current:
            ups = _stored(ups, Rescale(now, decision.desired - decision.current), now - behavior.up.longest)
        else:
            downs = _stored(downs, Rescale(now, decision.current - decision.desired), now - behavior.down.longest)
    samples = history.last_samples if view.fallback_policies else ()  # only fallback policies need them
    if view.fallback_policies and decision.proposals:
        samples = last_samples(view, decision.proposals)
    return History(recommendations, ups, downs, samples, idleness)


def _stored(past: tuple[Rescale, ...], latest: Rescale, cutoff: datetime) -> tuple[Rescale, ...]:
    """Marks entries that no policy counts any more, then replaces the last marked entry by the latest or appends it.

    Source: Kubernetes 1.36, horizontal.go: storeScaleEvent and markScaleEventsOutdated.
    """
    marked = [
        msgspec.structs.replace(entry, outdated=True) if entry.timestamp < cutoff and not entry.outdated else entry
        for entry in past
    ]
    for index in reversed(range(len(marked))):
        if marked[index].outdated:
            marked[index] = latest
            return tuple(marked)
    return (*marked, latest)
