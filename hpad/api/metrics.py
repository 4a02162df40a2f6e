"""The lists of the three Kubernetes metrics APIs, and their conversion to samples.

metrics.k8s.io/v1beta1 PodMetricsList, custom.metrics.k8s.io/v1beta2 (and v1beta1) MetricValueList and
external.metrics.k8s.io/v1beta1 ExternalMetricValueList. Quantities are parsed on conversion. Lists may be null: Go
encodes a nil slice as null.

Missing is never zero: a pod with a container that has no usage is left out, an empty list is an error, and so is an
item without a value, which Go reads as zero. Source of rules and texts: Kubernetes 1.36,
pkg/controller/podautoscaler/metrics/client.go.
"""

import functools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from hpad.api import duration
from hpad.api.metadata import Moment, ObjectMeta
from hpad.api.quantity import QuantityError, parse_milli
from hpad.api.sample import AdapterError, ExternalSample, ObjectSample, PodSample, PodValue
from hpad.api.text import shown


class ContainerMetrics(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    usage: dict[str, str | int | float] | None = None


class PodMetrics(msgspec.Struct, frozen=True, gc=False):
    """`window` is a Go duration such as "30s" or "1m0s"."""

    metadata: ObjectMeta = ObjectMeta()
    timestamp: Moment | None = None
    window: str = "0s"
    containers: tuple[ContainerMetrics, ...] | None = ()


class PodMetricsList(msgspec.Struct, frozen=True, gc=False):
    items: tuple[PodMetrics, ...] | None = ()


class DescribedObject(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class MetricValue(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One value of a custom metric; its span is called `window` in v1beta1, `windowSeconds` in v1beta2."""

    described_object: DescribedObject = DescribedObject()
    timestamp: Moment | None = None
    window_seconds: int | None = None
    value: str | int | float | None = None


class MetricValueList(msgspec.Struct, frozen=True, gc=False):
    items: tuple[MetricValue, ...] | None = ()


class ExternalMetricValue(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metric_name: str = ""
    timestamp: Moment | None = None
    value: str | int | float | None = None


class ExternalMetricValueList(msgspec.Struct, frozen=True, gc=False):
    items: tuple[ExternalMetricValue, ...] | None = ()


RESOURCE_API: Final = "resource"
CUSTOM_API: Final = "custom"
EXTERNAL_API: Final = "external"

_CUSTOM_WINDOW: Final = timedelta(minutes=1)
"""The span of a custom metric without one (metrics/client.go: metricServerDefaultMetricWindow)."""
_INT64: Final = range(-(2**63), 2**63)
_UNKNOWN_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)


def fetch_failed(api: str, message: str) -> AdapterError:
    """Returns the error of an API ("resource", "custom" or "external") that gave no list."""
    return AdapterError(f"unable to fetch metrics from {api} metrics API: {message}")


def pod_sample(
    items: Sequence[PodMetrics] | None, resource: str, container: str = "", ignored: Sequence[str] = ()
) -> PodSample:
    """Returns the usage of one resource per pod: of one container, or ("") of all containers but the ignored ones.

    A pod without any other container has no value.
    Raises AdapterError where there are no items, or where a usage is not a quantity, or is too large.
    """
    if not items:
        raise _nothing(RESOURCE_API)
    values, first = {}, items[0].timestamp or _UNKNOWN_TIME
    for item in items:
        usage = _usage(item, resource, container, ignored)
        if usage is not None:
            time = item.timestamp or _UNKNOWN_TIME
            # One object for equal times: those of pods of one node mostly are, and samples are kept for each HPA.
            values[item.metadata.name] = PodValue(usage, first if time == first else time, _window(item))
    return PodSample(values, first)


def custom_pod_sample(items: Sequence[MetricValue] | None) -> PodSample:
    """Returns a custom metric of pods, by the name of the object that each value describes.

    Raises AdapterError where there are no items, or where a value is not a quantity, or is too large.
    """
    if not items:
        raise _nothing(CUSTOM_API)
    values = {}
    for item in items:
        name, seconds = item.described_object.name, item.window_seconds
        window = _CUSTOM_WINDOW if seconds is None else _seconds(seconds, f"the custom metric of {name}")
        value = _milli(item.value, f"the custom metric of {name}")
        values[name] = PodValue(value, item.timestamp or _UNKNOWN_TIME, window)
    return PodSample(values, items[0].timestamp or _UNKNOWN_TIME)


def object_sample(items: Sequence[MetricValue] | None) -> ObjectSample:
    """Returns a custom metric of one object.

    Raises AdapterError where there is not exactly one value, or where it is not a quantity, or is too large.
    """
    if items is None or len(items) != 1:
        counted = f"the custom metrics API server returned {len(items or ())} results when we asked for exactly one"
        raise _of_one_metric(fetch_failed(CUSTOM_API, counted).message)
    item = items[0]
    value = _milli(item.value, f"the custom metric of {item.described_object.name}")
    return ObjectSample(value, item.timestamp or _UNKNOWN_TIME)


def external_sample(items: Sequence[ExternalMetricValue] | None) -> ExternalSample:
    """Returns all series of an external metric, as of the oldest one.

    Raises AdapterError where there is none, or where a value is not a quantity, or is too large.
    """
    if not items:
        raise _nothing(EXTERNAL_API)
    values = tuple(_milli(item.value, f"the external metric {item.metric_name}") for item in items)
    return ExternalSample(values, min(item.timestamp or _UNKNOWN_TIME for item in items))


def _of_one_metric(text: str) -> AdapterError:
    """Returns the error of a list that was read: the API works, and would answer the same again."""
    return AdapterError(text, alive=True)


def _nothing(api: str) -> AdapterError:
    return _of_one_metric(f"no metrics returned from {api} metrics API")


def _usage(item: PodMetrics, resource: str, container: str, ignored: Sequence[str]) -> int | None:
    """Returns the usage of one container or, for "", the sum of all but the ignored; None if one of them has none."""
    total = None
    for each in item.containers or ():
        if (container and each.name != container) or (ignored and each.name in ignored):
            continue
        usage = None if each.usage is None else each.usage.get(resource)
        if usage is None:
            return None
        try:
            total = (total or 0) + parse_milli(usage if isinstance(usage, str) else repr(usage))
        except QuantityError as error:
            part = f"container {container} of " if container else ""
            raise _no_quantity(f"{resource} of {part}pod {item.metadata.name}", usage, error) from error
    if total is not None and total not in _INT64:
        raise _too_large(f"{resource} of pod {item.metadata.name}")
    return total


def _milli(value: str | int | float | None, what: str) -> int:
    if value is None:
        raise _of_one_metric(f"{what} has no value")
    try:
        milli = parse_milli(value if isinstance(value, str) else repr(value))
    except QuantityError as error:
        raise _no_quantity(what, value, error) from error
    if milli not in _INT64:
        raise _too_large(f"{what}, {shown(value)},")
    return milli


def _too_large(what: str) -> AdapterError:
    return _of_one_metric(f"{what} does not fit into 64 bits of thousandths")


def _no_quantity(what: str, value: str | int | float, error: QuantityError) -> AdapterError:
    return _of_one_metric(f"{what} is {shown(value)}, which is not a quantity: {error}")


def _seconds(seconds: int, what: str) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except OverflowError as error:
        raise _of_one_metric(f"{what} has a window of {seconds} seconds, which is too long") from error


def _window(item: PodMetrics) -> timedelta:
    try:
        return _duration(item.window)
    except ValueError as error:
        raise _of_one_metric(f"the window of pod {item.metadata.name}: {error}") from error


_duration = functools.lru_cache(maxsize=1 << 10)(duration.parse)
