"""The series that the past of HPAs is read from: those of kube-state-metrics 2 and of cAdvisor, each replaceable.

An expression has variables, which are filled in for each query:

| variable | stands for |
| --- | --- |
| `<<.HPAs>>` | matchers of one or several HPAs: namespace="shop",horizontalpodautoscaler=~"web\\|cart" |
| `<<.Pods>>` | matchers of the pods of a target: namespace="shop",pod=~"web-[4-9bcdf]{1,10}-..." |
| `<<.Window>>` | the window of a rate |

Sources: kube-state-metrics, docs/metrics/workload (horizontalpodautoscaler-metrics.md, pod-metrics.md); names of pods:
Kubernetes 1.36, pkg/controller/controller_utils.go (ComputeHash), apimachinery/pkg/util/rand (SafeEncodeString).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NamedTuple

import msgspec

from hpad.api.hpa import CrossVersionObjectReference
from hpad.api.metadata import Key
from hpad.api.text import quoted

HPAS: Final = "<<.HPAs>>"
PODS: Final = "<<.Pods>>"
WINDOW: Final = "<<.Window>>"
NAME: Final = "<<.Name>>"

_SUFFIX: Final = "[bcdfghjklmnpqrstvwxz2456789]{5}"
"""Of a pod: five of the 27 characters of rand.String."""
_HASH: Final = "[4-9bcdf]{1,10}"
"""Of a pod template: the digits of a number of 32 bits, each as the character of rand.SafeEncodeString for it. A
CronJob's pods have the minute there, whose first digit is none of these characters."""
_DEPLOYMENT: Final = "Deployment"
_LONGEST_BASE: Final = 58
"""Characters of a name that others are generated from (apiserver, pkg/storage/names/generate.go)."""

EXPRESSIONS: Final[Mapping[str, str]] = {
    "current": "kube_horizontalpodautoscaler_status_current_replicas{<<.HPAs>>}",
    "desired": "kube_horizontalpodautoscaler_status_desired_replicas{<<.HPAs>>}",
    "minimum": "kube_horizontalpodautoscaler_spec_min_replicas{<<.HPAs>>}",
    "maximum": "kube_horizontalpodautoscaler_spec_max_replicas{<<.HPAs>>}",
    "conditions": "kube_horizontalpodautoscaler_status_condition{<<.HPAs>>}",
    "values": "kube_horizontalpodautoscaler_status_target_metric{<<.HPAs>>}",
    "cpu_usage": "rate(container_cpu_usage_seconds_total{<<.Pods>>}[<<.Window>>])",
    "memory_usage": "container_memory_working_set_bytes{<<.Pods>>}",
    # A sidecar is an init container that keeps running.
    "cpu_requests": 'kube_pod_container_resource_requests{<<.Pods>>,resource="cpu"}'
    ' or kube_pod_init_container_resource_requests{<<.Pods>>,resource="cpu"}',
    "memory_requests": 'kube_pod_container_resource_requests{<<.Pods>>,resource="memory"}'
    ' or kube_pod_init_container_resource_requests{<<.Pods>>,resource="memory"}',
}
OF_HPAS: Final = ("current", "desired", "minimum", "maximum", "conditions", "values")
_OF_CADVISOR: Final = ("cpu_usage", "memory_usage")

POD_NAMES: Final[Mapping[str, str]] = {
    _DEPLOYMENT: f"<<.Name>>-{_HASH}-{_SUFFIX}",
    "StatefulSet": "<<.Name>>-[0-9]+",
    "ReplicaSet": f"<<.Name>>-{_SUFFIX}",
    "ReplicationController": f"<<.Name>>-{_SUFFIX}",
    "DeploymentConfig": f"<<.Name>>-[0-9]+-{_SUFFIX}",
}


_Label = Annotated[str, msgspec.Meta(pattern="^[a-zA-Z_][a-zA-Z0-9_]*$")]


