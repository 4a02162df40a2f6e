"""Two hpads and one cluster: one works, the other waits, and nobody scales twice."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp

from hpad import app
from hpad.model.election import Election

QUICK = Election(
    enabled=True,
    lease_duration=timedelta(seconds=6),
    renew_deadline=timedelta(seconds=4),
    retry_period=timedelta(seconds=0.2),
)
FLAGS = (
    "--leader-elect",
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=200ms",
)


def scaled(world: Any) -> int:
    """How often a scale was written."""
    return sum(write.subresource == "scale" and write.status == 200 for write in world.cluster.log.writes)


def holder(world: Any) -> str:
    held = world.cluster.get("leases", "hpad", "kube-system")
    return held["spec"]["holderIdentity"] if held is not None else ""


def leads(daemon: app.App) -> bool:
    return daemon.leader is not None and daemon.leader.leading


async def test_one_works_the_other_is_ready_and_takes_over(world: Any) -> None:
    world.workload("Deployment", "web", 15)
    world.hpa("web")
    first = await world.hpad(election=QUICK)
    await world.until(lambda: leads(first))
    second = await world.hpad(election=QUICK, listen=("127.0.0.1", 0))
    await world.until(lambda: world.replicas("deployments", "web") == 10)
    await world.periods(4)
    assert scaled(world) == 1
    assert not leads(second)
    assert second.store.get(("default", "web")).last is None
    async with aiohttp.ClientSession(trust_env=False) as session:
        async with session.get(f"{second.server.url}/readyz") as answer:
            assert answer.status == 200
        async with session.get(f"{second.server.url}/metrics") as answer:
            assert 'leader_election_master_status{name="hpad"} 0.0' in await answer.text()
    await first.stop()
    assert holder(world) == ""
    world.workload("Deployment", "web", 15)
    await world.until(lambda: world.replicas("deployments", "web") == 10, 5)
    assert leads(second)
    assert scaled(world) == 2
    await second.stop()
    spoken = [event["message"].split()[1:] for event in world.cluster.list("events", "kube-system")]
    assert spoken == [["became", "leader"], ["stopped", "leading"]] * 2


async def test_a_dry_run_takes_no_part(world: Any) -> None:
    daemon = await world.hpad(election=QUICK, dry_run=True)
    await world.periods(2)
    assert daemon.leader is None
    assert holder(world) == ""


@contextlib.asynccontextmanager
async def process(kubeconfig: Path, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """An hpad of its own, ended with SIGTERM if it still runs."""
    flags = [f"--kubeconfig={kubeconfig}", "--sync-period=500ms", "--listen=none", "--log-format=json", *FLAGS]
    with log.open("wb") as stderr:
        started = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hpad", "run", *flags), stderr=stderr, env={**os.environ}
        )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.send_signal(signal.SIGCONT)
            started.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            await started.wait()


def said(log: Path, words: str) -> int:
    """How many lines of a log begin with the words."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return sum(line["event"].startswith(words) for line in lines)


async def test_a_leader_that_was_stopped_and_resumed_writes_nothing(world: Any, tmp_path: Path) -> None:
    """SIGSTOP for longer than the lease duration, while the other one takes over and scales."""
    world.workload("Deployment", "web", 15)
    world.hpa("web")
    kubeconfig = await world.cluster.kubeconfig(tmp_path / "kubeconfig")
    logs = tmp_path / "first.log", tmp_path / "second.log"
    async with process(kubeconfig, logs[0]) as first:
        await world.until(lambda: world.replicas("deployments", "web") == 10)
        before = holder(world)
        async with process(kubeconfig, logs[1]):
            await world.until(lambda: said(logs[1], "standing for election"))
            first.send_signal(signal.SIGSTOP)
            stopped = asyncio.get_running_loop().time()
            world.workload("Deployment", "web", 15)
            await world.until(lambda: world.replicas("deployments", "web") == 10)
            print(f"taken over {asyncio.get_running_loop().time() - stopped:.1f} s after the leader was stopped")
            after = holder(world)
            assert after not in ("", before)
            first.send_signal(signal.SIGCONT)
            await world.until(lambda: said(logs[0], "stopped leading"))
            world.workload("Deployment", "web", 15)
            await world.until(lambda: world.replicas("deployments", "web") == 10)
            await asyncio.sleep(1.5)
            assert holder(world) == after
            assert scaled(world) == 3
    assert (said(logs[0], "scale web"), said(logs[1], "scale web")) == (1, 2)


async def test_a_leader_that_was_killed_is_followed(world: Any, tmp_path: Path) -> None:
    world.workload("Deployment", "web", 15)
    world.hpa("web")
    kubeconfig = await world.cluster.kubeconfig(tmp_path / "kubeconfig")
    async with process(kubeconfig, tmp_path / "first.log") as first:
        await world.until(lambda: world.replicas("deployments", "web") == 10)
        async with process(kubeconfig, tmp_path / "second.log"):
            await world.until(lambda: said(tmp_path / "second.log", "standing for election"))
            first.kill()
            await first.wait()
            world.workload("Deployment", "web", 15)
            await world.until(lambda: world.replicas("deployments", "web") == 10)
            assert scaled(world) == 2
