"""A memory as bytes that survive the process: a format byte, a CRC-32, then MessagePack.

The record holds the key of its HPA, so that a record under another key is refused as damaged. Times are
microseconds since 1970, each as the difference to the one before: a recommendation takes seven bytes. The sentence of
the last decision is left out.

Sizes are bounded. Past `MOST` recommendations, the oldest are replaced by the highest and the lowest of them, with the
time of the newest of them: they hold a target longer, never shorter. Past `MOST` rescales, the oldest growth is dropped
and the oldest shrinking counts at the time of the newest dropped rescale. Both raise the assumed count at the start of
a policy's period, and with it the floor of a scale-down.
"""

import itertools
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscalerStatus, dec_hook, enc_hook
from hpad.api.metadata import Key
from hpad.engine.history import History, LastSample, PastRecommendation, Rescale
from hpad.store.memory import Memory, PendingRescale, Validity

FORMAT: Final = 1
MOST: Final = 1024
_HEAD: Final = 5
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Undecodable(ValueError):
    """Bytes that are no record, or none of ours; the message says why."""


class _Begun(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    current: int
    to: int
    scale_ups: list[int]
    scale_downs: list[int]
    status: HorizontalPodAutoscalerStatus


class _Wire(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Flat lists: recommendations are [time, replicas, ...], rescales [time, change, marks, ...].

    An uncertain recommendation has its count inverted (~). The marks are the sum of 1 (outdated) and 2 (uncertain).
    """

    namespace: str
    name: str
    uid: str
    at: int | None
    left: int | None
    recommendations: list[int]
    scale_ups: list[int]
    scale_downs: list[int]
    status: HorizontalPodAutoscalerStatus | None
    begun: _Begun | None
    heard: tuple[LastSample, ...]
    target: str = ""
    validity: Validity | None = None


_ENCODER = msgspec.msgpack.Encoder(enc_hook=enc_hook)
_DECODER = msgspec.msgpack.Decoder(_Wire, dec_hook=dec_hook)


def encode(key: Key, memory: Memory) -> bytes:
    """The record of a memory."""
    history, begun = memory.history, memory.pending
    wire = _Wire(
        namespace=key.namespace,
        name=key.name,
        uid=memory.uid,
        at=None if memory.at is None else _micros(memory.at),
        left=memory.last_count,
        recommendations=_recommendations(history.recommendations),
        scale_ups=_rescales(_recent_ups(history.scale_ups)),
        scale_downs=_rescales(_recent_downs(history.scale_downs)),
        status=memory.status,
        begun=None if begun is None else _begun(begun),
        heard=history.last_samples,
        target=memory.target,
        validity=memory.validity,
    )
    body = _ENCODER.encode(wire)
    return bytes((FORMAT,)) + zlib.crc32(body).to_bytes(4, "big") + body


def decode(key: Key, data: bytes) -> Memory:
    """The memory a record holds, marked as loaded; raises Undecodable, and nothing else."""
    if not data or data[0] != FORMAT:
        raise Undecodable(f"its format is {data[:1].hex() or 'missing'}, not {FORMAT:02x}")
    body = data[_HEAD:]
    if zlib.crc32(body).to_bytes(4, "big") != data[1:_HEAD]:
        raise Undecodable("its checksum does not fit")
    try:
        wire = _DECODER.decode(body)
        memory = _memory(wire)
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise Undecodable(f"it makes no sense: {error}") from error
    if Key(wire.namespace, wire.name) != key:
        raise Undecodable(f"it is that of {wire.namespace}/{wire.name}")
    return memory


def _memory(wire: _Wire) -> Memory:
    return Memory(
        uid=wire.uid,
        history=History(
            _recommendations_of(wire.recommendations),
            _rescales_of(wire.scale_ups),
            _rescales_of(wire.scale_downs),
            wire.heard,
        ),
        status=wire.status,
        at=None if wire.at is None else _moment(wire.at),
        last_count=wire.left,
        pending=None if wire.begun is None else _begun_of(wire.begun),
        loaded=True,
        target=wire.target,
        validity=wire.validity,
    )


def _begun(begun: PendingRescale) -> _Begun:
    ups, downs = _rescales(_recent_ups(begun.scale_ups)), _rescales(_recent_downs(begun.scale_downs))
    return _Begun(begun.current, begun.to, ups, downs, begun.status)


def _begun_of(wire: _Begun) -> PendingRescale:
    return PendingRescale(
        wire.current, wire.to, _rescales_of(wire.scale_ups), _rescales_of(wire.scale_downs), wire.status
    )


def _recommendations(past: tuple[PastRecommendation, ...]) -> list[int]:
    flat: list[int] = []
    before = 0
    for held in _recent(past):
        at = _micros(held.timestamp)
        flat += (at - before, ~held.replicas if held.uncertain else held.replicas)
        before = at
    return flat


def _rescales(past: Sequence[Rescale]) -> list[int]:
    flat: list[int] = []
    before = 0
    for held in past:
        at = _micros(held.timestamp)
        flat += (at - before, held.change, held.outdated + 2 * held.uncertain)
        before = at
    return flat


def _recommendations_of(flat: list[int]) -> tuple[PastRecommendation, ...]:
    counts = [count if count >= 0 else ~count for count in flat[1::2]]
    return tuple(map(PastRecommendation, _times(flat, 2), counts, (count < 0 for count in flat[1::2])))


def _rescales_of(flat: list[int]) -> tuple[Rescale, ...]:
    marks = flat[2::3]
    outdated, uncertain = (bool(mark & 1) for mark in marks), (bool(mark & 2) for mark in marks)
    return tuple(map(Rescale, _times(flat, 3), flat[1::3], outdated, uncertain))


def _times(flat: list[int], width: int) -> list[datetime]:
    """The times of rows of that many numbers; raises ValueError where the last row is not whole."""
    if len(flat) % width:
        raise ValueError(f"{len(flat)} numbers are no rows of {width}")
    return [_moment(at) for at in itertools.accumulate(flat[::width])]


def _micros(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _when(held: PastRecommendation | Rescale) -> datetime:
    return held.timestamp


def _recent(past: tuple[PastRecommendation, ...]) -> Sequence[PastRecommendation]:
    if len(past) <= MOST:
        return past
    ordered = sorted(past, key=_when)
    dropped, kept = ordered[: 2 - MOST], ordered[2 - MOST :]
    replicas, uncertain = [held.replicas for held in dropped], any(held.uncertain for held in dropped)
    return [
        PastRecommendation(dropped[-1].timestamp, count, uncertain) for count in (max(replicas), min(replicas))
    ] + kept


def _recent_ups(past: tuple[Rescale, ...]) -> Sequence[Rescale]:
    return past if len(past) <= MOST else sorted(past, key=_when)[-MOST:]


def _recent_downs(past: tuple[Rescale, ...]) -> Sequence[Rescale]:
    if len(past) <= MOST:
        return past
    ordered = sorted(past, key=_when)
    dropped, kept = ordered[: 1 - MOST], ordered[1 - MOST :]
    return [Rescale(dropped[-1].timestamp, sum(held.change for held in dropped)), *kept]
