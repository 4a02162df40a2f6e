"""Which pods belong to a target: chains of controllers, unknown ones, and kinds that cannot be listed."""

import asyncio
from typing import Any

import pytest
from support import virtual_time
from support.scripted_server import QUICK, failure, hangs, says

from hpad.api.hpa import CrossVersionObjectReference, Scale
from hpad.api.pod import Pod, PodOwner
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.cache import Cache
from hpad.kube.client import Client
from hpad.kube.cluster import Cluster, Watching
from hpad.kube.errors import ApiError
from hpad.kube.owners import PodOwners
from hpad.kube.reflector import WatchScope
from hpad.kube.scale import WATCHED

EMPTY = ("/api/v1/pods", "/api/v1/replicationcontrollers", "/apis/autoscaling/v2/horizontalpodautoscalers")
WIDGET = CrossVersionObjectReference("Widget", "web", "example.com/v1")
DEPLOYMENT = CrossVersionObjectReference("Deployment", "web", "apps/v1")


def owner(kind: str, name: str, uid: str | None = None, group: str = "apps") -> PodOwner:
    return PodOwner(group, kind, name, uid or f"uid-{name}")


def made(name: str, controller: PodOwner | None = None, **head: Any) -> dict[str, Any]:
    """An object of apps/v1 whose uid is `uid-NAME`."""
    references = []
    if controller is not None:
        version = f"{controller.group}/v1"
        reference = {"apiVersion": version, "kind": controller.kind, "name": controller.name, "uid": controller.uid}
        references = [{**reference, "uid": "another", "name": "another"}, {**reference, "controller": True}]
    metadata = {"name": name, "namespace": "n", "uid": f"uid-{name}", "resourceVersion": "1", **head}
    return {"metadata": {**metadata, "ownerReferences": references}, "spec": {}}


REPLICA_SETS = [
    made("web-1", owner("Deployment", "web")),
    made("other-1", owner("Deployment", "other")),
    made("widget-1", owner("Widget", "web", "uid-widget", "example.com")),
    made("inner-1", owner("Deployment", "inner")),
    made("alone"),
    made("circle", owner("ReplicaSet", "circle")),
]
DEPLOYMENTS = [made("inner", owner("Widget", "web", "uid-widget", "example.com"))]


@pytest.fixture
async def cluster(script: Any, client: Any, clock: Any, running: Any) -> Cluster:
    lists = {
        **dict.fromkeys(EMPTY, None),
        "/apis/apps/v1/replicasets": REPLICA_SETS,
        "/apis/apps/v1/deployments": DEPLOYMENTS,
        "/apis/apps/v1/statefulsets": None,
    }
    for path, items in lists.items():
        script.on("GET", path, says({"metadata": {"resourceVersion": "1"}, "items": items}))
        script.on("GET", path + "?watch", hangs)
    cluster = Cluster(client, Watching(options=QUICK))
    running(cluster.run())
    await asyncio.wait_for(cluster.ready(), 60)
    return cluster


def pod(name: str, controller: PodOwner | None, *, deleted: bool = False) -> Pod:
    return Pod(name=name, namespace="n", owner=controller, deleted=deleted)


async def owned(cluster: Cluster, target: CrossVersionObjectReference, uid: str, *pods: Pod) -> list[str]:
    found = await cluster.owned(target, Scale(metadata={"uid": uid}), pods)
    return [each.name for each in found.pods]


async def test_pods_of_a_deployment_are_those_of_its_replica_sets(cluster: Cluster) -> None:
    pods = [
        pod("own", owner("ReplicaSet", "web-1")),
        pod("of-another", owner("ReplicaSet", "other-1")),
        pod("of-a-set-of-nobody", owner("ReplicaSet", "alone")),
        pod("of-a-job", owner("Job", "web-1", group="batch")),
        pod("of-nobody", None),
    ]
    assert await owned(cluster, DEPLOYMENT, "uid-web", *pods) == ["own"]


async def test_an_owner_of_the_same_name_with_another_uid_is_another_object(cluster: Cluster) -> None:
    assert await owned(cluster, DEPLOYMENT, "uid-of-its-successor", pod("a", owner("ReplicaSet", "web-1"))) == []


async def test_pods_of_kinds_that_own_pods_themselves_need_no_list(cluster: Cluster, script: Any) -> None:
    for kind, version in (("StatefulSet", "apps/v1"), ("replicaset", "apps/v1"), ("ReplicationController", "v1")):
        target = CrossVersionObjectReference(kind, "db", version)
        pods = pod("db-0", owner(kind, "db")), pod("b", owner("ReplicaSet", "unknown"))
        assert await owned(cluster, target, "uid-db", *pods) == ["db-0"]
    assert not script.count("/apis/apps/v1/replicasets")


