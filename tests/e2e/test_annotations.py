"""Two queues of one name on one HPA that differ in fallback and activation, and errors in annotations."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from e2e.conftest import worlds
from e2e.test_autoscalers import condition, status

from hpad import settings
from hpad.engine.view import Gates, Tunables
from hpad.lab.autoscaler import definition
from hpad.lab.cluster import Cluster
from hpad.settings import HpaEntry

BROKEN = "{"
"""A document that is no YAML, so that its source fails."""
VALID = ("", "", "")


@pytest.fixture
async def zero() -> AsyncIterator[Any]:
    async with worlds(Cluster(auto_ready=True, scale_to_zero=True)) as made:
        yield made


def sources(folder: Path, *queues: str) -> tuple[settings.SourceSettings, ...]:
    """One source for each queue, which reads its length from a file of its own."""
    return tuple(
        settings.SourceSettings(
            name=queue,
            adapter="static",
            settings={"file": str(folder / queue)},
            match=(settings.Match(labels={"queue": queue}),),
        )
        for queue in queues
    )


def lengths(folder: Path, **queues: int | None) -> None:
    """Sets the lengths of queues; None breaks the source."""
    for queue, length in queues.items():
        (folder / queue).write_text(BROKEN if length is None else f"depth: {length}\n")


def workload(world: Any, annotations: dict[str, str], **spec: Any) -> None:
    """Applies a Deployment, and its HPA with the metric `depth` of the queues `orders` and `mails`."""
    world.workload("Deployment", "web", 2)
    target = {"type": "AverageValue", "averageValue": "10"}
    metrics = [
        {
            "type": "External",
            "external": {"metric": {"name": "depth", "selector": {"matchLabels": labels}}, "target": target},
        }
        for labels in ({"queue": "orders"}, {"queue": "mails"})
    ]
    made = world.hpa("web", metrics=metrics, **spec)
    made["metadata"]["annotations"] = annotations
    world.cluster.apply({key: made[key] for key in ("apiVersion", "kind", "metadata", "spec")})


def autoscaler(world: Any, fallback: Any = None, **spec: Any) -> None:
    """Applies the same as an Autoscaler, whose kind has the fields of newer versions of Kubernetes."""
    workload(world, {})
    made = world.cluster.get("horizontalpodautoscalers", "web")["spec"]
    world.cluster.delete("horizontalpodautoscalers", "web")
    if fallback is not None:
        made["metrics"][0]["external"]["fallback"] = fallback
    head = {"apiVersion": "hpad.io/v1", "kind": "Autoscaler", "metadata": {"name": "web"}}
    world.cluster.apply(definition())
    world.cluster.apply({**head, "spec": {**made, **spec}})


async def annotate(world: Any, annotations: dict[str, str | None]) -> None:
    """Changes annotations of the HPA, as `kubectl annotate --overwrite` does; None removes one."""
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web"
    body = json.dumps({"metadata": {"annotations": annotations}}).encode()
    client = world.daemon.components.cluster.client
    await client.request("PATCH", path, body=body, content_type="application/merge-patch+json")


def generation_of(world: Any) -> int:
    """Returns the generation of the Deployment, which increases with each change of its spec."""
    return int(world.cluster.get("deployments", "web")["metadata"]["generation"])


def replicas(world: Any) -> int:
    return world.replicas("deployments", "web")


async def test_each_of_two_queues_of_one_name_has_its_own_fallback(world: Any, tmp_path: Path) -> None:
    lengths(tmp_path, orders=None, mails=None)
    fallback = "depth{queue=orders}=replicas:5 after 0s,depth{queue in (mails)}=replicas:7 after 0s"
    workload(world, {"hpad.io/fallback": fallback})
    await world.hpad(sources=sources(tmp_path, "orders", "mails"))
    await world.until(lambda: replicas(world) == 7)
    lengths(tmp_path, mails=30)
    await world.until(lambda: replicas(world) == 5)
    lengths(tmp_path, orders=20)
    await world.until(lambda: replicas(world) == 3)
    assert world.condition("web", "HpadAnnotationsValid") == VALID


async def test_each_of_two_queues_of_one_name_has_its_own_activation_threshold(zero: Any, tmp_path: Path) -> None:
    lengths(tmp_path, orders=40, mails=4)
    workload(zero, {"hpad.io/activation": "depth{queue=orders}=50,#1=5"}, minReplicas=0)
    await zero.hpad(sources=sources(tmp_path, "orders", "mails"), tunables=Tunables(gates=Gates(HPAScaleToZero=True)))
    await zero.until(lambda: replicas(zero) == 0)
    lengths(tmp_path, mails=6)
    await zero.until(lambda: replicas(zero) == 1)
    lengths(tmp_path, orders=51)
    await zero.until(lambda: replicas(zero) == 6)


async def test_a_metric_policy_decides_and_holds_the_count_while_a_metric_that_matters_fails(
    world: Any, tmp_path: Path
) -> None:
    lengths(tmp_path, orders=60, mails=40)
    workload(world, {"hpad.io/metric-policy": "min(depth{queue=orders}, depth{queue=mails})"})
    await world.hpad(sources=sources(tmp_path, "orders", "mails"))
    await world.until(lambda: replicas(world) == 4)
    lengths(tmp_path, orders=90, mails=None)
    await world.until(lambda: world.condition("web", "ScalingActive")[0] == "False")
    assert replicas(world) == 4
    await annotate(world, {"hpad.io/metric-policy": "first(depth{queue=mails}, depth{queue=orders})"})
    await world.until(lambda: replicas(world) == 9)
    assert world.condition("web", "HpadAnnotationsValid") == VALID


async def test_an_hpa_with_a_period_of_its_own_follows_its_metrics(world: Any, tmp_path: Path) -> None:
    """Without it, it would be reconciled once per hour, with answers up to a third of an hour old."""
    lengths(tmp_path, orders=30, mails=10)
    workload(world, {"hpad.io/sync-period": "1s"})
    await world.hpad(sources=sources(tmp_path, "orders", "mails"), sync_period=timedelta(hours=1))
    await world.until(lambda: replicas(world) == 3)
    lengths(tmp_path, orders=50)
    await world.until(lambda: replicas(world) == 5)
    lengths(tmp_path, orders=70)
    await world.until(lambda: replicas(world) == 7)
    assert world.condition("web", "HpadAnnotationsValid") == VALID
    await annotate(world, {"hpad.io/sync-period": "2h"})
    text = "annotation hpad.io/sync-period: '2h' is not between 1s and 1h0m0s"
    await world.until(lambda: world.condition("web", "HpadAnnotationsValid") == ("False", "InvalidAnnotation", text))


async def test_a_period_in_the_spec_holds(world: Any, tmp_path: Path) -> None:
    """The field of KEP-6003; the option beside it has no effect."""
    lengths(tmp_path, orders=30, mails=10)
    autoscaler(world, options={"sync-period": "1h"}, syncPeriodSeconds=3)
    await world.hpad(sources=sources(tmp_path, "orders", "mails"), sync_period=timedelta(hours=1))
    await world.until(lambda: replicas(world) == 3)
    lengths(tmp_path, orders=50)
    await world.until(lambda: replicas(world) == 5)
    text = "spec.options.sync-period: spec.syncPeriodSeconds says something else, and wins: remove one of them"
    await world.until(lambda: condition(world, "web", "HpadAnnotationsValid")["message"] == text)
    assert condition(world, "web", "HpadAnnotationsValid")["reason"] == "OverriddenAnnotation"


async def test_the_status_of_a_fallback_in_the_spec_reaches_the_server(world: Any, tmp_path: Path) -> None:
    """The field of KEP-5679, from the first value to the first failure and the next success."""

    def shown() -> tuple[str | None, bool]:
        listed = status(world, "web").get("currentMetrics") or [{}]
        external = listed[0].get("external", {})
        return external.get("fallbackStatus"), "firstFailureTime" in external

    lengths(tmp_path, orders=30, mails=10)
    autoscaler(world, fallback={"replicas": 5})
    await world.hpad(sources=sources(tmp_path, "orders", "mails"))
    await world.until(lambda: shown() == ("Normal", False))
    lengths(tmp_path, orders=None)
    await world.until(lambda: shown() == ("Normal", True))
    lengths(tmp_path, orders=30)
    await world.until(lambda: shown() == ("Normal", False))


async def test_the_usage_of_an_ignored_container_does_not_count(world: Any) -> None:
    """The pods have 100m requested for `app`, which uses half of it: the target. Their sidecar uses ten times that."""
    container = {"image": "app:1", "resources": {"requests": {"cpu": "100m"}}}
    labels = {"app": "web"}
    spec = {"containers": [{"name": "app", **container}, {"name": "proxy", "image": "proxy:1"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    world.workload("Deployment", "web", 2, template=template)
    made = world.hpa("web")
    made["metadata"]["annotations"] = {"hpad.io/ignore-containers": "proxy"}
    world.cluster.apply({key: made[key] for key in ("apiVersion", "kind", "metadata", "spec")})
    await world.hpad()

    def burn(app: str) -> bool:
        for each in world.pods("web"):
            world.cluster.usage.set(
                f"default/{each['metadata']['name']}", {"app": {"cpu": app}, "proxy": {"cpu": "500m"}}
            )
        return world.condition("web", "ScalingActive")[0] == "True"

    await world.until(lambda: burn("50m"))
    assert replicas(world) == 2
    await world.until(lambda: burn("100m") and replicas(world) > 2)
    assert world.condition("web", "HpadAnnotationsValid") == VALID


async def test_a_wrong_annotation_gives_a_condition_until_it_is_corrected(world: Any, tmp_path: Path) -> None:
    lengths(tmp_path, orders=30, mails=10)
    workload(world, {"hpad.io/fallback": "depth{queue=order}=hold", "hpad.io/activatoin": "5"})
    with structlog.testing.capture_logs() as lines:

        def logged() -> list[tuple[str, str]]:
            return [(line["log_level"], line["event"]) for line in lines if "annotations" in line["event"]]

        await corrected(world, tmp_path)
        await world.until(lambda: len(logged()) == 3)  # the log follows the write of the status
    assert [level for level, _ in logged()] == ["warning", "warning", "info"]
    assert "depth{queue=order}" in logged()[0][1]
    assert "depth{queue=order}" not in logged()[1][1]


async def corrected(world: Any, folder: Path) -> None:
    """Runs hpad while the two mistakes of the HPA are corrected, one after the other."""
    await world.hpad(sources=sources(folder, "orders", "mails"))
    text = (
        'annotation hpad.io/activatoin: there is no such annotation; did you mean "hpad.io/activation"?; '
        "annotation hpad.io/fallback: there is no metric 'depth{queue=order}' here; "
        "there are depth{queue=orders}, depth{queue=mails}"
    )
    await world.until(lambda: world.condition("web", "HpadAnnotationsValid") == ("False", "InvalidAnnotation", text))
    await world.until(lambda: ("InvalidAnnotation", text) in world.events("web"))
    await world.until(lambda: replicas(world) == 3)
    await annotate(world, {"hpad.io/fallback": None})
    await world.until(lambda: world.condition("web", "HpadAnnotationsValid")[:2] == ("False", "UnknownAnnotation"))
    await annotate(world, {"hpad.io/activatoin": None, "hpad.io/activation": "5"})
    await world.until(lambda: world.condition("web", "HpadAnnotationsValid") == VALID)
    assert world.condition("web", "ScalingActive")[0] == "True"


async def test_nothing_moves_while_an_hpa_is_paused(world: Any, tmp_path: Path) -> None:
    lengths(tmp_path, orders=80, mails=0)
    workload(world, {"hpad.io/mode": "paused"})
    generation = generation_of(world)
    await world.hpad(sources=sources(tmp_path, "orders", "mails"))
    await world.until(lambda: world.condition("web", "Paused")[0] == "True")
    await world.until(lambda: world.status("web").get("desiredReplicas") == 8)
    lengths(tmp_path, orders=90)
    await world.until(lambda: world.status("web").get("desiredReplicas") == 9)
    # Any write of the scale is a new generation of the Deployment.
    assert generation_of(world) == generation
    assert not [reason for reason, _ in world.events("web") if "Rescale" in reason]
    await annotate(world, {"hpad.io/mode": None})
    await world.until(lambda: replicas(world) == 9)
    await world.until(lambda: world.condition("web", "Paused") == VALID)
    assert generation_of(world) == generation + 1


async def test_the_configuration_pauses_hpas_until_a_reload_takes_them_out(world: Any, tmp_path: Path) -> None:
    lengths(tmp_path, orders=80, mails=0)
    workload(world, {})
    entry = HpaEntry(names=("w*",), namespaces=("default",), annotations={"hpad.io/mode": "paused"})
    daemon = await world.hpad(sources=sources(tmp_path, "orders", "mails"), hpas=(entry,))
    await world.until(lambda: world.condition("web", "Paused")[0] == "True")
    await world.until(lambda: world.status("web").get("desiredReplicas") == 8)
    assert replicas(world) == 2
    other = msgspec.structs.replace(entry, names=("other",))
    assert await daemon.reload(msgspec.structs.replace(daemon.settings, hpas=(other,))) == []
    await world.until(lambda: replicas(world) == 8)
    await world.until(lambda: world.condition("web", "Paused") == VALID)


async def test_an_hpa_in_shadow_mode_decides_for_a_count_of_its_own(world: Any, tmp_path: Path) -> None:
    lengths(tmp_path, orders=80, mails=0)
    workload(world, {"hpad.io/mode": "shadow"})
    generation = generation_of(world)
    await world.hpad(sources=sources(tmp_path, "orders", "mails"))
    await world.until(lambda: world.condition("web", "Shadow")[:2] == ("True", "Shadow"))
    await world.until(lambda: world.condition("web", "Shadow")[2].endswith("would have it at 8"))
    lengths(tmp_path, orders=90)
    await world.until(lambda: world.condition("web", "Shadow")[2].endswith("would have it at 9"))
    assert (world.status("web")["currentReplicas"], world.status("web")["desiredReplicas"]) == (2, 2)
    # Any write of the scale is a new generation of the Deployment.
    assert generation_of(world) == generation
    assert world.events("web") == []
    await annotate(world, {"hpad.io/mode": "active"})
    await world.until(lambda: replicas(world) == 9)
    await world.until(lambda: world.condition("web", "Shadow") == VALID)
    assert generation_of(world) == generation + 1


async def test_a_window_of_a_schedule_sets_the_minimum_while_it_is_open(world: Any, tmp_path: Path) -> None:
    lengths(tmp_path, orders=20, mails=0)
    workload(world, {})
    await world.hpad(sources=sources(tmp_path, "orders", "mails"))
    await world.until(lambda: world.condition("web", "ScalingActive")[0] == "True")
    assert replicas(world) == 2
    # Open at all times: it begins each minute, and lasts for an hour. No other test reads this time zone, so hpad reads
    # its file here, which the event loop must not do.
    await annotate(world, {"hpad.io/schedule": "* * * * * for 1h in Pacific/Chatham: min=4"})
    await world.until(lambda: replicas(world) == 4)
    await world.until(lambda: world.condition("web", "ScheduleActive")[:2] == ("True", "WindowOpen"))
    await annotate(world, {"hpad.io/schedule": "* * * * * for 1h: max=3"})
    await world.until(lambda: replicas(world) == 3)
    await annotate(world, {"hpad.io/schedule": "* * * * * for 1h: most=3"})
    await world.until(lambda: world.condition("web", "HpadAnnotationsValid")[1] == "InvalidAnnotation")
    await world.until(lambda: world.condition("web", "ScheduleActive") == VALID)


async def test_periods_of_pods_that_start_slowly(world: Any) -> None:
    """The pods were ready for ten seconds, an hour ago: after that such a pod counts if it was ready once."""
    world.workload("Deployment", "web", 2)
    await world.until(lambda: len(world.pods("web")) == 2)
    world.load("web", 100)
    world.hpa("web")
    await world.hpad(tunables=Tunables())
    await world.until(lambda: world.condition("web", "ScalingActive")[0] == "True")
    start = datetime.now(UTC) - timedelta(hours=1)
    since = start + timedelta(seconds=10)
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": f"{since:%Y-%m-%dT%H:%M:%SZ}"}
    body = json.dumps({"status": {"startTime": f"{start:%Y-%m-%dT%H:%M:%SZ}", "conditions": [ready]}}).encode()
    client = world.daemon.components.cluster.client
    for pod in world.pods("web"):
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
        await client.request("PATCH", path, body=body, content_type="application/merge-patch+json")

    def reason() -> str:
        return str(world.condition("web", "ScalingActive")[1])

    await world.until(lambda: reason() == "FailedGetResourceMetric")
    await annotate(world, {"hpad.io/readiness-delay": "5s"})
    await world.until(lambda: reason() == "ValidMetricFound")
    await annotate(world, {"hpad.io/initialization-period": "2h"})
    await world.until(lambda: reason() == "FailedGetResourceMetric")
    await annotate(world, {"hpad.io/initialization-period": "30m"})
    await world.until(lambda: reason() == "ValidMetricFound")
