"""Deletion costs that nothing would remove but their time: of HPAs deleted or paused, and of a process that ended."""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from adapters.test_rabbitmq_consumers import broker_of, channels, consumer
from aiohttp import web
from e2e.conftest import World, worlds
from support.http_stub import serving

from hpad import settings
from hpad.daemon import assembly
from hpad.lab.cluster import Cluster
from hpad.lab.cluster.resources import PODS

COST = "controller.kubernetes.io/pod-deletion-cost"
ORDER = {"hpad.io/scale-down-order": "idle-first"}
REPLICAS = 5
Json = dict[str, Any]


class Costs:
    """Five pods with a user's cost of their own, of which one is busy, and an HPA that wants one pod.

    Four pods go, so hpad raises the cost of the busy one above theirs, and that cost stays on its pod.
    """

    def __init__(self, world: World, sources: tuple[settings.SourceSettings, ...]) -> None:
        self.world = world
        self.busy = ""
        self._sources = sources

    async def start(self) -> None:
        self.world.workload("Deployment", "web", REPLICAS)
        await self.world.until(lambda: len(self.world.pods("web")) == REPLICAS)
        for number, pod in enumerate(self.world.pods("web")):
            self.annotate(pod, {COST: str(number - 200)})
        self.busy = self.world.pods("web")[0]["metadata"]["name"]
        self.hpa(ORDER)

    def hpa(self, annotations: dict[str, str], *, target: str = "web") -> None:
        metric = {"name": "queue_messages_unacknowledged", "selector": {"matchLabels": {"queue": "jobs"}}}
        goal = {"type": "AverageValue", "averageValue": "1"}
        made = self.world.hpa("web", metrics=[{"type": "External", "external": {"metric": metric, "target": goal}}])
        made["spec"]["scaleTargetRef"]["name"] = target
        self.world.cluster.apply({**made, "metadata": {**made["metadata"], "annotations": annotations}})

    def annotate(self, pod: Json, annotations: dict[str, str]) -> None:
        self.world.cluster.store.update(PODS, {**pod, "metadata": {**pod["metadata"], "annotations": annotations}})

    async def hpad(self, **changes: Any) -> None:
        """Starts another hpad."""
        await self.world.hpad(sources=self._sources, sync_period=timedelta(seconds=2), **changes)

    def marked(self) -> list[Json]:
        """The pods with an annotation of hpad."""
        return [pod for pod in self.world.pods("web") if any(name.startswith("hpad.io/") for name in texts(pod))]

    def cost(self, name: str) -> str | None:
        pod = self.world.cluster.get("pods", name)
        return None if pod is None else texts(pod).get(COST)

    def at(self, condition: Callable[[], Any], act: Callable[[], None]) -> None:
        """Acts once, in the server, as soon as a change has made the condition true."""
        done = False

        def seen(change: Any) -> None:
            nonlocal done
            if not done and condition():
                done = True
                act()

        self.world.cluster.store.subscribe(seen)

    async def until_restored(self) -> None:
        await self.world.until(lambda: not self.marked())
        for pod in self.world.pods("web"):
            assert int(texts(pod)[COST]) <= -100
        await self.world.until(lambda: not self.world.daemon.components.cluster.pods.marked)


def texts(pod: Json) -> dict[str, str]:
    found: dict[str, str] = pod["metadata"].get("annotations") or {}
    return found


@pytest.fixture
async def costs(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Costs]:
    monkeypatch.setattr(assembly, "kept_seconds", lambda period: 1.0)  # otherwise ten seconds or more

    async def broker(request: web.BaseRequest) -> web.StreamResponse:
        consumers = [consumer(made.busy, tag=made.busy)]
        return await broker_of(consumers, channels(**{made.busy: 1}), 1)(request)

    async with serving(broker) as url, worlds(Cluster(auto_ready=True)) as world:
        made = Costs(world, (settings.SourceSettings(name="broker", adapter="rabbitmq", settings={"url": url}),))
        await made.start()
        yield made


