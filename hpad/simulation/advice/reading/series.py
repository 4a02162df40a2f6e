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

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import promql_parser

from hpad.api import duration, settings_errors
from hpad.api.hpa import CrossVersionObjectReference
from hpad.api.metadata import Key
from hpad.api.problem import Place
from hpad.api.text import hint, quoted, shown
from hpad.manifests import documents
from hpad.simulation.history import HistoryError

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


# The short file that says which series differ from these.

_VARIABLE: Final = re.compile(r"<<.*?>>")
_FILLED: Final = {HPAS: 'namespace="n"', PODS: 'namespace="n"', WINDOW: "120s"}


class _Labels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kube_state_metrics: SeriesLabels | None = None
    cadvisor: SeriesLabels | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    series: dict[str, str] = {}
    labels: _Labels = _Labels()
    matchers: str = ""
    window: str | None = None
    pods: dict[str, str] = {}
    queues: dict[str, dict[str, QueueExpressions]] = {}


def read_file(path: Path) -> Series:
    """Returns the series of a YAML file, which has only what differs. Raises HistoryError with a line per problem."""
    try:
        found = documents.read(path)
    except OSError as error:
        raise HistoryError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not found:
        return DEFAULT
    if len(found) > 1:
        raise HistoryError(f"{path}: has {len(found)} documents; one is needed")
    (document,) = found
    wrong = [*document.faults] or [settings_errors.problem(*each) for each in _wrong(document.value)]
    if wrong:
        placed = sorted(map(document.placed, wrong), key=lambda each: each.line)
        raise HistoryError("\n".join(each.at(str(path)) for each in placed))
    file = msgspec.convert(document.value, _File)
    return Series(
        expressions={**EXPRESSIONS, **file.series},
        state=file.labels.kube_state_metrics,
        cadvisor=file.labels.cadvisor,
        matchers=_matchers(file.matchers),
        window=None if file.window is None else _window(file.window),
        pods={**DEFAULT.pods, **file.pods},
        queues=file.queues,
        file=str(path),
    )


def _wrong(value: Any) -> Iterator[tuple[Place, str]]:
    """Yields the errors of the fields; if there are none, of what their texts say."""
    if any(found := list(settings_errors.faults(value, _File))):
        yield from found
        return
    for place, check in _checks(msgspec.convert(value, _File)):
        try:
            check()
        except ValueError as error:
            yield place, str(error)


def _checks(file: _File) -> Iterator[tuple[Place, Callable[[], object]]]:
    """Yields what raises ValueError for a wrong text, by its place."""
    for name, text in file.series.items():
        yield ("series", name), functools.partial(_check_expression, name, text)
    yield ("matchers",), functools.partial(_matchers, file.matchers)
    if file.window is not None:
        yield ("window",), functools.partial(_window, file.window)
    for kind, text in file.pods.items():
        yield ("pods", kind), functools.partial(_check_pattern, text)
    for hpa, queues in file.queues.items():
        for address, queue in queues.items():
            for name in ("messages", "published", "acked"):
                yield ("queues", hpa, address, name), functools.partial(_check_promql, getattr(queue, name))


def _check_expression(name: str, text: str) -> None:
    if name not in EXPRESSIONS:
        raise ValueError(f"unknown field{hint(name, tuple(EXPRESSIONS))}")
    _check_promql(text, (HPAS if name in OF_HPAS else PODS,), (WINDOW,))


def _check_promql(text: str, needed: tuple[str, ...] = (), allowed: tuple[str, ...] = ()) -> None:
    known, filled = (*needed, *allowed), text
    for variable in _VARIABLE.findall(text):
        if variable not in known:
            right = f"there are {', '.join(known)}" if known else "there are none here"
            raise ValueError(f"{shown(text)} has the variable {variable}; {right}")
    for variable in needed:
        if variable not in text:
            example = f"as in {EXPRESSIONS['current' if variable == HPAS else 'memory_usage']}"
            raise ValueError(f"{shown(text)} lacks the variable {variable}, {example}")
    for variable, stand_in in _FILLED.items():
        filled = filled.replace(variable, stand_in)
    try:
        promql_parser.parse(filled)
    except ValueError as error:
        raise ValueError(f"{shown(text)} is not PromQL: {error}") from None


def _matchers(text: str) -> str:
    found = text.strip().rstrip(",")
    with suppress(ValueError):
        if isinstance(promql_parser.parse(f"up{{{found}}}"), promql_parser.VectorSelector):
            return found
    raise ValueError(f'{shown(text)} are no matchers of labels, such as cluster="prod",job="kubelet"')


def _window(text: str) -> float:
    seconds = duration.parse(text).total_seconds()
    if seconds < 1:
        raise ValueError(f"{shown(text)} is too short for a rate; twice the scrape interval or more is needed")
    return seconds


def _check_pattern(text: str) -> None:
    if NAME not in text:
        raise ValueError(f"{shown(text)} lacks the variable {NAME}, as in {DEFAULT.pods['StatefulSet']}")
    try:
        re.compile(text.replace(NAME, "n"))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{shown(text)} is not a regular expression: {error}") from None
