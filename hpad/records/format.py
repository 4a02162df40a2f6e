"""The format of recordings: one recording holds scenarios, one scenario holds the consecutive steps of one HPA.

A scenario is one JSON object, in the format of the conformance vectors (tests/data/README.md). Optional fields of
hpad's own carry what that format cannot express; other readers may ignore them:

- `history` of a scenario: the recommendations and rescales before the first step.
- `stale` of a step: the scale was not read, because a cache was out of date.
- `tooLarge` of a step: the scale was not used, because its pods are too many to be compared.
- `rivals` of a step: the names of competing HPAs, in place of `otherHpaSelectors`.
- `terms` of a step: the fallback policy of each metric.
- `termsFlaw` and `annotationReason` of a step: the errors in annotations of the HPA, and the reason of the condition
  HpadAnnotationsValid. Recordings of earlier builds, which did not set this condition, have no reason.
- `controls` of a step: the annotations that set the controls of the HPA, as written.
- `competitors` of a step: other writers of the target or the status.
- `setByOther` of a step: another client has set the replicas since the HPA did.
- `zeroBy` of a step: the client that set the target to zero.
- `valuesHeld` of a step: a change of measured values alone did not change the status (setting `status_refresh`).
- `withheld` of a step: why a decided count was not sent.
- `unsure` of a step: the last write failed so that it may or may not have been carried out.
- `timing` of a step: the seconds of each stage, in the decision history alone.
- `shadow` of a step: in shadow mode, why, and the counts and values of the target. All else is that of the shadow.
- `work` of a step: the answers about the unfinished work of each pod, for a scale-down that spares busy pods.
- `shares` of a step: what the HPA shares of its budget: the amount, and what the other HPAs have and want.
- `answers` of a step: one answer per metric, in place of the metrics lists, which hpad 0.1 wrote where it could.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeVar

import msgspec

from hpad.api import metrics, pod_json, selector
from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, Scale, dec_hook, to_builtins
from hpad.api.metadata import Moment
from hpad.api.metrics import ExternalMetricValue, MetricValue, PodMetrics
from hpad.api.pod import Pod
from hpad.api.quantity import parse_milli
from hpad.api.sample import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    RESOURCE,
    AdapterError,
    Answer,
    ExternalSample,
    ObjectSample,
    PodSample,
    PodValue,
    Query,
    Sample,
)
from hpad.api.selector import Selector, SelectorError
from hpad.api.wire import UNDECODABLE
from hpad.engine import controls, fallback_policy
from hpad.engine.budget import Shares
from hpad.engine.controls import Controls
from hpad.engine.fallback_policy import FallbackPolicy
from hpad.engine.history import EMPTY, History
from hpad.engine.turn import TimingTrace
from hpad.engine.view import (
    NO_MATCH,
    READ_FAILED,
    REMOVED_GATES,
    STALE,
    TOO_LARGE,
    Competitor,
    Gates,
    ScaleError,
    Shadow,
    Tunables,
    Withheld,
)

CONFLICT: Final = "conflict"
"""Stands in `scaleUpdateErrors` for a write that another writer of the scale got ahead of."""
_NO_MATCH_TEXT: Final = "no matches for kind"
"""How the error for an unknown kind begins (apimachinery, pkg/api/meta/errors.go: NoKindMatchError)."""
_Decoded = TypeVar("_Decoded")
_Item = TypeVar("_Item")


class RecordingError(ValueError):
    """A recording cannot be read or written.

    The message names the file and line, or the field, and what is wrong with it.
    """


class _Lenient(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A struct that ignores unknown fields."""


class _List(_Lenient, Generic[_Item], frozen=True):
    """The answer of a metrics API: items, or the error of the request."""

    items: tuple[_Item, ...] = ()
    error: str | None = None

    def require(self, api: str) -> tuple[_Item, ...]:
        """Returns the items. Raises AdapterError if the request to `api` failed."""
        if self.error is not None:
            raise metrics.fetch_failed(api, self.error)
        return self.items


class Reading(_Lenient, frozen=True):
    """The answer of a metric source: values of pods, of one object or of several series, or an error.

    `note` belongs to the values of series, `most_busy` to the work of pods.
    """

    pods: dict[str, PodValue] | None = None
    most_busy: int | None = None
    value: int | None = None
    values: tuple[int, ...] | None = None
    timestamp: Moment | None = None
    note: str = ""
    error: str | None = None
    blame: str = "source"


class FallbackText(_Lenient, frozen=True):
    """The fallback policy of one metric as text, such as `replicas:5 after 3m0s`, and its activation as a quantity."""

    fallback: str | None = None
    activation: str | None = None


