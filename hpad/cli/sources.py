"""`hpad sources`: the state of the metric sources, and one metric as an HPA sees it.

`hpad sources test` queries through routing, limits and cache, as a reconcile does.
"""

import argparse
import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from hpad.adapter import AdapterError, Answer, ObjectSample, PodSample
from hpad.cli import client, flags, offline, output, program, sources_request
from hpad.cli.sources_request import MetricRequest, quantity
from hpad.clock import SystemClock
from hpad.daemon import logs
from hpad.engine.styled import line
from hpad.settings import Settings
from hpad.sources import limits, plugins

HELP: Final = "show the state of the metric sources, or read a metric of one"
DESCRIPTION: Final = "Show the state of the metric sources of a running hpad, or read one metric."
EPILOG: Final = """\
examples:
  hpad sources                                  the sources of the hpad that runs here: state, last error, latency
  hpad sources --address https://10.0.0.7:8473 --cacert ca.crt --token-file token -o json
                                                the sources of a remote hpad that authenticates its clients, as JSON
  hpad sources test --config hpad.yaml rabbitmq queue_messages_ready --selector queue=orders
                                                one metric, as an HPA would see it

states: ok; failing (the last call brought no answer); open (its circuit breaker is open: no calls during its cooldown);
trial (a first call after that); idle (no query yet); broken (cannot be built).
HIT-RATE is the fraction of queries answered from the cache. ERROR-AGE is the time since the last error, even if calls
have succeeded since.

exit status: 0 if all sources work, 1 if a source is broken, failing or open, or if no hpad answers; 2 for wrong use
"""
_TEST: Final = """\
Read one metric as an HPA that names it would: through `routes`, `match` and `namespaces` of the configuration, within
the time that a reconcile waits. Shows the query in the language of the source (such as PromQL with all variables filled
in), and what the HPA would see.
"""
_TEST_EPILOG: Final = """\
examples:
  hpad sources test --config hpad.yaml rabbitmq queue_messages_ready --selector queue=orders
  hpad sources test --config hpad.yaml prometheus cpu --type Resource -n shop --pods app=web
  hpad sources test --config hpad.yaml prometheus orders -n shop --parameters '{query: sum(orders)}'
                                     a query that an Autoscaler brings along
  hpad sources test --config hpad.yaml -o json prometheus checkout_requests_per_second
                                     {"source", "query", "value" or "pods", "timestamp"} or {"error", "blame"}

exit status: 0 if there was a sample; 1 if there was none, if the source has no such metric, or if HPAs get it from
another source; 2 for wrong use
"""
_UNANSWERED: Final = "keeps its replicas, unless another metric proposes more or a fallback applies"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    client.add_arguments(parser)
    output.add_format(parser)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    test = program.add_command(actions, "test", run_test, "read one metric of a source", _TEST, _TEST_EPILOG)
    sources_request.add_arguments(test)


def run(args: argparse.Namespace) -> int:
    """Prints a table of sources; 0 if all work, else 1. Raises Failure or SettingsError."""
    rows = client.reader(args).get("/api/v1/sources")["items"]
    return client.show_sources(rows, rows, args.output)


def run_test(args: argparse.Namespace) -> int:
    """Runs `sources test`. 0 if there was a value, else 1; raises Failure or SettingsError."""
    logs.configure("error", "text")  # errors of adapters go to standard error
    return asyncio.run(_test(flags.load(args.config), args))


async def _test(settings: Settings, args: argparse.Namespace) -> int:
    """Reads one metric and prints it; 0 for a sample, 1 for an error. Raises Failure for an invalid request."""
    request = await sources_request.read(settings, args)
    deadline = settings.sync_period.total_seconds() * limits.PATIENCE
    async with offline.contexts(settings, args) as make:
        async with offline.gatherer(settings, make) as gatherer:
            request = sources_request.routed(gatherer, request)
            began = make.clock.monotonic()
            [answer] = await gatherer.gather([request.query], deadline=deadline, identity=request.hpa)
            seconds = make.clock.monotonic() - began
        explanation = await _explained(request, make)
    if args.output == "json":
        fields = sources_request.request_fields(request, explanation) | {"seconds": round(seconds, 3)}
        output.print_value(fields | sources_request.answer_fields(answer), "json")
    else:
        for text in sources_request.heading(request, explanation):
            print(text)  # in one line: the query is for copying
        lines = [f"took:       {seconds:.3f}s", *_as_text(answer)]
        output.show_lines((line(each, hang=12) for each in lines), most=None)
    return 1 if isinstance(answer, AdapterError) else 0


async def _explained(request: MetricRequest, make: plugins.Contexts) -> str | None:
    """Returns the query in the language of the source; None if the adapter fails (the answer then has the reason)."""
    try:
        async with offline.adapter(request.source, make) as (adapter, _):
            return await sources_request.explained(adapter, sources_request.for_hpa(adapter, request))
    except AdapterError:
        return None


def _written(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def _as_text(answer: Answer) -> Iterator[str]:
    if isinstance(answer, AdapterError):
        yield f"error:      {answer.message}"
        yield f"blame:      {answer.blame}"
        yield f"an HPA:     {_UNANSWERED}"
        return
    age = (SystemClock().now() - answer.timestamp).total_seconds()
    yield f"timestamp:  {_written(answer.timestamp)} ({abs(age):.1f}s {'ahead' if age < 0 else 'ago'})"
    if isinstance(answer, PodSample):
        count = len(answer.values)
        yield f"an HPA:     sees the value{'' if count == 1 else 's'} of {count} pod{'' if count == 1 else 's'}"
        for pod, value in sorted(answer.values.items()):
            seconds = value.window.total_seconds()
            yield f"  {pod}: {quantity(value.value)} over {seconds:g}s to {_written(value.timestamp)}"
    elif isinstance(answer, ObjectSample):
        yield f"an HPA:     sees {quantity(answer.value)}"
    else:
        of = f", the sum of {len(answer.values)} values" if len(answer.values) > 1 else ""
        yield f"an HPA:     sees {quantity(sum(answer.values))}{of}"
        if answer.note:
            yield f"note:       {answer.note}"
