"""The plugin of kubectl, `kubectl hpad`: asks the hpad of a cluster, with the user's own access to the cluster.

The commands are those of `status` and of `commands`.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, Final, NoReturn

from hpad.cli import program
from hpad.cli.kubectl import commands, flags, status

_COMMANDS: Final = (
    commands.add_explain,
    status.add_parser,
    commands.add_history,
    commands.add_sources,
    commands.add_version,
)
_PROGRAM: Final = "kubectl-hpad"
_EPILOG: Final = """\
examples:
  kubectl hpad status                      the HPAs of the current namespace: their state, and what holds their count
  kubectl hpad status -A -o wide           those of all namespaces, with the last decision in one sentence
  kubectl hpad explain web                 why the HPA web has its replica count, and what would change it
  kubectl hpad history deployment/web      the past decisions for the HPA that scales the Deployment web
  kubectl hpad sources                     the metric sources: state, last error, latency
  kubectl hpad status --context staging --service hpad/hpad --token-file token --cacert ca.crt
                                           an hpad that asks for a token

exit status: 0 success, 1 a failure that standard error explains, 2 wrong use, 130 after Ctrl-C.
`kubectl hpad COMMAND --help` describes a command with examples.
"""
_DESCRIPTION: Final = """\
Asks the hpad of a cluster what it decides and why.

hpad is found by the label app.kubernetes.io/name=hpad of its Service or pods, and reached by
`kubectl port-forward`, with your kubeconfig and credentials; or at --address or HPAD_LISTEN. Of several
replicas, the one that decides is asked.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. `argv`: arguments without the program (default: the process's)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    before = {number: signal.signal(number, _stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        return program.run(_PROGRAM, lambda: _parse(arguments))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """Ends the process in order, so that the children end with it."""
    raise SystemExit(128 + number)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments. At a mistake, ends the process with status 2 and suggests the nearest option."""
    parser, subparsers = make_parser()
    args, unknown = parser.parse_known_args(arguments, argparse.Namespace(**flags.DEFAULTS))
    if unknown:
        _take(unknown, args, subparsers.choices[args.command])
    if args.namespace is not None and args.all_namespaces:
        parser.error("-n/--namespace and -A/--all-namespaces exclude each other")
    return args


def _take(unknown: Sequence[str], args: argparse.Namespace, command: argparse.ArgumentParser) -> None:
    """Adds names that stand behind flags, which argparse does not take; ends the process for anything else."""
    if hasattr(args, "names") and not any(each.startswith("-") for each in unknown):
        args.names += unknown
        return
    suggestion = program.near_option(unknown[0], command)
    text = f"{command.prog}: unknown: {' '.join(unknown)}{suggestion}"
    command.exit(2, f"{text}\n`{command.prog} --help` lists all flags.\n")


def make_parser() -> tuple[argparse.ArgumentParser, Any]:
    """Returns the parser of the plugin, and the parsers of its commands."""
    parser = program.CommandParser(prog="kubectl hpad", description=_DESCRIPTION, epilog=_EPILOG, allow_abbrev=False)
    flags.add_arguments(parser)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, dest="command")
    for add in _COMMANDS:
        add(subparsers)
    return parser, subparsers