async def test_the_controllers_between_a_custom_resource_and_its_pods_are_followed(cluster: Cluster) -> None:
    pods = [
        pod("direct", owner("Widget", "web", "uid-widget", "example.com")),
        pod("by-a-set", owner("ReplicaSet", "widget-1")),
        pod("by-a-deployment", owner("ReplicaSet", "inner-1")),
        pod("in-a-circle", owner("ReplicaSet", "circle")),
        pod("of-another-kind", owner("Gadget", "web", group="example.com")),
    ]
    assert await owned(cluster, WIDGET, "uid-widget", *pods) == ["direct", "by-a-set", "by-a-deployment"]
    unlisted = '"of-web" belongs to Widget "web": its controller Deployment "web" is not known'
    with pytest.raises(ApiError, match=unlisted):
        await owned(cluster, WIDGET, "uid-widget", pod("of-web", owner("ReplicaSet", "web-1")))


async def test_a_pod_of_an_unknown_replica_set_is_an_error_unless_it_is_being_deleted(cluster: Cluster) -> None:
    own, owner_gone = pod("own", owner("ReplicaSet", "web-1")), owner("ReplicaSet", "web-2")
    for unknown in (owner_gone, owner("ReplicaSet", "web-1", "uid-of-its-predecessor")):
        with pytest.raises(ApiError, match=f'its controller ReplicaSet "{unknown.name}" is not known'):
            await owned(cluster, DEPLOYMENT, "uid-web", own, pod("new", unknown))
    assert await owned(cluster, DEPLOYMENT, "uid-web", own, pod("old", owner_gone, deleted=True)) == ["own"]


async def test_a_kind_that_cannot_be_listed_is_named(cluster: Cluster, script: Any) -> None:
    refusal = says(failure(403, "Forbidden", "you may not list replicasets"), 403)
    script.replace("GET", "/apis/apps/v1/replicasets", refusal)
    with pytest.raises(ApiError, match=r"replicasets\.apps: you may not list replicasets"):
        await owned(cluster, DEPLOYMENT, "uid-web", pod("a", owner("ReplicaSet", "web-1")))


def test_a_list_that_does_not_come_is_waited_for_once() -> None:
    """Twenty pods of as many ReplicaSets, all being deleted, and a server that does not answer."""

    async def main() -> tuple[list[Pod], float, float]:
        clock = virtual_time.VirtualClock()
        scope = WatchScope(Client(ClusterConfig("http://127.0.0.1:1"), clock))
        owners = PodOwners({("apps", "ReplicaSet"): Cache(scope, WATCHED[1])}, lambda _: None, clock)
        pods = [pod(f"old-{n}", owner("ReplicaSet", f"web-{n}"), deleted=True) for n in range(20)]
        found = await owners.owned(DEPLOYMENT, "uid-web", pods)
        first = clock.monotonic()
        await owners.owned(DEPLOYMENT, "uid-web", pods)
        return found.pods, first, clock.monotonic() - first

    found, first, second = virtual_time.run(main())
    assert found == []
    assert (first, second) == (5.0, 0.0)


async def test_the_controllers_between_the_target_and_its_pods_and_above_it_are_related(cluster: Cluster) -> None:
    inner, replica_set = owner("Deployment", "inner"), owner("ReplicaSet", "inner-1")
    widget = owner("Widget", "web", "uid-widget", "example.com")
    pods = [pod("mine", replica_set), pod("other", owner("ReplicaSet", "alone"))]

    async def related(target: CrossVersionObjectReference, uid: str) -> set[PodOwner]:
        return set((await cluster.owned(target, Scale(metadata={"uid": uid}), pods)).related)

    assert await related(WIDGET, "uid-widget") == {inner, replica_set}
    assert await related(CrossVersionObjectReference("Deployment", "inner", "apps/v1"), "uid-inner") == {
        replica_set,
        widget,
    }
    assert await related(CrossVersionObjectReference("ReplicaSet", "inner-1", "apps/v1"), "uid-inner-1") == {
        inner,
        widget,
    }
    assert await related(CrossVersionObjectReference("Deployment", "none", "apps/v1"), "uid-none") == set()


async def test_a_scale_without_a_uid_is_an_error(cluster: Cluster) -> None:
    with pytest.raises(ApiError, match=r"no metadata\.uid"):
        await owned(cluster, DEPLOYMENT, "", pod("a", owner("ReplicaSet", "web-1")))
