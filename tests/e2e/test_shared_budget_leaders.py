"""HPAs that share a budget under two replicas of hpad, of which one leads: the API server's own record of the counts.

The loads change at random, and the leader is killed, stopped in good order, and paused for longer than its lease. Every
write that the API server takes is noted with the sum after it, which is never above the budget. Other seeds:
HPAD_CRASH_SEEDS="1 2 3"; more faults: HPAD_EFFORT=5.
"""

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Any

import pytest
from e2e.test_election import holder, logged, process
from e2e.test_shared_budget import AT_ONCE, sharing
from support import environment

from hpad.settings.hpas import SharedBudget

SEEDS = [int(seed) for seed in os.environ.get("HPAD_CRASH_SEEDS", "20260101").split()]
AMOUNT = 20
PRIORITIES = {"web": 0, "mail": 0, "shop": 1, "batch": -1}
FAULTS: list[dict[str, Any]] = [
    {"status": 409}, {"status": 500}, {"reset": True}, {"truncate": True}, {"delay": 0.7},
]  # fmt: skip
LEAST = 2000
"""Millicores of a load for 40 replicas."""


class Audit:
    """The counts after each write that the API server took, as it took them."""

    def __init__(self, world: Any) -> None:
        self.counts = {name: world.replicas("deployments", name) for name in PRIORITIES}
        self.sums: list[int] = []
        world.cluster.store.subscribe(self._seen)

    def _seen(self, change: Any) -> None:
        found = change.object
        if (
            change.resource.plural == "deployments"
            and self.counts[found["metadata"]["name"]] != found["spec"]["replicas"]
        ):
            self.counts[found["metadata"]["name"]] = found["spec"]["replicas"]
            self.sums.append(sum(self.counts.values()))


class Pair:
    """Two replicas of hpad at a time; one that ends gets a successor."""

    def __init__(self, world: Any, folder: Path, stack: AsyncExitStack) -> None:
        self._world, self._folder, self._stack = world, folder, stack
        self._alive: list[tuple[asyncio.subprocess.Process, Path]] = []
        self._numbers: Iterator[int] = iter(range(100))

    async def start(self) -> None:
        """Starts a replica that stands for election."""
        kubeconfig = await self._world.cluster.kubeconfig(self._folder / "kubeconfig")
        log = self._folder / f"{next(self._numbers)}.log"
        started = await self._stack.enter_async_context(
            process(kubeconfig, log, self._folder / "hpad.yaml", period="500ms")
        )
        self._alive.append((started, log))
        await self._world.until(lambda: logged(log, "standing for election"))

    async def end_the_leader(self, signal: int) -> None:
        """Ends or pauses the leader with a signal. Returns once the other replica leads; a paused one then goes on."""
        (leader, log), before = self._alive[0], holder(self._world)
        leader.send_signal(signal)
        await self._world.until(lambda: holder(self._world) not in ("", before))
        self._alive.remove((leader, log))
        if signal == SIGSTOP:
            leader.send_signal(SIGCONT)
            await self._world.until(lambda: logged(log, "stopped leading"))
            self._alive.append((leader, log))
        else:
            await leader.wait()
            await self.start()


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_write_exceeds_the_budget_whichever_replica_leads(world: Any, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    def moving(first: bool) -> None:
        """Changes all loads. They need more than there is, with or without that of the highest priority."""
        for name in PRIORITIES:
            total = chance.randrange(LEAST, 2 * LEAST) if first or name != "shop" else 0
            world.load(name, lambda pods, total=total: min(1000, total // max(pods, 1)))

    (tmp_path / "hpad.yaml").write_text(f"budgets: {{gpu: {{replicas: {AMOUNT}}}}}\n")
    for name, priority in PRIORITIES.items():
        world.workload("Deployment", name, 1)
        sharing(world, name, priority, behavior=AT_ONCE)
    audit = Audit(world)
    async with AsyncExitStack() as stack:
        pair = Pair(world, tmp_path, stack)
        await pair.start()
        moving(first=True)
        await world.until(lambda: audit.counts["shop"] == AMOUNT - 3)
        await pair.start()
        for signal, first in ((SIGKILL, False), (SIGTERM, True), (SIGSTOP, False)):
            moving(first)
            await asyncio.sleep(chance.uniform(0, 1.5))
            await pair.end_the_leader(signal)
            shop = AMOUNT - 3 if first else 1
            await world.until(lambda shop=shop: audit.counts["shop"] == shop and sum(audit.counts.values()) == AMOUNT)
        moving(first=True)
        await world.until(lambda: audit.counts["shop"] == AMOUNT - 3 and sum(audit.counts.values()) == AMOUNT)
        assert audit.counts == {"web": 1, "mail": 1, "shop": AMOUNT - 3, "batch": 1}
    assert max(audit.sums) == AMOUNT


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_write_exceeds_the_budget_while_reads_and_writes_of_scales_fail(world: Any, seed: int) -> None:
    chance = random.Random(seed)
    for name, priority in PRIORITIES.items():
        world.workload("Deployment", name, 1)
        sharing(world, name, priority, behavior=AT_ONCE)
    audit = Audit(world)
    await world.hpad(budgets=(SharedBudget(name="gpu", replicas=AMOUNT),))
    for _ in range(10 * environment.EFFORT):
        for name in PRIORITIES:
            total = chance.choice((0, 300, LEAST, 2 * LEAST))
            world.load(name, lambda pods, total=total: min(1000, total // max(pods, 1)))
        for _ in range(3):
            method, times = chance.choice(("PUT", "PATCH", "GET")), chance.randrange(1, 3)
            world.cluster.faults.add(path="scale", method=method, times=times, **chance.choice(FAULTS))
        await world.periods(1.5)
    world.cluster.faults.clear()
    for name in PRIORITIES:
        world.load(name, 1000)
    await world.until(lambda: audit.counts["shop"] == AMOUNT - 3)
    assert max(audit.sums) == AMOUNT
