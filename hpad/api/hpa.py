"""autoscaling/v2 HorizontalPodAutoscaler with its defaults, and autoscaling/v1 Scale, as the API server writes them.

Field for field k8s.io/api/autoscaling/v2 (1.36). Every field may be missing in the input: `validation` reports what is
required, `defaulted` sets defaults. In the output a field is omitted where Go's `omitempty` omits it; the others
(`field(default_factory=...)` below, which msgspec never omits) are always written.

Source of the defaults: Kubernetes 1.36, pkg/apis/autoscaling/v2/defaults.go: SetDefaults_HorizontalPodAutoscaler.
Settings of the controller, such as the downscale stabilization window, are not part of the object and stay absent.
"""

from datetime import datetime
from typing import Any, Final

import msgspec

from hpad.api.metadata import AUTOSCALER_KEY, Key, ObjectMeta
from hpad.api.quantity import Quantity
from hpad.api.selector import LabelSelector, Selector, SelectorError, parse

API_VERSION = "autoscaling/v2"
KIND = "HorizontalPodAutoscaler"
AUTOSCALER: Final = "Autoscaler"
AUTOSCALER_VERSION: Final = "hpad.io/v1"


class _Wire(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The base of the structs of this file."""


class CrossVersionObjectReference(_Wire, frozen=True):
    """The scale target, or the object that an Object metric describes."""

    kind: str = msgspec.field(default_factory=str)
    name: str = msgspec.field(default_factory=str)
    api_version: str = ""


class MetricIdentifier(_Wire, frozen=True):
    """The name of a metric, and a selector that restricts its series."""

    name: str = msgspec.field(default_factory=str)
    selector: LabelSelector | None = None


class MetricTarget(_Wire, frozen=True):
    """The metric target: `type` is Utilization, Value or AverageValue."""

    type: str = msgspec.field(default_factory=str)
    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: int | None = None


class ObjectMetricSource(_Wire, frozen=True):
    """A metric of the type Object: one value that belongs to another object."""

    described_object: CrossVersionObjectReference = CrossVersionObjectReference()
    target: MetricTarget = MetricTarget()
    metric: MetricIdentifier = MetricIdentifier()


class PodsMetricSource(_Wire, frozen=True):
    """A metric of the type Pods: one value per pod."""

    metric: MetricIdentifier = MetricIdentifier()
    target: MetricTarget = MetricTarget()


class ResourceMetricSource(_Wire, frozen=True):
    """A metric of the type Resource: the CPU or memory of the pods."""

    name: str = msgspec.field(default_factory=str)
    target: MetricTarget = MetricTarget()


class ContainerResourceMetricSource(ResourceMetricSource, frozen=True):
    """A metric of the type ContainerResource: the CPU or memory of one container of each pod."""

    container: str = msgspec.field(default_factory=str)


class ExternalMetricFallback(_Wire, frozen=True):
    """The replicas that stand in for a metric that has failed for that many seconds; None: 180 (KEP-5679)."""

    failure_duration_seconds: int | None = None
    replicas: int = msgspec.field(default_factory=int)


class ExternalMetricSource(_Wire, frozen=True):
    """A metric of the type External: values that belong to no object of the cluster."""

    metric: MetricIdentifier = MetricIdentifier()
    target: MetricTarget = MetricTarget()
    fallback: ExternalMetricFallback | None = None


class MetricSpec(_Wire, frozen=True):
    """One entry of spec.metrics: `type` names the one source that is set."""

    type: str = msgspec.field(default_factory=str)
    object: ObjectMetricSource | None = None
    pods: PodsMetricSource | None = None
    resource: ResourceMetricSource | None = None
    container_resource: ContainerResourceMetricSource | None = None
    external: ExternalMetricSource | None = None


class HPAScalingPolicy(_Wire, frozen=True):
    """At most `value` Pods or Percent within `period_seconds`."""

    type: str = msgspec.field(default_factory=str)
    value: int = msgspec.field(default_factory=int)
    period_seconds: int = msgspec.field(default_factory=int)


class HPAScalingRules(_Wire, frozen=True):
    """The rules of one direction; `policies` None is absent, () an empty list."""

    stabilization_window_seconds: int | None = None
    select_policy: str | None = None
    policies: tuple[HPAScalingPolicy, ...] | None = None
    tolerance: Quantity | None = None


class HorizontalPodAutoscalerBehavior(_Wire, frozen=True):
    """The rules for scaling up and down."""

    scale_up: HPAScalingRules | None = None
    scale_down: HPAScalingRules | None = None


class OwnQuery(_Wire, frozen=True):
    """A query that an Autoscaler brings: its External metrics of that name are read by it.

    `source` is a metric source that is open for such queries, `parameters` are those of a configured metric there.
    """

    name: str = msgspec.field(default_factory=str)
    source: str = msgspec.field(default_factory=str)
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)


LABEL_SELECTOR: Final = "LabelSelector"
OWNER_REFERENCE: Final = "OwnerReference"
"""How the pods of the target are selected (KEP-5325)."""


class HorizontalPodAutoscalerSpec(_Wire, frozen=True, gc=True, dict=True):
    """The spec. `sync_period_seconds` (KEP-6003) and `selection_strategy` (KEP-5325) are fields of newer servers.

    Its `__dict__`, which is never copied, compared or written, caches the compiled spec.

    Some fields are not of autoscaling/v2, and their names in recordings are such that no field of the API can have
    them: `refused` says why an HPA is too large to be read (`hpad.api.limits`; "": it is not). An Autoscaler may have
    `queries`, and `invalid` says what is wrong with it: nobody has validated it as the API server validates HPAs.
    """

    scale_target_ref: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    min_replicas: int | None = None
    max_replicas: int = msgspec.field(default_factory=int)
    metrics: tuple[MetricSpec, ...] = ()
    behavior: HorizontalPodAutoscalerBehavior | None = None
    sync_period_seconds: int | None = None
    selection_strategy: str = ""
    refused: str = msgspec.field(default="", name="hpad.io/refused")
    invalid: str = msgspec.field(default="", name="hpad.io/invalid")
    queries: tuple[OwnQuery, ...] = msgspec.field(default=(), name="hpad.io/queries")


class MetricValueStatus(_Wire, frozen=True):
    """The current value of a metric, in the fields of its metric target."""

    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: int | None = None


class ObjectMetricStatus(_Wire, frozen=True):
    """The current value of a metric of the type Object."""

    metric: MetricIdentifier = msgspec.field(default_factory=MetricIdentifier)
    current: MetricValueStatus = msgspec.field(default_factory=MetricValueStatus)
    described_object: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)


class PodsMetricStatus(_Wire, frozen=True):
    """The current average of a metric of the type Pods."""

    metric: MetricIdentifier = msgspec.field(default_factory=MetricIdentifier)
    current: MetricValueStatus = msgspec.field(default_factory=MetricValueStatus)


class ResourceMetricStatus(_Wire, frozen=True):
    """The current average of a metric of the type Resource."""

    name: str = msgspec.field(default_factory=str)
    current: MetricValueStatus = msgspec.field(default_factory=MetricValueStatus)


class ContainerResourceMetricStatus(ResourceMetricStatus, frozen=True):
    """The current average of a metric of the type ContainerResource."""

    container: str = msgspec.field(default_factory=str)


class ExternalMetricStatus(_Wire, frozen=True):
    """The current value of a metric of the type External.

    `fallback_status`, Normal or Fallback, and `first_failure_time` are those of a metric with a fallback (KEP-5679).
    """

    metric: MetricIdentifier = msgspec.field(default_factory=MetricIdentifier)
    current: MetricValueStatus = msgspec.field(default_factory=MetricValueStatus)
    fallback_status: str = ""
    first_failure_time: datetime | None = None


class MetricStatus(_Wire, frozen=True):
    """The last value of one entry of spec.metrics; all fields are empty (`type` "") if it had none."""

    type: str = msgspec.field(default_factory=str)
    object: ObjectMetricStatus | None = None
    pods: PodsMetricStatus | None = None
    resource: ResourceMetricStatus | None = None
    container_resource: ContainerResourceMetricStatus | None = None
    external: ExternalMetricStatus | None = None

    @property
    def source(self) -> ObjectMetricStatus | PodsMetricStatus | ResourceMetricStatus | ExternalMetricStatus | None:
        """The only one of them that is set; None where there is none."""
        return self.resource or self.container_resource or self.pods or self.object or self.external


class HorizontalPodAutoscalerCondition(_Wire, frozen=True):
    """A condition, such as AbleToScale or one of hpad's own, and since when it has its status.

    `observed_generation` is that of the HPA when it was set, where the server counts generations (1.37).
    """

    type: str = msgspec.field(default_factory=str)
    status: str = msgspec.field(default_factory=str)
    last_transition_time: datetime | None = msgspec.field(default_factory=lambda: None)
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None


class HorizontalPodAutoscalerStatus(_Wire, frozen=True):
    observed_generation: int | None = None
    last_scale_time: datetime | None = None
    current_replicas: int = 0
    desired_replicas: int = msgspec.field(default_factory=int)
    current_metrics: tuple[MetricStatus, ...] | None = msgspec.field(default_factory=lambda: None)
    conditions: tuple[HorizontalPodAutoscalerCondition, ...] = ()


class HorizontalPodAutoscaler(_Wire, frozen=True):
    """An HPA in autoscaling/v2, from the version of its document; or an Autoscaler (`hpad.api.autoscaler`)."""

    kind: str = msgspec.field(default_factory=lambda: KIND)
    api_version: str = msgspec.field(default_factory=lambda: API_VERSION)
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: HorizontalPodAutoscalerSpec = msgspec.field(default_factory=HorizontalPodAutoscalerSpec)
    status: HorizontalPodAutoscalerStatus = msgspec.field(default_factory=HorizontalPodAutoscalerStatus)

    @property
    def key(self) -> Key:
        return key_of(self.metadata.namespace, self.metadata.name, self.kind)


KINDS: Final = (KIND, AUTOSCALER)


def key_of(namespace: str, name: str, kind: str) -> Key:
    """Returns the key of an object of one of the KINDS."""
    return Key(namespace, name, AUTOSCALER_KEY if kind == AUTOSCALER else "")


def kind_of(key: Key) -> str:
    """Returns which of the KINDS the object has."""
    return AUTOSCALER if key.kind == AUTOSCALER_KEY else KIND


def titled(key: Key) -> str:
    """Returns "HPA shop/web" or "Autoscaler shop/web", for messages."""
    return f"{AUTOSCALER if key.kind else 'HPA'} {key.namespace}/{key.name}"


_NO_STATUS: Final = HorizontalPodAutoscalerStatus()


def without_status(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Returns the HPA with an empty status."""
    return msgspec.structs.replace(hpa, status=_NO_STATUS)


def dec_hook(kind: type, value: Any) -> Any:
    """Decodes quantities, which may be text or numbers."""
    if kind is Quantity:
        return Quantity.parse(value)
    raise NotImplementedError(kind)


def enc_hook(value: Any) -> Any:
    """Encodes quantities as their canonical text."""
    if isinstance(value, Quantity):
        return str(value)
    raise NotImplementedError(type(value))


def from_builtins(value: Any) -> HorizontalPodAutoscaler:
    """Returns the HPA of an autoscaling/v2 object. Raises msgspec.ValidationError with the path."""
    return msgspec.convert(value, HorizontalPodAutoscaler, dec_hook=dec_hook)


def to_builtins(value: Any) -> Any:
    """Returns a struct of this file (or a tuple of them) as JSON-like builtins, times as RFC 3339 text."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=enc_hook))  # unlike to_builtins: lists, not tuples


class ScaleSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    replicas: int = 0


_PARSED: Final = "parsed_selector"


def _parsed(text: str) -> Selector | SelectorError | None:
    if not text:
        return None
    try:
        return parse(text)
    except SelectorError as error:
        return error


class ScaleStatus(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """`selector` is the text of a label selector; "" where the target has none."""

    replicas: int = msgspec.field(default_factory=int)
    selector: str = ""

    @property
    def parsed_selector(self) -> Selector | SelectorError | None:
        """The parsed selector, cached; the error if it is invalid, None if the target has no selector."""
        # Not functools.cached_property: its lock costs as much as the parsing of a known selector.
        kept = self.__dict__
        if _PARSED not in kept:
            kept[_PARSED] = _parsed(self.selector)
        parsed: Selector | SelectorError | None = kept[_PARSED]
        return parsed


class Scale(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """autoscaling/v1 Scale with all its fields, so that it may be PUT back. `metadata` is kept as received."""

    kind: str = msgspec.field(default_factory=lambda: "Scale")  # a factory: always written
    api_version: str = msgspec.field(default_factory=lambda: "autoscaling/v1")
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    spec: ScaleSpec = msgspec.field(default_factory=ScaleSpec)
    status: ScaleStatus = msgspec.field(default_factory=ScaleStatus)

    @property
    def pod_selector(self) -> Selector | None:
        """The selector of the target's pods; None if it is missing or invalid."""
        parsed = self.status.parsed_selector
        return None if isinstance(parsed, SelectorError) else parsed

    def with_replicas(self, replicas: int) -> "Scale":
        return msgspec.structs.replace(self, spec=ScaleSpec(replicas))


DEFAULT_CPU_UTILIZATION: Final = 80
DEFAULT_METRIC: Final = MetricSpec(
    type="Resource",
    resource=ResourceMetricSource(
        name="cpu", target=MetricTarget(type="Utilization", average_utilization=DEFAULT_CPU_UTILIZATION)
    ),
)
SCALE_UP: Final = HPAScalingRules(
    stabilization_window_seconds=0,
    select_policy="Max",
    policies=(HPAScalingPolicy("Pods", 4, 15), HPAScalingPolicy("Percent", 100, 15)),
)
SCALE_DOWN: Final = HPAScalingRules(select_policy="Max", policies=(HPAScalingPolicy("Percent", 100, 15),))


def defaulted(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Returns the HPA with all defaults of autoscaling/v2. Idempotent."""
    return with_behavior(with_minimum_and_metrics(hpa))


def with_behavior(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Returns the HPA with defaults in its behavior only, if it has one.

    An API version without these defaults needs the rules in full.
    Source: v2/defaults.go: SetDefaults_HorizontalPodAutoscalerBehavior.
    """
    if hpa.spec.behavior is None:
        return hpa
    behavior = HorizontalPodAutoscalerBehavior(
        scale_up=with_rules(hpa.spec.behavior.scale_up, SCALE_UP),
        scale_down=with_rules(hpa.spec.behavior.scale_down, SCALE_DOWN),
    )
    return msgspec.structs.replace(hpa, spec=msgspec.structs.replace(hpa.spec, behavior=behavior))


def with_minimum_and_metrics(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Returns the HPA with defaults for `minReplicas` and `metrics` only.

    autoscaling/v1 sets these before validation (v1/defaults.go: SetDefaults_HorizontalPodAutoscaler, and conversion.go:
    Convert_v1_HorizontalPodAutoscaler_To_autoscaling_HorizontalPodAutoscaler).
    """
    spec = hpa.spec
    minimum = 1 if spec.min_replicas is None else spec.min_replicas
    spec = msgspec.structs.replace(spec, min_replicas=minimum, metrics=spec.metrics or (DEFAULT_METRIC,))
    return msgspec.structs.replace(hpa, spec=spec)


def with_rules(rules: HPAScalingRules | None, default: HPAScalingRules) -> HPAScalingRules:
    """Returns the default rules, overridden by all fields that are set (v2/defaults.go: copyHPAScalingRules)."""
    if rules is None:
        return default
    # An empty list of policies counts as set: validation then refuses it, as the API server does.
    fields = {name: value for name in HPAScalingRules.__struct_fields__ if (value := getattr(rules, name)) is not None}
    return msgspec.structs.replace(default, **fields)
