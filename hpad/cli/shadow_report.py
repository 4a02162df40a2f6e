"""`hpad shadow-report`: where hpad in shadow mode and the target of an HPA differed."""

import argparse
import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from hpad.api.hpa import key_of
from hpad.cli import client, moments, output
from hpad.cli.fetch import NAMES, Hpa, HpadReader, parsed, summaries
from hpad.cli.output import Failure
from hpad.clock import SystemClock
from hpad.engine import words
from hpad.engine.settle import NOT_WRITTEN
from hpad.engine.styled import BLANK, QUIET, STRONG, Line, Span, line, table
from hpad.records.entry import Entry

_MOST: Final = 10_000
"""Decisions of one HPA."""
_SHOWN: Final = 20
HELP: Final = "compare HPAs in shadow mode with what happened"
DESCRIPTION: Final = """\
Report on HPAs in shadow mode (annotation hpad.io/mode: shadow, or hpad run --dry-run): both replica counts over a time,
that of hpad and that which the target had, and when and why they differed. It asks a running hpad, which must keep the
decision history for that time (decision_history)."""
EPILOG: Final = f"""\
examples:
  hpad shadow-report                       all HPAs in shadow mode, over the last day
  hpad shadow-report -n shop web --since 8h
                                           one HPA, over the last eight hours
  hpad shadow-report shop/autoscaler/web   an Autoscaler beside the HPA that scales
  hpad shadow-report --all -o json | jq '.items[].differences'
                                           every difference, with times and reasons

A TIME is {moments.FORMS}.
Times in the output are UTC. Replica-hours count the times with decisions only.

exit status: 0 success; 1 if no HPA was in shadow mode, there is no such HPA, or no hpad answers; 2 for wrong use
"""


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
    kind: str
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
        kind=entries[0].kind,
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
        if entry.target is None or entry.desired is None:  # not in shadow mode, or the count was not known
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{NAMES} (default: all HPAs)")
    parser.add_argument("-n", "--namespace", help="the namespace of a NAME without one (default: default)")
    parser.add_argument("--since", metavar="TIME", default="24h", help="the begin, or the length (default: 24h)")
    parser.add_argument("--all", action="store_true", help=f"print more than {_SHOWN} differences of one HPA")
    output.add_format(parser, "text", "json", "yaml")
    output.add_color(parser)
    client.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the reports; raises Failure."""
    reader = client.reader(args)
    since = moments.parse("--since", args.since, SystemClock().now())
    found = [each for hpa in _hpas(reader, args) if (each := read(hpa, since)) is not None]
    if args.output != "text":
        output.print_value({"items": msgspec.to_builtins(found)}, args.output)
    elif not found:
        raise Failure(f"no HPA was in shadow mode since {since:%Y-%m-%d %H:%M:%SZ}")
    else:
        output.show_lines(_lines(found, None if args.all else _SHOWN), args.color)
    return 0 if found else 1


def _hpas(reader: HpadReader, args: argparse.Namespace) -> Iterator[Hpa]:
    for each in args.names:
        namespace, name, kind = parsed(each)
        yield Hpa(reader, namespace or args.namespace or "default", name, kind)
    if not args.names:
        for each in summaries(reader, namespace=args.namespace):
            yield Hpa(reader, each["namespace"], each["name"], each.get("kind", ""))


def read(hpa: Hpa, since: datetime) -> ShadowReport | None:
    """Returns the report on an HPA of a running hpad, None if it was not in shadow mode; raises Failure."""
    entries = hpa.converted(hpa.entries(_MOST, since.isoformat()), list[Entry])
    return report(list(reversed(entries)), since)


def _lines(reports: Sequence[ShadowReport], most: int | None) -> Iterator[Line]:
    for index, each in enumerate(reports):
        if index:
            yield BLANK
        yield from _one(each, most)


def _one(found: ShadowReport, most: int | None) -> Iterator[Line]:
    times = f"{found.begin:%Y-%m-%d %H:%M:%SZ} to {found.end:%Y-%m-%d %H:%M:%SZ}"
    key = key_of(found.namespace, found.name, found.kind)
    yield line(Span(str(key), STRONG), f": in shadow mode for {_for(found.seconds)}, {times}")
    heads = [Span(each, QUIET) for each in ("", "RESCALES", "REPLICA-HOURS", "LOWEST", "HIGHEST")]
    yield from table([heads, _figures("hpad", found.shadow), _figures("target", found.target)], 0)
    yield line(summary(found))
    shown = found.differences if most is None else found.differences[-most:]
    if shown:
        heads = [Span(each, QUIET) for each in ("FROM", "FOR", "HPAD", "TARGET", "DECISION OF HPAD")]
        yield from table([heads, *map(_difference, shown)], 0)
    if len(shown) < len(found.differences):
        yield line(Span(f"{len(found.differences) - len(shown)} earlier differences; --all prints them", QUIET))


def _figures(name: str, side: ShadowSide) -> list[Span]:
    figures = (str(side.rescales), f"{side.replica_hours:.2f}", str(side.lowest), str(side.highest))
    return [Span(name), *map(Span, figures)]


def summary(found: ShadowReport) -> str:
    """Returns for how long the shadow had fewer, and more, replicas than the target."""
    if not found.differences:
        return "the counts were the same all the time"
    fewer, more = (100 * part / found.seconds if found.seconds else 0.0 for part in (found.fewer, found.more))
    return (
        f"hpad had fewer replicas than the target for {_for(found.fewer)} ({fewer:.0f} %), more for "
        f"{_for(found.more)} ({more:.0f} %)"
    )


def _difference(each: Interval) -> list[Span]:
    lasted = _for((each.end - each.begin).total_seconds())
    cells = (f"{each.begin:%Y-%m-%d %H:%M:%SZ}", lasted, str(each.shadow), str(each.target), each.why)
    return list(map(Span, cells))


def _for(seconds: float) -> str:
    return words.span(round(seconds))
