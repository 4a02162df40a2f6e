"""The compiled form of an HPA's spec, made once per object instead of once per decision.

The texts are those of Kubernetes 1.36 (horizontal.go, replica_calculator.go): users and tools match on them in
conditions and events.
"""

import functools
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from hpad.api import selector as selectors
from hpad.api.amounts import Unit
from hpad.api.autoscaler import query_definition
from hpad.api.behavior import CompiledBehavior, compile_behavior
from hpad.api.bounded_cache import bounded_cache
from hpad.api.hpa import (
    AUTOSCALER,
    ContainerResourceMetricSource,
    CrossVersionObjectReference,
    ExternalMetricSource,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpec,
    MetricIdentifier,
    MetricSpec,
    MetricTarget,
    ObjectMetricSource,
    OwnQuery,
    PodsMetricSource,
    ResourceMetricSource,
)
from hpad.api.metadata import Key
from hpad.api.quantity import MAX_INT64, Format, Quantity
from hpad.api.sample import CONTAINER_RESOURCE, EXTERNAL, OBJECT, PODS, RESOURCE, SOURCE_TYPES, Query
from hpad.api.selector import LabelSelector, Selector, SelectorError
from hpad.api.text import begin, shown
from hpad.engine.schedule import Bounds

UTILIZATION: Final = "Utilization"
VALUE: Final = "Value"
_LONGEST_NAME: Final = 253
_LONGEST_SELECTOR: Final = 1024
"""Characters of a name and of a selector in a message."""
AVERAGE_VALUE: Final = "AverageValue"


class Wording(msgspec.Struct, frozen=True, gc=False):
    """The prefixes of error texts: of fetching, of measuring, and of the error of the whole reconcile.

    `reason` is that of the event and of the condition.
    """

    reason: str
    fetch: str
    measure: str
    outer: str


