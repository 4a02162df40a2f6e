"""What the metrics of an HPA ask for while all its replicas are ready, without a turn of the engine.

The values that `PastModel` would show are measured by the rules of `hpad.engine.pods` and `hpad.engine.propose` for
pods that are all ready and all show the same value; the proposals are the engine's own. A test compares them with the
recommendations of turns.
"""

import functools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.quantity import MAX_INT64, quotient
from hpad.engine.annotations import PLAIN
from hpad.engine.controls import IN_SHADOW, NO_CONTROLS
from hpad.engine.fallback_policy import LAST_GOOD, FallbackPolicy
from hpad.engine.pods import Usage
from hpad.engine.propose import Tolerances, by_pods, by_ratio, by_share, tolerances
from hpad.engine.spec import AVERAGE_VALUE, UTILIZATION, CompiledMetric, compiled_spec
from hpad.engine.view import Tunables, View

Proposed = Callable[[float, int], int]
"""Takes the value that each of so many ready replicas shows, and their number."""
UNSURE: Final = -1
"""The engine has to be asked: a value is negative, or so large that its integers overflow."""
_LARGEST: Final = 1e9
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def allowed(hpa: HorizontalPodAutoscaler, tunables: Tunables) -> Tolerances:
    """Returns the tolerances of the HPA."""
    return tolerances(View(hpa=hpa, now=_EPOCH, tunables=tunables, controls=PLAIN.of(hpa).controls))


def lowest(hpa: HorizontalPodAutoscaler, tunables: Tunables) -> int:
    """Returns the least count that metrics may ask for: 1 for a minimum of 0 without the gate HPAScaleToZero."""
    gates, low = tunables.gates, compiled_spec(hpa).min_replicas
    return max(1, low) if gates.HPAMinimumOfOne and not gates.HPAScaleToZero else low


_WITHOUT_EFFECT: Final = dict.fromkeys(
    (
        "tolerance_up",
        "tolerance_down",
        "initialization_period",
        "readiness_delay",
        "ignored_containers",
        "sync_period",
        "pod_selection",
        "scale_down_order",
        "keep_busy",
        "busy_metric",
        "schedule",
    )
)
"""Controls without an effect on the recommendations of ready pods, but for tolerances, which `allowed` knows.

The pods of `PastModel` work on nothing that spares them. A schedule sets bounds, which a run has to follow.
"""


def is_plain(hpa: HorizontalPodAutoscaler, tunables: Tunables) -> bool:
    """Whether metrics, bounds and behavior alone decide while all metrics have values, and the count stays above zero.

    With a fallback policy, the turns in which one has none are the engine's (`is_replaced`).
    """
    own, spec = PLAIN.of(hpa), compiled_spec(hpa)
    decide = msgspec.structs.replace(own.controls, texts=(), **_WITHOUT_EFFECT)
    if decide.mode == IN_SHADOW:  # what hpad would do
        decide = msgspec.structs.replace(decide, mode=None)
    if decide != NO_CONTROLS or not all(map(_is_of_gaps, own.policies)) or lowest(hpa, tunables) < 1:
        return False
    return all(metric.error is None and metric.amount > 0 for metric in spec.metrics)


def _is_of_gaps(policy: FallbackPolicy) -> bool:
    """Whether a policy decides in gaps alone; `last-good` needs the turn before the gap."""
    return policy.activation is None and (policy.fallback is None or policy.fallback.kind != LAST_GOOD)


def is_replaced(hpa: HorizontalPodAutoscaler) -> bool:
    """Whether a fallback may stand in for a metric without a value."""
    return any(policy.fallback is not None for policy in PLAIN.of(hpa).policies)


def proposals(hpa: HorizontalPodAutoscaler, tunables: Tunables) -> list[Proposed]:
    """Returns the proposal of each metric of an HPA that is plain."""
    found, huge = allowed(hpa, tunables), tunables.gates.HPAHugeProposals
    return [_proposal(metric, found, huge) for metric in compiled_spec(hpa).metrics]


def _proposal(metric: CompiledMetric, tolerance: Tolerances, huge: bool) -> Proposed:
    if metric.kind == UTILIZATION:
        return functools.partial(_of_utilization, metric.amount, tolerance, huge)
    if metric.of_pods:
        return functools.partial(_of_pods, metric.amount, tolerance, huge)
    return functools.partial(_of_all, metric.amount, tolerance, metric.kind == AVERAGE_VALUE)


def _of_utilization(amount: int, tolerance: Tolerances, huge: bool, value: float, count: int) -> int:
    if not 0 <= value < _LARGEST:
        return UNSURE
    percent = round(value * 1000 / 100) // 10  # a request is 1,000 milli-units (`PastModel`)
    return by_pods(Usage(ratio=percent / amount, value=None, pods=count), count, tolerance, huge=huge)


def _of_pods(amount: int, tolerance: Tolerances, huge: bool, value: float, count: int) -> int:
    if not 0 <= value < MAX_INT64 / 1e6:
        return UNSURE
    usage = Usage(ratio=round(value * 1000) / amount, value=None, pods=count)
    return by_pods(usage, count, tolerance, huge=huge)


def _of_all(amount: int, tolerance: Tolerances, average: bool, value: float, count: int) -> int:
    if not 0 <= value < MAX_INT64 / 1e6:
        return UNSURE
    milli = round(value * 1000)
    if average:
        ratio = quotient(float(milli), float(amount) * float(count))
        usage = Usage(ratio=ratio, value=None, pods=count, total=milli)
        return by_share(usage, amount, count, tolerance, huge=True)
    usage = Usage(ratio=quotient(float(milli), float(amount)), value=milli, pods=count)
    return by_ratio(usage, count, tolerance, keeps=True, huge=True)


def recommended(
    proposed: Sequence[Proposed], values: Sequence[float | None], count: int, *, replaced: bool = False
) -> int | None:
    """Returns the largest proposal; None where missing values leave the count as it is, if nothing replaces them.

    Source: Kubernetes 1.36, horizontal.go: computeReplicasForMetrics, as `hpad.engine.recommend`.
    """
    highest, missing = -1, False
    for proposal, value in zip(proposed, values, strict=True):
        if value is None:
            if replaced:
                return UNSURE
            missing = True
            continue
        replicas = proposal(value, count)
        if replicas == UNSURE:
            return UNSURE
        highest = max(highest, replicas)
    return None if missing and highest < count else highest
