"""`hpad sources`: the state of the metric sources, a check of their configuration, and one metric as an HPA sees it.

`hpad sources test` asks through routing, limits and cache, as a reconcile does.
"""

import argparse
import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from hpad import clock as clocks
from hpad.adapter import AdapterError, Answer, ObjectSample, PodSample, Quantity
from hpad.api.metadata import Key
from hpad.cli import client, config, history, output, question
from hpad.daemon import logs
from hpad.settings import Settings, SourceSettings
from hpad.sources import limits, manager, plugins

_UNANSWERED = "keeps its replicas, unless another metric asks for more or a fallback applies"


class Outcome(NamedTuple):
    """The answer to a question. `query`: what the source was asked, None if its adapter does not tell.

    `seconds`: how long the answer took. `age`: of the sample, in seconds.
    """

    asked: question.Question
    query: str | None
    answer: Answer
    seconds: float
    age: float


async def probe(settings: Settings, args: argparse.Namespace) -> int:
    """Asks and prints; 0 for a sample, 1 for an error. Raises Failure for an invalid question."""
    asked = await question.read(settings, args)
    clock = clocks.SystemClock()
    async with question.Cluster(settings, args, clock) as make:
        outcome = await _outcome(settings, asked, Key(args.namespace, args.hpa or "test"), make)
    if args.output == "json":
        print(json.dumps(_as_json(outcome), indent=2, ensure_ascii=False))
    else:
        output.show(_as_text(outcome))
    return 1 if isinstance(outcome.answer, AdapterError) else 0


async def _outcome(settings: Settings, asked: question.Question, key: Key, make: plugins.Contexts) -> Outcome:
    """Asks as the HPA `key` would; raises Failure if its query would go to another source."""
    clock, period = make.clock, settings.sync_period.total_seconds()
    gatherer = manager.Gatherer(settings.sources, settings.routes, contexts=make, period=period)
    await gatherer.start()
    try:
        question.check_route(gatherer, asked)
        began = clock.monotonic()
        [answer] = await gatherer.gather(key, [asked.query], deadline=period * limits.PATIENCE, asker=asked.asker)
        seconds = clock.monotonic() - began
    finally:
        await gatherer.aclose()
    age = 0.0 if isinstance(answer, AdapterError) else (clock.now() - answer.timestamp).total_seconds()
    return Outcome(asked, await _explained(asked, make), answer, seconds, age)


async def _explained(asked: question.Question, make: plugins.Contexts) -> str | None:
    """What the source is asked; None if the adapter fails to tell (the answer then says why)."""
    try:
        async with question.opened(asked.source, make) as adapter:
            return await question.explained(adapter, question.asked_by(adapter, asked.query, asked.asker))
    except AdapterError:
        return None


def heading(asked: question.Question, text: str | None) -> Iterator[str]:
    """The lines that describe source, metric and query. `text`: what the source is asked."""
    source, query = asked.source, asked.query
    yield f"source:     {source.name} (adapter {source.adapter})"
    narrowed = "" if query.selector is None else f" with {query.selector}"
    yield f'metric:     {query.type} "{query.name}"{narrowed} in namespace "{query.namespace}"'
    if text is not None:
        yield f"query:      {text}"


def _as_text(outcome: Outcome) -> Iterator[str]:
    answer = outcome.answer
    yield from heading(outcome.asked, outcome.query)
    yield f"took:       {outcome.seconds:.3f}s"
    if isinstance(answer, AdapterError):
        yield f"error:      {answer.message}"
        yield f"blame:      {answer.blame}"
        yield f"an HPA:     {_UNANSWERED}"
        return
    yield f"timestamp:  {answer.timestamp.isoformat()} ({outcome.age:.1f}s ago)"
    yield from _values(answer)


