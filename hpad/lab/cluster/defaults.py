"""Defaults that the API server sets in pods, workloads, and some other kinds.

Objects of other kinds get none. Source: Kubernetes 1.36, pkg/apis/*/*/defaults.go.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from hpad.lab.cluster import admission
from hpad.lab.cluster.resources import HPAS, NAMESPACES, PODS, Object, Resource, copied

WORKLOADS: Final = ("ReplicationController", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
"""The kinds with a pod template and a selector."""
_PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_HTTP: Final = {"path": "/", "scheme": "HTTP"}
_SPECS: Final[dict[str, Object]] = {
    "Deployment": {
        "replicas": 1,
        "strategy": {"type": "RollingUpdate"},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    "StatefulSet": {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate"},
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "serviceName": "",
    },
    "DaemonSet": {"updateStrategy": {"type": "RollingUpdate"}, "revisionHistoryLimit": 10},
    "ReplicaSet": {"replicas": 1},
    "ReplicationController": {"replicas": 1},
}
_ROLLING: Final[dict[str, tuple[str, Object]]] = {
    "Deployment": ("strategy", {"maxUnavailable": "25%", "maxSurge": "25%"}),
    "StatefulSet": ("updateStrategy", {"partition": 0}),
    "DaemonSet": ("updateStrategy", {"maxUnavailable": 1, "maxSurge": 0}),
}
"""The field with the update strategy of each kind, and the default of its rollingUpdate."""
_STATUSES: Final[dict[str, Object]] = {
    "Deployment": {},
    "StatefulSet": {"replicas": 0, "availableReplicas": 0},
    "DaemonSet": dict.fromkeys(
        ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
    ),
    "ReplicaSet": {"replicas": 0},
    "ReplicationController": {"replicas": 0},
    "Service": {"loadBalancer": {}},
    "Ingress": {"loadBalancer": {}},
    "PersistentVolumeClaim": {"phase": "Pending"},
    "PodDisruptionBudget": dict.fromkeys(("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0),
    "APIService": {},
}
_MODES: Final = ("secret", "configMap", "downwardAPI", "projected")
"""The volume types that have a defaultMode."""
_TOLERATED: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def fill(resource: Resource, obj: Object) -> None:
    """Sets the defaults of an object's kind, in place."""
    spec = obj.get("spec")
    filler = _FILLERS.get(resource.kind) if not resource.is_custom else None
    if filler is not None:
        filler(obj)
    elif resource.kind in WORKLOADS and isinstance(spec, dict):
        _workload(resource.kind, obj, spec)
    if resource == HPAS:
        obj.setdefault("status", admission.empty_status())
    elif resource.kind in _STATUSES:
        obj.setdefault("status", copied(_STATUSES[resource.kind]))


def admitted(resource: Resource, obj: Object) -> Object:
    """Returns a new pod or namespace with the fields that admission plugins add; no field manager owns them."""
    if resource == NAMESPACES:
        return {**obj, "spec": {"finalizers": ["kubernetes"], **(obj.get("spec") or {})}}
    if resource != PODS:
        return obj
    spec = dict(obj["spec"])
    tolerations = spec.get("tolerations") or []
    keys = {each.get("key") for each in tolerations}
    spec["tolerations"] = [*tolerations, *(_toleration(key) for key in _TOLERATED if key not in keys)]
    for name, value in (("priority", 0), ("preemptionPolicy", "PreemptLowerPriority")):
        spec.setdefault(name, value)
    return {**obj, "spec": spec}


def _toleration(key: str) -> Object:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


def _namespace(obj: Object) -> None:
    metadata = obj["metadata"]
    if metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    obj.setdefault("status", {"phase": "Active"})


def _event(obj: Object) -> None:
    """Sets the fields that Go writes even when they are empty."""
    for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
        obj.setdefault(name, None)
    _set(obj, {"source": {}, "reportingComponent": "", "reportingInstance": ""})


def _binding(obj: Object) -> None:
    for subject in obj.get("subjects") or []:
        if subject.get("kind") in ("User", "Group"):
            _set(subject, {"apiGroup": "rbac.authorization.k8s.io"})


def _network_policy(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    _set(spec, {"policyTypes": ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]})


def _api_service(obj: Object) -> None:
    _set((obj.get("spec") or {}).get("service"), {"port": 443})


def _claim(obj: Object) -> None:
    _set(obj.get("spec"), {"volumeMode": "Filesystem"})


def _priority_class(obj: Object) -> None:
    _set(obj, {"preemptionPolicy": "PreemptLowerPriority"})


