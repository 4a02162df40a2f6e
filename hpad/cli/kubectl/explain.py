"""`kubectl hpad explain`: why an HPA has its replica count, as `hpad explain` shows it."""

import argparse
from typing import Any, Final

from hpad.cli import explain, moments
from hpad.cli.kubectl import connection, flags, names
from hpad.cli.kubectl.connection import HpadConnection

_DESCRIPTION: Final = """\
Explain the last decision for an HPA, or an earlier one: its metrics with their samples and pods, how they became the
replica count, and what would have to change for the next step."""
_EPILOG: Final = f"""\
examples:
  kubectl hpad explain web                    why the HPA web has its count, and what comes next
  kubectl hpad explain deployment/web         the HPA that scales the Deployment web
  kubectl hpad explain web --at 02:40        the decision in force when it was last 02:40, local time
  kubectl hpad explain web --watch            the last decision, then each new one, until Ctrl-C
  kubectl hpad explain web --pods             all pods of each metric
  kubectl hpad explain web --save web.jsonl   the last minutes as a recording, for `hpad replay`
  kubectl hpad explain web -o json            every number, as the API gives it

A TIME is {moments.FORMS}.
Times in the output are UTC.

exit status: 0 success; 1 if there is no such HPA, no decision at that time, or hpad does not answer; 2 wrong use;
130 after Ctrl-C
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "explain",
        help="explain why an HPA has its replica count",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="NAME, hpa/NAME or deployment/NAME")
    explain.add_arguments(parser)
    flags.add_to_command(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Explains as the arguments say. Raises Failure."""
    named = names.parse(args.name)
    with connection.opened(args) as opened:
        args.namespace, args.name = chosen(opened, named)
        return explain.show(opened.reader, args)


def chosen(opened: HpadConnection, named: names.Named) -> tuple[str, str]:
    """Returns namespace and name of the HPA that the command line names; raises Failure."""
    if opened.namespace is not None and not named.kind:
        return opened.namespace, named.name
    return names.only(opened.reader, opened.namespace, named)
