"""A memory as bytes that survive the process: a format byte, a CRC-32, then MessagePack.

The record holds the key of its HPA, so that a record under another key is refused as damaged. Times are
microseconds since 1970, each as the difference to the one before: a recommendation takes seven bytes.

Sizes are bounded. Of more than `MOST` recommendations, the oldest are replaced by the highest and the lowest of them,
with the time of the newest of them: a target keeps its count longer, never shorter. Of more than `MOST` rescales, the
oldest that added pods are dropped, and the oldest that removed pods are replaced by their sum at the time of the newest
of them. Both raise the assumed count at the start of a policy's period, and with it the floor of a scale-down.
"""

import itertools
import operator
import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscalerStatus, dec_hook, enc_hook
from hpad.api.metadata import Key
from hpad.clock import EPOCH, MICROSECOND, micros, moment_of
from hpad.engine.history import (
    History,
    Idleness,
    LastSample,
    Memory,
    PackedRecommendations,
    PastRecommendation,
    PendingRescale,
    Rescale,
    Validity,
    packed,
)

FORMAT: Final = 1
MOST: Final = 1024
_HEAD: Final = 5
"""The length of format byte and checksum."""
_TIMESTAMP: Final = operator.attrgetter("timestamp")


class Undecodable(ValueError):
    """The bytes are no valid record of this HPA; the message has the reason."""


