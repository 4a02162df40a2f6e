"""Workload controllers: creation, replacement and deletion of pods in the order of Kubernetes."""

import asyncio
from datetime import UTC, datetime, timedelta

from hpad.clock import SystemClock
from hpad.lab.cluster.resources import PODS as PODS_KIND

PODS = "/api/v1/namespaces/default/pods"


def names(cluster):
    return [pod["metadata"]["name"] for pod in cluster.list("pods") if "deletionTimestamp" not in pod["metadata"]]


def ready(cluster, name, value="True", since="2026-01-01T00:00:00Z"):
    condition = {"type": "Ready", "status": value, "lastTransitionTime": since}
    cluster.set_pod_status(name, {"phase": "Running", "conditions": [condition]})


async def test_a_deployment_creates_a_replica_set_which_creates_pods(start, workload, until):
    client = await start(auto_ready=True)
    client.cluster.apply(workload("Deployment", "web", replicas=3))
    await until(lambda: client.cluster.get("deployments", "web")["status"].get("availableReplicas") == 3)
    (replica_set,) = client.cluster.list("replicasets")
    label = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert replica_set["metadata"]["name"] == f"web-{label}"
    assert replica_set["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": label}
    pods = client.cluster.list("pods")
    assert len(pods) == 3
    for pod in pods:
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("ReplicaSet", f"web-{label}", True)
        assert pod["metadata"]["name"].startswith(f"web-{label}-")
        assert pod["metadata"]["labels"] == {"app": "web", "pod-template-hash": label}
    status = client.cluster.get("deployments", "web")["status"]
    assert {condition["type"] for condition in status["conditions"]} == {"Available", "Progressing"}
    assert (status["replicas"], status["readyReplicas"], status["observedGeneration"]) == (3, 3, 1)


async def test_a_new_template_rolls_within_surge_and_unavailability(start, workload, until):
    client = await start(auto_ready=True)
    client.cluster.apply(workload("Deployment", "web", replicas=4))
    await until(lambda: client.cluster.get("deployments", "web")["status"].get("availableReplicas") == 4)
    before, counts = set(names(client.cluster)), []
    client.cluster.store.subscribe(lambda _: counts.append(len(names(client.cluster))))
    client.cluster.apply(workload("Deployment", "web", replicas=4, command=["sleep", "2000"]))
    await until(
        lambda: (
            (status := client.cluster.get("deployments", "web")["status"]).get("updatedReplicas") == 4
            and status["replicas"] == 4
            and status["observedGeneration"] == 2
        )
    )
    assert before.isdisjoint(names(client.cluster))
    assert min(counts) >= 3
    assert max(counts) <= 5
    old, new = sorted(client.cluster.list("replicasets"), key=lambda each: each["spec"]["replicas"])
    assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (0, 4)


async def test_a_rolling_update_waits_for_unready_pods(start, workload, until):
    client = await start(kubelet=False)
    client.cluster.apply(workload("Deployment", "web", replicas=4))
    for name in await until(lambda: len(names(client.cluster)) == 4 and names(client.cluster)):
        ready(client.cluster, name)
    await until(lambda: client.cluster.get("deployments", "web")["status"].get("availableReplicas") == 4)
    client.cluster.apply(workload("Deployment", "web", replicas=4, command=["sleep", "2000"]))

    def counts():
        return sorted(each["spec"]["replicas"] for each in client.cluster.list("replicasets"))

    await until(lambda: counts() == [2, 3])
    await until(lambda: client.cluster.get("deployments", "web")["status"]["availableReplicas"] == 3)
    await asyncio.sleep(0.2)
    assert counts() == [2, 3]


async def test_recreate_waits_for_the_removal_of_the_old_pods(start, workload, until):
    client = await start(auto_ready=True)
    plan = {"strategy": {"type": "Recreate"}}
    client.cluster.apply(workload("Deployment", "web", replicas=2, **plan))
    first = await until(lambda: len(names(client.cluster)) == 2 and set(names(client.cluster)))
    mixed = []
    client.cluster.store.subscribe(lambda _: mixed.append(len(names(client.cluster))))
    client.cluster.apply(workload("Deployment", "web", replicas=2, command=["sleep", "2000"], **plan))
    await until(lambda: len(names(client.cluster)) == 2 and first.isdisjoint(names(client.cluster)))
    assert 0 in mixed
    assert max(mixed) == 2


