"""Three replicas share 300 HPAs while they are killed, paused, disconnected and stopped.

No two of them act on one HPA at the same time, none of the HPAs is left out, and no pod is removed too early. The
checks use the API server's log: each write with its author (from the User-Agent) and time, and the Leases with their
member sets.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from e2e.chronicle import DEADLINE, LEASE, Action, Chronicle, followed, taken_too_early, unauthorized
from support.relay import SilentRelay

from hpad import settings
from hpad.api.metadata import Key
from hpad.lab.cluster import Cluster
from hpad.settings.model import SHARD_BY, Election

SEED = int(os.environ.get("HPAD_SHARDS_SEED", "20261120"))
ROUNDS = int(os.environ.get("HPAD_SHARDS_ROUNDS", "1"))
HPAS, TEAMS = 300, 20
PERIOD, RETRY = 10.0, 0.5
CUT_OFF = 2.5 * PERIOD
"""Seconds; in the proportion of a minute to the default period."""
PATIENCE = 600.0
"""Timeout in seconds; tests/election/test_shards.py checks how soon a change must happen."""
STEADY, FALLEN, RISING = (0, 1, 2), (3, 4), (5, 6, 7)
GROUPS = (*STEADY, *FALLEN, *RISING)


def namespace_of(number: int) -> str:
    return f"team-{number % TEAMS}"


class Replica:
    """hpad as a process, with its own relay to the API server."""

    def __init__(self, number: int, cluster: Cluster, folder: Path, shard_by: str) -> None:
        self.shard_by = shard_by
        self.number = number
        self.relay = SilentRelay(int(cluster.url.rpartition(":")[2]))
        self.log = folder / f"replica-{number}.log"
        self.process: asyncio.subprocess.Process
        self._folder = folder

    async def start(self) -> None:
        kubeconfig = self._folder / f"kubeconfig-{self.number}"
        if not self.relay.port:
            await self.relay.start()
            cluster = [{"name": "lab", "cluster": {"server": f"http://127.0.0.1:{self.relay.port}"}}]
            contexts = [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}]
            users: list[Any] = [{"name": "lab", "user": {}}]
            head = {"apiVersion": "v1", "kind": "Config", "current-context": "lab"}
            content = {**head, "clusters": cluster, "contexts": contexts, "users": users}
            kubeconfig.write_text(json.dumps(content))
        flags = [
            f"--kubeconfig={kubeconfig}", f"--config={self._folder / 'hpad.yaml'}", "--shards",
            f"--shard-by={self.shard_by}",
            f"--leader-elect-lease-duration={LEASE}s", f"--leader-elect-renew-deadline={DEADLINE}s",
            f"--leader-elect-retry-period={RETRY}s", f"--sync-period={PERIOD}s", "--listen=none", "--log-format=json",
        ]  # fmt: skip
        with self.log.open("ab") as stderr:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "hpad", "run", *flags), stderr=stderr
            )

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM)
        self.relay.come_back()
        async with asyncio.timeout(PATIENCE):
            await self.process.wait()
        await self.relay.stop()


class Stage:
    """The cluster with its HPAs, the file with the values of their metrics, and the replicas."""

    def __init__(self, cluster: Cluster, folder: Path, shard_by: str) -> None:
        self.cluster = cluster
        self.chronicle = Chronicle(cluster, shard_by)
        self.values = {**dict.fromkeys(STEADY, 3), **dict.fromkeys(FALLEN, 4), **dict.fromkeys(RISING, 2)}
        self.replicas = [Replica(number, cluster, folder, shard_by) for number in range(3)]
        self.late: list[float] = []
        self._folder = folder
        self._turn = 0

    def populate(self) -> None:
        for namespace in sorted({namespace_of(number) for number in range(HPAS)}):
            self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for number in range(HPAS):
            name, group = f"app-{number}", GROUPS[number % len(GROUPS)]
            labels = {"app": name}
            template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
            spec: Any = {"replicas": self.values[group], "selector": {"matchLabels": labels}, "template": template}
            head = {"metadata": {"name": name, "namespace": namespace_of(number)}}
            self.cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", **head, "spec": spec})
            goal = {"type": "AverageValue", "averageValue": "100"}
            spec = {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 1,
                "maxReplicas": 10,
                "metrics": [{"type": "External", "external": {"metric": {"name": f"group_{group}"}, "target": goal}}],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 3600}},
            }
            self.cluster.apply(
                {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", **head, "spec": spec}
            )

    def write_metrics(self) -> None:
        """Writes the values, slightly different each time, so that each reconcile has a status to write."""
        self._turn += 1
        less = 1000 + 50 * (self._turn % 89)
        numbers = {f"group_{group}": f"{100_000 * count - less}m" for group, count in self.values.items()}
        fresh = self._folder / "metrics.new"
        fresh.write_text(json.dumps(numbers))
        fresh.rename(self._folder / "metrics.yaml")

    async def metrics(self) -> None:
        while True:
            self.write_metrics()
            await asyncio.sleep(PERIOD / 4)

    async def all_reconciled(self) -> float:
        """Waits until each HPA has had a write from now on; returns the seconds until the last of them."""
        since, begin = self.cluster.clock.now(), len(self.chronicle.read())
        firsts: dict[Key, datetime] = {}
        async with asyncio.timeout(PATIENCE):
            while len(firsts) < HPAS:
                await asyncio.sleep(0.1)
                done = self.chronicle.read()
                for action in done[begin:]:
                    firsts.setdefault(action.key, action.at)
                begin = len(done)
        return (max(firsts.values()) - since).total_seconds()


@contextlib.asynccontextmanager
async def staged(folder: Path, shard_by: str) -> AsyncIterator[Stage]:
    content = {"sources": {"static": {"file": str(folder / "metrics.yaml"), "match": {"metrics": ["group_*"]}}}}
    (folder / "hpad.yaml").write_text(json.dumps(content))
    async with Cluster(auto_ready=True) as cluster:
        stage = Stage(cluster, folder, shard_by)
        stage.populate()
        stage.write_metrics()
        working = [asyncio.create_task(stage.metrics()), asyncio.create_task(stage.chronicle.watch())]
        try:
            for replica in stage.replicas:
                await replica.start()
            yield stage
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            await asyncio.gather(*(replica.stop() for replica in stage.replicas))


async def kill(stage: Stage, victim: Replica) -> float:
    victim.process.kill()
    await victim.process.wait()
    seconds = await stage.all_reconciled()
    await victim.start()
    return seconds


async def stop(stage: Stage, victim: Replica) -> float:
    victim.process.send_signal(signal.SIGSTOP)
    seconds = await stage.all_reconciled()
    victim.process.send_signal(signal.SIGCONT)
    return seconds


async def cut_off(stage: Stage, victim: Replica) -> float:
    victim.relay.vanish()
    seconds = await stage.all_reconciled()
    await asyncio.sleep(max(0.0, CUT_OFF - seconds))
    victim.relay.come_back()
    return seconds


async def end(stage: Stage, victim: Replica) -> float:
    """Stops a replica with SIGTERM, as Kubernetes does."""
    victim.process.terminate()
    await victim.process.wait()
    assert victim.process.returncode == 0
    seconds = await stage.all_reconciled()
    await victim.start()
    return seconds


@pytest.mark.parametrize("shard_by", SHARD_BY)
async def test_three_replicas_share_300_hpas_during_faults(tmp_path: Path, shard_by: str) -> None:
    dice = random.Random(SEED)
    events = [kill, stop, cut_off, end] * ROUNDS
    dice.shuffle(events)
    late: dict[str, float] = {}
    async with staged(tmp_path, shard_by) as stage:
        cluster, chronicle = stage.cluster, stage.chronicle
        await stage.all_reconciled()
        stage.values.update(dict.fromkeys(FALLEN, 2))  # their stabilization window of an hour keeps the pods
        for number, event in enumerate(events):
            await asyncio.sleep(dice.uniform(0, PERIOD / 2))
            stage.values.update({group: min(9, stage.values[group] + 1) for group in RISING})
            victim = dice.choice(stage.replicas)
            late[f"{number}: {event.__name__}"] = await event(stage, victim)
            await stage.all_reconciled()
        processes = 3 + sum(event in (kill, end) for event in events)
        async with asyncio.timeout(PATIENCE):
            while len({each.author for each in chronicle.read()}) < processes:  # noqa: ASYNC110  # there is no event for it
                await asyncio.sleep(0.2)
        done = chronicle.checkable()
        report(chronicle, done, late)
        print(saves(cluster))
        assert [(each, why) for each in done if (why := unauthorized(chronicle, each))] == []
        assert [(pair, why) for pair in followed(done) if (why := taken_too_early(chronicle, *pair))] == []
        assert [pair for pair in followed(done) if (pair[1].at - pair[0].at).total_seconds() < LEASE] == []
        assert chronicle.shrunk == []
        for number in range(HPAS):
            deployment = cluster.get("deployments", f"app-{number}", namespace_of(number))
            group = GROUPS[number % len(GROUPS)]
            expected = 4 if group in FALLEN else stage.values[group]
            assert deployment is not None
            assert deployment["spec"]["replicas"] == expected, f"app-{number}"
        assert len({each.author for each in chronicle.read()}) == processes


QUICK = Election(
    enabled=True,
    shards=True,
    lease_duration=timedelta(seconds=6),
    renew_deadline=timedelta(seconds=5),
    retry_period=timedelta(seconds=0.3),
)


async def test_members_report_their_assignment_and_see_competing_hpas_of_others(world: Any) -> None:
    for number in range(10):
        world.workload("Deployment", f"web-{number}", 15)
        world.hpa(f"web-{number}")
    world.workload("Deployment", "both", 4)
    twins = ("twin-1", "twin-2")
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "both"}
    for twin in twins:
        world.hpa(twin, scaleTargetRef=ref)
    store = settings.StoreSettings(kind="cluster")
    two = [await world.hpad(election=QUICK, store=store, listen=("127.0.0.1", 0)) for _ in range(2)]
    words = re.compile(r"Scaling by (\d+) of 12 HPAs, as one of 2 members")

    def owned_counts() -> list[int]:
        return [int(found[1]) for each in two if (found := words.match(each.status()))]

    await world.until(lambda: len(owned_counts()) == 2 and sum(owned_counts()) == 12)
    await world.until(lambda: all(world.replicas("deployments", f"web-{number}") == 10 for number in range(10)))
    for twin in twins:
        await world.until(lambda name=twin: world.condition(name, "ScalingActive")[1] == "AmbiguousSelector")
    assert world.replicas("deployments", "both") == 4
    async with aiohttp.ClientSession(trust_env=False) as session:
        for each in two:
            async with session.get(f"{each.server.url}/api/v1/status") as answer:
                assert words.match((await answer.json())["doing"])
            async with session.get(f"{each.server.url}/metrics") as answer:
                text = await answer.text()
                assert "hpad_shard_members 2.0" in text
                assert f"hpad_shard_hpas {each.components.controller.ours}.0" in text
                named = set(re.findall(r'desired_replicas\{.*hpa_name="([^"]*)"', text))
                assert len(named) <= each.components.controller.ours, "series of HPAs of the other member"
    await two[0].stop()
    await world.until(lambda: two[1].status() == "Scaling by 12 of 12 HPAs, as one of 1 member")


def saves(cluster: Cluster) -> str:
    """Summarizes the reads and writes of the state in ConfigMaps."""
    found = Counter(write.status for write in cluster.log.writes if write.resource == "configmaps")
    read = cluster.log.count("get", "configmaps")
    return f"state: {sum(found.values())} writes, {found[409]} of them refused as conflicts, and {read} reads"


def report(chronicle: Chronicle, done: list[Action], late: dict[str, float]) -> None:
    pairs = list(followed(done))
    handed_off = [pair for pair in pairs if chronicle.at(pair[0].author, pair[1].at) is not None]
    gaps = sorted((after.at - before.at).total_seconds() for before, after in handed_off)
    print(
        f"seed {SEED}: {len(done)} writes by {len(chronicle.members)} processes; {len(pairs)} times another took over,"
    )
    print(f"at the earliest {gaps[0]:.2f} s after the last write of the previous owner" if gaps else "")
    print(f"writes by process: {sorted(Counter(each.author for each in done).values())}")
    for event, seconds in late.items():
        print(f"{event}: every HPA reconciled after {seconds:.1f} s ({seconds / PERIOD:.2f} periods)")
