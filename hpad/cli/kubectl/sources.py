"""`kubectl hpad sources`: the metric sources of the replicas that decide."""

import argparse
from typing import Any, Final

from hpad.cli import output, source_table
from hpad.cli.kubectl import connection, flags
from hpad.cli.kubectl.fleet import Answered
from hpad.clock import SystemClock

_EPILOG: Final = """\
examples:
  kubectl hpad sources                        the metric sources: state, latency, hit rate, last error
  kubectl hpad sources -o json | jq '.items[] | select(.state != "ok")'

states: ok; failing (the last call brought no answer); open (its circuit breaker is open: no calls during its cooldown);
trial (a first call after that); idle (no query yet); broken (cannot be built). HIT-RATE is the fraction of queries
answered from the cache.

exit status: 0 if all sources work, 1 if a source is broken, failing or open, or if no hpad answers; 2 wrong use
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "sources",
        help="show the state of the metric sources",
        description="Show the state of the metric sources of the hpad in a cluster.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    flags.add_to_command(parser, ("wide", "json", "yaml"))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints a table of sources; 0 if all work, else 1. Raises Failure."""
    with connection.opened(args) as (fleet, _, _):
        answers = fleet.each("/api/v1/sources")
    rows = [row for each in answers for row in _rows(each, several=len(answers) > 1)]
    if args.output in ("json", "yaml"):
        flags.show({"items": rows}, args.output)
    else:
        output.show_table(_table(rows))
    return 1 if any(row["state"] in source_table.UNHEALTHY for row in rows) else 0


def _rows(answered: Answered, *, several: bool) -> list[dict[str, Any]]:
    """Returns the sources of one replica, with its name if there are several."""
    named = {"replica": answered.replica} if several else {}
    return [{**named, **row} for row in answered.answer["items"]]


def _table(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    now = SystemClock().now()
    several = any("replica" in row for row in rows)
    table = [(*(("REPLICA",) if several else ()), *source_table.COLUMNS)]
    table += [(*((row["replica"],) if several else ()), *source_table.cells(row, now)) for row in rows]
    return table