async def test_unready_pods_are_deleted_first_then_the_youngest(start, workload, until):
    client = await start(kubelet=False)
    client.cluster.apply(workload("ReplicaSet", "web", replicas=4))
    await until(lambda: len(names(client.cluster)) == 4)
    by_age = sorted(client.cluster.list("pods"), key=lambda pod: int(pod["metadata"]["resourceVersion"]))
    ill, *healthy = [pod["metadata"]["name"] for pod in by_age]
    for name in healthy:
        ready(client.cluster, name)
    for count, remaining in ((3, set(healthy)), (2, set(healthy[:2]))):
        client.cluster.apply(workload("ReplicaSet", "web", replicas=count))
        await until(lambda count=count: len(names(client.cluster)) == count)
        assert set(names(client.cluster)) == remaining
    assert ill not in names(client.cluster)


async def test_a_stored_cost_that_is_no_number_counts_as_zero(start, workload, until):
    """As an API server accepts it without the feature gate PodDeletionCost. Such a pod may be changed otherwise."""
    client = await start(kubelet=False)
    client.cluster.apply(workload("ReplicaSet", "web", replicas=3))
    await until(lambda: len(names(client.cluster)) == 3)
    costs = dict(zip(sorted(names(client.cluster)), ("low", "5", "-5"), strict=True))
    for name, cost in costs.items():
        pod = client.cluster.get("pods", name)
        annotations = {"controller.kubernetes.io/pod-deletion-cost": cost}
        client.cluster.store.update(PODS_KIND, {**pod, "metadata": {**pod["metadata"], "annotations": annotations}})
        ready(client.cluster, name)
        patch = {"metadata": {"labels": {"color": "blue"}}}
        assert (await client.ask("PATCH", f"{PODS}/{name}", patch, Content_Type="application/merge-patch+json"))[
            0
        ] == 200
    low, high, _ = costs
    for count, remaining in ((2, {low, high}), (1, {high})):
        client.cluster.apply(workload("ReplicaSet", "web", replicas=count))
        await until(lambda count=count: len(names(client.cluster)) == count)
        assert set(names(client.cluster)) == remaining


async def test_a_failed_pod_is_replaced_and_not_counted(start, workload, until):
    client = await start(kubelet=False)
    client.cluster.apply(workload("ReplicaSet", "web", replicas=1))
    (first,) = await until(lambda: names(client.cluster))
    client.cluster.set_pod_status(first, {"phase": "Failed"})
    await until(lambda: len(names(client.cluster)) == 2)
    assert client.cluster.get("replicasets", "web")["status"]["replicas"] == 1


class HandClock(SystemClock):
    """A clock whose current time is set by the test; `sleep` really waits."""

    def __init__(self) -> None:
        self.shown = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.shown


async def test_a_pod_is_available_after_min_ready_seconds(start, workload, until):
    clock = HandClock()
    client = await start(kubelet=False, clock=clock, resync_seconds=3600)
    client.cluster.apply(workload("ReplicaSet", "web", replicas=1, minReadySeconds=1))
    (name,) = await until(lambda: names(client.cluster))
    ready(client.cluster, name, since="2026-01-01T00:00:00Z")
    await until(lambda: client.cluster.get("replicasets", "web")["status"].get("readyReplicas") == 1)
    clock.shown += timedelta(seconds=0.9)
    await asyncio.sleep(1.1)
    assert "availableReplicas" not in client.cluster.get("replicasets", "web")["status"]
    clock.shown += timedelta(seconds=0.1)
    await until(lambda: client.cluster.get("replicasets", "web")["status"].get("availableReplicas") == 1)


