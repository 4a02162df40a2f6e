"""`kubectl hpad history`: the past decisions for an HPA, one line each, as `hpad explain --last` lists them."""

import argparse
from typing import Any, Final

from hpad.api.text import shown
from hpad.cli import explain, moments
from hpad.cli.kubectl import connection, flags, names
from hpad.cli.kubectl.explain import chosen

_LAST: Final = 20
_MOST: Final = 1000
_EPILOG: Final = f"""\
examples:
  kubectl hpad history web                      the last {_LAST} decisions
  kubectl hpad history deployment/web --last 100
  kubectl hpad history web --since 2h           all decisions of the last two hours
  kubectl hpad history web -o json              with what each metric asked for

A TIME is {moments.FORMS}.
Times in the output are UTC. `kubectl hpad explain NAME --at TIME` explains one of the decisions.

exit status: 0 success; 1 if there is no such HPA, no decision in that time, or hpad does not answer; 2 wrong use
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "history",
        help="list the past decisions for an HPA",
        description="List the past decisions for an HPA, one line each, the newest last.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="NAME, hpa/NAME or deployment/NAME")
    parser.add_argument("--last", metavar="N", type=_count, help=f"the last N decisions (default: {_LAST})")
    parser.add_argument("--since", metavar="TIME", help="the decisions since that time, or of that duration")
    flags.add_to_command(parser, ("text", "json", "yaml"))
    parser.set_defaults(run=run, at=None, watch=False, pods=False, save=None, color="auto")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= _MOST:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a number from 1 to {_MOST}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Lists the decisions. Raises Failure."""
    if args.last is None and args.since is None:
        args.last = _LAST
    args.output = args.output or "text"
    named = names.parse(args.name)
    with connection.opened(args) as opened:
        args.namespace, args.name = chosen(opened, named)
        return explain.show(opened.reader, args)
