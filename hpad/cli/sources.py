"""`hpad sources`: how the metric sources fare, whether they are configured well, and what they answer."""

import argparse
import asyncio
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from hpad import clock, settings
from hpad.adapter import AdapterError
from hpad.cli import history, probe, question, terminal, window
from hpad.daemon import logs
from hpad.sources import direct, plugins

_EPILOG = """\
examples:
  hpad sources                                  the sources of the hpad that runs here: state, last error, latency
  hpad sources --address https://10.0.0.7:8473 --cacert ca.crt --token-file token -o json
                                                of another one that is guarded, as JSON
  hpad sources --config hpad.yaml               offline: are they configured well?
  hpad sources test --config hpad.yaml rabbitmq queue_messages_ready --selector queue=orders
                                                ask one metric, and see what an HPA would
  hpad sources history --config hpad.yaml prometheus requests_per_second --since 6h
                                                what it was, as a graph and a table

states: ok; failing (the last call gave nothing); open (left alone, but for a call now and then); trial (being tried
again); idle (not asked yet); broken (cannot be built). HIT-RATE is the part of the questions that took no call,
ERROR-AGE how long ago the last error was, which may be over.
The exit status is 1 if a source is broken or fails.
"""
_TEST = """\
Ask one metric as an HPA that names it would: through `routes`, `match` and `namespaces` of the configuration, within
the time that a reconcile waits. Shows what the source was asked (the PromQL, with every variable filled in) and what
the HPA would see.
"""
_TEST_EPILOG = """\
examples:
  hpad sources test --config hpad.yaml rabbitmq queue_messages_ready --selector queue=orders
  hpad sources test --config hpad.yaml prometheus cpu --type Resource -n shop --pods app=web
  hpad sources test --config hpad.yaml -o json prometheus checkout_requests_per_second
                                     {"source", "query", "value" or "pods", "timestamp"} or {"error", "blame"}

The exit status is 0 if there was a sample, 1 if there was none, if the source has no such metric or if HPAs get it from
another source, 2 for wrong use.
"""
_ILL = ("broken", "failing", "open")


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    parser = commands.add_parser(
        "sources",
        help="how the metric sources fare",
        description="Show how the metric sources fare; check their configuration; ask one of them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="check the sources of this file, offline")
    window.add_arguments(parser)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text (default) or json")
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    _add_test(actions)
    _add_history(actions)


def _add_test(actions: Any) -> None:
    test = actions.add_parser(
        "test",
        help="ask a source one metric",
        description=_TEST,
        epilog=_TEST_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    question.add_arguments(test)
    test.set_defaults(run=run_test)


def _add_history(actions: Any) -> None:
    shown = actions.add_parser(
        "history",
        help="what a metric was over time, as a graph and a table",
        description=history.DESCRIPTION,
        epilog=history.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    question.add_arguments(shown)
    history.add_arguments(shown)
    shown.set_defaults(run=run_history)


def run(args: argparse.Namespace) -> int:
    """0 if all is well with all sources, else 1; raises Failure or SettingsError."""
    if args.config is not None:
        _log()
        rows = asyncio.run(_checked(settings.load(args.config, os.environ, {}).sources))
    else:
        rows = window.ask(args, "/api/sources")
    if args.output == "json":
        print(json.dumps(rows, indent=2))
    else:
        _print_table(rows)
    return 1 if any(row["state"] in _ILL for row in rows) else 0


def run_test(args: argparse.Namespace) -> int:
    """0 if there was a sample, else 1; raises Failure or SettingsError."""
    _log()
    return asyncio.run(probe.probe(_read(args), args))


def run_history(args: argparse.Namespace) -> int:
    """0 if there was a value at any time, else 1; raises Failure or SettingsError."""
    _log()
    return asyncio.run(history.run(_read(args), args))


def _log() -> None:
    """What an adapter logs goes to standard error, beside the answer."""
    logs.configure("error", "text")


def _read(args: argparse.Namespace) -> settings.Settings:
    named = os.environ.get("HPAD_CONFIG")
    return settings.load(args.file or (Path(named) if named else None), os.environ, {})


async def _checked(sources: Sequence[settings.SourceSettings]) -> list[dict[str, Any]]:
    """Build each source without asking it anything."""
    make = plugins.Contexts(clock.SystemClock())
    rows = []
    for source in sources:
        row: dict[str, Any] = {"name": source.name, "adapter": source.adapter, "state": "ok", "lastError": None}
        try:
            async with direct.opened(source, make):
                pass
        except AdapterError as error:
            row |= {"state": "broken", "lastError": error.message}
        rows.append(row)
    return rows


def _print_table(rows: Iterable[Mapping[str, Any]]) -> None:
    """The last error comes last: it may take several lines of a terminal."""
    now = clock.SystemClock().now()
    cells: list[tuple[str, ...]] = [("NAME", "ADAPTER", "STATE", "LATENCY", "HIT-RATE", "ERROR-AGE", "LAST-ERROR")]
    cells += [_cells(row, now) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) - 1)]
    indent = sum(widths) + 2 * len(widths)
    for row in cells:
        padded = (text.ljust(width) for text, width in zip(row[:-1], widths, strict=True))
        print(terminal.wrapped("  ".join((*padded, row[-1])), indent))


def _cells(row: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    latency, asked, erred = row.get("latency"), row.get("asked"), row.get("lastErrorAt")
    return (
        row["name"],
        row["adapter"],
        row["state"],
        "-" if latency is None else f"{latency * 1000:.0f}ms",
        "-" if not asked else f"{100 * row['hits'] / asked:.0f}%",
        "-" if erred is None else terminal.age((now - datetime.fromisoformat(erred)).total_seconds()),
        _cause(row),
    )


def _cause(row: Mapping[str, Any]) -> str:
    """The last error, without the names that stand in the row already."""
    text = " ".join((row.get("lastError") or "-").split())
    named = f'source "{row["name"]}"'
    for prefix in (f'{named} (adapter "{row["adapter"]}"): ', f"{named}: ", f"{named} "):
        if text.startswith(prefix):
            return text.removeprefix(prefix)
    return text
