"""A reconcile as it is stored: a recording with one step (`hpad.records.format`), compressed with a preset dictionary.

Without the dictionary most of it would be the names of fields and the words of the conditions. The dictionary belongs
to the format of the file of the history: a change of it needs another `tables.FORMAT`.
"""

import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from hpad.engine.turn import Reconcile
from hpad.records import replay
from hpad.records.encode import encode_alone
from hpad.records.entry import Entry, first
from hpad.records.format import RecordingError, decode_scenario

MOST_BYTES: Final = 1 << 16
"""The size of a stored step. A larger one is left out: then only what was said of the decision is known."""
MOST_PODS: Final = 5000
"""Pods and values of a step that is tried at all: those of more pods would be too large, and take long to encode."""
DICTIONARY: Final = Path(__file__).with_name("dictionary.jsonl").read_bytes()
"""Entries and steps of typical reconciles."""
_INFLATED: Final = 1 << 24
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_ENTRY: Final = msgspec.json.Decoder(Entry)


class UnreadableEntry(ValueError):
    """The bytes are no entry or no step."""


class Stored(NamedTuple):
    """What was `said` of a decision, and the `step` that leads to it; empty where it cannot be stored."""

    said: bytes
    step: bytes


def micros(moment: datetime) -> int:
    """Returns a time as microseconds since 1970."""
    return (moment - EPOCH) // _MICROSECOND


def moment(number: int) -> datetime:
    """Returns the time of a number of microseconds since 1970. Raises OverflowError."""
    return EPOCH + number * _MICROSECOND


def pack(done: Reconcile) -> Stored:
    """Returns the stored form of a reconcile. Never raises. O(pods)."""
    return Stored(_said(done), _step(done))


def _said(done: Reconcile) -> bytes:
    # Names and times are those of the row.
    bare = msgspec.structs.replace(first(done), namespace="", name="", began=EPOCH, ended=EPOCH)
    try:
        return _deflated(msgspec.json.encode(bare))
    except ValueError:  # text that is not UTF-8
        return b""


def _step(done: Reconcile) -> bytes:
    values = sum(len(getattr(each, "values", ())) for each in done.answers)
    if max(len(done.view.pods), values) > MOST_PODS:
        return b""
    try:
        packed = _deflated(encode_alone(done))
    except ValueError:
        return b""
    return packed if len(packed) <= MOST_BYTES else b""


def unpack_said(packed: bytes) -> Entry:
    """Returns the entry, without names, times and number. Raises UnreadableEntry, also for what is no bytes."""
    try:
        return _ENTRY.decode(_inflated(packed))
    except (msgspec.DecodeError, zlib.error, ValueError, TypeError) as error:
        raise UnreadableEntry(str(error)) from error


def unpack_step(packed: bytes) -> Reconcile | None:
    """Decides and settles a step again; None for one that is missing or unreadable."""
    if not packed:
        return None
    try:
        return next(replay.run(decode_scenario(msgspec.json.decode(_inflated(packed)))), None)
    except (msgspec.DecodeError, zlib.error, RecordingError, ValueError, TypeError, RecursionError):
        return None


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
