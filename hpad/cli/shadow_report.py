"""`hpad shadow-report`: where hpad in shadow mode and the target of an HPA differed."""

import argparse
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from hpad.cli import client, moments, output, paint
from hpad.cli.fetch import Hpa, HpadReader, summaries
from hpad.cli.output import Failure
from hpad.cli.shadow_differences import Interval, ShadowReport, ShadowSide, report
from hpad.clock import SystemClock
from hpad.engine import words
from hpad.engine.render.text import BLANK, QUIET, STRONG, Line, Span, line, table
from hpad.records.entry import Entry

_MOST: Final = 10_000
"""Decisions of one HPA."""
_SHOWN: Final = 20
_DESCRIPTION: Final = """\
Report on HPAs in shadow mode (annotation hpad.io/mode: shadow, or hpad run --dry-run): both replica counts over a time,
that of hpad and that which the target had, and when and why they differed. It asks a running hpad, which must keep the
decision history for that time (decision_history)."""
_EPILOG: Final = f"""\
examples:
  hpad shadow-report                       all HPAs in shadow mode, over the last day
  hpad shadow-report -n shop web --since 8h
                                           one HPA, over the last eight hours
  hpad shadow-report --all -o json | jq '.items[].differences'
                                           every difference, with times and reasons

A TIME is {moments.FORMS}.
Times in the output are UTC. Replica-hours count the times with decisions only.

exit status: 0 success; 1 if no HPA was in shadow mode, there is no such HPA, or no hpad answers; 2 for wrong use
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "shadow-report",
        help="compare HPAs in shadow mode with what happened",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="NAMESPACE/NAME, or NAME (default: all HPAs)")
    parser.add_argument("-n", "--namespace", help="the namespace of a NAME without one (default: default)")
    parser.add_argument("--since", metavar="TIME", default="24h", help="the begin, or the length (default: 24h)")
    parser.add_argument("--all", action="store_true", help=f"print more than {_SHOWN} differences of one HPA")
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help="form of the output")
    paint.add_color(parser)
    client.add_arguments(parser)
    parser.set_defaults(run=run)


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
        paint.show_lines(_lines(found, None if args.all else _SHOWN), args.color)
    return 0 if found else 1


def _hpas(reader: HpadReader, args: argparse.Namespace) -> Iterator[Hpa]:
    for each in args.names:
        namespace, _, name = each.rpartition("/")
        yield Hpa(reader, namespace or args.namespace or "default", name)
    if not args.names:
        for each in summaries(reader, namespace=args.namespace):
            yield Hpa(reader, each["namespace"], each["name"])


def read(hpa: Hpa, since: datetime) -> ShadowReport | None:
    """Returns the report on an HPA of a running hpad, None if it was not in shadow mode; raises Failure."""
    entries = msgspec.convert(hpa.entries(_MOST, since.isoformat()), list[Entry])
    return report(list(reversed(entries)), since)


def _lines(reports: Sequence[ShadowReport], most: int | None) -> Iterator[Line]:
    for index, each in enumerate(reports):
        if index:
            yield BLANK
        yield from _one(each, most)


def _one(found: ShadowReport, most: int | None) -> Iterator[Line]:
    times = f"{found.begin:%Y-%m-%d %H:%M:%SZ} to {found.end:%Y-%m-%d %H:%M:%SZ}"
    yield line(Span(f"{found.namespace}/{found.name}", STRONG), f": in shadow mode for {_for(found.seconds)}, {times}")
    heads = [Span(each, QUIET) for each in ("", "RESCALES", "REPLICA-HOURS", "LOWEST", "HIGHEST")]
    yield from table([heads, _side("hpad", found.shadow), _side("target", found.target)], 0)
    yield line(summary(found))
    shown = found.differences if most is None else found.differences[-most:]
    if shown:
        heads = [Span(each, QUIET) for each in ("FROM", "FOR", "HPAD", "TARGET", "DECISION OF HPAD")]
        yield from table([heads, *map(_difference, shown)], 0)
    if len(shown) < len(found.differences):
        yield line(Span(f"{len(found.differences) - len(shown)} earlier differences; --all prints them", QUIET))


def _side(name: str, side: ShadowSide) -> list[Span]:
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
