"""`hpad sources history`: a metric over time, as its source would have answered an HPA."""

import argparse
import asyncio
import json
import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from hpad import clock as clocks
from hpad.adapter import AdapterError, Answer, ObjectSample, PodSample, parse_duration
from hpad.api import amounts
from hpad.api.text import shown
from hpad.cli import output, question, sources
from hpad.cli.output import Failure
from hpad.settings import Settings, SourceSettings
from hpad.sources import manager, plugins

DESCRIPTION: Final = """\
Show a metric over time, as its source would have answered an HPA: the same query, over a span of time. Sources of the
adapter prometheus have a history; others answer with present values only. For metrics of pods the average per pod is
drawn, of the pods that exist now.
"""
EPILOG: Final = """\
examples:
  hpad sources history --config hpad.yaml prometheus checkout_requests_per_second --since 6h
  hpad sources history --config hpad.yaml prometheus queue_depth --selector queue=orders --since 7d --step 1h
  hpad sources history --config hpad.yaml -o json prometheus queue_depth | jq '.points[-1]'
                       {"source", "query", "start", "end", "step", "points": [{"time", "value" or "pods" or "error"}]}

Times are UTC. A dot in the graph is a time without a value: an HPA would have kept its replicas.

exit status: 0 if the metric had a value at any time; 1 if it had none, or if the source has no such metric or no
history; 2 for wrong use
"""
_DAYS = re.compile(r"(\d+)([dw])")
_DEFAULT_POINTS = 240
_MAX_POINTS = 11_000
"""The most points per series that Prometheus returns for a range query."""
_TABLE_ROWS = 12
_PIPE_WIDTH = 100