class _Pending(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A PendingRescale, with times and rescales as in `_Wire`."""

    current: int
    to: int
    scale_ups: list[int]
    scale_downs: list[int]
    status: HorizontalPodAutoscalerStatus
    previous: int | None = None


class _Wire(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The fields of a record, by position.

    Lists are flat: recommendations are [time, replicas, ...], rescales [time, change, marks, ...]. An uncertain
    recommendation has its count inverted (~). The marks are the sum of 1 (outdated) and 2 (uncertain).
    """

    namespace: str
    name: str
    uid: str
    at: int | None
    last_count: int | None
    recommendations: list[int]
    scale_ups: list[int]
    scale_downs: list[int]
    status: HorizontalPodAutoscalerStatus | None
    pending: _Pending | None
    last_samples: tuple[LastSample, ...]
    target: str = ""
    validity: Validity | None = None
    shadow: int | None = None
    idleness: tuple[int | None, int, int | None] | None = None


_ENCODER = msgspec.msgpack.Encoder(enc_hook=enc_hook)
_DECODER = msgspec.msgpack.Decoder(_Wire, dec_hook=dec_hook)


def encode(key: Key, memory: Memory) -> bytes:
    """Returns the record of a memory."""
    history = memory.history
    wire = _Wire(
        namespace=key.namespace,
        name=key.local,
        uid=memory.uid,
        at=_time(memory.at),
        last_count=memory.last_count,
        recommendations=_recommendations(history.recommendations),
        scale_ups=_rescales(_recent_ups(history.scale_ups)),
        scale_downs=_rescales(_recent_downs(history.scale_downs)),
        status=memory.status,
        pending=None if memory.pending is None else _pending(memory.pending),
        last_samples=history.last_samples,
        target=memory.target,
        validity=memory.validity,
        shadow=memory.shadow,
        idleness=_idleness(history.idleness) if history.idleness else None,
    )
    body = _ENCODER.encode(wire)
    return bytes((FORMAT,)) + zlib.crc32(body).to_bytes(4, "big") + body


def decode(key: Key, data: bytes) -> Memory:
    """Returns the memory of a record, marked as loaded. Raises Undecodable and nothing else."""
    if not data or data[0] != FORMAT:
        raise Undecodable(f"its format is {data[:1].hex() or 'missing'}, not {FORMAT:02x}")
    body = data[_HEAD:]
    if zlib.crc32(body).to_bytes(4, "big") != data[1:_HEAD]:
        raise Undecodable("its checksum does not fit")
    try:
        wire = _DECODER.decode(body)
        memory = _memory(wire)
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise Undecodable(f"its content is invalid: {error}") from error
    # A valid record under another key, after a copy by hand or a bug, would give one HPA the history of another.
    if Key.of(wire.namespace, wire.name) != key:
        raise Undecodable(f"it belongs to {wire.namespace}/{wire.name}")
    return memory


def _memory(wire: _Wire) -> Memory:
    return Memory(
        uid=wire.uid,
        history=History(
            _recommendations_of(wire.recommendations),
            _rescales_of(wire.scale_ups),
            _rescales_of(wire.scale_downs),
            wire.last_samples,
            msgspec.UNSET if wire.idleness is None else _idleness_of(*wire.idleness),
        ),
        status=wire.status,
        at=_moment(wire.at),
        last_count=wire.last_count,
        pending=None if wire.pending is None else _pending_of(wire.pending),
        loaded=True,
        target=wire.target,
        validity=wire.validity,
        shadow=wire.shadow,
    )


def _pending(pending: PendingRescale) -> _Pending:
    ups, downs = _rescales(_recent_ups(pending.scale_ups)), _rescales(_recent_downs(pending.scale_downs))
    return _Pending(pending.current, pending.to, ups, downs, pending.status, _time(pending.previous))


def _pending_of(wire: _Pending) -> PendingRescale:
    ups, downs = _rescales_of(wire.scale_ups), _rescales_of(wire.scale_downs)
    return PendingRescale(wire.current, wire.to, ups, downs, wire.status, _moment(wire.previous))


def _idleness(found: Idleness) -> tuple[int | None, int, int | None]:
    return _time(found.since), found.lasted // MICROSECOND, _time(found.seen)


def _idleness_of(since: int | None, lasted: int, seen: int | None) -> Idleness:
    return Idleness(_moment(since), lasted * MICROSECOND, _moment(seen))


def _time(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


def _moment(at: int | None) -> datetime | None:
    return None if at is None else moment_of(at)


def _recommendations(past: Sequence[PastRecommendation]) -> list[int]:
    flat: list[int] = []
    before = 0
    for at, count in packed(_recent(past)).rows:
        flat += (at - before, count)
        before = at
    return flat


def _rescales(past: Sequence[Rescale]) -> list[int]:
    flat: list[int] = []
    before = EPOCH
    for entry in past:
        at = entry.timestamp
        flat += ((at - before) // MICROSECOND, entry.change, entry.outdated + 2 * entry.uncertain)
        before = at
    return flat


def _recommendations_of(flat: list[int]) -> PackedRecommendations:
    counts = [count if count >= 0 else ~count for count in flat[1::2]]
    return PackedRecommendations(map(PastRecommendation, _times(flat, 2), counts, (count < 0 for count in flat[1::2])))


def _rescales_of(flat: list[int]) -> tuple[Rescale, ...]:
    marks = flat[2::3]
    outdated, uncertain = (bool(mark & 1) for mark in marks), (bool(mark & 2) for mark in marks)
    return tuple(map(Rescale, _times(flat, 3), flat[1::3], outdated, uncertain))


def _times(flat: list[int], width: int) -> list[datetime]:
    """Returns the times of rows of `width` numbers. Raises ValueError if the last row is incomplete."""
    if len(flat) % width:
        raise ValueError(f"{len(flat)} numbers do not divide into rows of {width}")
    return [moment_of(at) for at in itertools.accumulate(flat[::width])]


def _recent(past: Sequence[PastRecommendation]) -> Sequence[PastRecommendation]:
    if len(past) <= MOST:
        return past
    ordered = sorted(past, key=_TIMESTAMP)
    dropped, kept = ordered[: 2 - MOST], ordered[2 - MOST :]
    counts, uncertain = [entry.replicas for entry in dropped], any(entry.uncertain for entry in dropped)
    at = dropped[-1].timestamp
    return [PastRecommendation(at, max(counts), uncertain), PastRecommendation(at, min(counts), uncertain), *kept]


def _recent_ups(past: tuple[Rescale, ...]) -> Sequence[Rescale]:
    return past if len(past) <= MOST else sorted(past, key=_TIMESTAMP)[-MOST:]


def _recent_downs(past: tuple[Rescale, ...]) -> Sequence[Rescale]:
    if len(past) <= MOST:
        return past
    ordered = sorted(past, key=_TIMESTAMP)
    dropped, kept = ordered[: 1 - MOST], ordered[1 - MOST :]
    return [Rescale(dropped[-1].timestamp, sum(entry.change for entry in dropped)), *kept]