def _values(answer: Answer) -> Iterator[str]:
    if isinstance(answer, PodSample):
        count = len(answer.values)
        yield f"an HPA:     sees the value{'' if count == 1 else 's'} of {count} pod{'' if count == 1 else 's'}"
        for pod, value in sorted(answer.values.items()):
            yield f"  {pod}: {_written(value.value)} over {value.window.total_seconds():g}s to {value.timestamp}"
    elif isinstance(answer, ObjectSample):
        yield f"an HPA:     sees {_written(answer.value)}"
    elif not isinstance(answer, AdapterError):
        of = f", the sum of {len(answer.values)} values" if len(answer.values) > 1 else ""
        yield f"an HPA:     sees {_written(sum(answer.values))}{of}"


def _as_json(outcome: Outcome) -> dict[str, Any]:
    """The JSON of `hpad sources test`; values are quantities of Kubernetes."""
    seconds = round(outcome.seconds, 3)
    return {**described(outcome.asked, outcome.query), "seconds": seconds, **answered(outcome.answer)}


def described(asked: question.Question, text: str | None) -> dict[str, Any]:
    """The JSON fields of a question."""
    source, query = asked.source, asked.query
    return {
        "source": source.name,
        "adapter": source.adapter,
        "type": query.type,
        "metric": query.name,
        "namespace": query.namespace,
        "selector": None if query.selector is None else str(query.selector),
        "query": text,
    }


def answered(answer: Answer) -> dict[str, Any]:
    """The JSON fields of an answer."""
    if isinstance(answer, AdapterError):
        return {"error": answer.message, "blame": answer.blame}
    found: dict[str, Any] = {"timestamp": answer.timestamp.isoformat()}
    if isinstance(answer, PodSample):
        return {**found, "pods": {pod: _written(value.value) for pod, value in sorted(answer.values.items())}}
    values = (answer.value,) if isinstance(answer, ObjectSample) else answer.values
    return {**found, "value": _written(sum(values)), "values": [_written(value) for value in values]}


def _written(milli: int) -> str:
    return str(Quantity.from_milli(milli))