class Track(NamedTuple):
    """The answers at times `step` apart; `query` is what the source was asked."""

    asked: question.Question
    query: str | None
    times: Sequence[datetime]
    step: timedelta
    answers: Sequence[Answer]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for span and step."""
    parser.add_argument("--since", metavar="SPAN", default="1h", help="how far back, such as 30m, 6h or 7d (1h)")
    parser.add_argument(
        "--step", metavar="SPAN", help="between values (default: the sync period, but at most 240 values)"
    )


async def run(settings: Settings, args: argparse.Namespace) -> int:
    """Asks and prints; 0 if there was a value, else 1. Raises Failure for an invalid question."""
    asked, clock = await question.read(settings, args), clocks.SystemClock()
    since = _span("--since", args.since)
    step = _step(args.step, since, settings.sync_period)
    end = clock.now().astimezone(UTC).replace(microsecond=0)
    times = [end - step * back for back in range(int(since / step), -1, -1)]
    async with question.Cluster(settings, args, clock) as make:
        await _check_route(settings, asked, make)
        query, answers = await _answers(asked, times, make)
    track = Track(asked, query, times, step, answers)
    if args.output == "json":
        print(json.dumps(_as_json(track), indent=2, ensure_ascii=False))
    else:
        output.show(_as_text(track, output.width() or _PIPE_WIDTH))
    return 1 if all(isinstance(answer, AdapterError) for answer in answers) else 0


def _span(flag: str, text: str) -> timedelta:
    """A duration; also in days (7d) and weeks (1w)."""
    days = _DAYS.fullmatch(text)
    try:
        span = timedelta(**{"days" if days[2] == "d" else "weeks": int(days[1])}) if days else parse_duration(text)
    except (ValueError, OverflowError):
        span = timedelta(0)
    if span < timedelta(seconds=1):
        raise Failure(f"{flag}: {shown(text)} is not a span of a second or more: write 30m, 6h, 7d or 1w")
    return span


def _step(text: str | None, since: timedelta, period: timedelta) -> timedelta:
    """The step in whole seconds; raises Failure if the span would have more points than Prometheus returns."""
    if text is None:
        seconds = max(1.0, period.total_seconds(), since.total_seconds() / _DEFAULT_POINTS)
        return timedelta(seconds=math.ceil(seconds))
    step = timedelta(seconds=round(_span("--step", text).total_seconds()))
    if step > since:
        raise Failure(f"--step: {text} is longer than the whole span (--since)")
    if since / step > _MAX_POINTS - 1:
        least = math.ceil(since.total_seconds() / (_MAX_POINTS - 1))
        raise Failure(f"--step: {text} makes more than {_MAX_POINTS} values of the span: write {least}s or more")
    return step


async def _check_route(settings: Settings, asked: question.Question, make: plugins.Contexts) -> None:
    period = settings.sync_period.total_seconds()
    gatherer = manager.Gatherer(settings.sources, settings.routes, contexts=make, period=period)
    await gatherer.start()
    try:
        question.check_route(gatherer, asked)
    finally:
        await gatherer.aclose()


async def _answers(
    asked: question.Question, times: Sequence[datetime], make: plugins.Contexts
) -> tuple[str | None, Sequence[Answer]]:
    """What the source was asked, and its answers; raises Failure if the source has no history."""
    try:
        async with question.opened(asked.source, make) as adapter:
            query = question.asked_by(adapter, asked.query, asked.asker)
            found = await question.history(asked.source, adapter, query, times)
            if found is None:
                raise Failure(await asyncio.to_thread(_no_history, asked.source))
            return await question.explained(adapter, query), found
    except AdapterError as error:
        raise Failure(error.message) from None


def _no_history(source: SourceSettings) -> str:
    capable = []
    for name in plugins.names():
        try:
            capable += [name] if hasattr(plugins.adapter_class(name), "history") else []
        except AdapterError:
            continue
    return (
        f'source "{source.name}" (adapter {source.adapter}) has no history; sources of these adapters do: '
        f"{', '.join(capable) or 'none'}"
    )


def _as_json(track: Track) -> dict[str, Any]:
    points = [
        {**sources.answered(answer), "time": _moment(moment)}
        for moment, answer in zip(track.times, track.answers, strict=True)
    ]
    for point in points:
        point.pop("timestamp", None)
    span = {"start": _moment(track.times[0]), "end": _moment(track.times[-1]), "step": track.step.total_seconds()}
    return {**sources.described(track.asked, track.query), **span, "points": points}


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _as_text(track: Track, width: int) -> Iterator[str]:
    yield from sources.heading(track.asked, track.query)
    begin, end = track.times[0], track.times[-1]
    yield f"time:       {_moment(begin)} to {_moment(end)}, every {track.step.total_seconds():g}s"
    values = [_value(answer) for answer in track.answers]
    errors = [answer for answer in track.answers if isinstance(answer, AdapterError)]
    if len(errors) == len(values):
        yield f"error:      the metric had no value at any time; last error: {errors[-1].message}"
        return
    yield ""
    yield from output.graph(values, begin, end, width)
    yield ""
    yield from _table(track, values)
    if errors:
        yield f"{output.GAP} no value at {len(errors)} of {len(values)} times; last error: {errors[-1].message}"


def _value(answer: Answer) -> int | None:
    """The value that an HPA compares, in thousandths: a total, or the average per pod. None for an error."""
    if isinstance(answer, AdapterError):
        return None
    if isinstance(answer, PodSample):
        values = [each.value for each in answer.values.values()]
        return sum(values) // len(values) if values else None
    return answer.value if isinstance(answer, ObjectSample) else sum(answer.values)


def _table(track: Track, values: Sequence[int | None]) -> Iterator[str]:
    """At most 12 rows, each with the minimum, average and maximum of its slice of time."""
    size = math.ceil(len(values) / _TABLE_ROWS)
    rows = [("FROM", "MIN", "AVERAGE", "MAX", "MISSING")]
    for first in range(0, len(values), size):
        within = values[first : first + size]
        known = [value for value in within if value is not None]
        missing = f"{len(within) - len(known)} of {len(within)}" if len(known) < len(within) else "-"
        when = track.times[first].strftime("%Y-%m-%d %H:%M:%S")
        if known:
            figures = map(amounts.rounded, (min(known), sum(known) // len(known), max(known)))
            rows.append((when, *figures, missing))  # type: ignore[arg-type]
        else:
            rows.append((when, "-", "-", "-", missing))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        cells = (row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)))
        yield "  ".join(cells)