class CompiledMetric(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One metric and its metric target.

    `kind` is Utilization (`amount` in percent of the request), Value or AverageValue (`amount` in milli-units).
    `error` is the reason why the entry cannot be measured (None: it can).
    `description` is the name of the metric in the texts of Kubernetes, `label` the name in the texts of hpad.
    """

    type: str
    name: str
    kind: str
    amount: int
    description: str
    label: str
    wording: Wording
    query: Query
    spec: MetricSpec
    format: Format = Format.DECIMAL_SI
    error: str | None = None

    @property
    def spec_error(self) -> bool:
        """Whether Kubernetes blames the spec: the type of the metric is unknown."""
        return self.type not in SOURCE_TYPES

    @property
    def of_pods(self) -> bool:
        """Whether the metric has one value per pod."""
        return self.type in (RESOURCE, CONTAINER_RESOURCE, PODS)

    @property
    def is_cpu(self) -> bool:
        """Whether starting pods are left out: this rule applies to CPU only."""
        return self.name == "cpu" and self.type in (RESOURCE, CONTAINER_RESOURCE)

    @property
    def unit(self) -> Unit:
        """The unit for people: bytes for memory and for targets such as "64Mi", cores for CPU."""
        if self.is_cpu:
            return Unit.CORES
        return Unit.BYTES if self.format is Format.BINARY_SI or _target_in_bytes(self.spec) else Unit.COUNT


def _target_in_bytes(spec: MetricSpec) -> bool:
    source = spec.external or spec.object or spec.pods
    targets = () if source is None else (source.target.value, source.target.average_value)
    return any(quantity is not None and quantity.format is Format.BINARY_SI for quantity in targets)


def compile_metric(spec: MetricSpec, namespace: str, queries: Sequence[OwnQuery] = ()) -> CompiledMetric:
    """Compiles one entry of spec.metrics; `queries` are those of the object.

    Never raises: an invalid entry has an `error`.
    """
    if spec.type == RESOURCE:
        return _resource(spec, spec.resource or ResourceMetricSource(), namespace, "")
    if spec.type == CONTAINER_RESOURCE:
        source = spec.container_resource or ContainerResourceMetricSource()
        return _resource(spec, source, namespace, source.container)
    if spec.type == PODS:
        return _pods(spec, spec.pods or PodsMetricSource(), namespace)
    if spec.type == OBJECT:
        return _object(spec, spec.object or ObjectMetricSource(), namespace)
    if spec.type == EXTERNAL:
        return _external(spec, spec.external or ExternalMetricSource(), namespace, queries)
    return _unknown(spec, namespace)


class _Amount(NamedTuple):
    kind: str
    amount: int
    error: str | None = None


_FIELDS: Final = {
    UTILIZATION: attrgetter("average_utilization"),
    VALUE: attrgetter("value"),
    AVERAGE_VALUE: attrgetter("average_value"),
}
_NO_VALUE: Final = "neither a value target nor an average value target was set"
_NO_RESOURCE_TARGET: Final = "neither an average utilization target nor an average value (usage) target was set"


def _amount(target: MetricTarget, source: str, kinds: Sequence[str], unset: str = _NO_VALUE) -> _Amount:
    """Returns the first of the `kinds` that the target has, and its amount; `unset` is the error if it has none."""
    for kind in kinds:
        found: Quantity | int | None = _FIELDS[kind](target)
        if found is not None:
            return _Amount(kind, min(MAX_INT64, found.milli()) if isinstance(found, Quantity) else found)
    return _Amount("", 0, f"invalid {source} metric source: {unset}")


def _query(metric_type: str, namespace: str, metric: MetricIdentifier, **more: Any) -> tuple[Query, str | None]:
    """Returns the query of a metric, and the error in its selector."""
    selector, error = None, None
    try:
        selector = None if metric.selector is None else selectors.from_object(metric.selector)
    except SelectorError as invalid:
        error = str(invalid)
    return Query(type=metric_type, namespace=namespace, name=metric.name, selector=selector, **more), error


def _in_text(name: str) -> str:
    """Returns a name for messages: they reach conditions, events, logs and series, and names may be long."""
    return begin(name, _LONGEST_NAME)


def _written(selector: LabelSelector | None) -> str:
    return begin(selectors.go_plus_v(selector), _LONGEST_SELECTOR)


def _with_selector(name: str, selector: Selector | None) -> str:
    return name if selector is None or not str(selector) else f"{name}({begin(str(selector), _LONGEST_SELECTOR)})"


class _Texts(NamedTuple):
    description: str
    label: str
    wording: Wording


def _compiled(
    spec: MetricSpec,
    query: Query,
    target: _Amount,
    texts: _Texts,
    error: str | None,
    unit: Format = Format.DECIMAL_SI,
) -> CompiledMetric:
    return CompiledMetric(
        type=spec.type,
        name=query.name,
        kind=target.kind,
        amount=target.amount,
        description=texts.description,
        label=texts.label,
        wording=texts.wording,
        query=query,
        spec=spec,
        format=unit,
        error=error,
    )


def _resource(
    spec: MetricSpec, source: ResourceMetricSource | ContainerResourceMetricSource, namespace: str, container: str
) -> CompiledMetric:
    target = _amount(source.target, "resource", (AVERAGE_VALUE, UTILIZATION), _NO_RESOURCE_TARGET)
    texts = _resource_texts(spec.type, _in_text(source.name), target.kind, container)
    query = Query(type=spec.type, namespace=namespace, name=source.name, container=container)
    unit = Format.BINARY_SI if source.name == "memory" else Format.DECIMAL_SI
    return _compiled(spec, query, target, texts, target.error, unit)


@functools.lru_cache(maxsize=1 << 10)
def _resource_texts(metric_type: str, name: str, kind: str, container: str) -> _Texts:
    """Returns the texts of a resource metric, the same objects for all HPAs: each set takes half a kilobyte."""
    contained = metric_type == CONTAINER_RESOURCE
    used = "usage" if kind == AVERAGE_VALUE else "utilization"
    where = "container resource" if contained else "resource"
    description = f"{name} {where} utilization (percentage of request)"
    if kind == AVERAGE_VALUE:
        description = f"{name} resource"
    owner = f"{container} container" if contained else f"{name} resource"
    return _Texts(
        description,
        f"{name} of container {container}" if container else name,
        Wording(
            reason=f"FailedGet{metric_type}Metric",
            fetch=f"failed to get {name} {used}: unable to get metrics for resource {name}: ",
            measure=f"failed to get {name} {used}: ",
            outer=f"failed to get {owner} metric value: ",
        ),
    )


def _pods(spec: MetricSpec, source: PodsMetricSource, namespace: str) -> CompiledMetric:
    name = _in_text(source.metric.name)
    query, error = _query(spec.type, namespace, source.metric)
    target = _amount(source.target, "pods", (AVERAGE_VALUE,), "no average value target was set")
    wording = Wording(
        reason="FailedGetPodsMetric",
        fetch=f"unable to get metric {name}: ",
        measure="",
        outer="failed to get pods metric value: ",
    )
    texts = _Texts(f"pods metric {name}", f"pods metric {_with_selector(name, query.selector)}", wording)
    return _compiled(spec, query, target, texts, error or target.error)


def _object(spec: MetricSpec, source: ObjectMetricSource, namespace: str) -> CompiledMetric:
    name, kind, of = map(_in_text, (source.metric.name, source.described_object.kind, source.described_object.name))
    query, error = _query(spec.type, namespace, source.metric, object=source.described_object)
    target_type = source.target.type
    target = _amount(source.target, "object", (target_type,) if target_type in (VALUE, AVERAGE_VALUE) else ())
    error = error or target.error
    average = target.kind == AVERAGE_VALUE
    wording = Wording(
        reason="FailedGetObjectMetric",
        fetch=f"unable to get metric {name}: {kind} on {namespace} {of}/",
        measure="",
        outer="failed to get object metric value: "
        + (f"failed to get {name} object metric: " if average and error is None else ""),
    )
    # "external metric" is what Kubernetes writes for AverageValue (horizontal.go: computeStatusForObjectMetric).
    described = f"external metric {name}({_written(source.metric.selector)})" if average else f"{kind} metric {name}"
    texts = _Texts(described, f"{kind} metric {_with_selector(name, query.selector)}", wording)
    return _compiled(spec, query, target, texts, error)


def _external(
    spec: MetricSpec, source: ExternalMetricSource, namespace: str, queries: Sequence[OwnQuery]
) -> CompiledMetric:
    name, formatted = _in_text(source.metric.name), _written(source.metric.selector)
    definition, own_error = query_definition(source.metric.name, queries)
    query, error = _query(spec.type, namespace, source.metric, definition=definition)
    target = _amount(source.target, "external", (AVERAGE_VALUE, VALUE))
    inner = {
        AVERAGE_VALUE: f"failed to get {name} external metric: ",
        VALUE: f"failed to get external metric {name}: ",
    }
    wording = Wording(
        reason="FailedGetExternalMetric",
        fetch=f"unable to get external metric {namespace}/{name}/{formatted}: ",
        measure="",
        outer=f"failed to get {name} external metric value: {inner.get(target.kind, '')}",
    )
    label = f"external metric {_with_selector(name, query.selector)}"
    texts = _Texts(f"external metric {name}({formatted})", label, wording)
    return _compiled(spec, query, target, texts, target.error or error or own_error)


def _unknown(spec: MetricSpec, namespace: str) -> CompiledMetric:
    name = _in_text(spec.type)
    wording = Wording(reason="InvalidMetricSourceType", fetch="", measure="", outer="")
    query = Query(type=spec.type, namespace=namespace, name="")
    texts = _Texts("", f"metric of type {shown(name)}", wording)
    return _compiled(spec, query, _Amount("", 0), texts, f'unknown metric source type "{name}"')


_CACHED: Final = "compiled"
_COMPILED: Final = 2000
_TEXTS: Final = 5
"""Bytes of a compiled metric, and for each character of the metric as text."""


class CompiledSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The compiled spec of an HPA. Tables of HPAs use its `key`, so that they share one object.

    `target_id` is the target as group/kind/name, which is the same in all versions of its API. `version_error` is the
    error in the target's apiVersion, or None. `has_object_or_external`: a metric exists that has a value without pods.
    `bounds` are those without a schedule. `has_fallback`: the spec of a metric has one (KEP-5679). `refused` is why the
    HPA is too large to be read ("": it is not), `invalid` what is wrong with an Autoscaler.
    """

    key: Key
    target: CrossVersionObjectReference
    target_id: str
    version_error: str | None
    min_replicas: int
    max_replicas: int
    metrics: tuple[CompiledMetric, ...]
    behavior: CompiledBehavior | None
    has_object_or_external: bool
    bounds: Bounds
    has_fallback: bool = False
    refused: str = ""
    invalid: str = ""

    @property
    def reference(self) -> str:
        """Kind/namespace/name of the target."""
        return f"{self.target.kind}/{self.key.namespace}/{self.target.name}"


def compiled_spec(hpa: HorizontalPodAutoscaler) -> CompiledSpec:
    """Returns the compiled spec of an HPA. It is cached in the spec, so both have the same lifetime."""
    cached: CompiledSpec | None = hpa.spec.__dict__.get(_CACHED)
    metadata = hpa.metadata
    # `structs.replace` shares the spec between HPAs, also between HPAs of different names.
    if (
        cached is not None
        and cached.key.name == metadata.name
        and cached.key.namespace == metadata.namespace
        and (cached.key.kind != "") == (hpa.kind == AUTOSCALER)
    ):
        return cached
    compiled = hpa.spec.__dict__[_CACHED] = _compile(hpa)
    return compiled


class _Metrics(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The metrics of a spec, equal to the same object only: "1Ki" equals "1024", but is shown as written."""

    entries: tuple[MetricSpec, ...]

    def __hash__(self) -> int:
        return id(self.entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Metrics) and self.entries is other.entries


def _weight(metrics: _Metrics, namespace: str) -> int:
    """Returns what compiled metrics take: most of it are texts with their names and selectors."""
    return sum([_COMPILED + _TEXTS * len(str(metric)) for metric in metrics.entries])


@bounded_cache(_weight, 1 << 25)
def _compiled_metrics(metrics: _Metrics, namespace: str) -> tuple[CompiledMetric, ...]:
    """Returns the compiled metrics, one object for all HPAs of the namespace whose specs share their metrics."""
    return tuple(compile_metric(metric, namespace) for metric in metrics.entries)


def _metrics(spec: HorizontalPodAutoscalerSpec, namespace: str) -> tuple[CompiledMetric, ...]:
    """Returns the compiled metrics; those of an Autoscaler with queries have its lifetime, as their definitions do."""
    if spec.queries:
        return tuple([compile_metric(metric, namespace, spec.queries) for metric in spec.metrics])
    return _compiled_metrics(_Metrics(spec.metrics), namespace)


def _compile(hpa: HorizontalPodAutoscaler) -> CompiledSpec:
    spec, key, target = hpa.spec, hpa.key, hpa.spec.scale_target_ref
    minimum = 1 if spec.min_replicas is None else spec.min_replicas
    return CompiledSpec(
        key=key,
        target=target,
        target_id=f"{target.api_version.rpartition('/')[0]}/{target.kind}/{target.name}",
        version_error=_version_error(target.api_version),
        min_replicas=minimum,
        max_replicas=spec.max_replicas,
        metrics=_metrics(spec, key.namespace),
        behavior=compile_behavior(spec.behavior),
        has_object_or_external=any(metric.type in (OBJECT, EXTERNAL) for metric in spec.metrics),
        bounds=_bounds(minimum, spec.max_replicas),
        has_fallback=any(each.external is not None and each.external.fallback is not None for each in spec.metrics),
        refused=spec.refused,
        invalid=spec.invalid,
    )


_bounds: Final = functools.lru_cache(maxsize=1 << 10)(Bounds)
"""Returns bounds, one object for all HPAs that have them."""


def _version_error(api_version: str) -> str | None:
    """Returns the error of an apiVersion; empty, `version` and `group/version` are valid (schema.ParseGroupVersion)."""
    if api_version in ("", "/") or api_version.count("/") <= 1:
        return None
    return f"unexpected GroupVersion string: {api_version}"