class SeriesLabels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The names of labels. Where Prometheus scrapes with honor_labels: false, some begin with `exported_`."""

    namespace: _Label = "namespace"
    hpa: _Label = "horizontalpodautoscaler"
    pod: _Label = "pod"
    container: _Label = "container"


class QueueExpressions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Expressions of a queue: its messages, and those published and acknowledged per second.

    `per_replica`: messages per second of one replica, where the past is not to be asked for it.
    """

    messages: str
    published: str
    acked: str
    per_replica: Annotated[float, msgspec.Meta(gt=0)] | None = None


class Series(NamedTuple):
    """The expressions by their names (EXPRESSIONS), and what they are filled with.

    `state` and `cadvisor` are the labels of kube-state-metrics and of cAdvisor; None: they are found out. `matchers`
    are added to those of HPAs and pods. `window` is that of rates in seconds; None: two steps, or two minutes if that
    is longer. `pods` has the names of pods by the kind of the target as regular expressions. `queues` are those of
    metrics by "namespace/name" of the HPA and the address of the metric. `file` is where all this is from.
    """

    expressions: Mapping[str, str] = EXPRESSIONS
    state: SeriesLabels | None = None
    cadvisor: SeriesLabels | None = None
    matchers: str = ""
    window: float | None = None
    pods: Mapping[str, str] = POD_NAMES
    queues: Mapping[str, Mapping[str, QueueExpressions]] = {}
    file: str = ""

    def of(self, name: str, matchers: str, step: float) -> str:
        """Returns an expression for the HPAs or pods of these matchers."""
        text = f"{matchers},{self.matchers}" if self.matchers else matchers
        window = max(2 * step, 120.0) if self.window is None else self.window
        values = {HPAS: text, PODS: text, WINDOW: f"{window:g}s"}
        expression = self.expressions[name]
        for variable, value in values.items():
            expression = expression.replace(variable, value)
        return expression

    def labels_of(self, name: str) -> SeriesLabels:
        """Returns the labels of an expression."""
        found = self.cadvisor if name in _OF_CADVISOR else self.state
        return found or SeriesLabels()

    def hpas(self, keys: Iterable[Key]) -> str:
        """Returns the matchers of HPAs; of several namespaces, they may match others, too."""
        labels, known = self.state or SeriesLabels(), list(keys)
        namespaces = _matched(labels.namespace, (key.namespace for key in known))
        return f"{namespaces},{_matched(labels.hpa, (key.local for key in known))}"

    def pods_of(self, name: str, namespace: str, target: CrossVersionObjectReference, container: str = "") -> str:
        """Returns the matchers of the pods of a target for an expression, or of one container of them."""
        labels = self.labels_of(name)
        matchers = f"{labels.namespace}={quoted(namespace)},{labels.pod}=~{quoted(self.pod_names(target))}"
        if container:
            return f"{matchers},{labels.container}={quoted(container)}"
        # cAdvisor has series of whole pods, too, and of the container that holds their network.
        only = f',{labels.container}!="",{labels.container}!="POD"' if name in _OF_CADVISOR else ""
        return f"{matchers}{only}"

    def pod_names(self, target: CrossVersionObjectReference) -> str:
        """Returns a regular expression for the names of the pods of a target; unknown kinds are as Deployments."""
        pattern = self.pods.get(target.kind, self.pods[_DEPLOYMENT])
        if pattern == POD_NAMES[_DEPLOYMENT] and len(target.name) > _LONGEST_BASE - len("-4294967295-"):
            base = f"{target.name}-"[:_LONGEST_BASE]
            return f"{_escaped(base)}[4-9bcdf-]{{0,{min(11, _LONGEST_BASE - len(base))}}}{_SUFFIX}"
        return pattern.replace(NAME, _escaped(target.name))


DEFAULT: Final = Series()


def _escaped(name: str) -> str:
    return re.escape(name).replace("\\-", "-").replace("\\.", "[.]")  # as these are read, and re.escape escapes both


def _matched(label: str, values: Iterable[str]) -> str:
    known = sorted(set(values))
    if len(known) == 1:
        return f"{label}={quoted(known[0])}"
    return f"{label}=~{quoted('|'.join(map(_escaped, known)))}"
