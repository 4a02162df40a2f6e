"""Replicas divide the namespaces: each keeps the pods of its own ones, and decides only once it knows all of them."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from support.relay import SilentRelay

from hpad import settings
from hpad.api.metadata import Key
from hpad.daemon.app import App
from hpad.kube import exclusion
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.watch import ReflectorOptions
from hpad.recording.encode import RecordedReconcile
from hpad.settings.model import SHARD_BY_NAMESPACE, Election

QUICK = Election(
    enabled=True,
    shards=True,
    shard_by=SHARD_BY_NAMESPACE,
    lease_duration=timedelta(seconds=6),
    renew_deadline=timedelta(seconds=5),
    retry_period=timedelta(seconds=0.3),
)
TEAMS = tuple(f"team-{number}" for number in range(8))
PODS = 4
LISTS = r"/namespaces/[^/]+/(pods|deployments)\?limit"


class Seen:
    """Notes the HPA, the pods and the maximum of each decision of one replica, by namespace."""

    def __init__(self, app: App) -> None:
        self.decided: dict[str, list[set[str]]] = defaultdict(list)
        self.maxima: dict[str, list[int | None]] = defaultdict(list)
        self.names: dict[str, list[str]] = defaultdict(list)
        self.errors: list[str] = []
        self.app = app
        reconciler = app.components.reconciler
        reconciler._recorders = (*reconciler._recorders, self)

    def note(self, done: RecordedReconcile) -> None:
        view = done.view
        self.decided[view.hpa.metadata.namespace].append({pod.name for pod in view.pods})
        self.names[view.hpa.metadata.namespace].append(view.hpa.metadata.name)
        self.maxima[view.hpa.metadata.namespace].append(view.hpa.spec.max_replicas)
        if view.scale_error is not None:
            self.errors.append(str(view.scale_error))

    @property
    def owned(self) -> set[str]:
        components = self.app.components
        owner = components.coordinator.owner if components.coordinator is not None else None
        return {
            hpa.metadata.namespace
            for hpa in components.hpas.values()
            if owner is not None and owner.owns(hpa.metadata.key)
        }

    @property
    def kept(self) -> set[str]:
        return {key.namespace for key in self.app.components.cluster.pods.keys("")}


class Stage:
    """A world whose namespaces have a Deployment and an HPA each, and replicas, each behind its own relay."""

    def __init__(self, world: Any, least_left_out: int) -> None:
        self.world = world
        self.options = ReflectorOptions(least_left_out=least_left_out)
        self.relays: list[SilentRelay] = []
        self.replicas: list[Seen] = []

    async def start(self) -> Seen:
        relay = SilentRelay(int(self.world.cluster.url.rpartition(":")[2]))
        await relay.start()
        self.relays.append(relay)
        config = ClusterConfig(server=f"http://127.0.0.1:{relay.port}")
        store = settings.StoreSettings(kind="cluster")
        options = self.options
        seen = Seen(
            await self.world.hpad(election=QUICK, store=store, cluster_config=config, reflector_options=options)
        )
        self.replicas.append(seen)
        return seen

    def populate(self, namespace: str) -> None:
        apply, head = self.world.cluster.apply, {"name": "web", "namespace": namespace}
        apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}
        labels = {"app": f"web-{namespace}"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec: Any = {"replicas": PODS, "selector": {"matchLabels": labels}, "template": template}
        apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": head, "spec": spec})
        target = {"type": "Utilization", "averageUtilization": 50}
        spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        }
        apply({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": head, "spec": spec})

    def pods(self, namespace: str) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.world.cluster.list("pods", namespace))

    async def ready(self, *namespaces: str) -> None:
        await self.world.until(lambda: all(len(self.pods(each)) == PODS for each in namespaces))

    async def decides(self, seen: Seen, *namespaces: str) -> None:
        """Waits until the replica has decided once more in each of the namespaces."""
        before = {each: len(seen.decided[each]) for each in namespaces}
        await self.world.until(lambda: all(len(seen.decided[each]) > count for each, count in before.items()))

    async def divided(self, *replicas: Seen) -> None:
        await self.world.until(
            lambda: (
                sorted(each for seen in replicas for each in seen.owned) == sorted(TEAMS)
                and all(seen.owned for seen in replicas)
            )
        )


@pytest.fixture
def least_left_out() -> int:
    """The number of other replicas' HPAs for which a watch leaves out their namespaces: so few leave out none."""
    return ReflectorOptions().least_left_out


