"""The whole daemon: periods, isolation of sources, starts without a cluster, manifests, dry runs, recordings."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from e2e.conftest import AT_LAST
from support import closing, free_ports

from hpad import settings
from hpad.api.metadata import Key
from hpad.cli import main
from hpad.daemon import app
from hpad.kube.auth.credentials import ClusterConfig
from hpad.lab.cluster import Cluster

QUEUE = [
    {
        "type": "External",
        "external": {
            "metric": {"name": "queue_messages_ready", "selector": {"matchLabels": {"queue": "tasks"}}},
            "target": {"type": "AverageValue", "averageValue": "30"},
        },
    }
]


@contextlib.asynccontextmanager
async def silent_broker() -> AsyncIterator[str]:
    """Runs a server that accepts requests and never answers; yields its URL."""
    writers: list[asyncio.StreamWriter] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.read()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await closing.close(server)
        for writer in writers:
            writer.close()
        await server.wait_closed()


def decided(world: Any, name: str) -> Any:
    """Returns the time of the last decision on an HPA, None before the first one."""
    last = world.daemon.components.decisions.last(Key("default", name))
    return last.view.now if last is not None else None


async def moments(world: Any, name: str, count: int) -> list[Any]:
    """Waits for a number of decisions on an HPA; returns their times."""
    seen: list[Any] = []

    def enough() -> bool:
        at = decided(world, name)
        if at is not None and at not in seen:
            seen.append(at)
        return len(seen) >= count

    await world.until(enough)
    return seen


async def test_every_hpa_is_reconciled_every_period(world: Any) -> None:
    """Scenario 27: also an HPA whose target is missing, and another one beside it."""
    world.workload("Deployment", "web", 1)
    world.load("web", 50)
    world.hpa("web")
    world.hpa("lost")
    await world.hpad(sync_period=timedelta(seconds=1))
    for seen in await asyncio.gather(moments(world, "web", 7), moments(world, "lost", 7)):
        took = (seen[-1] - seen[1]).total_seconds()  # a new HPA's first turn comes at once
        assert 4 < took < 75  # a late turn does not delay the next one; five default periods would be 75 s


async def test_a_changed_spec_is_reconciled_at_once(world: Any) -> None:
    """So is a new HPA; the period is far longer than the test."""
    world.workload("Deployment", "web", 4)
    world.load("web", 50)
    world.hpa("web")
    await world.hpad(sync_period=timedelta(seconds=300))
    await world.until(lambda: decided(world, "web"))
    await world.patch_hpa("web", {"maxReplicas": 2})
    await world.until(lambda: world.replicas("deployments", "web") == 2)
    world.workload("Deployment", "other", 1)
    world.hpa("other", minReplicas=3)
    await world.until(lambda: world.replicas("deployments", "other") == 3)


async def test_a_source_that_hangs_delays_only_its_own_metric(world: Any) -> None:
    async with silent_broker() as url:
        world.workload("Deployment", "web", 1)
        world.workload("Deployment", "worker", 2)
        world.load("web", lambda pods: 150 // max(pods, 1))
        world.load("worker", lambda pods: 300 // max(pods, 1))
        world.hpa("web")
        cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
        world.hpa("worker", metrics=[*QUEUE, {"type": "Resource", "resource": cpu}])
        short = timedelta(seconds=0.3)
        broker = settings.SourceSettings(name="rabbitmq", adapter="rabbitmq", settings={"url": url}, timeout=short)
        await world.hpad(sources=(broker,))
        await world.until(lambda: world.replicas("deployments", "web") == 3)
        await world.until(lambda: world.replicas("deployments", "worker") == 6)
        await moments(world, "web", 5)
        await world.until(lambda: any(reason == "FailedGetExternalMetric" for reason, _ in world.events("worker")))


async def test_hpad_waits_for_an_unreachable_api_server() -> None:
    options = settings.Settings(sync_period=timedelta(seconds=0.4), listen=("127.0.0.1", 0))
    with free_ports.port() as port:
        daemon = app.App(options, cluster_config=ClusterConfig(server=f"http://127.0.0.1:{port}"))
        async with daemon, asyncio.timeout(AT_LAST):
            assert daemon.unready()[0].startswith("waiting for the cluster")
            while len(daemon.unready()) == 1:  # noqa: ASYNC110  # there is no event for it
                await asyncio.sleep(0.02)
            async with Cluster(port=port, auto_ready=True):
                await daemon.ready()
                assert daemon.unready() == []


async def test_the_state_and_series_of_a_deleted_hpa_are_removed(world: Any) -> None:
    world.workload("Deployment", "web", 1)
    world.load("web", 50)
    world.hpa("web")
    daemon = await world.hpad()
    await world.exposed('hpa_name="web"')
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web"
    await daemon.components.cluster.client.request("DELETE", path)
    await world.until(lambda: list(daemon.components.store.keys()) == [])
    await world.periods(2)
    assert list(daemon.components.store.keys()) == []
    assert 'hpa_name="web"' not in (await daemon.telemetry.exposition()).decode()


async def test_a_dry_run_decides_and_writes_nothing(world: Any) -> None:
    world.workload("Deployment", "web", 1)
    world.load("web", 150)
    world.hpa("web")
    with structlog.testing.capture_logs() as lines:
        await world.hpad(dry_run=True)
        await world.until(lambda: any(line["event"].startswith("scale web from 1 to 3") for line in lines))
        await world.periods(3)
    assert world.replicas("deployments", "web") == 1
    assert world.status("web").get("conditions") is None
    assert world.events("web") == []


async def test_hpas_of_a_folder_of_manifests(world: Any, tmp_path: Path) -> None:
    """Their status is in memory, and they follow their files; hpad ignores the HPAs of the API server."""
    folder = tmp_path / "hpas"
    folder.mkdir()
    world.workload("Deployment", "web", 1)
    world.workload("Deployment", "other", 1)
    world.hpa("other", minReplicas=5)
    world.load("web", 50)
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    head = {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}}
    spec = {"scaleTargetRef": ref, "minReplicas": 2, "maxReplicas": 9, "targetCPUUtilizationPercentage": 50}
    (folder / "web.yaml").write_text(yaml.safe_dump({**head, "spec": spec}))
    broken = {**head, "metadata": {"name": "broken"}, "spec": {**spec, "maxReplicas": 0}}
    (folder / "broken.yaml").write_text(yaml.safe_dump(broken))
    daemon = await world.hpad(manifests=folder)
    assert any("broken.yaml" in trouble and "maxReplicas" in trouble for trouble in daemon.problems())
    await world.until(lambda: world.replicas("deployments", "web") == 2)
    (folder / "web.yaml").write_text(yaml.safe_dump({**head, "spec": {**spec, "minReplicas": 3}}))
    await world.until(lambda: world.replicas("deployments", "web") == 3)
    assert world.replicas("deployments", "other") == 1
    assert world.cluster.get("horizontalpodautoscalers", "web") is None
    await world.until(lambda: any(reason == "SuccessfulRescale" for reason, _ in world.events("web")))
    await world.until(lambda: daemon.components.store.get(Key("default", "web")).status.desired_replicas == 3)


async def test_a_recording_replays_to_the_same_decisions(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.workload("Deployment", "web", 1)
    world.load("web", lambda pods: 150 // max(pods, 1))
    world.hpa("web")
    await world.hpad(record=tmp_path)
    await world.until(lambda: world.replicas("deployments", "web") == 3)
    await world.patch_hpa("web", {"maxReplicas": 2})
    await world.until(lambda: world.replicas("deployments", "web") == 2)
    await moments(world, "web", 4)
    await world.daemon.stop()
    (record,) = await asyncio.to_thread(lambda: list(tmp_path.iterdir()))
    scenarios = [json.loads(line) for line in record.read_text().splitlines()]
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["replay", str(record)]) == 0
    replayed = [json.loads(line)["steps"] for line in capsys.readouterr().out.splitlines()]
    # A process that stood still meanwhile begins another scenario.
    recorded = [[step["expect"] for step in scenario["steps"]] for scenario in scenarios]
    steps = [step for scenario in recorded for step in scenario]
    assert len(steps) >= 4
    assert {step["scaleTo"] for step in steps} >= {3, 2}
    assert recorded == replayed


def notifications(systemd: socket.socket) -> set[str]:
    """Returns all lines sent to systemd so far (sd_notify(3))."""
    systemd.setblocking(False)
    lines: set[str] = set()
    with contextlib.suppress(BlockingIOError):
        while True:
            lines.update(systemd.recv(4096).decode().split("\n"))
    return lines


async def test_the_command_runs_until_sigterm(world: Any, tmp_path: Path) -> None:
    """`hpad run` as a process: flags of kube-controller-manager, readiness, and an orderly stop on SIGTERM."""
    world.workload("Deployment", "web", 15)
    world.hpa("web")
    kubeconfig = await world.cluster.kubeconfig(tmp_path / "kubeconfig")
    flags = [f"--kubeconfig={kubeconfig}", "--horizontal-pod-autoscaler-sync-period=10s", "--listen=none"]
    notices = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(notices))
        systemd.setblocking(False)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hpad", "run", *flags),
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "NOTIFY_SOCKET": str(notices), "PYTHONWARNINGS": "default"},
        )
        try:
            await world.until(lambda: world.replicas("deployments", "web") == 10)
        finally:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(AT_LAST):
                _, errors = await process.communicate()
        sent = notifications(systemd)
    assert process.returncode == 0, errors.decode()
    assert {"READY=1", "STOPPING=1"} <= sent
    lines = [json.loads(line) for line in errors.decode().splitlines()]
    assert any(line["event"].startswith("scale web from 15 to 10") and line["hpa"] == "default/web" for line in lines)
    assert lines[-1]["event"] == "hpad stopped"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--sync-period=15"], "--sync-period: '15' is not a duration"),
        (["--kubeconfig=/nowhere/at/all"], "/nowhere/at/all: no such file"),
        (["--config=/nowhere.yaml"], "/nowhere.yaml: cannot be read"),
        (["--feature-gates=HPAScaleToZer=true"], "did you mean 'HPAScaleToZero'?"),
    ],
)
def test_a_failed_start_names_the_reason(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        assert main(["run", "--listen=none", *arguments]) == 2
    finally:
        structlog.reset_defaults()
    assert expected in capsys.readouterr().err


async def test_conflicts_of_a_scale_write_are_retried(world: Any) -> None:
    world.workload("Deployment", "web", 15)
    world.hpa("web")
    fault = world.cluster.faults.add(method="PUT", path="/scale", times=3, status=409)
    await world.hpad()
    await world.until(lambda: world.replicas("deployments", "web") == 10)
    await world.until(lambda: "SuccessfulRescale" in {reason for reason, _ in world.events("web")})
    assert fault.hits == 3
    assert "FailedRescale" not in {reason for reason, _ in world.events("web")}


async def test_a_rejected_scale_is_reported_and_retried_next_period(world: Any) -> None:
    world.workload("Deployment", "web", 15)
    world.hpa("web")
    world.cluster.faults.add(method="PUT", path="/scale", times=None, status=403)
    await world.hpad()
    await world.until(lambda: world.condition("web", "AbleToScale")[:2] == ("False", "FailedUpdateScale"))
    world.cluster.faults.clear()
    await world.until(lambda: world.replicas("deployments", "web") == 10)
    await world.until(lambda: world.condition("web", "AbleToScale")[0] == "True")
    await world.until(lambda: "FailedRescale" in {reason for reason, _ in world.events("web")})


async def test_a_failed_status_write_does_not_stop_scaling(world: Any) -> None:
    world.workload("Deployment", "web", 15)
    world.load("web", 50)
    world.hpa("web")
    world.cluster.faults.add(method="PUT", path="/status", times=2, status=500)
    await world.hpad()
    await world.until(lambda: world.replicas("deployments", "web") == 10)
    await world.until(lambda: world.status("web").get("desiredReplicas") == 10)
    await world.until(lambda: "FailedUpdateStatus" in {reason for reason, _ in world.events("web")})


async def test_hpad_recovers_from_an_outage_of_the_api_server(world: Any) -> None:
    """hpad decides nothing on unknown data, loses nothing, and follows the next load."""
    world.workload("Deployment", "web", 2)
    world.load("web", 50)
    world.hpa("web")
    await world.hpad()
    await world.until(lambda: world.condition("web", "ScalingActive")[0] == "True")
    world.cluster.faults.add(times=None, status=503)
    world.cluster.faults.drop_watches()
    await world.periods(4)
    assert world.replicas("deployments", "web") == 2
    world.cluster.faults.clear()
    world.load("web", lambda pods: 200 // max(pods, 1))
    await world.until(lambda: world.replicas("deployments", "web") == 4)
