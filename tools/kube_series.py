"""The series of kube-state-metrics and cAdvisor that are about HPAs and their pods, from the objects of an API server.

Names, labels and values are those of kube-state-metrics 2 (docs/metrics in kubernetes/kube-state-metrics) and of the
kubelet's /metrics/cadvisor, which has a row for each container and one for all of the pod (container="").
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from hpad.api.quantity import Quantity

Object = Mapping[str, Any]
Row = tuple[str, Mapping[str, str], float]
"""Name of the series, its labels, its value."""

_SOURCES: Final = ("resource", "containerResource", "pods", "object", "external")
_STATUSES: Final = ("true", "false", "unknown")


def text(rows: Iterable[Row]) -> str:
    """Returns the rows in the text format of Prometheus."""
    return "".join(f"{name}{{{_labels(labels)}}} {value:.10g}\n" for name, labels, value in rows)


def of_hpa(hpa: Object) -> Iterator[Row]:
    """Yields what kube-state-metrics says of an HPA of autoscaling/v2."""
    spec, status = hpa["spec"], hpa.get("status") or {}
    own = _named(hpa, "horizontalpodautoscaler")
    target = spec["scaleTargetRef"]
    keys = {"api_version": "apiVersion", "kind": "kind", "name": "name"}
    yield _hpa("info", own | {f"scaletargetref_{label}": target[key] for label, key in keys.items()}, 1)
    yield _hpa("metadata_generation", own, hpa["metadata"].get("generation", 1))
    yield _hpa("spec_min_replicas", own, spec.get("minReplicas", 1))
    yield _hpa("spec_max_replicas", own, spec["maxReplicas"])
    yield _hpa("status_current_replicas", own, status.get("currentReplicas", 0))
    yield _hpa("status_desired_replicas", own, status.get("desiredReplicas", 0))
    for name, kind, value in _targets(spec.get("metrics") or (), "target"):
        yield _hpa("spec_target_metric", own | {"metric_name": name, "metric_target_type": kind}, value)
    for name, kind, value in _targets(status.get("currentMetrics") or (), "current"):
        yield _hpa("status_target_metric", own | {"metric_name": name, "metric_target_type": kind}, value)
    for condition in status.get("conditions") or ():
        for each in _STATUSES:
            labels = own | {"condition": condition["type"], "status": each}
            yield _hpa("status_condition", labels, condition["status"].lower() == each)


def of_deployment(deployment: Object) -> Iterator[Row]:
    """Yields the counts of a Deployment."""
    own, status = _named(deployment, "deployment"), deployment.get("status") or {}
    yield "kube_deployment_spec_replicas", own, deployment["spec"].get("replicas", 1)
    yield "kube_deployment_status_replicas", own, status.get("replicas", 0)
    yield "kube_deployment_status_replicas_ready", own, status.get("readyReplicas", 0)


def of_replica_set(found: Object) -> Iterator[Row]:
    """Yields the owner of a ReplicaSet."""
    yield "kube_replicaset_owner", _named(found, "replicaset") | _owner(found), 1


def of_pod(pod: Object) -> Iterator[Row]:
    """Yields the owner of a pod, its phase, whether it is ready, and the requests and limits of its containers."""
    own = _named(pod, "pod") | {"uid": pod["metadata"]["uid"]}
    status = pod.get("status") or {}
    yield "kube_pod_owner", own | _owner(pod), 1
    for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
        yield "kube_pod_status_phase", own | {"phase": phase}, status.get("phase", "Pending") == phase
    ready = [each["status"].lower() for each in status.get("conditions") or () if each["type"] == "Ready"]
    for each in _STATUSES:
        yield "kube_pod_status_ready", own | {"condition": each}, each in ready
    for container in pod["spec"]["containers"]:
        labels = own | {"container": container["name"], "node": "local"}
        for kind, quantities in (container.get("resources") or {}).items():
            for resource, quantity in quantities.items():
                unit = {"cpu": "core", "memory": "byte"}[resource]
                name = f"kube_pod_container_resource_{kind}"
                yield name, labels | {"resource": resource, "unit": unit}, _number(quantity)


def of_containers(pod: Object, seconds: Mapping[str, float], memory: Mapping[str, float]) -> Iterator[Row]:
    """Yields cAdvisor's rows of a pod: CPU seconds used since its start, and bytes, of each container and of all."""
    own = {**_named(pod, "pod"), "image": "", "name": "", "id": f"/kubepods/{pod['metadata']['uid']}"}
    for container, used in {"": sum(seconds.values()), **seconds}.items():
        labels = own | {"container": container}
        if container:
            labels |= {"image": "app:1", "name": container, "id": f"{own['id']}/{container}"}
        held = memory[container] if container else sum(memory.values())
        yield "container_cpu_usage_seconds_total", labels | {"cpu": "total"}, used
        yield "container_memory_working_set_bytes", labels, held


def _targets(metrics: Sequence[Object], key: str) -> Iterator[tuple[str, str, float]]:
    for metric in metrics:
        source = next((metric[each] for each in _SOURCES if metric.get(each)), None)
        if source is None:  # the controller leaves an empty entry for a metric that could not be read
            continue
        name = source["metric"]["name"] if "metric" in source else source["name"]
        found = source[key]
        if found.get("value") is not None:
            yield name, "value", _number(found["value"])
        if found.get("averageUtilization") is not None:
            yield name, "utilization", found["averageUtilization"]
        if found.get("averageValue") is not None:
            yield name, "average", _number(found["averageValue"])


def _hpa(name: str, labels: Mapping[str, str], value: float) -> Row:
    return f"kube_horizontalpodautoscaler_{name}", labels, value


def _named(found: Object, label: str) -> dict[str, str]:
    return {"namespace": found["metadata"]["namespace"], label: found["metadata"]["name"]}


def _owner(found: Object) -> dict[str, str]:
    owner = next(iter(found["metadata"].get("ownerReferences") or ()), None)
    kind, name = (owner["kind"], owner["name"]) if owner else ("", "")
    return {"owner_kind": kind, "owner_name": name, "owner_is_controller": "true" if owner else ""}


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def _number(quantity: object) -> float:
    return float(Quantity.parse(str(quantity)))