class Step(_Lenient, frozen=True):
    """The inputs of one reconcile.

    `spec` is the HPA's spec from this step on, None if it is unchanged; `generation` that of an Autoscaler, or 0. In a
    recording `pods` are objects of core/v1; `decode_step` makes each a Pod.
    """

    time: Moment
    spec: HorizontalPodAutoscalerSpec | None = None
    generation: int = 0
    scale: Scale | None = None
    scale_error: str | None = None
    stale: bool = False
    too_large: bool = False
    scale_update_errors: tuple[str, ...] = ()
    pods: tuple[Any, ...] = ()
    pod_metrics: _List[PodMetrics] | None = None
    custom_metrics: dict[str, _List[MetricValue]] = {}
    external_metrics: dict[str, _List[ExternalMetricValue]] = {}
    recorded_overlapping_hpas: tuple[str, ...] | None = msgspec.field(default=None, name="rivals")
    answers: tuple[Reading, ...] | None = None
    fallback_texts: tuple[FallbackText, ...] = msgspec.field(default=(), name="terms")
    annotation_error: str | None = msgspec.field(default=None, name="termsFlaw")
    annotation_reason: str | None = None
    control_texts: dict[str, str] = msgspec.field(default_factory=dict, name="controls")
    set_by_other: bool = False
    zero_by: str = ""
    competitors: tuple[Competitor, ...] = ()
    values_held: bool = False
    withheld: Withheld | None = None
    unsure: bool = False
    timing: TimingTrace | None = None
    shadow: Shadow | None = None
    work: tuple[Reading, ...] | None = None
    shares: Shares | None = None

    @property
    def scale_failure(self) -> ScaleError | None:
        """Why the scale could not be read; None if it was read."""
        if self.scale_error is None:
            return None
        if self.too_large:
            return ScaleError(self.scale_error, TOO_LARGE)
        # The conformance vectors hold the error of Kubernetes as text only, so its text is all that names the reason.
        reason = NO_MATCH if self.scale_error.startswith(_NO_MATCH_TEXT) else READ_FAILED
        return ScaleError(self.scale_error, STALE if self.stale else reason)

    @property
    def fallback_policies(self) -> tuple[FallbackPolicy, ...]:
        """The fallback policy of each metric; empty if none were recorded. Raises RecordingError."""
        try:
            return tuple(
                FallbackPolicy(
                    fallback=None if each.fallback is None else fallback_policy.parse(each.fallback),
                    activation=None if each.activation is None else parse_milli(each.activation),
                )
                for each in self.fallback_texts
            )
        except ValueError as error:
            raise RecordingError(f"terms: {error}") from error

    @property
    def controls(self) -> Controls:
        """The controls of the HPA. Raises RecordingError for one that cannot be read."""
        found = controls.read(self.control_texts)
        errors = [f"{name}: {text}" for name, text in found.errors]
        errors += [f"{name}: there is no such control" for name in self.control_texts if name not in controls.CONTROLS]
        if errors:
            raise RecordingError(f"controls: {'; '.join(errors)}")
        return found.controls

    def selected(self) -> tuple[Pod, ...]:
        """Returns the pods that match the scale's selector, in order; none without a valid selector."""
        chosen = None if self.scale is None else self.scale.pod_selector
        if chosen is None:
            return ()
        return tuple([pod for pod in self.pods if chosen.matches(pod.labels)])

    def overlapping_hpas(self, others: Mapping[str, Selector]) -> tuple[str, ...]:
        """Returns the names of the other HPAs whose selectors match any of the selected pods."""
        if self.recorded_overlapping_hpas is not None:
            return self.recorded_overlapping_hpas
        pods = self.selected() if others else ()
        return tuple(sorted(name for name, other in others.items() if any(other.matches(p.labels) for p in pods)))

    def answer(self, queries: Sequence[Query | AdapterError]) -> list[Answer]:
        """Returns one recorded answer per query, in order. Raises RecordingError."""
        if self.answers is not None:
            if len(self.answers) != len(queries):
                raise RecordingError(f"answers: {len(self.answers)} entries for {len(queries)} metrics")
            return [_answer(reading) for reading in self.answers]
        return [self._sample(query) for query in queries]

    def pod_work(self) -> list[Answer] | None:
        """Returns the recorded answers about the work of pods; None where nothing was asked. Raises RecordingError."""
        return None if self.work is None else [_answer(reading) for reading in self.work]

    def _sample(self, query: Query | AdapterError) -> Answer:
        if isinstance(query, AdapterError):
            return query
        try:
            return self._listed(query)
        except AdapterError as error:
            return error

    def _listed(self, query: Query) -> Sample:
        """Returns the sample that the metrics lists hold. Raises AdapterError."""
        if query.type in (RESOURCE, CONTAINER_RESOURCE):
            labelled = ((item, item.metadata.labels or {}) for item in self._pod_items())
            items = [item for item, labels in labelled if query.pods is None or query.pods.matches(labels)]
            return metrics.pod_sample(items, query.name, query.container, query.ignored_containers)
        if query.type == EXTERNAL:
            series = self.external_metrics.get(query.name, _List[ExternalMetricValue]())
            return metrics.external_sample(series.require(metrics.EXTERNAL_API))
        values = self.custom_metrics.get(query.name, _List[MetricValue]()).require(metrics.CUSTOM_API)
        return metrics.object_sample(values) if query.type == OBJECT else metrics.custom_pod_sample(values)

    def _pod_items(self) -> tuple[PodMetrics, ...]:
        if self.pod_metrics is None:
            # The answer of an API server without metrics-server.
            missing = "the server could not find the requested resource (get pods.metrics.k8s.io)"
            raise metrics.fetch_failed(metrics.RESOURCE_API, missing)
        return self.pod_metrics.require(metrics.RESOURCE_API)


