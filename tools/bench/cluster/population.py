"""The population of a bench cluster: HPAs with their Deployments and pods, the same on each of the servers.

HPA number n is `web-n`, has a Deployment of its name and pods `web-n-0`, `web-n-1` and so on, all ready for long. The
pods use about half of their requests, which is the metric target, so that the HPAs write statuses and do not scale.
"""

from typing import Any, Final, NamedTuple

Document = dict[str, Any]

SINCE: Final = "2026-01-01T00:00:00Z"
"""When everything was created."""
CPU_REQUEST: Final = 2000
"""Millicores that a pod requests."""
CPU_TARGET: Final = 50
"""Percent of the request."""
MEMORY_TARGET: Final = "64Mi"
"""What each pod uses, too."""
MOST_METRICS: Final = 4
_STEP, _SPAN, _LOWEST = 53, 163, 920
"""The usage moves by a step modulo a prime number, above the lowest one in millicores."""


def cpu_used(moves: int) -> int:
    """Returns the millicores that a pod uses after so many moves, within the tolerance of 10 % around the target.

    A value comes again after 163 moves only: an HPA whose value has not changed has no reason to write a status.
    """
    return _LOWEST + moves * _STEP % _SPAN


def memory_used(moves: int) -> int:
    """Returns the KiB that a pod uses after so many moves, within the tolerance as well."""
    return 64_000 + 10 * (moves * _STEP % _SPAN)


class Population(NamedTuple):
    """`pods` of each HPA, `metrics` of each HPA (1 to 4), and HPAs `per_namespace`; 0: all in one namespace.

    `autoscalers`: they are Autoscalers, of the same spec.
    """

    hpas: int
    pods: int = 4
    metrics: int = 1
    per_namespace: int = 50
    autoscalers: bool = False

    @property
    def namespaces(self) -> int:
        return -(-self.hpas // self.per_namespace) if self.per_namespace else 1

    def namespace(self, number: int) -> str:
        """Returns the namespace of an HPA."""
        return namespace(number // self.per_namespace if self.per_namespace else 0)

    def numbers(self, index: int) -> range:
        """Returns the numbers of the HPAs of a namespace."""
        if not self.per_namespace:
            return range(self.hpas)
        first = index * self.per_namespace
        return range(first, min(first + self.per_namespace, self.hpas))


def namespace(index: int) -> str:
    return f"team-{index}"


def index_of(name: str) -> int:
    """Returns the number in the name of a namespace, a Deployment or an HPA."""
    return int(name.rpartition("-")[2])


def name(number: int) -> str:
    return f"web-{number}"


def hpa(population: Population, number: int) -> Document:
    """Returns an HPA with CPU and memory of its pods, then of their container."""
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": CPU_TARGET}}
    memory = {"name": "memory", "target": {"type": "AverageValue", "averageValue": MEMORY_TARGET}}
    metrics: list[Document] = [{"type": "Resource", "resource": each} for each in (cpu, memory)]
    contained = [{**each, "container": "app"} for each in (cpu, memory)]
    metrics.extend({"type": "ContainerResource", "containerResource": each} for each in contained)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name(number)}
    return {
        "apiVersion": "hpad.io/v1" if population.autoscalers else "autoscaling/v2",
        "kind": "Autoscaler" if population.autoscalers else "HorizontalPodAutoscaler",
        "metadata": {"name": name(number), "namespace": population.namespace(number)},
        "spec": {
            "scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 20, "metrics": metrics[: population.metrics],
        },
    }  # fmt: skip


def deployment(population: Population, number: int) -> Document:
    """Returns a Deployment with its status."""
    count = population.pods
    condition = {
        "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "lastTransitionTime": SINCE,
        "lastUpdateTime": SINCE, "message": "Deployment has minimum availability.",
    }  # fmt: skip
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name(number),
            "namespace": population.namespace(number),
            "labels": {"app": name(number)},
        },
        "spec": {"replicas": count, "selector": {"matchLabels": {"app": name(number)}}, "template": template(number)},
        "status": {
            "observedGeneration": 1, "replicas": count, "updatedReplicas": count, "readyReplicas": count,
            "availableReplicas": count, "conditions": [condition],
        },
    }  # fmt: skip


def template(number: int) -> Document:
    """Returns the metadata and the spec of pods as a Deployment of a small web service has them."""
    requests = {"cpu": f"{CPU_REQUEST}m", "memory": "128Mi"}
    probe = {
        "httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
    }
    container = {
        "name": "app",
        "image": "images.example/shop/web:v1.4.2",
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            {"name": "LOG_LEVEL", "value": "info"},
        ],
        "resources": {"requests": requests, "limits": {"memory": "256Mi"}},
        "readinessProbe": probe,
        "livenessProbe": probe,
    }
    labels = {"app": name(number), "app.kubernetes.io/name": name(number), "app.kubernetes.io/part-of": "shop"}
    return {"metadata": {"labels": labels}, "spec": {"containers": [container]}}


def pod(population: Population, number: int, index: int) -> Document:
    """Returns a pod without its status."""
    made = template(number)
    made["metadata"] |= {"name": f"{name(number)}-{index}", "namespace": population.namespace(number)}
    made["spec"]["nodeName"] = f"node-{(number + index) % 200}"
    return {"apiVersion": "v1", "kind": "Pod", **made}


def pod_status(number: int, index: int) -> Document:
    """Returns the status of a pod that has been running and ready since `SINCE`."""
    address = f"10.{1 + number // 250 % 250}.{number % 250}.{1 + index % 250}"
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "startTime": SINCE,
        "hostIP": "10.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "qosClass": "Burstable",
        "conditions": [{"type": each, "status": "True", "lastTransitionTime": SINCE} for each in types],
        "containerStatuses": [
            {
                "name": "app",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "image": "images.example/shop/web:v1.4.2",
                "imageID": "images.example/shop/web@sha256:" + "0a1b2c3d" * 8,
                "containerID": "containerd://" + "4e5f6a7b" * 8,
                "state": {"running": {"startedAt": SINCE}},
            }
        ],
    }
