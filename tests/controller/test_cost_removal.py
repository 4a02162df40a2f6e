"""The removal of deletion costs: when it happens, which replica does it, and what a refusal costs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.controller import FakeCluster, Source, Switch
from support.virtual_time import VirtualClock, in_virtual_time

from hpad.api.pod import DeletionCost
from hpad.controller.sparing import CostRemoval, kept_seconds
from hpad.engine.deletion_costs import MOST
from hpad.kube import errors

FORBIDDEN = errors.ApiError(403, "Forbidden", 'pods "web-0" is forbidden: User "hpad" cannot patch resource "pods"')


class Bench:
    """Pods of the Deployment "web", marked at the start, and the removal of their costs."""

    def __init__(self, *, pods: int = 1, before: str | None = "10") -> None:
        self.clock = VirtualClock()
        self.cluster = FakeCluster(Source(), self.clock)
        self.cluster.scales["web"] = pods
        self.owner = Switch()
        self.removal = CostRemoval(self.cluster, self.owner, self.clock)
        self.before = before
        self.mark("0")

    def mark(self, at: str) -> None:
        names = [f"web-{number}" for number in range(self.cluster.scales["web"])]
        self.cluster.costs = {name: DeletionCost("-3", f"-3 {at}", self.before) for name in names}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.removal.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def attempts_in(self, seconds: float) -> list[float]:
        """The times of the requests within the given number of seconds."""
        made: list[float] = []
        remove = self.cluster.remove_deletion_cost

        async def counted(pod: Any, allowed: Callable[[], None]) -> None:
            made.append(self.clock.monotonic())
            await remove(pod, allowed)

        self.cluster.remove_deletion_cost = counted  # type: ignore[method-assign]
        await asyncio.sleep(seconds)
        return made


@pytest.mark.parametrize("before", ["10", None])
@in_virtual_time
async def test_a_mark_that_stays_the_same_is_removed_after_a_minute(before: str | None) -> None:
    bench = Bench(before=before)
    async with bench.running():
        await asyncio.sleep(74)
        assert "web-0" in bench.cluster.costs
        await asyncio.sleep(2)
        assert bench.cluster.costs == ({} if before is None else {"web-0": DeletionCost(before)})
        assert await bench.attempts_in(10_000) == []
    assert not bench.removal._marks


@in_virtual_time
async def test_a_mark_of_a_later_scale_down_counts_from_then() -> None:
    bench = Bench()
    async with bench.running():
        for at in range(5):
            bench.mark(str(at))
            await asyncio.sleep(50)
        assert bench.cluster.annotated == []
        await asyncio.sleep(40)
    assert bench.cluster.annotated == ["web-0"]


@in_virtual_time
async def test_a_new_leader_removes_at_once_what_it_has_seen_for_a_minute() -> None:
    bench = Bench()
    bench.owner.on = False
    async with bench.running():
        await asyncio.sleep(1000)
        assert bench.cluster.annotated == []
        bench.owner.on = True
        await asyncio.sleep(16)
    assert bench.cluster.annotated == ["web-0"]


@in_virtual_time
async def test_a_replica_that_loses_its_lease_meanwhile_writes_nothing() -> None:
    bench = Bench()
    remove = bench.cluster.remove_deletion_cost

    async def late(pod: Any, allowed: Callable[[], None]) -> None:
        bench.owner.on = False
        await remove(pod, allowed)

    bench.cluster.remove_deletion_cost = late  # type: ignore[method-assign]
    async with bench.running():
        await asyncio.sleep(1000)
    assert bench.cluster.annotated == []


@in_virtual_time
async def test_without_the_right_the_attempts_become_rare_and_one_line_says_so() -> None:
    bench = Bench(pods=100)
    bench.cluster.annotate_refusal = FORBIDDEN
    with capture_logs() as logs:
        async with bench.running():
            made = await bench.attempts_in(6000)
            assert len(made) <= 8 * 10  # of 100 pods; after 1, 3, 7, 15, 31, and then each 16 minutes
            assert all(made.count(at) <= 8 for at in made)
            bench.cluster.annotate_refusal = None
            await asyncio.sleep(2000)
    assert all(cost.mark is None for cost in bench.cluster.costs.values())
    texts = [line["event"] for line in logs]
    assert texts == [
        "deletion costs of earlier scale-downs cannot be removed from pods",
        "deletion costs of earlier scale-downs removed",
        "deletion costs are removed from pods again",
    ]
    assert "cannot patch" in logs[0]["error"]


@in_virtual_time
async def test_a_pod_that_another_client_has_just_changed_is_left_and_no_line_is_logged() -> None:
    bench = Bench()
    remove = bench.cluster.remove_deletion_cost

    async def late(pod: Any, allowed: Callable[[], None]) -> None:
        bench.cluster.costs["web-0"] = DeletionCost("5")
        await remove(pod, allowed)

    bench.cluster.remove_deletion_cost = late  # type: ignore[method-assign]
    with capture_logs() as logs:
        async with bench.running():
            await asyncio.sleep(1000)
    assert bench.cluster.costs == {"web-0": DeletionCost("5")}
    assert logs == []


@in_virtual_time
async def test_a_cost_that_a_scale_down_sets_while_others_are_removed_stays() -> None:
    bench = Bench(pods=MOST)
    bench.cluster.annotate_seconds = 1
    async with bench.running():
        await asyncio.sleep(80)
        assert 8 <= len(bench.cluster.annotated) < MOST
        last = list(bench.removal._marks)[-1].name  # its turn comes many requests later
        bench.cluster.costs[last] = DeletionCost("-3", "-3 later", "10")
        await asyncio.sleep(50)
        assert [name for name, cost in bench.cluster.costs.items() if cost.mark is not None] == [last]


@in_virtual_time
async def test_pods_that_are_gone_are_forgotten() -> None:
    bench = Bench(pods=3)
    async with bench.running():
        await asyncio.sleep(20)
        assert len(bench.removal._marks) == 3
        bench.cluster.scales["web"] = 0
        await asyncio.sleep(20)
        assert not bench.removal._marks
        await asyncio.sleep(100)
    assert bench.cluster.annotated == []


@in_virtual_time
async def test_a_pod_that_is_deleted_meanwhile_is_no_failure() -> None:
    bench = Bench()
    bench.cluster.annotate_refusal = errors.ApiError(404, "NotFound", 'pods "web-0" not found')
    with capture_logs() as logs:
        async with bench.running():
            await asyncio.sleep(1000)
    assert logs == []


@in_virtual_time
async def test_failures_end_with_their_pods_and_are_logged_again_for_others() -> None:
    bench = Bench()
    bench.cluster.annotate_refusal = FORBIDDEN
    with capture_logs() as logs:
        async with bench.running():
            await asyncio.sleep(1000)
            bench.cluster.scales["web"] = 0
            await asyncio.sleep(1000)
            bench.cluster.scales["web"] = 1
            await asyncio.sleep(1000)
    assert [line["event"].partition(" from pods")[0] for line in logs] == [
        "deletion costs of earlier scale-downs cannot be removed",
        "deletion costs are removed",
        "deletion costs of earlier scale-downs cannot be removed",
    ]


@in_virtual_time
async def test_a_look_removes_a_bounded_number_eight_at_a_time() -> None:
    bench = Bench(pods=MOST + 50)
    bench.cluster.annotate_seconds = 0.1
    async with bench.running():
        await asyncio.sleep(75.05)
        assert bench.cluster.annotated == []
        await asyncio.sleep(MOST / 8 * 0.1)
        assert len(bench.cluster.annotated) == MOST
        await asyncio.sleep(30)
    assert len(bench.cluster.annotated) == MOST + 50
    assert len(set(bench.cluster.annotated)) == MOST + 50


@pytest.mark.parametrize(("period", "seconds"), [(15, 60), (600, 60), (5, 20), (0.1, 10)])
def test_costs_are_kept_for_some_periods(period: float, seconds: float) -> None:
    assert kept_seconds(period) == seconds
