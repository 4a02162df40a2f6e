"""The state of one HPA between reconciles: the history that later decisions need, and for how long it is complete.

A process that is killed may have made a turn that was never saved. The next process then lacks that turn's
recommendations, and a stabilization window would end too early. Therefore each memory has the time of the next planned
turn. A memory loaded before that time is complete, since no turn can have been made meanwhile. A memory loaded later
may have a gap. Two mechanisms keep this true:

- A turn before the planned one (the HPA was edited, or hpad was just started) is first noted in the store, which
  invalidates the memory there (`reopened`).
- A process that ends, or hands the HPA off, notes that it makes no further turn (`closed`). Such a memory is complete
  until the planned turn is a period late, on another machine as well. The next process reopens it before its own turn.

Time is measured by the monotonic clock if both processes run in one boot of one machine, so a wall clock that is set
does not matter. Across boots only wall times are known, which two machines do not share exactly. There a memory is
complete only if it was closed.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar, overload

import msgspec

from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.api.metadata import Moment as Timestamp
from hpad.api.quantity import MAX_INT32
from hpad.clock import Moment, micros, moment_of


class PastRecommendation(msgspec.Struct, frozen=True, gc=False):
    """A replica count that was recommended before stabilization, and when (horizontal.go: timestampedRecommendation).

    `uncertain` marks an entry that may stand for lost ones: it counts with the present count of the target.
    """

    timestamp: Timestamp
    replicas: int
    uncertain: bool = False

    def with_current(self, current: int) -> "PastRecommendation":
        """Returns the entry with its count; with `current` where it is uncertain."""
        return PastRecommendation(self.timestamp, current) if self.uncertain else self


_COUNT: Final = struct.Struct("<i")
_TIME: Final = struct.Struct("<q")


class PackedRecommendations(Sequence[PastRecommendation]):
    """Recommendations in 12 bytes each, instead of 104: a full window of five minutes has 20 of them.

    Times are in microseconds since 1970; counts are ~count where they are uncertain, and are cut to those of an int32
    that is not negative. Never changes; equals each sequence of the same recommendations. Both are bytes, since an
    array is an object that the collector of garbage has to search.
    """

    __slots__ = ("_counts", "_times")

    def __init__(self, entries: Iterable[PastRecommendation] = ()) -> None:
        known = tuple(entries)
        self._times = b"".join(_TIME.pack(micros(entry.timestamp)) for entry in known)
        self._counts = b"".join(map(_packed, known))

    def stored(self, stale: int, at: int, replicas: int) -> "PackedRecommendations":
        """Returns the entries with another one, in place of the one with the index `stale`, or behind all if it is -1.

        `at` is microseconds since 1970.
        """
        count, time = _COUNT.pack(_cut(replicas)), _TIME.pack(at)
        made, place = PackedRecommendations.__new__(PackedRecommendations), stale if stale >= 0 else len(self)
        made._times = self._times[: place * _TIME.size] + time + self._times[(place + 1) * _TIME.size :]
        made._counts = self._counts[: place * _COUNT.size] + count + self._counts[(place + 1) * _COUNT.size :]
        return made

    @property
    def rows(self) -> Iterator[tuple[int, int]]:
        """The time and the count of each entry, ~count where it is uncertain."""
        number = len(self)
        times, counts = struct.unpack(f"<{number}q", self._times), struct.unpack(f"<{number}i", self._counts)
        return zip(times, counts, strict=True)

    def __len__(self) -> int:
        return len(self._counts) // _COUNT.size

    def __iter__(self) -> Iterator[PastRecommendation]:
        return (_entry(*row) for row in self.rows)

    @overload
    def __getitem__(self, index: int) -> PastRecommendation: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PastRecommendation, ...]: ...
    def __getitem__(self, index: int | slice) -> PastRecommendation | tuple[PastRecommendation, ...]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedRecommendations):
            return self._times == other._times and self._counts == other._counts
        return tuple(self) == tuple(other) if isinstance(other, tuple | list) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"PackedRecommendations({list(self)})"


def packed(past: Sequence[PastRecommendation]) -> PackedRecommendations:
    """Returns the recommendations in their packed form, which they may have already."""
    return past if isinstance(past, PackedRecommendations) else PackedRecommendations(past)


def _cut(count: int) -> int:
    return min(max(0, count), MAX_INT32)


def _packed(entry: PastRecommendation) -> bytes:
    count = _cut(entry.replicas)
    return _COUNT.pack(~count if entry.uncertain else count)


def _entry(at: int, count: int) -> PastRecommendation:
    if count < 0:
        return PastRecommendation(moment_of(at), ~count, uncertain=True)
    return PastRecommendation(moment_of(at), count)


class Rescale(msgspec.Struct, frozen=True, gc=False):
    """A written change of the replica count: how many pods, always positive, and when (timestampedScaleEvent).

    `outdated` marks an entry that was older than the period of every policy when a later change was stored. The next
    change replaces it, even if a policy has become longer since (horizontal.go: storeScaleEvent). `uncertain` marks a
    change that may not have happened: it limits changes in its own direction, and allows none in the other.
    """

    timestamp: Timestamp
    change: int
    outdated: bool = False
    uncertain: bool = False


Dated = TypeVar("Dated", PastRecommendation, Rescale)


class LastSample(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The last successful proposal of one metric and its time, and since when the metric fails (None: it does not).

    `metric` is the label of the compiled metric, with its index behind if other metrics of the HPA have the same.
    """

    metric: str
    failing_since: Timestamp | None = None
    good_at: Timestamp | None = None
    replicas: int = 0

    def shifted(self, by: timedelta) -> "LastSample":
        """Returns the entry with its times moved by `by`."""
        return LastSample(self.metric, _moved(self.failing_since, by), _moved(self.good_at, by), self.replicas)