_EPILOG = """\
examples:
  hpad sources                                  the sources of the hpad that runs here: state, last error, latency
  hpad sources --address https://10.0.0.7:8473 --cacert ca.crt --token-file token -o json
                                                those of a remote hpad that authenticates its clients, as JSON
  hpad sources --config hpad.yaml               offline: is their configuration valid?
  hpad sources test --config hpad.yaml rabbitmq queue_messages_ready --selector queue=orders
                                                ask for one metric, and see what an HPA would see
  hpad sources history --config hpad.yaml prometheus requests_per_second --since 6h
                                                a metric over time, as a graph and a table

states: ok; failing (the last call brought no answer); open (its circuit breaker is open: no calls during its cooldown);
trial (a first call after that); idle (not asked yet); broken (cannot be built).
HIT-RATE is the fraction of queries answered from the cache. ERROR-AGE is the time since the last error, which may be
over.

exit status: 0 if all sources work, 1 if a source is broken, failing or open, or if no hpad answers; 2 for wrong use
"""
_TEST = """\
Ask for one metric as an HPA that names it would: through `routes`, `match` and `namespaces` of the configuration,
within the time that a reconcile waits. Shows what the source was asked (such as the PromQL with all variables filled
in), and what the HPA would see.
"""
_TEST_EPILOG = """\
examples:
  hpad sources test --config hpad.yaml rabbitmq queue_messages_ready --selector queue=orders
  hpad sources test --config hpad.yaml prometheus cpu --type Resource -n shop --pods app=web
  hpad sources test --config hpad.yaml -o json prometheus checkout_requests_per_second
                                     {"source", "query", "value" or "pods", "timestamp"} or {"error", "blame"}

exit status: 0 if there was a sample; 1 if there was none, if the source has no such metric, or if HPAs get it from
another source; 2 for wrong use
"""
_UNHEALTHY = ("broken", "failing", "open")


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    parser = commands.add_parser(
        "sources",
        help="show the state of the metric sources, or ask one for a metric",
        description="Show the state of the metric sources of a running hpad, check their configuration offline, or ask "
        "one for a metric.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="check the sources of this file offline")
    client.add_arguments(parser)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text (default) or json")
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    _add_test(actions)
    _add_history(actions)


def _add_test(actions: Any) -> None:
    test = actions.add_parser(
        "test",
        help="ask a source for one metric",
        description=_TEST,
        epilog=_TEST_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    question.add_arguments(test)
    test.set_defaults(run=run_test)


def _add_history(actions: Any) -> None:
    parser = actions.add_parser(
        "history",
        help="show a metric over time, as a graph and a table",
        description=history.DESCRIPTION,
        epilog=history.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    question.add_arguments(parser)
    history.add_arguments(parser)
    parser.set_defaults(run=run_history)


def run(args: argparse.Namespace) -> int:
    """Prints a table of sources; 0 if all work, else 1. Raises Failure or SettingsError."""
    if args.config is not None:
        _log_to_stderr()
        rows = asyncio.run(_build_each(config.load(args.config, {}).sources))
    else:
        rows = client.ask(args, "/api/sources")
    if args.output == "json":
        print(json.dumps(rows, indent=2))
    else:
        _print_table(rows)
    return 1 if any(row["state"] in _UNHEALTHY for row in rows) else 0


def run_test(args: argparse.Namespace) -> int:
    """0 if there was a sample, else 1; raises Failure or SettingsError."""
    _log_to_stderr()
    return asyncio.run(probe(config.load(args.file, {}), args))


def run_history(args: argparse.Namespace) -> int:
    """0 if there was a value at any time, else 1; raises Failure or SettingsError."""
    _log_to_stderr()
    return asyncio.run(history.run(config.load(args.file, {}), args))


def _log_to_stderr() -> None:
    """Sends the errors that adapters log to standard error, apart from the answer."""
    logs.configure("error", "text")


async def _build_each(sources: Sequence[SourceSettings]) -> list[dict[str, Any]]:
    """Builds each source without asking it for a metric; one row per source."""
    make = plugins.Contexts(clocks.SystemClock())
    rows = []
    for source in sources:
        row: dict[str, Any] = {"name": source.name, "adapter": source.adapter, "state": "ok", "lastError": None}
        try:
            async with question.opened(source, make):
                pass
        except AdapterError as error:
            row |= {"state": "broken", "lastError": error.message}
        rows.append(row)
    return rows


def _print_table(rows: Iterable[Mapping[str, Any]]) -> None:
    """Prints one row per source. The last error is the last column, since it may take several lines."""
    now = clocks.SystemClock().now()
    cells: list[tuple[str, ...]] = [("NAME", "ADAPTER", "STATE", "LATENCY", "HIT-RATE", "ERROR-AGE", "LAST-ERROR")]
    cells += [_cells(row, now) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) - 1)]
    indent = sum(widths) + 2 * len(widths)
    for row in cells:
        padded = (text.ljust(width) for text, width in zip(row[:-1], widths, strict=True))
        print(output.wrapped("  ".join((*padded, row[-1])), indent))


def _cells(row: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    latency, asked, erred = row.get("latency"), row.get("asked"), row.get("lastErrorAt")
    return (
        row["name"],
        row["adapter"],
        row["state"],
        "-" if latency is None else f"{latency * 1000:.0f}ms",
        "-" if not asked else f"{100 * row['hits'] / asked:.0f}%",
        "-" if erred is None else output.age((now - datetime.fromisoformat(erred)).total_seconds()),
        _cause(row),
    )


def _cause(row: Mapping[str, Any]) -> str:
    """The last error, without the names of source and adapter, which have columns of their own."""
    text = " ".join((row.get("lastError") or "-").split())
    named = f'source "{row["name"]}"'
    for prefix in (f'{named} (adapter "{row["adapter"]}"): ', f"{named}: ", f"{named} "):
        if text.startswith(prefix):
            return text.removeprefix(prefix)
    return text