async def test_without_a_kubelet_pods_stay_pending_until_their_status_is_written(start, workload, until):
    client = await start(kubelet=False)
    client.cluster.apply(workload("ReplicationController", "rc", replicas=1))
    (name,) = await until(lambda: names(client.cluster))
    assert client.cluster.get("pods", name)["status"]["phase"] == "Pending"
    assert client.cluster.get("replicationcontrollers", "rc")["spec"]["selector"] == {"app": "rc"}
    pod = client.cluster.get("pods", name)
    pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    assert (await client.ask("PUT", f"{PODS}/{name}/status", pod))[0] == 200
    await until(lambda: client.cluster.get("replicationcontrollers", "rc")["status"].get("readyReplicas") == 1)


async def test_stateful_pods_are_created_and_deleted_one_at_a_time(start, workload, until):
    client = await start(kubelet=False)
    client.cluster.apply(workload("StatefulSet", "db", replicas=3))
    for index in range(3):
        await until(lambda index=index: names(client.cluster) == [f"db-{each}" for each in range(index + 1)])
        await asyncio.sleep(0.05)
        assert len(names(client.cluster)) == index + 1
        ready(client.cluster, f"db-{index}")
    client.cluster.apply(workload("StatefulSet", "db", replicas=1))
    await until(lambda: names(client.cluster) == ["db-0"])
    await until(lambda: client.cluster.get("statefulsets", "db")["status"].get("readyReplicas") == 1)
    labels = client.cluster.get("pods", "db-0")["metadata"]["labels"]
    assert labels["statefulset.kubernetes.io/pod-name"] == "db-0"


async def test_parallel_stateful_pods_are_created_at_once(start, workload, until):
    client = await start(kubelet=False)
    client.cluster.apply(workload("StatefulSet", "db", replicas=3, podManagementPolicy="Parallel"))
    await until(lambda: names(client.cluster) == ["db-0", "db-1", "db-2"])


async def test_a_new_template_replaces_stateful_pods_and_keeps_their_names(start, workload, until):
    client = await start(auto_ready=True)
    client.cluster.apply(workload("StatefulSet", "db", replicas=2))
    await until(lambda: client.cluster.get("statefulsets", "db")["status"].get("readyReplicas") == 2)
    before = {pod["metadata"]["uid"] for pod in client.cluster.list("pods")}
    client.cluster.apply(workload("StatefulSet", "db", replicas=2, command=["sleep", "2000"]))
    await until(
        lambda: (
            (pods := client.cluster.list("pods"))
            and len(pods) == 2
            and before.isdisjoint(pod["metadata"]["uid"] for pod in pods)
        )
    )
    assert names(client.cluster) == ["db-0", "db-1"]


async def test_an_assigned_pod_stays_for_its_grace_period(start):
    client = await start(kubelet=False, controllers=False)
    spec = {"nodeName": "n1", "containers": [{"name": "app"}], "terminationGracePeriodSeconds": 9}
    client.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    _, body = await client.ask("DELETE", f"{PODS}/p")
    assert body["metadata"]["deletionGracePeriodSeconds"] == 9
    assert client.cluster.get("pods", "p") is not None
    _, shorter = await client.ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 2})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 2
    await client.ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert client.cluster.get("pods", "p") is None


async def test_a_restored_template_gets_the_newest_revision(start, workload, until):
    client = await start(auto_ready=True)

    def revisions():
        found = {}
        for each in client.cluster.list("replicasets"):
            (container,) = each["spec"]["template"]["spec"]["containers"]
            if each["status"].get("availableReplicas", 0) == each["spec"]["replicas"]:
                found[container["command"][0]] = each["metadata"]["annotations"]["deployment.kubernetes.io/revision"]
        return found

    for command, expected in (("a", {"a": "1"}), ("b", {"a": "1", "b": "2"}), ("a", {"a": "3", "b": "2"})):
        client.cluster.apply(workload("Deployment", "web", command=[command]))
        await until(lambda expected=expected: revisions() == expected)
        metadata = client.cluster.get("deployments", "web")["metadata"]
        assert metadata["annotations"]["deployment.kubernetes.io/revision"] == expected[command]
