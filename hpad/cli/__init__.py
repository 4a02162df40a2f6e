"""The command line `hpad`: one file per command.

Each has the texts HELP, DESCRIPTION and EPILOG, `add_arguments(parser)`, and `run(args) -> exit status`, unless all its
actions have one of their own.

Exit status 0 is success, 1 a failure that one line on stderr explains, 2 wrong use, 130 an interrupt (Ctrl-C).
"""

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import hpad
from hpad.cli import program

COMMANDS: Final = (
    *("run", "demo", "cluster", "explain", "replay", "redact", "simulate", "backtest", "advise", "shadow-report"),
    *("check", "convert", "sources", "adapters", "notify", "doctor", "config", "completion", "version"),
)
_DESCRIPTION: Final = """\
Scales Kubernetes workloads as the HorizontalPodAutoscaler controller does, with metrics from the Kubernetes metrics
APIs, RabbitMQ, Prometheus and other sources."""
_EPILOG: Final = """\
examples:
  hpad run --kubeconfig ~/.kube/config --dry-run   what hpad would decide in a cluster; it writes nothing
  hpad doctor --kubeconfig ~/.kube/config          check whether hpad can work there
  hpad explain -n shop web                         why the HPA web has its replica count, and what would change it
  hpad advise --prometheus http://localhost:9090   what is wrong with the HPAs of a cluster, and what would be better
  hpad check web.yaml                              check whether an HPA is valid
  hpad demo                                        real processes being scaled on this machine

In a cluster, `kubectl hpad` asks the hpad that runs there. `hpad COMMAND --help` describes a command with examples.

exit status: 0 success, 1 a failure that one line on standard error explains, 2 wrong use, 130 after Ctrl-C; the help
of a command lists its own.
"""
_PREFIX: Final = "--horizontal-pod-autoscaler-"
_RETIRED_FLAGS: Final = {
    f"{_PREFIX}upscale-delay": (
        "was removed in Kubernetes 1.31 and has had no effect since 1.12: leave it out; to make an HPA grow more "
        "slowly, set stabilizationWindowSeconds or policies in spec.behavior.scaleUp"
    ),
    f"{_PREFIX}downscale-delay": (
        "was removed in Kubernetes 1.31 and has had no effect since 1.12: write "
        f"{_PREFIX}downscale-stabilization, or spec.behavior.scaleDown.stabilizationWindowSeconds in an HPA"
    ),
}
"""Flags of kube-controller-manager up to 1.30: what became of each, and what to write instead.

Source: kubernetes/kubernetes pull request 124948.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. `argv`: arguments without the program (default: the process's)."""
    if argv is None:
        program.collect_seldom()
    arguments = list(sys.argv[1:] if argv is None else argv)
    return program.run("hpad", lambda: _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments. At a mistake, ends the process with status 2 and suggests the nearest option."""
    parser, commands = make_parser(arguments)
    # argparse would report only that a command is required.
    if (
        arguments
        and arguments[0].startswith("-")
        and arguments[0].partition("=")[0] not in parser._option_string_actions
    ):
        parser.error(_too_early(arguments, parser, commands.choices))
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        command = program.called(parser, arguments)
        assert isinstance(command, program.CommandParser)
        command.exit(2, _refusal(command, unknown))
    return args


def _too_early(
    arguments: Sequence[str], parser: argparse.ArgumentParser, commands: Mapping[str, argparse.ArgumentParser]
) -> str:
    """Says where an option that is before the command belongs: behind a command that has it, if any does."""
    option = arguments[0].partition("=")[0]
    having = [name for name, command in commands.items() if option in command._option_string_actions]
    named = [name for name in arguments[1:] if name in having]
    if not having:
        return f"unknown: {option}{program.near_option(option, parser)}"
    return f"{option} comes too early: options follow the command, as in `hpad {(named or having)[0]} {arguments[0]}`"


def _refusal(command: program.CommandParser, unknown: Sequence[str]) -> str:
    """Returns the message on unknown arguments: a line for each retired flag of Kubernetes or hpad, else one line."""
    from hpad import settings  # imported late, since only a mistake needs it

    removed = {f"--{name.replace('_', '-')}": f"was removed: {text}" for name, text in settings.REMOVED.items()}
    retired = {**_RETIRED_FLAGS, **removed}
    names = dict.fromkeys(each.partition("=")[0] for each in unknown)
    sentences = [f"{name} {retired[name]}" for name in names if name in retired]
    if not sentences:  # else some may be the values of retired flags
        suggestion = program.near_option(unknown[0], command)
        sentences.append(f"unknown: {' '.join(unknown)}{suggestion}")
    lines = [f"{command.prog}: {sentence}\n" for sentence in sentences]
    return "".join([*lines, f"{command.lists_all}\n"])


def make_parser(arguments: Sequence[str]) -> tuple[argparse.ArgumentParser, Any]:
    """Returns the parser of the program, and the parsers of its commands: only that of the command that comes first."""
    parser = program.CommandParser(
        prog="hpad",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"hpad {hpad.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    # Imports only the command that is called, since imports take most of the time of a short command.
    for name in arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS:
        add(commands, name)
    return parser, commands


def add(commands: Any, name: str) -> None:
    """Adds the command of this name to argparse's subparsers."""
    module = importlib.import_module(f"hpad.cli.{name.replace('-', '_')}")
    run = getattr(module, "run", None)
    module.add_arguments(program.add_command(commands, name, run, module.HELP, module.DESCRIPTION, module.EPILOG))
