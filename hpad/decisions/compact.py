"""Entries and traces of the decision history as bytes: MessagePack, then zlib with a preset dictionary.

Without the dictionary most of an entry would be the names of its fields and the words of its sentence. The form of
`_Head` and the dictionary belong to the format of the file: a change of either needs another `tables.FORMAT`. A trace
may get new optional fields.
"""

import zlib
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from hpad.api.metadata import Key
from hpad.decisions.dictionary import DICTIONARY
from hpad.decisions.entry import Entry
from hpad.decisions.points import Points, unpacked
from hpad.engine.trace import Trace
from hpad.engine.trace.metric_types import MetricTrace

MOST_PODS: Final = 100
"""The largest number of pods of one metric in a stored trace, and of values of one sample."""
MOST_BYTES: Final = 1 << 16
"""The size of a stored trace. A larger one is stored without pods and values, or not at all."""
_MOST_VALUES: Final = 25_000
"""Pods times metrics of an HPA: to choose the pods to be stored of more would hold up the other HPAs."""
_INFLATED: Final = 1 << 24
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Unreadable(ValueError):
    """The bytes are no entry or no trace."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """An entry as it is stored. `began` and `ended` are microseconds since 1970. `trace` is empty where it is unknown.

    A `Stored` with the number of an earlier one replaces it; without a trace it keeps that of the earlier one.
    """

    number: int
    began: int
    ended: int
    head: bytes
    trace: bytes = b""


def with_trace(stored: Stored, trace: bytes) -> Stored:
    """Returns the entry with that trace, unless it has one."""
    return msgspec.structs.replace(stored, trace=trace) if trace and not stored.trace else stored


class _Head(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The fields of an entry by position; `points` as in `Points.packed`."""

    turns: int
    action: str
    sentence: str
    current: int
    desired: int
    min: int
    max: int
    error: str
    metrics: tuple[str, ...]
    points: list[int | None]
    target: int | None = None


_PACK: Final = msgspec.msgpack.Encoder().encode
_HEAD: Final = msgspec.msgpack.Decoder(_Head)
_TRACE: Final = msgspec.msgpack.Decoder(Trace)


def micros(moment: datetime) -> int:
    """Returns a time as microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(number: int) -> datetime:
    """Returns the time of a number of microseconds since 1970. Raises OverflowError or TypeError."""
    return _EPOCH + number * _MICROSECOND


def pack(entry: Entry, points: Points, trace: Trace | None = None) -> Stored:
    """Returns what is stored of an entry, whose points are `points`."""
    head = _Head(
        entry.turns, entry.action, entry.sentence, entry.current, entry.desired, entry.min, entry.max, entry.error,
        entry.metrics, points.packed(), entry.target,
    )  # fmt: skip
    packed = b"" if trace is None else pack_trace(trace)
    return Stored(entry.number, micros(entry.began), micros(entry.ended), _deflated(_PACK(head)), packed)


def unpack(key: Key, stored: Stored, *, trace: bool) -> Entry:
    """Returns the entry; with `trace`, if `stored` has a readable one, with that. Raises Unreadable."""
    try:
        began, ended = moment(stored.began), moment(stored.ended)
        head = _HEAD.decode(_inflated(stored.head))
        return Entry(
            namespace=key.namespace,
            name=key.name,
            began=began,
            ended=ended,
            turns=head.turns,
            action=head.action,
            sentence=head.sentence,
            current=head.current,
            desired=head.desired,
            min=head.min,
            max=head.max,
            error=head.error,
            metrics=head.metrics,
            points=tuple(unpacked(began, head.points, len(head.metrics))),
            target=head.target,
            trace=unpack_trace(stored.trace) if trace else None,
            number=stored.number,
        )
    except (msgspec.DecodeError, zlib.error, ValueError, OverflowError, TypeError) as error:
        raise Unreadable(str(error)) from error


def most_pods(pods: int, metrics: int) -> int:
    """Returns how many pods of each metric a stored trace has."""
    return MOST_PODS if pods * metrics <= _MOST_VALUES else 0


def pack_trace(trace: Trace) -> bytes:
    """Returns a trace as bytes; empty if it is too large."""
    for most in (MOST_PODS, 0):
        packed = _deflated(_PACK(bounded(trace, most)))
        if len(packed) <= MOST_BYTES:
            return packed
    return b""


def unpack_trace(packed: bytes) -> Trace | None:
    """Returns the trace; None for one that is missing or unreadable, such as that of another version of hpad."""
    if not packed:
        return None
    try:
        return _TRACE.decode(_inflated(packed))
    except (msgspec.DecodeError, zlib.error, ValueError, OverflowError):
        return None


def bounded(trace: Trace, most: int) -> Trace:
    """Returns the trace with at most `most` pods of each metric, and as many values of each sample."""
    if all(len(metric.pods) <= most and len(_values(metric)) <= most for metric in trace.metrics):
        return trace
    return msgspec.structs.replace(trace, metrics=tuple(_bounded(metric, most) for metric in trace.metrics))


def _bounded(metric: MetricTrace, most: int) -> MetricTrace:
    sample, values, pods = metric.sample, _values(metric), len(metric.pods)
    if sample is not None and len(values) > most:
        sample = msgspec.structs.replace(sample, values=values[:most], values_omitted=len(values) - most)
    omitted = metric.pods_omitted + max(0, pods - most)
    return msgspec.structs.replace(metric, pods=metric.pods[:most], pods_omitted=omitted, sample=sample)


def _values(metric: MetricTrace) -> tuple[str, ...]:
    return () if metric.sample is None else metric.sample.values or ()


def _deflated(data: bytes) -> bytes:
    stream = zlib.compressobj(zdict=DICTIONARY)
    return stream.compress(data) + stream.flush()


def _inflated(data: bytes) -> bytes:
    """Raises zlib.error, also for another dictionary, or ValueError for bytes that are too many or incomplete."""
    stream = zlib.decompressobj(zdict=DICTIONARY)
    found = stream.decompress(data, _INFLATED)
    if not stream.eof:
        raise ValueError("the data are too many, or their end is missing")
    return found