NO_SAMPLE = LastSample("")


class Idleness(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """For how long all metrics of an HPA have asked for nothing.

    `since` is the time when the HPA was created, or of its first turn where that is not known. `lasted` is the time
    without work up to `seen`, the last turn that read all metrics; None: they could not be read since.
    """

    since: Timestamp | None = None
    lasted: timedelta = timedelta(0)
    seen: Timestamp | None = None

    def shifted(self, by: timedelta) -> "Idleness":
        """Returns the idleness with its times moved by `by`."""
        return Idleness(_moved(self.since, by), self.lasted, _moved(self.seen, by))


def _moved(at: datetime | None, by: timedelta) -> datetime | None:
    return None if at is None else at + by


def shifted(past: Iterable[Dated], by: timedelta) -> tuple[Dated, ...]:
    """Returns the entries with their times moved by `by`."""
    return tuple(msgspec.structs.replace(entry, timestamp=entry.timestamp + by) for entry in past)


class History(msgspec.Struct, frozen=True, gc=False):
    """Recommendations feed the stabilization windows, rescales the scaling policies. Empty for a new HPA.

    The recommendations of a history that is kept are packed. `last_samples` is kept only for HPAs with fallback
    policies (see `hpad.engine.fallback_policy`), and `idleness` for those that keep their last replica for a while
    (`hpad.engine.zero`).
    """

    recommendations: Sequence[PastRecommendation] = ()
    scale_ups: tuple[Rescale, ...] = ()
    scale_downs: tuple[Rescale, ...] = ()
    last_samples: tuple[LastSample, ...] = ()
    idleness: Idleness | msgspec.UnsetType = msgspec.UNSET

    def last_sample(self, metric: str) -> LastSample:
        """Returns the entry of the metric with that name, NO_SAMPLE if there is none."""
        return next((known for known in self.last_samples if known.metric == metric), NO_SAMPLE)

    def shifted(self, by: timedelta) -> "History":
        """Returns the history with all times moved by `by`."""
        return History(
            shifted(self.recommendations, by),
            shifted(self.scale_ups, by),
            shifted(self.scale_downs, by),
            tuple(sample.shifted(by) for sample in self.last_samples),
            self.idleness.shifted(by) if self.idleness else msgspec.UNSET,
        )


EMPTY = History()

EARLY_SECONDS: Final = 2e-3
"""Seconds by which a planned turn may come early: timers round to whole milliseconds."""
SKEW: Final = timedelta(minutes=1)
"""The largest expected difference between the wall clocks of two machines."""


class Validity(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """For how long a memory is complete, counted from the turn that left it.

    `ticks` is the time of that turn in seconds of the monotonic clock of `boot`. The next turn was planned `lasts`
    seconds later and may be `grace` seconds late. `closed`: the process that wrote this makes no further turn.
    """

    boot: str
    ticks: float
    lasts: float = 0.0
    grace: float = 0.0
    closed: bool = False

    def comparable(self, now: Moment) -> bool:
        """Whether both monotonic times are of one boot of one machine."""
        return self.boot == now.boot and now.monotonic >= self.ticks

    def seconds_left(self, at: datetime, now: Moment) -> float:
        """Returns for how many seconds the memory stays complete; 0 or less if it is not. `at`: the turn's wall time.

        A wall clock that was set back makes this no longer than a full validity.
        """
        length = self.lasts + self.grace if self.closed else self.lasts
        if self.comparable(now):  # a wall clock that was set must not change the result
            return length - (now.monotonic - self.ticks)
        return min(length, length - (now.wall - at).total_seconds())

    def is_complete(self, at: datetime, now: Moment) -> bool:
        """Whether no turn can be missing from a memory that is loaded now."""
        if not self.comparable(now) and not (self.closed and now.wall >= at - SKEW):
            return False
        return self.seconds_left(at, now) > EARLY_SECONDS

    def close(self, at: datetime, now: Moment) -> "Validity":
        """Returns the closed validity; the unchanged one if a turn was due, which may have started."""
        return msgspec.structs.replace(self, closed=True) if self.seconds_left(at, now) > EARLY_SECONDS else self

    def prolonged(self, later: "Validity") -> "Validity":
        """Returns the validity up to the end of `later`, that of a later turn which left nothing to remember."""
        if self.boot != later.boot or later.ticks < self.ticks:  # the times of two boots have no common zero
            return self
        return Validity(self.boot, self.ticks, later.ticks + later.lasts - self.ticks, later.grace)

    def invalidated(self) -> "Validity":
        """Returns the validity of a memory that may have a gap from now on."""
        return Validity(self.boot, self.ticks)


class PendingRescale(msgspec.Struct, frozen=True, gc=False):
    """A rescale that is being written: the counts before and after, and the rescales and the status after the write.

    `previous` is the lastScaleTime of the status before it. As long as the status has it, it does not report this
    rescale, even if a clock step makes that time the later one.
    """

    current: int
    to: int
    scale_ups: tuple[Rescale, ...]
    scale_downs: tuple[Rescale, ...]
    status: HorizontalPodAutoscalerStatus
    previous: datetime | None = None


class Memory(msgspec.Struct, frozen=True, gc=False):
    """The state of one HPA between reconciles.

    `uid` is that of the HPA: an HPA that is deleted and created again under the same name starts without state.
    `target` is the target as group/kind/name ("": unknown); the state does not apply to another target. `status` is
    the status of an HPA without an API object. `at` is the time of the last reconcile, and `last_count` the last
    written replica count (None: unknown). `pending` is set while a rescale is written, and stays if the process ends
    before the write has. `loaded`: nothing was added since the memory was loaded, or since the HPA was deleted or
    owned by another process. `complete`: no turn can be missing from a loaded memory. `validity`: for how long.
    `shadow` is the count in shadow mode, to which `history` belongs then; None in other modes.
    """

    uid: str = ""
    history: History = EMPTY
    status: HorizontalPodAutoscalerStatus | None = None
    at: datetime | None = None
    last_count: int | None = None
    pending: PendingRescale | None = None
    loaded: bool = False
    target: str = ""
    complete: bool = False
    validity: Validity | None = None
    shadow: int | None = None

    def validity_remaining(self, now: Moment) -> float:
        """Returns for how many seconds the memory stays complete; 0 or less if it is not."""
        return 0.0 if self.validity is None or self.at is None else self.validity.seconds_left(self.at, now)


NOTHING = Memory()


def loaded(memory: Memory) -> Memory:
    """Returns the memory after a time in which nothing was added to it."""
    return msgspec.structs.replace(memory, loaded=True, complete=False)


def invalidated(memory: Memory) -> Memory:
    """Returns the memory after a time in which another process may have made turns."""
    validity = None if memory.validity is None else memory.validity.invalidated()
    return msgspec.structs.replace(loaded(memory), validity=validity)


def assessed(memory: Memory, now: Moment) -> Memory:
    """Returns a loaded memory with `complete` set if it is complete now; it stays set."""
    if not memory.loaded or memory.validity is None or memory.at is None:
        return memory
    is_complete = memory.validity.is_complete(memory.at, now)
    return msgspec.structs.replace(memory, complete=True) if is_complete else memory


def closed(memory: Memory, now: Moment) -> Memory:
    """Returns the memory of an HPA for which this process makes no further turn.

    A memory that may have a gap, and one that was only loaded, stay unchanged.
    """
    if memory.validity is None or memory.at is None or memory.loaded:
        return memory
    validity = memory.validity.close(memory.at, now)
    return memory if validity == memory.validity else msgspec.structs.replace(memory, validity=validity)


def reopened(memory: Memory, now: Moment) -> Memory:
    """Returns the memory before a turn that the next process could not know of: complete here, if it is now, only."""
    validity = None if memory.validity is None else memory.validity.invalidated()
    return msgspec.structs.replace(assessed(memory, now), validity=validity)
