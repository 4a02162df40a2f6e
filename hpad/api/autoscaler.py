"""hpad.io/v1 Autoscaler: an HPA that the built-in controller does not see, with options and queries of its own.

Its spec is that of autoscaling/v2, and `options`, the annotations under `hpad.io/` without that prefix, and `queries`.
In hpad it is a HorizontalPodAutoscaler of the kind AUTOSCALER: the options stand among its annotations.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from hpad.api.hpa import (
    AUTOSCALER,
    AUTOSCALER_VERSION,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus,
    MetricSpec,
    MetricStatus,
    MetricTarget,
    MetricValueStatus,
    OwnQuery,
)
from hpad.api.metadata import ObjectMeta
from hpad.api.sample import CONTAINER_RESOURCE, EXTERNAL, OBJECT, PODS, RESOURCE, QueryDefinition
from hpad.api.text import begin, shown

PREFIX: Final = "hpad.io/"
"""The prefix of the annotations of hpad."""
MOST_QUERIES: Final = 20
"""Queries of one Autoscaler."""
LONGEST_QUERY: Final = 8192
"""Characters of the parameters of a query as JSON."""
_LONGEST_NAME: Final = 253
_SPEC: Final = HorizontalPodAutoscalerSpec.__struct_fields__
_STATUS: Final = HorizontalPodAutoscalerStatus.__struct_fields__


class AutoscalerSpec(HorizontalPodAutoscalerSpec, frozen=True, gc=True, dict=True):
    """The spec as it stands in the object. An option wins over an annotation of the same name."""

    options: dict[str, str] | None = None
    own_queries: tuple[OwnQuery, ...] = msgspec.field(default=(), name="queries")


class AutoscalerStatus(HorizontalPodAutoscalerStatus, frozen=True):
    """The status with the sentence of the last decision, and the metrics as kubectl shows those of an HPA.

    Without metrics the list is left out: the schema of a custom kind takes no null there. A count of 0 is written,
    since kubectl shows the field.
    """

    current_replicas: int = msgspec.field(default_factory=int)
    current_metrics: tuple[MetricStatus, ...] | None = None
    decision: str = ""
    targets: str = ""


class Autoscaler(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The object as the API server has it."""

    kind: str = msgspec.field(default_factory=lambda: AUTOSCALER)
    api_version: str = msgspec.field(default_factory=lambda: AUTOSCALER_VERSION)
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: AutoscalerSpec = msgspec.field(default_factory=AutoscalerSpec)
    status: AutoscalerStatus = msgspec.field(default_factory=AutoscalerStatus)


def as_hpa(found: Autoscaler) -> HorizontalPodAutoscaler:
    """Returns the Autoscaler in the form that decisions are made on, without defaults."""
    spec, metadata = found.spec, found.metadata
    if spec.options:
        options = {f"{PREFIX}{name}": text for name, text in spec.options.items()}
        metadata = msgspec.structs.replace(metadata, annotations={**(metadata.annotations or {}), **options})
    fields = {name: getattr(spec, name) for name in _SPEC} | {"queries": spec.own_queries}
    return HorizontalPodAutoscaler(
        kind=AUTOSCALER,
        api_version=AUTOSCALER_VERSION,
        metadata=metadata,
        spec=HorizontalPodAutoscalerSpec(**fields),
        status=without_texts(found.status),
    )


def with_texts(status: HorizontalPodAutoscalerStatus, decision: str, targets: str) -> AutoscalerStatus:
    """Returns the status as it stands in the object."""
    return AutoscalerStatus(**_shared(status), decision=decision, targets=targets)


def without_texts(status: HorizontalPodAutoscalerStatus) -> HorizontalPodAutoscalerStatus:
    """Returns the status in the form that decisions are made on."""
    return HorizontalPodAutoscalerStatus(**_shared(status)) if isinstance(status, AutoscalerStatus) else status


def _shared(status: HorizontalPodAutoscalerStatus) -> dict[str, Any]:
    return {name: getattr(status, name) for name in _STATUS}


