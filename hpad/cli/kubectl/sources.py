"""`kubectl hpad sources`: the metric sources of the hpad that decides."""

import argparse
from typing import Any, Final

from hpad.cli import output, source_table
from hpad.cli.kubectl import connection, flags
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
    with connection.opened(args) as (reader, _):
        rows = reader.get("/api/v1/sources")["items"]
    if args.output in ("json", "yaml"):
        flags.show({"items": rows}, args.output)
    else:
        now = SystemClock().now()
        output.show_table([source_table.COLUMNS, *(source_table.cells(row, now) for row in rows)])
    return 1 if any(row["state"] in source_table.UNHEALTHY for row in rows) else 0
