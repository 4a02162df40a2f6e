"""Reports a reconcile: log lines for changes, and series."""

import functools
import logging
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog

from hpad.engine import examine, phrases
from hpad.engine.propose import Proposal
from hpad.engine.turn import Reconcile
from hpad.engine.view import DRY_RUN, Competitor, Shadow, View, yields_to
from hpad.telemetry.controller import ControllerSeries

_SPAN: Final = re.compile(r"\b(\d+(\.\d+)?(h|m|s|ms|µs))+\b")


class Logged(msgspec.Struct, frozen=True, gc=False):
    """What the log has said about an HPA: other writers, the errors in annotations, and about a target at zero.

    `minimum`: that a minimum of 0 needs the feature gate HPAScaleToZero. `zero`: why the target stays at zero. The last
    three are those of the last decision (`Reconcile`), the error without durations.
    """

    competitors: tuple[Competitor, ...] = ()
    annotation_error: str | None = None
    minimum: bool = False
    zero: str = ""
    error: str | None = None
    withheld: int | None = None
    fallbacks: tuple[str, ...] = ()


NOTHING_LOGGED: Final = Logged()
_MINIMUM: Final = (
    "minReplicas is 0, but the feature gate HPAScaleToZero is off: metrics never ask for less than 1 replica"
)


def log_reconcile(log: Any, done: Reconcile, before: Logged, *, yields: bool) -> Logged:
    """Logs what has changed about an HPA, and its decision. Returns what the log has said of it now."""
    view = done.view
    now = Logged(
        view.competitors,
        view.annotation_error,
        view.scale_to_zero_disabled,
        _zero(done),
        _without_durations(done.error),
        done.withheld,
        done.fallbacks,
    )
    if now != before:  # seldom
        _log_changes(log, done, now, before, yields=yields)
    _log_decision(log, done, now, before)
    return before if now == before else now


def _log_decision(log: Any, done: Reconcile, now: Logged, before: Logged) -> None:
    """Logs a new error at warning, another change of the error or of the replica count at info, all else at debug.

    A withheld count is decided again each turn, and is logged when it changes. A fallback is logged when it starts and
    when it ends.
    """
    view, decision = done.view, done.decision
    if now.fallbacks or before.fallbacks:
        _log_fallbacks(log, view, decision.proposals, now.fallbacks, before.fallbacks)
    scales = decision.scale_to is not None and now.withheld is None
    if now.error != before.error and now.error:
        write = log.warning
    elif scales or now.error != before.error or now.withheld != before.withheld:
        write = log.info
    elif _logs_debug(structlog.get_config()["wrapper_class"]):
        write = log.debug
    else:
        return  # nearly always: the sentence is not even made
    write(
        done.sentence,
        hpa=str(view.hpa.key),
        target=f"{view.hpa.spec.scale_target_ref.kind}/{view.hpa.spec.scale_target_ref.name}",
        replicas=view.scale.spec.replicas if view.scale is not None else None,
        scale_to=decision.scale_to,
        **_in_shadow(view.shadow),
    )


@functools.lru_cache(maxsize=16)
def _logs_debug(wrapper: Any) -> bool:
    """Returns whether a class of structlog's loggers logs at debug. To bind a logger for this would cost much more."""
    return bool(wrapper(None, (), {}).is_enabled_for(logging.DEBUG))


def _in_shadow(real: Shadow | None) -> dict[str, Any]:
    """Returns the fields that mark a line in shadow mode: why, and the count of the target, which stays."""
    if real is None:
        return {}
    mode = "dry_run" if real.withheld == DRY_RUN else "shadow"
    return {mode: True, "target_replicas": real.replicas}


def _log_fallbacks(
    log: Any, view: View, proposals: Sequence[Proposal], now: Sequence[str], before: Sequence[str]
) -> None:
    key, by_label = str(view.hpa.key), {proposal.metric.label: proposal for proposal in proposals}
    for label in now:
        if label not in before:
            message = f"a fallback begins: {phrases.failure(by_label[label])}"
            log.warning(message, hpa=key)
    for label in before:
        if label not in now:
            message = f"a fallback ends: {_end(label, by_label.get(label))}"
            log.info(message, hpa=key)


def _end(label: str, proposal: Proposal | None) -> str:
    if proposal is None:
        return f"{label} was not queried"
    return phrases.failure(proposal) if proposal.error is not None else f"{label} can be read again"


def _without_durations(error: str | None) -> str | None:
    """Removes durations from an error text, such as "failing for 30s": they differ in each turn."""
    return None if error is None else _SPAN.sub("…", error)


def _log_changes(log: Any, done: Reconcile, now: Logged, before: Logged, *, yields: bool) -> None:
    """Logs what has changed about an HPA beside its decision."""
    view = done.view
    if now.minimum and not before.minimum:
        log.warning(_MINIMUM, hpa=str(view.key))
    if now.zero and now.zero != before.zero:
        _log_zero(log, view, now.zero)
    if now.annotation_error != before.annotation_error:
        _log_annotations(log, view)
    if now.competitors != before.competitors:
        _log_competitors(log, view, yields=yields)


def _zero(done: Reconcile) -> str:
    """Returns why a target at zero is not woken although its HPA is meant to."""
    view, verdict = done.view, done.decision.verdict
    disabled = isinstance(verdict, examine.Halt) and verdict.kind == examine.DISABLED
    return view.zero_stays if disabled else ""


def _log_zero(log: Any, view: View, told: str) -> None:
    target = view.hpa.spec.scale_target_ref
    message = f"the target is at zero replicas, and stays there: {told}"
    log.warning(message, hpa=str(view.key), target=f"{target.kind}/{target.name}")


def _log_annotations(log: Any, view: View) -> None:
    if view.annotation_error is None:
        log.info("all annotations are valid again", hpa=str(view.key))
    else:
        message = f"annotations without effect: {view.annotation_error}"
        log.warning(message, hpa=str(view.key))


def _log_competitors(log: Any, view: View, *, yields: bool) -> None:
    competitors = view.competitors
    if not competitors:
        log.info("no other writer is seen any more", hpa=str(view.key))
        return
    withheld = yields and yields_to(competitors) is not None
    effect = "; hpad does not scale the target" if withheld else ""
    message = f"another writer competes{effect}: {'; '.join(map(str, competitors))}"
    log.warning(message, hpa=str(view.key))


def count(series: ControllerSeries, done: Reconcile, gathering: float, began: float, now: float) -> None:
    """Updates the series of an HPA and its metrics, which took `gathering` seconds. Other times are monotonic."""
    key, settlement = done.view.key, done.settlement
    series.reconciled(settlement.action, settlement.error_label, now - began)
    series.desired(key, settlement.status.desired_replicas, done.view.max_replicas, now)
    series.conditions(key, settlement.status.conditions or ())
    for kind, action, error in settlement.metric_computations:
        series.computed(kind, action, error, gathering)
