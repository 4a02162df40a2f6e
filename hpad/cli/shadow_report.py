"""Where hpad in shadow mode and the target of an HPA differed: `hpad shadow-report`, and a check of `hpad doctor`."""

import argparse
import asyncio
import re
import ssl
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.cli import client, moments, output, paint
from hpad.cli.checks import NOTE, OK, Finding, listed
from hpad.cli.fetch import Hpa, HpadReader
from hpad.cli.output import Failure, counted
from hpad.cli.shadow_differences import Interval, ShadowReport, ShadowSide, report
from hpad.clock import SystemClock
from hpad.engine import annotations, words
from hpad.engine.controls import IN_SHADOW
from hpad.engine.render.text import BLANK, QUIET, STRONG, Line, Span, line, table
from hpad.records.entry import Entry
from hpad.settings import Settings, hpas

_MOST: Final = 10_000
"""Decisions of one HPA."""
_PAGE: Final = 1000
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
    # argparse would take "-10m" for an unknown option, as it would "-10" without this expression.
    parser._negative_number_matcher = re.compile(r"-[0-9.].*")
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
        query = {"limit": str(_PAGE), **({} if args.namespace is None else {"namespace": args.namespace})}
        while True:
            page = reader.get(f"/api/v1/hpas?{urllib.parse.urlencode(query)}")
            yield from (Hpa(reader, each["namespace"], each["name"]) for each in page["items"])
            query["continue"] = page.get("continue", "")
            if not query["continue"]:
                return


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


_SPAN: Final = timedelta(hours=24)
_MOST_READ: Final = 20
"""HPAs whose decisions are read: a dry run may have thousands."""
_NAMED: Final = 3
_ALL_ADDRESSES: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


async def check_shadow(settings: Settings, found: Iterable[HorizontalPodAutoscaler], now: datetime) -> list[Finding]:
    """Returns a finding on all HPAs in shadow mode, and one on each of the three that differed longest.

    Returns nothing without an HPA in shadow mode, and one note if no hpad answers at the address of the settings.
    """
    # The zones of schedules may have to be read from files, and the reader of the API blocks.
    return await asyncio.to_thread(_check, settings, list(found), now)


def _check(settings: Settings, found: Sequence[HorizontalPodAutoscaler], now: datetime) -> list[Finding]:
    keys = in_shadow(settings, found, now)
    if not keys:
        return []
    has = f"{counted(len(keys), 'HPA')} in shadow mode"
    if settings.listen is None:
        says = f"{has}; the settings turn the API off that would say where hpad and the targets differed"
        return [Finding("shadow", NOTE, says, "set an address with --listen")]
    try:
        reader = _reader(settings, *settings.listen)
        reader.get("/api/v1/replicas")
    except Failure as failure:
        says = f"{has}; where hpad and the targets differed is unknown: {failure}"
        return [Finding("shadow", NOTE, says, "ask a running hpad: hpad shadow-report --address HOST:PORT")]
    return _compared(has, [Hpa(reader, *key) for key in keys[:_MOST_READ]], len(keys), now - _SPAN)


def in_shadow(settings: Settings, found: Iterable[HorizontalPodAutoscaler], now: datetime) -> list[Key]:
    """Returns the HPAs that are in shadow mode now, by name: all that are not paused in a dry run."""
    own = annotations.AnnotationReader(None, hpas.defaults(settings.hpas))
    controls = [(hpa.metadata.key, own.of(hpa).controls) for hpa in found]
    return sorted(
        key for key, each in controls if not each.is_paused(now) and (settings.dry_run or each.mode == IN_SHADOW)
    )


def _reader(settings: Settings, host: str, port: int) -> client.Direct:
    """Returns a Reader of the hpad with these settings; raises Failure."""
    host = _ALL_ADDRESSES.get(host, host)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    serving = settings.serving
    token = None if serving.token_file is None else client.read_token(serving.token_file)
    if serving.certificate is None:
        return client.Direct(f"http://{address}", token=token, advice="")
    return client.Direct(f"https://{address}", ssl.create_default_context(), token, advice="")


def _compared(has: str, known: Sequence[Hpa], total: int, since: datetime) -> list[Finding]:
    reports, unread = [], []
    for hpa in known:
        try:
            report = read(hpa, since)
        except Failure as failure:
            unread.append(f"{hpa}: {failure}")
            continue
        if report is not None:
            reports.append(report)
    differed = sorted((each for each in reports if each.differences), key=_seconds, reverse=True)
    says = f"{has}; in the last 24 hours the counts of hpad and of the target differed in {len(differed)}"
    if not reports:
        says = f"{has}; no decision in shadow mode from the last 24 hours was found"
    elif len(reports) < total:
        says += f"; decisions were found for {len(reports)}"
    do = "see every difference: hpad shadow-report" if differed else ""
    found = [Finding("shadow", NOTE, _of_one(each), do) for each in differed[:_NAMED]]
    if unread:
        found.append(Finding("shadow", NOTE, f"decisions could not be read: {listed(unread)}"))
    return [Finding("shadow", OK, says), *found]


def _seconds(report: ShadowReport) -> float:
    return report.fewer + report.more


def _of_one(report: ShadowReport) -> str:
    last = report.differences[-1]
    return (
        f"{report.namespace}/{report.name}: {counted(len(report.differences), 'difference')}: "
        f"{summary(report)}; the last from {last.begin:%Y-%m-%d %H:%M:%SZ} to "
        f"{last.end:%Y-%m-%d %H:%M:%SZ}, hpad {last.shadow}, target {last.target}: {last.why}"
    )