_SHOWN: Final = 2
"""Number of metrics that kubectl shows; it only counts further ones."""
_UNKNOWN: Final = "<unknown>"


def targets(hpa: HorizontalPodAutoscaler) -> str:
    """Returns current values and targets of the first metrics, as in the column TARGETS of kubectl.

    Such as "cpu: 305%/50%", "80/15 (avg)" or "<unknown>/10, 1200/1k + 1 more...".
    Source: Kubernetes 1.36, pkg/printers/internalversion/printers.go: formatHPAMetrics.
    """
    cells = list(_cells(hpa))
    if not cells:
        return "<none>"
    more = f" + {len(cells) - _SHOWN} more..." if len(cells) > _SHOWN else ""
    return ", ".join(cells[:_SHOWN]) + more


def _cells(hpa: HorizontalPodAutoscaler) -> Iterator[str]:
    statuses = hpa.status.current_metrics or ()
    for index, spec in enumerate(hpa.spec.metrics):
        status = statuses[index] if index < len(statuses) else MetricStatus()
        yield _cell(spec, status)


def _cell(spec: MetricSpec, status: MetricStatus) -> str:
    current = status.source.current if status.source is not None and status.type == spec.type else MetricValueStatus()
    named = {EXTERNAL: spec.external, OBJECT: spec.object}.get(spec.type)
    if named is not None:
        return _value_or_average(named.target, current)
    if spec.type == PODS and spec.pods is not None:
        return _pair(current.average_value, spec.pods.target.average_value)
    resource = {RESOURCE: spec.resource, CONTAINER_RESOURCE: spec.container_resource}.get(spec.type)
    return "<unknown type>" if resource is None else f"{resource.name}: {_of_resource(resource.target, current)}"


def _value_or_average(target: MetricTarget, current: MetricValueStatus) -> str:
    """Formats a value, or an average over the replicas."""
    if target.average_value is not None:
        return f"{_pair(current.average_value, target.average_value)} (avg)"
    return _pair(current.value, target.value)


def _of_resource(target: MetricTarget, current: MetricValueStatus) -> str:
    if target.average_value is not None:
        return _pair(current.average_value, target.average_value)
    percent = None if current.average_utilization is None else f"{current.average_utilization}%"
    return _pair(percent, "<auto>" if target.average_utilization is None else f"{target.average_utilization}%")


def _pair(current: object, target_text: object) -> str:
    return f"{_UNKNOWN if current is None else current}/{_UNKNOWN if target_text is None else target_text}"


def query_definition(name: str, queries: Sequence[OwnQuery]) -> tuple[QueryDefinition | None, str | None]:
    """Returns the query of this name that the object brings along, or the error in it; neither if it brings none."""
    found = [(number, query) for number, query in enumerate(queries, 1) if query.name == name]
    if not found:
        return None, None
    number, query = found[0]
    text = _parameters(query)
    fault = None
    if len(found) > 1:
        fault = f"there are {len(found)} queries of this name; each needs a name of its own"
    elif number > MOST_QUERIES:
        fault = f"is query {number} of the Autoscaler, which may have {MOST_QUERIES}"
    elif not query.source:
        fault = "source: is missing: the name of a metric source in the configuration of hpad"
    elif text is None:
        fault = "parameters: cannot be written as JSON"
    elif len(text) > LONGEST_QUERY:
        fault = f"parameters: have {len(text):,} characters as JSON; hpad takes at most {LONGEST_QUERY:,}"
    if fault is not None or text is None:
        return None, f"spec.queries[{begin(name, _LONGEST_NAME)}]: {fault}"
    return QueryDefinition(query.source, text), None


def _parameters(query: OwnQuery) -> str | None:
    """Returns the parameters as JSON with sorted keys; None if they hold something else or are nested too deeply."""
    try:
        return msgspec.json.encode(query.parameters, order="deterministic").decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return None


def written_parameters(definition: QueryDefinition) -> str:
    """Returns the parameters of a query as their author may have written them, for people."""
    try:
        return shown(msgspec.json.decode(definition.text))
    except (msgspec.DecodeError, RecursionError):
        return definition.text