@pytest.fixture
async def stage(world: Any, least_left_out: int) -> AsyncIterator[Stage]:
    made = Stage(world, least_left_out)
    for namespace in TEAMS:
        made.populate(namespace)
    await made.ready(*TEAMS)
    try:
        yield made
    finally:
        for relay in made.relays:
            relay.come_back()
        for seen in made.replicas:
            await seen.app.stop()
        for relay in made.relays:
            await relay.stop()


async def churn(stage: Stage, anchors: dict[str, set[str]]) -> None:
    """Replaces the pods that are no anchors, one after another."""
    while True:
        for namespace in anchors:
            for name in set(stage.pods(namespace)) - anchors[namespace]:
                stage.world.cluster.delete("pods", name, namespace, grace=0)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("least_left_out", [100, 1])
async def test_pods_are_known_completely_whenever_a_namespace_changes_hands_while_pods_change(stage: Stage) -> None:
    """Three pods of each namespace stay: a decision without them would be wrong. The lists of namespaces are slow."""
    world = stage.world
    anchors = {namespace: set(stage.pods(namespace)[:3]) for namespace in TEAMS}
    changing = asyncio.create_task(churn(stage, anchors))
    try:
        first = await stage.start()
        await stage.decides(first, *TEAMS)
        slow = world.cluster.faults.add(method="GET", path=LISTS, delay=1.0, times=None)
        second = await stage.start()
        await stage.divided(first, second)
        await stage.decides(first, *first.owned)
        await stage.decides(second, *second.owned)
        for seen in (first, second):
            await world.until(lambda seen=seen: seen.kept == seen.owned)
        stage.relays[0].vanish()
        await world.until(lambda: second.owned == set(TEAMS))
        await stage.decides(second, *TEAMS)
        assert slow.hits
        stage.relays[0].come_back()
        await stage.divided(first, second)
        await stage.decides(first, *first.owned)
    finally:
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)
    for seen in (first, second):
        for namespace, pods in seen.decided.items():
            assert all(anchors[namespace] <= known for known in pods), namespace
        assert [error for error in seen.errors if "not listed" in error] == []
    assert {world.cluster.get("deployments", "web", each)["spec"]["replicas"] for each in TEAMS} == {PODS}


async def test_nothing_is_decided_after_a_takeover_until_the_pods_are_listed(stage: Stage) -> None:
    world = stage.world
    first, second = await stage.start(), await stage.start()
    await stage.divided(first, second)
    await stage.decides(first, *first.owned)
    lost = set(first.owned)
    stuck = world.cluster.faults.add(method="GET", path=LISTS, status=503, times=None)
    stage.relays[0].vanish()
    await world.until(lambda: second.owned == set(TEAMS))
    await stage.decides(second, *(second.owned - lost))
    begun = {namespace: len(second.decided[namespace]) for namespace in lost}
    await world.until(lambda: stuck.hits > 3)
    await world.periods(QUICK.lease_duration.total_seconds() / 0.4 + 10)  # longer than any cooldown
    assert {namespace: len(second.decided[namespace]) for namespace in lost} == begun
    assert any("of the namespace" in problem for problem in second.app.problems())
    world.cluster.faults.clear()
    await stage.decides(second, *lost)
    assert second.errors == []
    await world.until(lambda: not any("of the namespace" in problem for problem in second.app.problems()))


async def test_a_status_that_another_replica_writes_is_read_when_it_is_asked_for(stage: Stage) -> None:
    world = stage.world
    first, second = await stage.start(), await stage.start()
    await stage.divided(first, second)
    key, own = Key(min(second.owned), "web"), set(first.owned)
    cache = first.app.components.cluster.hpas
    deployment = world.cluster.get("deployments", key.name, key.namespace)
    deployment["spec"]["replicas"] = PODS + 1
    world.cluster.apply(deployment)
    await world.until(lambda: key in cache._unread)

    def same() -> bool:
        written = world.cluster.get("horizontalpodautoscalers", key.name, key.namespace)
        known = cache.get(key)
        return known is not None and known.metadata.resource_version == written["metadata"]["resourceVersion"]

    await world.until(same)
    assert key not in cache._unread
    assert not [each for each in cache._unread if each.namespace in own]


