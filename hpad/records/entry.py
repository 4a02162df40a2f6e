"""One entry of the decision history: as the API gives it, and as it is stored.

It holds what was said of turns with the same decision and reason.

A reconcile is stored as a recording with one step (`hpad.records.format`), compressed with a preset dictionary. Without
the dictionary most of it would be the names of fields and the words of the conditions. The dictionary belongs to the
format of the file of the history: a change of it needs another `tables.FORMAT`.
"""

import zlib
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from hpad.api.hpa import kind_of
from hpad.clock import EPOCH
from hpad.engine.addresses import addresses
from hpad.engine.trace import Trace
from hpad.engine.turn import Reconcile
from hpad.records import replay
from hpad.records.encode import encode_alone
from hpad.records.format import RecordingError, decode_scenario

MOST_TEXT: Final = 4096
"""The largest number of characters of a sentence or an error in an entry; the trace has all of them."""
MOST_BYTES: Final = 1 << 16
"""The size of a stored step. A larger one is left out: then only what was said of the decision is known."""
MOST_PODS: Final = 5000
"""Pods and values of a step that is tried at all: those of more pods would be too large, and take long to encode."""
DICTIONARY: Final = Path(__file__).with_name("dictionary.jsonl").read_bytes()
"""Entries and steps of typical reconciles."""
_INFLATED: Final = 1 << 24
Numbers = tuple[int | None, tuple[int | None, ...]]
"""The recommendation and the proposal of each metric; None where there is none."""


class Point(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What the metrics asked for from `time` on: the recommendation, and one proposal per metric of the entry."""

    time: datetime
    recommended: int | None
    proposals: tuple[int | None, ...]


class Entry(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A stretch of `turns` turns, from `began` to `ended`, with the same decision for the same reason.

    `number` is unique, and higher than that of each earlier entry of the HPA. `kind` is HorizontalPodAutoscaler or
    Autoscaler. `metrics` are the addresses of the
    metrics. `points` has one element per change of the proposals. `sentence`, `error` and `trace` are those of the
    first turn of the stretch; the trace is left out of lists. `current` and `desired` are left out where the count of
    the target was not known. In shadow mode `current` and `desired` are the counts of
    the shadow, and `target` is that of the target; None in other modes.
    """

    number: int = 0
    namespace: str
    name: str
    began: datetime
    ended: datetime
    turns: int
    action: str
    sentence: str
    current: int | None = None
    desired: int | None = None
    min: int
    max: int
    error: str = ""
    metrics: tuple[str, ...] = ()
    points: tuple[Point, ...] = ()
    target: int | None = None
    kind: str = ""
    trace: Trace | None = None


def first(done: Reconcile) -> Entry:
    """Returns the entry of a stretch that begins with this decision, without points and trace."""
    view, decision, settlement = done.view, done.decision, done.settlement
    known = view.scale is not None
    return Entry(
        namespace=view.key.namespace,
        name=view.key.name,
        kind=kind_of(view.key),
        began=view.now,
        ended=view.now,
        turns=1,
        action=settlement.action,
        sentence=done.sentence[:MOST_TEXT],
        current=decision.current if known else None,
        desired=decision.desired if known else None,
        min=view.min_replicas,
        max=view.max_replicas,
        error=(settlement.error or "")[:MOST_TEXT],
        metrics=addresses(view.spec.metrics),
        target=None if view.shadow is None else view.shadow.replicas,
    )


def numbers(done: Reconcile) -> Numbers:
    """Returns what the metrics of this decision asked for; None for each metric that was not measured."""
    recommendation, proposals = done.decision.recommendation, done.decision.proposals
    recommended = None if recommendation is None or recommendation.leader is None else recommendation.replicas
    if not proposals:
        return recommended, (None,) * len(done.view.spec.metrics)
    return recommended, tuple([proposal.proposed for proposal in proposals])


_ENTRY: Final = msgspec.json.Decoder(Entry)


class UnreadableEntry(ValueError):
    """The bytes are no entry or no step."""


class Stored(NamedTuple):
    """What was `said` of a decision, and the `step` that leads to it; empty where it cannot be stored."""

    said: bytes
    step: bytes


def pack(done: Reconcile) -> Stored:
    """Returns the stored form of a reconcile. Never raises. O(pods)."""
    return Stored(_said(done), _step(done))


def _said(done: Reconcile) -> bytes:
    # Names and times are those of the row.
    bare = msgspec.structs.replace(first(done), namespace="", name="", kind="", began=EPOCH, ended=EPOCH)
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
