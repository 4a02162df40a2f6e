"""Objects that an API server takes, each with one field as large or as awkward as it may be.

Bodies have at most 1.4 MB, since etcd takes requests of 1.5 MiB. Kubernetes limits neither the number of metrics,
policies, requirements, labels, containers and owners, nor the length of the names of metrics, kinds and resources
(pkg/apis/autoscaling/validation, pkg/apis/core/validation); all annotations of an object have 256 KiB.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

Json = dict[str, Any]
_LONG: Final = 1_200_000
_ANNOTATION: Final = 250_000
_MINUTES: Final = ",".join(str(number % 60) for number in range(80_000))
_SELECTOR: Final = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(20_000)]


class Objects:
    """The Deployment, the HPA and the pods of one case. All are valid for the API server."""

    def __init__(self, name: str) -> None:
        labels = {"app": name}
        container = {"name": "app", "image": "app:1"}
        self.deployment: Json = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
        self.hpa: Json = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "annotations": {}, "labels": {}},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 2,
                "maxReplicas": 9,
                "metrics": [external("depth")],
            },
        }
        self.pods: list[Json] = []

    def pod(self, **metadata: Any) -> Json:
        """Adds a pod with the labels of the Deployment, and returns it."""
        name = self.deployment["metadata"]["name"]
        labels = {"app": name, **metadata.pop("labels", {})}
        head = {"name": f"{name}-{len(self.pods)}", "labels": labels, **metadata}
        spec = {"containers": [{"name": "app", "image": "app:1"}]}
        self.pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec})
        return self.pods[-1]

    @property
    def spec(self) -> Json:
        found: Json = self.hpa["spec"]
        return found

    def annotate(self, name: str, text: str) -> None:
        self.hpa["metadata"]["annotations"][f"hpad.io/{name}"] = text


def external(name: str, **selector: Any) -> Json:
    metric: Json = {"name": name, **({"selector": selector} if selector else {})}
    return {
        "type": "External",
        "external": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "10"}},
    }


def _of_pods(name: str, container: str = "") -> Json:
    target = {"type": "Utilization", "averageUtilization": 50}
    if container:
        resource = {"name": name, "container": container, "target": target}
        return {"type": "ContainerResource", "containerResource": resource}
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def _of_object(**described: str) -> Json:
    target = {"type": "Value", "value": "5"}
    reference = {"apiVersion": "v1", "kind": "Service", "name": "web", **described}
    return {"type": "Object", "object": {"describedObject": reference, "metric": {"name": "m"}, "target": target}}


def _policies(count: int) -> Json:
    policies = [{"type": "Pods", "value": 1 + n % 7, "periodSeconds": 1 + n % 1800} for n in range(count)]
    return {direction: {"policies": policies} for direction in ("scaleUp", "scaleDown")}


def _metrics(case: Objects, metrics: list[Json]) -> None:
    case.spec["metrics"] = metrics


def _many_labels(count: int, length: int = 60) -> Json:
    return {f"l{number}": "x" * length for number in range(count)}


def _expanding_selector(case: Objects) -> None:
    labels = case.deployment["spec"]["selector"]["matchLabels"]
    case.deployment["spec"]["selector"] = {"matchLabels": labels, "matchExpressions": _SELECTOR}
    for _ in range(20):
        case.pod()


def _values_of_selector(case: Objects) -> None:
    name = case.deployment["metadata"]["name"]
    values = [name, *(f"v{number}" for number in range(100_000))]
    case.deployment["spec"]["selector"] = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    case.pod()


def _labels_of_pods(case: Objects) -> None:
    for number in range(8):
        case.pod(labels={f"l{each}-{number}": "x" * 60 for each in range(15_000)})


def _owners_of_pod(case: Objects) -> None:
    owner = {"apiVersion": "x" * 300_000, "kind": "k" * 300_000, "name": "n" * 300_000, "uid": "u", "controller": True}
    case.pod(ownerReferences=[owner])
    others = [{"apiVersion": "v1", "kind": "K", "name": f"n{number}", "uid": f"u{number}"} for number in range(15_000)]
    case.pod(ownerReferences=others)


def _containers_of_pod(case: Objects) -> None:
    resources = {"requests": {"cpu": "10m"}}
    pod = case.pod()
    pod["spec"]["containers"] = [{"name": f"c{n}", "image": "a:1", "resources": resources} for n in range(10_000)]
    pod = case.pod()
    pod["spec"]["containers"][0]["resources"] = {"requests": {f"example.com/r{n}": "1" for n in range(20_000)}}
    _metrics(case, [_of_pods("cpu"), _of_pods("cpu", "c7"), _of_pods("memory")])


def _annotations_of_pod(case: Objects) -> None:
    texts = {"controller.kubernetes.io/pod-deletion-cost": "-2147483648"}
    case.pod(annotations={**texts, **{f"a{number}": "" for number in range(30_000)}})


def _at_the_limits(case: Objects) -> None:
    """As much as hpad takes of everything at once."""
    names = [f"m{number}-{'n' * 200}" for number in range(100)]
    _metrics(case, [external(name, matchLabels={f"k{n}": "v" * 40 for n in range(3)}) for name in names])
    case.spec["behavior"] = _policies(100)
    case.hpa["metadata"]["labels"] = _many_labels(250)
    case.annotate("schedule", ";".join(["0 0 29 2 1 for 744h in Europe/Berlin: min=1"] * 20))
    case.annotate("fallback", ",".join(f"#{number}=replicas:5 after 60s" for number in range(100)))
    case.annotate("activation", ",".join(f"#{number}=5" for number in range(100)))
    case.annotate("metric-policy", " + ".join(f"0.5*#{number % 100}" for number in range(400)))
    case.annotate("ignore-containers", ",".join(f"c{number}" for number in range(100)))
    selector = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(90)]
    case.deployment["spec"]["selector"]["matchExpressions"] = selector
    for number in range(100):
        case.pod(labels={f"l{each}-{number}": "x" for each in range(100)})


def _metrics_of_many_pods(case: Objects) -> None:
    _metrics(case, [_of_pods("cpu", f"c{number}") for number in range(100)])
    for _ in range(100):
        case.pod()


def _annotation(case: Objects, name: str, text: str) -> None:
    case.annotate(name, text[:_ANNOTATION])


def _everything_unreadable(case: Objects) -> None:
    case.hpa["metadata"]["annotations"] = {f"hpad.io/a{number}": "" for number in range(15_000)}


Make = Callable[[Objects], Any]
_OF_HPAS: Final[dict[str, Make]] = {
    "many metrics": lambda case: _metrics(case, [external("depth", matchLabels={"a": f"{n}"}) for n in range(7000)]),
    "many policies": lambda case: case.spec.update(behavior=_policies(10_000)),
    "requirements of a metric": lambda case: _metrics(case, [external("depth", matchExpressions=_SELECTOR)]),
    "values of a metric": lambda case: _metrics(
        case,
        [external("d", matchExpressions=[{"key": "q", "operator": "In", "values": [f"v{n}" for n in range(120_000)]}])],
    ),
    "name of a metric": lambda case: _metrics(case, [external("m" * _LONG)]),
    "name of a resource": lambda case: _metrics(case, [_of_pods("r" * _LONG)]),
    "name of an object": lambda case: _metrics(case, [_of_object(name="n" * _LONG)]),
    "kind of an object": lambda case: _metrics(case, [_of_object(kind="K" * _LONG)]),
    "name of the target": lambda case: case.spec["scaleTargetRef"].update(name="n" * _LONG),
    "kind of the target": lambda case: case.spec["scaleTargetRef"].update(kind="K" * _LONG),
    "group of the target": lambda case: case.spec["scaleTargetRef"].update(apiVersion="g" * _LONG + "/v1"),
    "labels of an HPA": lambda case: case.hpa["metadata"].update(labels=_many_labels(15_000)),
    "annotations of an HPA": lambda case: case.hpa["metadata"].update(
        annotations={f"a{number}": "" for number in range(40_000)}
    ),
    "unknown annotations": _everything_unreadable,
    "owners of an HPA": lambda case: case.hpa["metadata"].update(
        ownerReferences=[{"apiVersion": "v1", "kind": "K", "name": f"n{n}", "uid": f"u{n}"} for n in range(15_000)]
    ),
    "at the limits": _at_the_limits,
    "metrics of many pods": _metrics_of_many_pods,
}
_OF_PODS: Final[dict[str, Make]] = {
    "requirements of a Deployment": _expanding_selector,
    "values of a Deployment": _values_of_selector,
    "labels of pods": _labels_of_pods,
    "owners of a pod": _owners_of_pod,
    "containers of a pod": _containers_of_pod,
    "annotations of a pod": _annotations_of_pod,
}
_TEXTS: Final[dict[str, str]] = {
    "schedule": f"{_MINUTES[: _ANNOTATION - 100]} * * * * for 1m: min=2",
    "metric-policy": " + ".join(["0.123456789*depth"] * 20_000),
    "fallback": ",".join(f"#{number}=replicas:5" for number in range(20_000)),
    "failure-duration-seconds": ",".join(["9" * 10] * 30_000),
    "activation": ",".join(["9" * 10] * 30_000),
    "ignore-containers": ",".join(f"c{number}" for number in range(50_000)),
    "busy-metric": "depth{" + ",".join(f"k{number}=v" for number in range(30_000)) + "} above 5",
    "tolerance-up": "9" * _ANNOTATION,
    "tolerance-down": "1e" + "9" * _ANNOTATION,
    "sync-period": "1h" * (_ANNOTATION // 2),
    "initialization-period": "0.000000001s" * (_ANNOTATION // 12),
    "readiness-delay": "1ns" * (_ANNOTATION // 3),
    "zero-after": "1m" * (_ANNOTATION // 2),
    "initial-delay": "0.000000001h" * (_ANNOTATION // 12),
    "spare": "9" * _ANNOTATION,
    "pods": ",".join(f"k{number}=v" for number in range(30_000)),
    "budget": "x" * _ANNOTATION,
    "budget-priority": "9" * _ANNOTATION,
    "paused-until": "2" * _ANNOTATION,
    "mode": " " * _ANNOTATION,
    "scale-down-order": "x" * _ANNOTATION,
    "keep-busy": "\u0000" * 1000 + "t" * (_ANNOTATION - 1000),
    "pod-selection": "\u2028" * (_ANNOTATION // 3),
}


def batches(size: int) -> Iterator[tuple[str, ...]]:
    """Yields the names of all cases, so many at once."""
    names = tuple(_MAKERS)
    for first in range(0, len(names), size):
        yield names[first : first + size]


def case(name: str) -> Objects:
    """Returns the objects of one case."""
    made = Objects(f"case-{list(_MAKERS).index(name)}")
    _MAKERS[name](made)
    return made


_OF_ANNOTATIONS: Final[dict[str, Make]] = {
    f"annotation {name}": (lambda case, name=name, text=text: _annotation(case, name, text))
    for name, text in _TEXTS.items()
}
_MAKERS: Final = _OF_HPAS | _OF_ANNOTATIONS | _OF_PODS
ANNOTATIONS: Final = frozenset(f"hpad.io/{name}" for name in _TEXTS)
"""The annotations of which there is a case."""
