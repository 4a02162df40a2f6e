"""`hpad sources test`: one question, through everything that stands between an HPA and its adapter."""

import argparse
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from hpad import clock as clocks
from hpad import settings
from hpad.adapter import AdapterError, Answer, ObjectSample, PodSample, Quantity
from hpad.api.metadata import Key
from hpad.cli import question, terminal
from hpad.sources import direct, limits, manager, plugins

_UNANSWERED = "keeps its replicas, unless another metric asks for more or a fallback applies"


class Outcome(NamedTuple):
    """What came of the question: `query` is what the source was asked (None: its adapter does not tell)."""

    asked: question.Question
    query: str | None
    answer: Answer
    seconds: float
    age: float


async def probe(told: settings.Settings, args: argparse.Namespace) -> int:
    """Ask and print; 0 if there was a sample, 1 if there was an error. Raises Failure for a question that is none."""
    asked = await question.read(told, args)
    clock = clocks.SystemClock()
    async with question.Cluster(told, args, clock) as make:
        outcome = await _outcome(told, asked, Key(args.namespace, args.hpa or "test"), make)
    if args.output == "json":
        print(json.dumps(_as_json(outcome), indent=2, ensure_ascii=False))
    else:
        terminal.show(_as_text(outcome))
    return 1 if isinstance(outcome.answer, AdapterError) else 0


async def _outcome(told: settings.Settings, asked: question.Question, key: Key, make: plugins.Contexts) -> Outcome:
    """Ask as an HPA of that name would; raises Failure where its question would not come to that source."""
    clock, period = make.clock, told.sync_period.total_seconds()
    gatherer = manager.Gatherer(told.sources, told.routes, contexts=make, period=period)
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
    """What the source is asked; None where that cannot be told (the answer says why)."""
    try:
        async with direct.opened(asked.source, make) as adapter:
            return await direct.explained(adapter, direct.asked_by(adapter, asked.query, asked.asker))
    except AdapterError:
        return None


def heading(asked: question.Question, text: str | None) -> Iterator[str]:
    """The question in words, and what the source is asked for it."""
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
    """The same for programs; values are quantities, as Kubernetes writes them."""
    seconds = round(outcome.seconds, 3)
    return {**described(outcome.asked, outcome.query), "seconds": seconds, **answered(outcome.answer)}


def described(asked: question.Question, text: str | None) -> dict[str, Any]:
    """The question for programs."""
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
    """An answer for programs."""
    if isinstance(answer, AdapterError):
        return {"error": answer.message, "blame": answer.blame}
    found: dict[str, Any] = {"timestamp": answer.timestamp.isoformat()}
    if isinstance(answer, PodSample):
        return {**found, "pods": {pod: _written(value.value) for pod, value in sorted(answer.values.items())}}
    values = (answer.value,) if isinstance(answer, ObjectSample) else answer.values
    return {**found, "value": _written(sum(values)), "values": [_written(value) for value in values]}


def _written(milli: int) -> str:
    return str(Quantity.from_milli(milli))