class Controller(_Lenient, frozen=True, omit_defaults=False):
    """The settings of the controller. Defaults are written, so that a recording does not depend on them."""

    tolerance: float = 0.1
    downscale_stabilization_seconds: float = 300
    cpu_initialization_period_seconds: float = 300
    initial_readiness_delay_seconds: float = 30
    feature_gates: dict[str, bool] = {}


class Scenario(_Lenient, frozen=True, kw_only=True):
    """Consecutive reconciles of one HPA. `steps` are read one by one, by `decode_step`."""

    id: str = ""
    controller: Controller = Controller()
    hpa: HorizontalPodAutoscaler
    other_hpa_selectors: dict[str, str] = {}
    history: History = EMPTY
    steps: tuple[Any, ...] = ()

    @property
    def tunables(self) -> Tunables:
        """The settings and feature gates of the engine. Raises RecordingError for an unknown gate."""
        recorded = self.controller
        try:
            gates = Gates.replayed(recorded.feature_gates)
        except TypeError:
            unknown = sorted(set(recorded.feature_gates) - {*Gates.__struct_fields__, *REMOVED_GATES})
            known = ", ".join(Gates.__struct_fields__)
            raise RecordingError(f"controller.featureGates: no gate {', '.join(unknown)}; there are {known}") from None
        return Tunables(
            tolerance=recorded.tolerance,
            downscale_stabilization=timedelta(seconds=recorded.downscale_stabilization_seconds),
            cpu_initialization_period=timedelta(seconds=recorded.cpu_initialization_period_seconds),
            initial_readiness_delay=timedelta(seconds=recorded.initial_readiness_delay_seconds),
            gates=gates,
        )

    @property
    def others(self) -> dict[str, Selector]:
        """The selectors of the other HPAs, by name. Raises RecordingError."""
        try:
            return {name: selector.parse(text) for name, text in self.other_hpa_selectors.items()}
        except SelectorError as error:
            raise RecordingError(f"otherHpaSelectors: {error}") from error


def decode_scenario(value: Any) -> Scenario:
    """Reads a scenario from JSON-like builtins. Raises RecordingError naming the field."""
    return _converted(_without_nulls(value, _STEPS), Scenario, "")


def decode_step(value: Any, where: str = "") -> Step:
    """Reads one step from JSON-like builtins. Raises RecordingError naming the field below `where`."""
    step = _converted(_without_nulls(value, _RESULTS), Step, where)
    if step.scale is None and step.scale_error is None:
        raise RecordingError(f"{where or 'step'}: needs scale or scaleError")
    return msgspec.structs.replace(step, pods=tuple(_pods(step.pods, where)))


def encode_step(step: Step) -> dict[str, Any]:
    """Returns a step as JSON-like builtins, its pods as objects of core/v1."""
    pods = [pod_json.to_builtins(each, step.time) for each in step.pods]
    return {**to_builtins(msgspec.structs.replace(step, pods=())), "pods": pods}


def _pods(found: Iterable[Any], where: str) -> Iterator[Pod]:
    for index, each in enumerate(found):
        try:
            yield pod_json.decode(msgspec.json.encode(each))[0]
        except UNDECODABLE as error:
            raise _unreadable(error, f"{where}.pods[{index}]".removeprefix(".")) from error


def _converted(value: Any, kind: type[_Decoded], where: str) -> _Decoded:
    try:
        return msgspec.convert(value, kind, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        raise _unreadable(error, where) from error


def _unreadable(error: Exception, where: str) -> RecordingError:
    what, _, path = str(error).partition(" - at `")
    field = path.removesuffix("`").removeprefix("$").removeprefix(".")
    place = ".".join(part for part in (where, field) if part) or "the object"
    return RecordingError(f"{place}: {what[:1].lower()}{what[1:]}")


_NESTED: Final = (dict, list)
_STEPS: Final = "steps"
_RESULTS: Final = "expect"


def _without_nulls(value: Any, left: str | None = None) -> Any:
    """Drops null fields, as Go's decoder does: a null field reads like an absent one (encoding/json, Unmarshal).

    The field `left` stays as it is: it is read later, or not at all, and is most of a recording.
    """
    if isinstance(value, dict):
        return {
            name: _without_nulls(field) if isinstance(field, _NESTED) and name != left else field
            for name, field in value.items()
            if field is not None
        }
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _answer(reading: Reading) -> Answer:
    when = reading.timestamp or datetime(1, 1, 1, tzinfo=UTC)
    if reading.error is not None:
        return AdapterError(reading.error, reading.blame)
    if reading.pods is not None:
        return PodSample(reading.pods, when, reading.most_busy)
    if reading.values is not None:
        return ExternalSample(reading.values, when, reading.note)
    if reading.value is not None:
        return ObjectSample(reading.value, when)
    raise RecordingError("answers, work: an entry needs one of pods, values, value or error")