async def test_of_an_hpa_deleted_before_the_scale_is_written(costs: Costs) -> None:
    world = costs.world
    # The busy pod gets its cost at once, and the HPA is gone before the scale is written.
    costs.at(costs.marked, lambda: world.cluster.delete("horizontalpodautoscalers", "web"))
    held = world.cluster.faults.add(method="PUT", path="/deployments/web/scale", times=None, delay=0.5, status=503)
    await costs.hpad()
    await world.until(costs.marked)
    await costs.until_restored()
    assert world.replicas("deployments", "web") == REPLICAS == len(world.pods("web"))
    assert held.hits <= 1


async def test_of_an_hpa_deleted_after_the_scale_was_written(costs: Costs) -> None:
    world = costs.world
    costs.at(
        lambda: world.replicas("deployments", "web") == 1,
        lambda: world.cluster.delete("horizontalpodautoscalers", "web"),
    )
    await costs.hpad()
    await world.until(lambda: [pod["metadata"]["name"] for pod in world.pods("web")] == [costs.busy])
    await costs.until_restored()


@pytest.mark.parametrize("mode", ["paused", "shadow"])
async def test_of_an_hpa_that_may_write_nothing_to_its_target_any_more(costs: Costs, mode: str) -> None:
    """The costs are hpad's own, of the time before; the target is left alone."""
    world = costs.world
    costs.at(costs.marked, lambda: costs.hpa({**ORDER, "hpad.io/mode": mode}))
    world.cluster.faults.add(method="PUT", path="/deployments/web/scale", times=None, delay=0.5, status=503)
    await costs.hpad()
    await world.until(costs.marked)
    await costs.until_restored()
    assert world.replicas("deployments", "web") == REPLICAS == len(world.pods("web"))


async def test_of_an_hpa_that_scales_something_else_now(costs: Costs) -> None:
    world = costs.world
    world.workload("Deployment", "other", 1)
    costs.at(costs.marked, lambda: costs.hpa(ORDER, target="other"))
    world.cluster.faults.add(method="PUT", path="/deployments/web/scale", times=None, delay=0.5, status=503)
    await costs.hpad()
    await world.until(costs.marked)
    await costs.until_restored()


@pytest.mark.parametrize("edited", ["5", None])
async def test_a_cost_that_a_user_edits_meanwhile_stays(costs: Costs, edited: str | None) -> None:
    world = costs.world

    def edit() -> None:
        pod = costs.marked()[0]
        kept = {name: text for name, text in texts(pod).items() if name != COST}
        costs.annotate(pod, kept | ({} if edited is None else {COST: edited}))

    costs.at(lambda: world.replicas("deployments", "web") == 1, edit)
    await costs.hpad()
    await world.until(lambda: costs.cost(costs.busy) == edited and not costs.marked())
    await world.until(lambda: not world.daemon.components.cluster.pods.marked)
    assert costs.cost(costs.busy) == edited


async def test_a_dry_run_leaves_them(costs: Costs) -> None:
    mark = {COST: "-3", "hpad.io/deletion-cost-set": "-3 2026-11-30T08:00:00Z"}
    costs.annotate(costs.world.pods("web")[0], mark)
    await costs.hpad(dry_run=True)
    await costs.world.until(lambda: costs.world.daemon.components.cluster.pods.marked)
    background = [component.name for component in costs.world.daemon._start_order()]
    assert "caches" in background
    assert "removal of deletion costs" not in background


async def test_of_a_process_that_ended_while_its_hpa_was_deleted(costs: Costs) -> None:
    world = costs.world
    costs.at(costs.marked, lambda: world.cluster.delete("horizontalpodautoscalers", "web"))
    world.cluster.faults.add(method="PUT", path="/scale", times=None, status=503)
    await costs.hpad()
    first = world.daemon
    first.components.costs.kept = 1000.0
    await world.until(costs.marked)
    await first.stop()
    assert costs.marked()
    await costs.hpad()
    await costs.until_restored()
