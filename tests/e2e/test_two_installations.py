"""Two hpads with namespaces and Leases of their own work at the same time, and leave each other alone."""

from typing import Any

from hpad import settings
from hpad.api.metadata import Key
from hpad.daemon import app

HELD = {"hpad.io/deletion-cost-set": "-1 2026-01-01T00:00:00Z", "controller.kubernetes.io/pod-deletion-cost": "-1"}


def own(namespace: str) -> dict[str, Any]:
    """Returns the fields of the settings as docs/operations.md has them, for an hpad of one namespace."""
    environ = {"HPAD_NAMESPACES": namespace, "HPAD_LEADER_ELECT": "true", "HPAD_LEADER_ELECT_RETRY_PERIOD": "200ms"}
    read = settings.load(None, {**environ, "HPAD_LEADER_ELECT_RESOURCE_NAME": f"hpad-{namespace}"}, {})
    return {"namespaces": read.namespaces, "election": read.election, "store": read.store}


def workload(world: Any, namespace: str, least: int) -> None:
    """Applies a Deployment and an HPA whose names and labels are the same in all namespaces, and a marked pod."""
    head = {"name": "web", "namespace": namespace}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    world.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    world.cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": head, "spec": spec})
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    own = {"scaleTargetRef": ref, "minReplicas": least, "maxReplicas": 10}
    world.cluster.apply(
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": head, "spec": own}
    )
    marked = {"name": "marked", "namespace": namespace, "annotations": HELD}
    world.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": marked, "spec": template["spec"]})


def replicas(world: Any, namespace: str) -> int:
    count: int = world.cluster.get("deployments", "web", namespace)["spec"]["replicas"]
    return count


def costs(world: Any, namespace: str) -> Any:
    return world.cluster.get("pods", "marked", namespace)["metadata"].get("annotations") or {}


def reasons(world: Any) -> set[str]:
    """Returns the reasons of all events."""
    return {event["reason"] for event in world.cluster.list("events")}


async def test_two_hpads_with_disjoint_namespaces_do_not_disturb_each_other(world: Any) -> None:
    workload(world, "shop", 3)
    workload(world, "billing", 4)
    shop: app.App = await world.hpad(**own("shop"))
    await world.until(lambda: replicas(world, "shop") == 3)
    await world.periods(3)
    assert replicas(world, "billing") == 1
    shop.components.costs.kept = 0.1
    await world.until(lambda: not costs(world, "shop"))
    assert costs(world, "billing") == HELD, "they are for the hpad of that namespace"

    billing: app.App = await world.hpad(**own("billing"))
    await world.until(lambda: replicas(world, "billing") == 4)
    for each in (shop, billing):
        assert each.components.coordinator is not None
        assert each.status() == "Scaling by 1 HPA"
    await world.until(lambda: "SuccessfulRescale" in reasons(world))
    assert "AmbiguousSelector" not in reasons(world)
    names = ["hpad-billing-history-0", "hpad-shop-history-0"]
    await world.until(lambda: sorted(each["metadata"]["name"] for each in world.cluster.list("configmaps")) == names)

    await shop.stop()
    world.cluster.delete("horizontalpodautoscalers", "web", "shop")
    again: app.App = await world.hpad(**own("billing"))
    await world.until(lambda: again.status() == "Standing by: another leads")
    assert list(again.components.store.keys()) == [Key("billing", "web")]
