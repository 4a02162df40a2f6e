"""hpad.io/v1 Autoscaler: an HPA that the built-in controller does not see, with options and queries of its own.

Its spec is that of autoscaling/v2, and `options`, the annotations under `hpad.io/` without that prefix, and `queries`.
In hpad it is a HorizontalPodAutoscaler of the kind AUTOSCALER: the options stand among its annotations.
"""

from typing import Any, Final

import msgspec

from hpad.api.hpa import (
    AUTOSCALER,
    AUTOSCALER_VERSION,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus,
    MetricStatus,
    OwnQuery,
)
from hpad.api.metadata import ObjectMeta

PREFIX: Final = "hpad.io/"
"""The prefix of the annotations of hpad."""
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