async def test_an_hpa_that_was_edited_while_another_replica_owned_it_is_decided_by_its_new_spec(stage: Stage) -> None:
    world = stage.world
    first, second = await stage.start(), await stage.start()
    await stage.divided(first, second)
    key = Key(min(second.owned), "web")
    edited = world.cluster.get("horizontalpodautoscalers", key.name, key.namespace)
    edited["spec"]["maxReplicas"] = 7
    world.cluster.apply(edited)
    await world.until(lambda: key in first.app.components.cluster.hpas._unread)
    before = len(first.decided[key.namespace])
    stage.relays[1].vanish()
    await world.until(lambda: len(first.decided[key.namespace]) > before + 1)
    assert set(first.maxima[key.namespace][before:]) == {7}


@pytest.mark.parametrize("least_left_out", [1])
async def test_hpas_that_a_watch_leaves_out_are_read_when_they_are_shown_or_gained(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile one is edited, one deleted, and one created."""
    world = stage.world
    first, second = await stage.start(), await stage.start()
    await stage.divided(first, second)
    edited, deleted, *_ = sorted(second.owned)
    cache = first.app.components.cluster.hpas
    await world.until(lambda: cache.lacks(edited) and cache.lacks(deleted))
    await stage.decides(second, edited)

    def apply(name: str, maximum: int) -> None:
        hpa = world.cluster.get("horizontalpodautoscalers", "web", edited)
        spec = {**hpa["spec"], "maxReplicas": maximum}
        spec["scaleTargetRef"] = {**spec["scaleTargetRef"], "name": name}
        head = {"apiVersion": hpa["apiVersion"], "kind": hpa["kind"]}
        world.cluster.apply({**head, "metadata": {"name": name, "namespace": edited}, "spec": spec})

    apply("web", 7)
    world.cluster.delete("horizontalpodautoscalers", "web", deleted)
    await world.until(lambda: second.maxima[edited][-1] == 7)
    assert cache.get(Key(edited, "web")).spec.max_replicas == 10
    assert Key(deleted, "web") in cache

    monkeypatch.setattr(exclusion, "FRESH", 0.0)
    await cache.shown([Key(edited, "web")])
    assert cache.get(Key(edited, "web")).spec.max_replicas == 7
    assert Key(deleted, "web") not in cache

    await world.until(lambda: cache.lacks(edited))
    apply("web", 8)
    apply("late", 8)
    await world.until(lambda: second.maxima[edited][-1] == 8 and "late" in second.names[edited])
    before = len(first.decided[edited])
    assert "late" not in first.names[edited]
    stage.relays[1].vanish()
    await world.until(lambda: "late" in first.names[edited][before:] and "web" in first.names[edited][before:])
    assert set(first.maxima[edited][before:]) == {8}
    assert [error for error in first.errors if "not listed" in error] == []


@pytest.mark.parametrize("least_left_out", [100, 1])
async def test_a_namespace_that_appears_later_is_decided_by_one_replica_alone(stage: Stage) -> None:
    world = stage.world
    first, second = await stage.start(), await stage.start()
    await stage.divided(first, second)
    new = [f"later-{number}" for number in range(6)]
    for namespace in new:
        stage.populate(namespace)
    await stage.ready(*new)
    await world.until(lambda: all(first.decided.get(each) or second.decided.get(each) for each in new))
    for namespace in new:
        owner, other = (first, second) if namespace in first.owned else (second, first)
        assert namespace in owner.kept
        assert namespace not in other.kept
        assert not other.decided.get(namespace)
        await world.until(lambda owner=owner, each=namespace: set(stage.pods(each)) == owner.decided[each][-1])
    gone = next(each for each in new if each in first.owned)
    world.cluster.delete("horizontalpodautoscalers", "web", gone)
    with contextlib.suppress(TimeoutError):
        await world.until(lambda: gone not in first.kept, 60)
    assert gone not in first.kept, "its pods concern no HPA any more"
