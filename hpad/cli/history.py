"""`hpad sources history`: what a metric was, as its source would have answered the HPA."""

import argparse
import asyncio
import json
import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from hpad import clock as clocks
from hpad import settings
from hpad.adapter import AdapterError, Answer, ObjectSample, PodSample, parse_duration
from hpad.api import amounts
from hpad.api.text import shown
from hpad.cli import output, question, sources
from hpad.cli.output import Failure
from hpad.sources import manager, plugins

DESCRIPTION: Final = """\
Show what a metric was, as its source would have answered an HPA: the same query, over a span of time. Sources of the
adapter prometheus have a history; others know the present alone. For metrics of pods the average of a pod is drawn, of
those pods that are there now.
"""
EPILOG: Final = """\
examples:
  hpad sources history --config hpad.yaml prometheus checkout_requests_per_second --since 6h
  hpad sources history --config hpad.yaml prometheus queue_depth --selector queue=orders --since 7d --step 1h
  hpad sources history --config hpad.yaml -o json prometheus queue_depth | jq '.points[-1]'
                       {"source", "query", "start", "end", "step", "points": [{"time", "value" or "pods" or "error"}]}

Times are UTC. A dot in the graph is a moment without a value: an HPA would have kept its replicas.
The exit status is 0 if there was a value at any time, 1 if there was none, if the source has no such metric or no
history, 2 for wrong use.
"""
_DAYS = re.compile(r"(\d+)([dw])")
_FINEST = 240
"""Moments that are asked for unless --step says otherwise."""
_MOST = 11_000
"""Points of a series that Prometheus answers a range query with at most."""
_SLICES = 12
_PIPED = 100


class Track(NamedTuple):
    """The answers at times with `step` between; `query` is what the source was asked."""

    asked: question.Question
    query: str | None
    times: Sequence[datetime]
    step: timedelta
    answers: Sequence[Answer]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The span."""
    parser.add_argument("--since", metavar="SPAN", default="1h", help="how far back, such as 30m, 6h or 7d (1h)")
    parser.add_argument(
        "--step",
        metavar="SPAN",
        help="from one value to the next (default: the sync period, or what makes 240 of them)",
    )


async def run(told: settings.Settings, args: argparse.Namespace) -> int:
    """Ask and print; 0 if there was a value, else 1. Raises Failure for a question that is none."""
    asked, clock = await question.read(told, args), clocks.SystemClock()
    since = _span("--since", args.since)
    step = _step(args.step, since, told.sync_period)
    end = clock.now().astimezone(UTC).replace(microsecond=0)
    times = [end - step * back for back in range(int(since / step), -1, -1)]
    async with question.Cluster(told, args, clock) as make:
        await _check_route(told, asked, make)
        query, answers = await _answers(asked, times, make)
    track = Track(asked, query, times, step, answers)
    if args.output == "json":
        print(json.dumps(_as_json(track), indent=2, ensure_ascii=False))
    else:
        output.show(_as_text(track, output.width() or _PIPED))
    return 1 if all(isinstance(answer, AdapterError) for answer in answers) else 0


def _span(flag: str, text: str) -> timedelta:
    """A duration, in days and weeks too."""
    days = _DAYS.fullmatch(text)
    try:
        span = timedelta(**{"days" if days[2] == "d" else "weeks": int(days[1])}) if days else parse_duration(text)
    except (ValueError, OverflowError):
        span = timedelta(0)
    if span < timedelta(seconds=1):
        raise Failure(f"{flag}: {shown(text)} is not a span of a second or more: write 30m, 6h, 7d or 1w")
    return span


def _step(text: str | None, since: timedelta, period: timedelta) -> timedelta:
    """Whole seconds; raises Failure for one that makes more values than Prometheus gives."""
    if text is None:
        seconds = max(1.0, period.total_seconds(), since.total_seconds() / _FINEST)
        return timedelta(seconds=math.ceil(seconds))
    step = timedelta(seconds=round(_span("--step", text).total_seconds()))
    if step > since:
        raise Failure(f"--step: {text} is longer than the whole span (--since)")
    if since / step > _MOST - 1:
        least = math.ceil(since.total_seconds() / (_MOST - 1))
        raise Failure(f"--step: {text} makes more than {_MOST} values of the span: take {least}s or more")
    return step


async def _check_route(told: settings.Settings, asked: question.Question, make: plugins.Contexts) -> None:
    gatherer = manager.Gatherer(told.sources, told.routes, contexts=make, period=told.sync_period.total_seconds())
    await gatherer.start()
    try:
        question.check_route(gatherer, asked)
    finally:
        await gatherer.aclose()


async def _answers(
    asked: question.Question, times: Sequence[datetime], make: plugins.Contexts
) -> tuple[str | None, Sequence[Answer]]:
    """The query and what came of it; raises Failure where there is no history."""
    try:
        async with question.opened(asked.source, make) as adapter:
            query = question.asked_by(adapter, asked.query, asked.asker)
            found = await question.history(asked.source, adapter, query, times)
            if found is None:
                raise Failure(await asyncio.to_thread(_without, asked.source))
            return await question.explained(adapter, query), found
    except AdapterError as error:
        raise Failure(error.message) from None


def _without(source: settings.SourceSettings) -> str:
    keeping = []
    for name in plugins.names():
        try:
            keeping += [name] if hasattr(plugins.adapter_class(name), "history") else []
        except AdapterError:
            continue
    return (
        f'source "{source.name}" (adapter {source.adapter}) knows no history; sources of these adapters do: '
        f"{', '.join(keeping) or 'none'}"
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
        yield f"error:      at no time was there a value; at last: {errors[-1].message}"
        return
    yield ""
    yield from output.graph(values, begin, end, width)
    yield ""
    yield from _table(track, values)
    if errors:
        yield f"{output.GAP} {len(errors)} of {len(values)} moments had no value, at last: {errors[-1].message}"


def _value(answer: Answer) -> int | None:
    """What an HPA compares, in thousandths: a total, or the average of a pod."""
    if isinstance(answer, AdapterError):
        return None
    if isinstance(answer, PodSample):
        values = [each.value for each in answer.values.values()]
        return sum(values) // len(values) if values else None
    return answer.value if isinstance(answer, ObjectSample) else sum(answer.values)


def _table(track: Track, values: Sequence[int | None]) -> Iterator[str]:
    """A row a slice of time, with the least, the mean and the highest value in it."""
    size = math.ceil(len(values) / _SLICES)
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
