"""Where the count of an HPA in shadow mode and that of its target differed, from the decision history."""

import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from hpad.engine.settle import NOT_WRITTEN
from hpad.records.entry import Entry

_PAUSE: Final = timedelta(minutes=5)
"""The longest time between two entries that follow each other, or twice the period of the HPA, if that is longer. In a
longer one nothing is known."""


class Interval(msgspec.Struct, frozen=True, rename="camel"):
    """A time in which both counts stayed as they were. `why` is the decision that led to the count of the shadow."""

    begin: datetime
    end: datetime
    shadow: int
    target: int
    why: str

    @property
    def seconds(self) -> float:
        return (self.end - self.begin).total_seconds()


class ShadowSide(msgspec.Struct, frozen=True, rename="camel"):
    """One of the two curves: its rescales, its replica-hours, and its lowest and highest count."""

    rescales: int
    replica_hours: float
    lowest: int
    highest: int


class ShadowReport(msgspec.Struct, frozen=True, rename="camel"):
    """Both curves of an HPA in shadow mode, from `begin` to `end`. All times in seconds are within `seconds`.

    `fewer` and `more`: with fewer, and with more, replicas than the target had. Times without decisions count nowhere.
    """

    namespace: str
    name: str
    begin: datetime
    end: datetime
    seconds: float
    fewer: float
    more: float
    shadow: ShadowSide
    target: ShadowSide
    differences: tuple[Interval, ...]


def report(entries: Sequence[Entry], since: datetime) -> ShadowReport | None:
    """Returns the report on the entries of one HPA, the oldest first; None if it was not in shadow mode since then."""
    entries = [each for each in entries if each.ended >= since]
    intervals = list(_intervals(entries, since)) if entries else []
    if not intervals:
        return None
    targets = [each.target for each in intervals]
    decided = sum(each.target is not None and each.current != each.desired for each in entries if each.began >= since)
    return ShadowReport(
        namespace=entries[0].namespace,
        name=entries[0].name,
        begin=intervals[0].begin,
        end=intervals[-1].end,
        seconds=sum(each.seconds for each in intervals),
        fewer=sum(each.seconds for each in intervals if each.shadow < each.target),
        more=sum(each.seconds for each in intervals if each.shadow > each.target),
        shadow=_side([(each.seconds, each.shadow) for each in intervals], decided),
        target=_side([(each.seconds, each.target) for each in intervals], _changes(targets)),
        differences=tuple(_differences(intervals)),
    )


def _intervals(entries: Sequence[Entry], since: datetime) -> Iterator[Interval]:
    """Yields the times in shadow mode; each entry holds until the next one, or until its last turn."""
    why, longest = "", max(_PAUSE, 2 * max(map(_period, entries)))
    for entry, following in zip(entries, [*entries[1:], None], strict=True):
        if entry.target is None:
            continue
        if entry.desired != entry.current or not why:
            why = entry.sentence.partition(NOT_WRITTEN)[0]
        end = entry.ended
        if following is not None and timedelta() <= following.began - end <= longest:
            end = following.began
        yield Interval(max(entry.began, since), end, entry.desired, entry.target, why)


def _period(entry: Entry) -> timedelta:
    """Returns the mean time between two turns of the entry, 0 with one turn."""
    return (entry.ended - entry.began) / (entry.turns - 1) if entry.turns > 1 else timedelta()


def _changes(counts: Sequence[int]) -> int:
    return sum(before != after for before, after in itertools.pairwise(counts))


def _side(counts: Sequence[tuple[float, int]], rescales: int) -> ShadowSide:
    """Returns the figures of one curve, given for how many seconds it had each count."""
    replicas = [count for _, count in counts]
    return ShadowSide(
        rescales=rescales,
        replica_hours=sum(seconds * count for seconds, count in counts) / 3600,
        lowest=min(replicas),
        highest=max(replicas),
    )


def _differences(intervals: Sequence[Interval]) -> Iterator[Interval]:
    """Yields the times in which the counts differed; those that follow each other with the same counts as one."""
    open_: Interval | None = None
    for each in intervals:
        goes_on = open_ is not None and open_.end == each.begin
        if open_ is not None and goes_on and (open_.shadow, open_.target) == (each.shadow, each.target):
            open_ = msgspec.structs.replace(open_, end=each.end)
            continue
        if open_ is not None:
            yield open_
        open_ = each if each.shadow != each.target else None
    if open_ is not None:
        yield open_
