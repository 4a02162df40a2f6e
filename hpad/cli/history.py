"""`hpad sources history`: a metric over time, as its source would have answered an HPA."""

import argparse
import asyncio
import json
import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import structlog

from hpad.adapter import Adapter, AdapterError, Answer, ObjectSample, PodSample, Query, parse_duration
from hpad.api import amounts
from hpad.api.text import shown
from hpad.cli import adapters, metric_request, offline, output
from hpad.cli.metric_request import MetricRequest
from hpad.cli.output import Failure, WrongUse
from hpad.clock import SystemClock
from hpad.settings import Settings, SourceSettings
from hpad.sources import answers, call, plugins, redact

DESCRIPTION: Final = """\
Show a metric over time, as its source would have answered an HPA: the same query, over a span of time. Sources of the
adapter prometheus have a history; others have only present values. For metrics of pods the graph shows the average per
pod, of the pods that exist now.
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
"""The most points per series that Prometheus returns for a range query. Source: web/api/v1/api.go: queryRange."""
_TABLE_ROWS = 12
_PIPE_WIDTH = 100


class Track(NamedTuple):
    """The answers at times `step` apart. `explanation`: the query in the language of the source, if known."""

    request: MetricRequest
    explanation: str | None
    times: Sequence[datetime]
    step: timedelta
    answers: Sequence[Answer]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for span and step."""
    parser.add_argument(
        "--since", metavar="SPAN", default="1h", help="how far back, such as 30m, 6h or 7d (default: 1h)"
    )
    parser.add_argument(
        "--step", metavar="SPAN", help="between values (default: the sync period, but at most 240 values)"
    )


async def run(settings: Settings, args: argparse.Namespace) -> int:
    """Reads the metric and prints it; 0 if there was a value, else 1. Raises Failure for an invalid request."""
    request = await metric_request.read(settings, args)
    since = _span("--since", args.since)
    step = _step(args.step, since, settings.sync_period)
    end = SystemClock().now().astimezone(UTC).replace(microsecond=0)
    times = [end - step * back for back in range(int(since / step), -1, -1)]
    async with offline.contexts(settings, args) as make:
        async with offline.gatherer(settings, make) as gatherer:
            request = metric_request.routed(gatherer, request)
        explanation, found = await _answers(request, times, make)
    track = Track(request, explanation, times, step, found)
    if args.output == "json":
        print(json.dumps(_as_json(track), indent=2, ensure_ascii=False))
    else:
        output.show(_as_text(track, output.width() or _PIPE_WIDTH))
    return 1 if all(isinstance(answer, AdapterError) for answer in found) else 0


def _span(flag: str, text: str) -> timedelta:
    """Parses a duration, also in days (7d) and weeks (1w); raises Failure if it is shorter than a second."""
    days = _DAYS.fullmatch(text)
    try:
        span = timedelta(**{"days" if days[2] == "d" else "weeks": int(days[1])}) if days else parse_duration(text)
    except (ValueError, OverflowError):
        span = timedelta(0)
    if span < timedelta(seconds=1):
        raise WrongUse(f"{flag}: {shown(text)} is not a span of a second or more: write 30m, 6h, 7d or 1w")
    return span


def _step(text: str | None, since: timedelta, period: timedelta) -> timedelta:
    """Returns the step in whole seconds; raises Failure if it is longer than the span, or too short for Prometheus.

    Prometheus returns a limited number of points per query.
    """
    if text is None:
        seconds = max(1.0, period.total_seconds(), since.total_seconds() / _DEFAULT_POINTS)
        return timedelta(seconds=math.ceil(seconds))
    step = timedelta(seconds=round(_span("--step", text).total_seconds()))
    if step > since:
        raise WrongUse(f"--step: {text} is longer than the whole span (--since)")
    if since / step > _MAX_POINTS - 1:
        least = math.ceil(since.total_seconds() / (_MAX_POINTS - 1))
        raise WrongUse(f"--step: {text} makes more than {_MAX_POINTS} values of the span: write {least}s or more")
    return step


async def _answers(
    request: MetricRequest, times: Sequence[datetime], make: plugins.Contexts
) -> tuple[str | None, Sequence[Answer]]:
    """Returns the query in the language of the source, and the answers; raises Failure if the source has no history."""
    try:
        async with offline.adapter(request.source, make) as (adapter, redactor):
            query = metric_request.for_hpa(adapter, request)
            found = await _history(request.source, adapter, query, times)
            readable = [call.readable(request.source.name, answer, redactor) for answer in found]
            return await metric_request.explained(adapter, query), readable
    except AdapterError as error:
        raise Failure(error.message) from None


async def _history(
    source: SourceSettings, adapter: Adapter, query: Query, times: Sequence[datetime]
) -> Sequence[Answer]:
    """Returns the answers at these times.

    Raises Failure if the adapter has no history, AdapterError if the query as a whole fails.
    """
    history: Any = getattr(adapter, "history", None)
    if history is None:
        raise Failure(await asyncio.to_thread(_no_history, source))
    try:
        return list(await history(query, times))
    except AdapterError:
        raise
    except Exception as error:  # noqa: BLE001 - foreign code; the error's text may hold a secret
        log = structlog.get_logger("hpad.source")
        log.error("the adapter raised an exception", source=source.name, **redact.exception_fields(error))
        raise answers.raised(source.name, query) from None


def _no_history(source: SourceSettings) -> str:
    capable = [name for name, adapter in adapters.loadable().items() if hasattr(adapter, "history")]
    return (
        f'source "{source.name}" (adapter {source.adapter}) has no history; sources of these adapters do: '
        f"{', '.join(capable) or 'none'}"
    )


def _as_json(track: Track) -> dict[str, Any]:
    points = [
        {**metric_request.answer_fields(answer), "time": _moment(moment)}
        for moment, answer in zip(track.times, track.answers, strict=True)
    ]
    for point in points:
        point.pop("timestamp", None)
    span = {"start": _moment(track.times[0]), "end": _moment(track.times[-1]), "step": track.step.total_seconds()}
    return {**metric_request.request_fields(track.request, track.explanation), **span, "points": points}


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _as_text(track: Track, width: int) -> Iterator[str]:
    yield from metric_request.heading(track.request, track.explanation)
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
    """Returns the value that an HPA compares, in thousandths: a total, or the average per pod. None for an error."""
    if isinstance(answer, AdapterError):
        return None
    if isinstance(answer, PodSample):
        values = [each.value for each in answer.values.values()]
        return sum(values) // len(values) if values else None
    return answer.value if isinstance(answer, ObjectSample) else sum(answer.values)


def _table(track: Track, values: Sequence[int | None]) -> Iterator[str]:
    """Yields at most 12 rows, each with the minimum, average and maximum of its slice of time."""
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
    yield from output.table(rows, numbers=True)
