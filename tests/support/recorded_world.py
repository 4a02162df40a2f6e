"""A recording of a simulated world: pods share a load, and an HPA for 50 % of their CPU scales them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from support import virtual_time

from hpad.api import hpa as v2
from hpad.api.hpa import HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus
from hpad.api.pod import ContainerRequests, Pod
from hpad.api.sample import PodSample, PodValue
from hpad.engine.decide import decide
from hpad.engine.examine import examine
from hpad.engine.history import EMPTY
from hpad.engine.settle import Outcome, settle
from hpad.engine.view import View
from hpad.recording.encode import RecordedReconcile
from hpad.recording.writer import RecordingWriter

START = datetime(2026, 11, 22, 2, 40, tzinfo=UTC)
PERIOD = timedelta(seconds=15)
_MOST_USED = 700
"""What a pod can use, in millicores; it requests 500."""


def hpa(most: int) -> HorizontalPodAutoscaler:
    """Returns the HPA shop/web, of 2 to `most` replicas."""
    target = {"type": "Utilization", "averageUtilization": 50}
    value = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 120}},
        },
    }
    return v2.defaulted(v2.from_builtins(value))


def reconciles(load: Sequence[int], most: int) -> list[RecordedReconcile]:
    """Returns one reconcile per entry of `load`, in millicores in all; it begins with two pods."""
    done: list[RecordedReconcile] = []
    status, history, replicas = hpa(most).status, EMPTY, 2
    for turn, total in enumerate(load):
        now, own = START + turn * PERIOD, hpa(most)
        view = View(
            hpa=HorizontalPodAutoscaler(metadata=own.metadata, spec=own.spec, status=status),
            now=now,
            history=history,
            scale=Scale(metadata={"name": "web"}, spec=ScaleSpec(replicas), status=ScaleStatus(replicas, "app=web")),
            pods=[_pod(number) for number in range(replicas)],
        )
        used = PodValue(min(_MOST_USED, total // replicas), now, PERIOD)
        answers = (PodSample({pod.name: used for pod in view.pods}, now),)
        verdict = examine(view)
        decision = decide(view, verdict, answers)
        outcome = None if decision.scale_to is None else Outcome((decision.scale_to,))
        settlement = settle(view, decision, outcome)
        done.append(RecordedReconcile(view, verdict.queries, answers, outcome, decision.scale_to, settlement))
        status, history = settlement.status, settlement.history
        replicas = decision.desired
    return done


def _pod(number: int) -> Pod:
    before = START - timedelta(hours=1)
    return Pod(
        name=f"web-{number}",
        namespace="shop",
        labels={"app": "web"},
        phase="Running",
        ready="True",
        start_time=before,
        ready_since=before,
        containers=(ContainerRequests("app", {"cpu": 500}),),
    )


def record(folder: Path, done: Sequence[RecordedReconcile]) -> None:
    """Writes the reconciles as `hpad run --record` does."""
    virtual_time.run(_write(RecordingWriter(folder, virtual_time.VirtualClock()), done))


async def _write(recorder: RecordingWriter, done: Sequence[RecordedReconcile]) -> None:
    await recorder.start()
    for each in done:
        recorder.note(each)
    await recorder.stop()