def _secret(obj: Object) -> None:
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None) or {}
    encoded = {name: base64.b64encode(str(value).encode()).decode() for name, value in plain.items()}
    if encoded:
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def _service(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    _set(spec, {"type": "ClusterIP", "sessionAffinity": "None"})
    if spec["type"] != "ExternalName":
        _set(spec, {"internalTrafficPolicy": "Cluster"})
    for port in spec.get("ports") or []:
        _set(port, {"protocol": "TCP", "targetPort": port.get("port")})


def _pod(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        resources = container.get("resources") or {}
        if resources.get("limits"):  # a limit without a request sets the request too
            requests = resources["limits"] | (resources.get("requests") or {})
            container["resources"] = {**resources, "requests": requests}
    _pod_spec(spec)
    _set(spec, {"enableServiceLinks": True})
    obj.setdefault("status", {"phase": "Pending", "qosClass": quality(spec)})


def _workload(kind: str, obj: Object, spec: Object) -> None:
    _set(spec, _SPECS[kind])
    if kind in _ROLLING:
        name, rolling = _ROLLING[kind]
        strategy = spec[name]
        _set(strategy, {"type": "RollingUpdate"})
        if strategy["type"] == "RollingUpdate":
            strategy["rollingUpdate"] = {**rolling, **(strategy.get("rollingUpdate") or {})}
    if spec.get("template"):
        spec["template"] = _without_nulls(spec["template"])
    template = spec.get("template") or {}
    if kind == "DaemonSet":
        annotations = obj["metadata"].get("annotations") or {}
        obj["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "1", **annotations}
    if kind == "ReplicationController":
        labels = dict((template.get("metadata") or {}).get("labels") or {})
        spec["selector"] = spec.get("selector") or labels
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = labels
    if isinstance(template.get("spec"), dict):
        _pod_spec(template["spec"])


def _without_nulls(value: Any) -> Any:
    """Removes nulls: for the API server null is absent, so it must not change the hash of a template."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _pod_spec(spec: Object) -> None:
    _set(
        spec,
        {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
        },
    )
    for volume in spec.get("volumes") or []:
        _volume(volume)
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        _container(container)


def _volume(volume: Object) -> None:
    if not volume.keys() - {"name"}:
        volume["emptyDir"] = {}
    for kind in _MODES:
        if isinstance(volume.get(kind), dict):
            _set(volume[kind], {"defaultMode": 0o644})


def _container(container: Object) -> None:
    _set(
        container,
        {
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": _pull_policy(str(container.get("image") or "")),
        },
    )
    for port in container.get("ports") or []:
        _set(port, {"protocol": "TCP"})
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(probe := container.get(name), dict):
            _set(probe, _PROBE)
            _set(probe.get("httpGet"), _HTTP)
            _set(probe.get("grpc"), {"service": ""})
    for hook in (container.get("lifecycle") or {}).values():
        _set(hook.get("httpGet"), _HTTP)
    for variable in container.get("env") or []:
        _set((variable.get("valueFrom") or {}).get("fieldRef"), {"apiVersion": "v1"})


def _pull_policy(image: str) -> str:
    """Returns Always for a tag that can move (`latest`, or none), else IfNotPresent."""
    name = image.rpartition("/")[2]
    is_floating = "@" not in name and name.partition(":")[2] in ("", "latest")
    return "Always" if is_floating else "IfNotPresent"


def quality(spec: Mapping[str, Any]) -> str:
    """Returns the QoS class by the containers' requests and limits of CPU and memory.

    Source: Kubernetes 1.36, pkg/apis/core/v1/helper/qos/qos.go: ComputePodQOS.
    """
    limited, has_any = True, False
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        named = {name for name in (*requests, *limits) if name in ("cpu", "memory")}
        has_any = has_any or bool(named)
        limited = limited and all(limits.get(name) and requests.get(name) == limits[name] for name in ("cpu", "memory"))
    if not has_any:
        return "BestEffort"
    return "Guaranteed" if limited else "Burstable"


def _set(target: Any, values: Mapping[str, Any]) -> None:
    """Sets the fields of an object that are absent or null; does nothing if `target` is not an object."""
    if isinstance(target, dict):
        for name, value in values.items():
            if target.get(name) is None:
                target[name] = copied(value)


_FILLERS: Final[Mapping[str, Callable[[Object], None]]] = {
    "APIService": _api_service,
    "ClusterRoleBinding": _binding,
    "RoleBinding": _binding,
    "NetworkPolicy": _network_policy,
    "PersistentVolumeClaim": _claim,
    "PriorityClass": _priority_class,
    "Event": _event,
    NAMESPACES.kind: _namespace,
    "Secret": _secret,
    "Service": _service,
    PODS.kind: _pod,
}
