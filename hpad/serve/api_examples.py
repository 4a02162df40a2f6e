"""Examples of answers for the OpenAPI document: one HPA that scales by the length of a queue."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from hpad.api.hpa import (
    CrossVersionObjectReference,
    ExternalMetricSource,
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerSpec,
    MetricIdentifier,
    MetricSpec,
    MetricTarget,
    enc_hook,
)
from hpad.api.quantity import Quantity
from hpad.engine.outlook.types import STEP, Outlook
from hpad.engine.stage import UP_LIMIT
from hpad.engine.trace import ReplicasTrace, Trace
from hpad.records.entry import Entry, Point
from hpad.serve import api_types
from hpad.sources.limits import SourceReport

NAMESPACE: Final = "shop"
NAME: Final = "checkout"
TIME: Final = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
_SENTENCE: Final = (
    "scale checkout from 2 to 6: queue above target (47.5 / 10 per replica, 95 in total); 10 wanted but at most 6"
)
_TARGET: Final = CrossVersionObjectReference(kind="Deployment", name=NAME, api_version="apps/v1")
_SPEC: Final = HorizontalPodAutoscalerSpec(
    scale_target_ref=_TARGET,
    max_replicas=10,
    metrics=(
        MetricSpec(
            type="External",
            external=ExternalMetricSource(
                metric=MetricIdentifier(name="queue"),
                target=MetricTarget(type="AverageValue", average_value=Quantity.parse("10")),
            ),
        ),
    ),
)
_LIMITED: Final = HorizontalPodAutoscalerCondition(
    type="ScalingLimited",
    status="True",
    last_transition_time=TIME,
    reason="ScaleUpLimit",
    message="the desired replica count is increasing faster than the maximum scale rate",
)
_SUMMARY: Final = api_types.Summary(
    namespace=NAMESPACE,
    name=NAME,
    target=api_types.Target(api_version="apps/v1", kind="Deployment", name=NAME),
    min_replicas=1,
    max_replicas=10,
    current_replicas=2,
    desired_replicas=6,
    states=(api_types.LIMITED,),
    dry_run=False,
    metrics=(api_types.Metric(address="queue", proposal=10, current="47.5", target="10", ratio=4.75),),
    last_scale_time=TIME,
    last_decision=api_types.LastDecision(time=TIME, sentence=_SENTENCE, action="scale_up", held_by=UP_LIMIT),
)
_TRACE: Final = Trace(
    namespace=NAMESPACE,
    name=NAME,
    time=TIME,
    sentence=_SENTENCE,
    action="scale_up",
    target=CrossVersionObjectReference(api_version="apps/v1", kind="Deployment", name=NAME),
    replicas=ReplicasTrace(current=2, observed=2, min=1, max=10, desired=6),
)
_OUTLOOK: Final = Outlook(
    text="6 -> 10 once the scaleUp policies allow it at 12:00:15Z, if queue still wants 10",
    kind=STEP,
    at=TIME + timedelta(seconds=15),
    replicas=10,
)
_ENTRY: Final = Entry(
    namespace=NAMESPACE,
    name=NAME,
    began=TIME,
    ended=TIME + timedelta(seconds=15),
    turns=2,
    action="scale_up",
    sentence=_SENTENCE,
    current=2,
    desired=6,
    min=1,
    max=10,
    metrics=("queue",),
    points=(Point(TIME, 10, (10,)),),
)
_SCENARIO: Final = {
    "id": f"{NAMESPACE}.{NAME}-0",
    "hpa": {"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": {"maxReplicas": 10}},
    "steps": [{"time": "2026-01-31T12:00:00Z", "expect": {"scaleTo": 6}}],
}
"""A scenario of a recording, shortened."""
_COUNTS: Final = {state: int(state == api_types.LIMITED) for state in api_types.STATES}
ANSWERS: Final[Mapping[str, msgspec.Struct]] = {
    "version": api_types.Version(version="0.1.0", commit="4f2a9c1", kubernetes="1.36", api="v1"),
    "hpas": api_types.HpaList(items=(_SUMMARY,), total=1, counts=_COUNTS),
    "hpa": api_types.Detail(
        **msgspec.structs.asdict(_SUMMARY),
        sentence=_SENTENCE,
        spec_metrics=_SPEC.metrics,
        current_metrics=(),
        conditions=(_LIMITED,),
        annotation_errors={},
        outlook=(_OUTLOOK,),
        owner="hpad-0_5d1e",
        trace=_TRACE,
    ),
    "history": api_types.EntryList(items=(_ENTRY,)),
    "decision": api_types.DecisionAt(
        **{**msgspec.structs.asdict(_ENTRY), "trace": _TRACE},
        outlook=(_OUTLOOK,),
    ),
    "recording": api_types.Recording(began=TIME, ended=TIME, decisions=1, scenarios=(_SCENARIO,)),
    "status": api_types.Status(doing="Scaling by 1 HPA", dry_run=False, facts=("leader", "HPAs of the API server")),
    "sources": api_types.SourceList(
        items=(SourceReport(name="rabbit", adapter="rabbitmq", state="ok", latency=0.012, calls=4, asked=8, hits=4),)
    ),
    "replicas": api_types.ReplicaList(
        items=(api_types.Replica(identity="hpad-0_5d1e", role="leader", owned=1),), self_="hpad-0_5d1e"
    ),
}
"""The examples by operation."""


def example(operation: str) -> Any:
    """Returns the example of an operation as JSON-like builtins."""
    return msgspec.json.decode(msgspec.json.encode(ANSWERS[operation], enc_hook=enc_hook))
