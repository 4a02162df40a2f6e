"""Summaries of HPAs for the JSON API, and the states that an HPA is in.

States come from conditions and from the last decision, never from texts.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, MetricStatus, kind_of
from hpad.api.metadata import Key
from hpad.api.text import harmless
from hpad.engine import conditions, holds
from hpad.engine.addresses import addresses
from hpad.engine.examine import ZERO_DISABLED
from hpad.engine.history import Memory
from hpad.engine.propose import Proposal, metric_status
from hpad.engine.restrain import TOO_FEW, ZERO_DELAYED
from hpad.engine.spec import compiled_spec
from hpad.engine.turn import Reconcile
from hpad.records.entry import numbers
from hpad.serve import api_types
from hpad.serve.api_types import LastDecision, Metric, Summary, Target

_NOTED = (conditions.COMPETING_WRITERS, conditions.ANNOTATIONS_VALID)
_AT_ZERO = frozenset({"ScalingDisabled", ZERO_DISABLED})
"""Reasons of ScalingActive for a target that has, or was set to, zero replicas, which is no failure."""
_READ: Final = 300
"""Characters that tell causes apart."""
_LONGEST: Final = 600
"""Bytes of a group: the `continue` of a page contains it, and a request line has 2,048."""
_PATHS: Final = re.compile(r"(\b\w+://[^\s/]+)/\S*?(?=[:;,.]?(?:\s|\Z))")
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'|\{[^}]*\}")
_NUMBERS: Final = re.compile(r"(?<![\w:.-])[0-9]+(?:(?:\.[0-9]+)+|(?=(?:ms|[smhd%])\b))")


class ShownHpas(Protocol):
    """Where HPAs come from."""

    def get(self, key: Key) -> HorizontalPodAutoscaler | None: ...
    def values(self) -> Iterable[HorizontalPodAutoscaler]: ...
    def keys(self) -> Collection[Key]: ...


class Row(NamedTuple):
    """One HPA with what hpad remembers of it; `done` is its last reconcile in this process."""

    hpa: HorizontalPodAutoscaler
    memory: Memory
    done: Reconcile | None
    dry_run: bool

    @property
    def key(self) -> Key:
        return self.hpa.key

    @property
    def status(self) -> HorizontalPodAutoscalerStatus:
        """The status as written, or as it would have been written."""
        return self.memory.status or self.hpa.status


def troubles(row: Row) -> tuple[str, ...]:
    """Returns the types of the conditions that say that something is wrong; a count at the minimum is as wanted."""
    bad = (each.type for each in row.status.conditions if conditions.is_trouble(each))
    return tuple(kind for kind in bad if kind != conditions.SCALING_LIMITED or _limited(row.status))


def states(row: Row) -> tuple[str, ...]:
    """Returns the states of the HPA, the most serious first."""
    low, high = bounds(row)
    found = {
        api_types.FAILING: fails(row),
        api_types.AT_MAX: row.status.desired_replicas >= high > low,
        api_types.LIMITED: _limited(row.status),
        api_types.FALLBACK: _is(row.status, conditions.FALLBACK_ACTIVE, conditions.TRUE)
        or bool(row.done and row.done.fallbacks),
        api_types.COMPETING: _is(row.status, conditions.COMPETING_WRITERS, conditions.TRUE),
        api_types.PAUSED: _is(row.status, conditions.PAUSED, conditions.TRUE),
        api_types.SHADOW: not row.dry_run and _is(row.status, conditions.SHADOW, conditions.TRUE),
        api_types.DRY_RUN: row.dry_run,
    }
    return tuple(state for state, holds in found.items() if holds)


def fails(row: Row) -> bool:
    """Whether the last decision failed, also in part, or the status says that the HPA cannot scale."""
    if row.done is not None and row.done.error is not None:
        return True
    active = conditions.find(row.status.conditions, conditions.SCALING_ACTIVE)
    inactive = active is not None and active.status == conditions.FALSE and active.reason not in _AT_ZERO
    return inactive or _is(row.status, conditions.ABLE_TO_SCALE, conditions.FALSE)


def _limited(status: HorizontalPodAutoscalerStatus) -> bool:
    """Whether the metrics do not get the count that they ask for. What an idle HPA keeps is no limit: the minimum, and
    the last replica for a while.
    """
    limited = conditions.find(status.conditions, conditions.SCALING_LIMITED)
    if limited is None or limited.status != conditions.TRUE:
        return False
    return limited.reason not in (TOO_FEW, ZERO_DELAYED)


def _is(status: HorizontalPodAutoscalerStatus, kind: str, value: str) -> bool:
    condition = conditions.find(status.conditions, kind)
    return condition is not None and condition.status == value


def minimum(hpa: HorizontalPodAutoscaler) -> int:
    """Returns the minReplicas in force by default rules."""
    return 1 if hpa.spec.min_replicas is None else hpa.spec.min_replicas


def bounds(row: Row) -> tuple[int, int]:
    """Returns minimum and maximum: those of the last decision, which a schedule may set, or those of the spec."""
    view = None if row.done is None else row.done.view
    # The reconcile has the spec of its time; an edit since counts at once.
    if view is None or view.controls.schedule is None or view.hpa.spec != row.hpa.spec:
        return minimum(row.hpa), row.hpa.spec.max_replicas
    return view.bounds.low, view.bounds.high


def summary(row: Row) -> Summary:
    """Returns the summary of an HPA."""
    status, target, (low, high) = row.status, row.hpa.spec.scale_target_ref, bounds(row)
    return Summary(
        namespace=row.key.namespace,
        name=row.key.name,
        kind=kind_of(row.key),
        target=Target(api_version=target.api_version, kind=target.kind, name=target.name),
        min_replicas=low,
        max_replicas=high,
        current_replicas=status.current_replicas,
        desired_replicas=status.desired_replicas,
        shadow_replicas=row.memory.shadow,
        states=states(row),
        dry_run=row.dry_run,
        metrics=_metrics(row),
        last_scale_time=status.last_scale_time,
        last_decision=_last_decision(row),
        notes=tuple(each.message for each in row.status.conditions if each.type in _NOTED),
    )


def _last_decision(row: Row) -> LastDecision | None:
    done = row.done
    if done is None:
        return None
    return LastDecision(
        time=done.view.now,
        sentence=done.sentence,
        error=done.error or "",
        brief=holds.brief(done.decision, done.outcome),
        cause=holds.cause(done.decision, done.outcome),
        group=cause_group(row),
        action=done.settlement.action,
        held_by=_held_by(done),
    )


def cause_group(row: Row) -> str:
    """Returns the group of the cause of a failing HPA; "" if it does not fail or the cause is unknown."""
    if row.done is None or not fails(row):
        return ""
    return group_of(holds.cause(row.done.decision, row.done.outcome))


def group_of(cause: str) -> str:
    """Returns the cause without paths of URLs, quoted names, selectors, durations and addresses."""
    text = _PATHS.sub(r"\1/…", harmless(cause[:_READ]))
    text = _QUOTED.sub(lambda found: f"{found[0][0]}…{found[0][-1]}", text)
    return _NUMBERS.sub("…", text).encode()[:_LONGEST].decode(errors="ignore")


def _held_by(done: Reconcile) -> str:
    """Returns the last reason that holds the count back; "" if none does."""
    reasons = holds.held_by(done.view, done.decision, done.outcome)
    return reasons[-1] if reasons else ""


def current_metrics(row: Row) -> tuple[MetricStatus, ...]:
    """Returns the values of the last decision in the form of a status; those of the status where it measured none.

    The status may be older: see the setting `status_refresh`.
    """
    done = row.done
    if done is None or done.decision.recommendation is None:
        return row.status.current_metrics or ()
    return tuple(map(metric_status, done.decision.proposals))


def _metrics(row: Row) -> tuple[Metric, ...]:
    """Returns the metrics of the last decision; those of spec and status where it measured none."""
    done = row.done
    if done is None or not done.decision.proposals:
        return _reported_metrics(row)
    names, (_, counts) = addresses(done.view.spec.metrics), numbers(done)
    proposals = done.decision.proposals
    return tuple(_metric(*each) for each in zip(names, counts, proposals, strict=True))


def _metric(address: str, count: int | None, proposal: Proposal) -> Metric:
    usage = proposal.usage
    return Metric(
        address=address,
        proposal=count,
        current=None if usage is None else proposal.share or proposal.current,
        target=_target(proposal),
        ratio=None if usage is None or not math.isfinite(usage.ratio) else usage.ratio,
    )


def _target(proposal: Proposal) -> str | None:
    return proposal.metric_target if proposal.metric.kind else None


def _reported_metrics(row: Row) -> tuple[Metric, ...]:
    metrics = compiled_spec(row.hpa).metrics
    reported = row.status.current_metrics or ()
    known = reported if len(reported) == len(metrics) else (MetricStatus(),) * len(metrics)
    targets = [_target(Proposal(metric=metric, replicas=0)) for metric in metrics]
    return tuple(
        Metric(address=address, current=_current(status), target=target)
        for address, status, target in zip(addresses(metrics), known, targets, strict=True)
    )


def _current(status: MetricStatus) -> str | None:
    """Returns the usage in a status as `kubectl get hpa` shows it; None if there is none."""
    if status.source is None:
        return None
    current = status.source.current
    if current.average_utilization is not None:
        return f"{current.average_utilization}%"
    quantity = current.value if current.average_value is None else current.average_value
    return None if quantity is None else str(quantity)


def matches(key: Key, target: str, asked: Mapping[str, Any]) -> bool:
    """Returns whether an HPA has the namespace and kind ("": any), and the text in its name or its target's."""
    if asked["namespace"] not in ("", key.namespace) or asked["kind"] not in ("", kind_of(key)):
        return False
    text = asked["search"].casefold()
    names = (str(key), f"{key.namespace}/{key.name}", target)
    return any(text in name.casefold() for name in names)
