"""A recording of a simulated world: pods share a load, and an HPA for 50 % of their CPU scales them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from support import virtual_time

from hpad.api import hpa as v2
from hpad.api.hpa import HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus
from hpad.api.pod import ContainerRequests, Pod
from hpad.api.sample import PodSample, PodValue
from hpad.engine.history import EMPTY
from hpad.engine.turn import Reconcile, run
from hpad.engine.view import View
from hpad.records.writer import RecordingWriter

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


def reconciles(load: Sequence[int], most: int) -> list[Reconcile]:
    """Returns one reconcile per entry of `load`, in millicores in all; it begins with two pods."""
    done: list[Reconcile] = []
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
        last = run(view, lambda _: answers)  # noqa: B023  # it is called at once
        done.append(last)
        status, history = last.settlement.status, last.settlement.history
        replicas = last.decision.desired
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


def record(folder: Path, done: Sequence[Reconcile]) -> None:
    """Writes the reconciles as `hpad run --record` does."""
    virtual_time.run(_write(RecordingWriter(folder, virtual_time.VirtualClock()), done))


async def _write(recorder: RecordingWriter, done: Sequence[Reconcile]) -> None:
    await recorder.start()
    for each in done:
        recorder.note(each)
    await recorder.stop()
