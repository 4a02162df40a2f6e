"""The command line: one file a command, each with `add_parser(commands)` and `run(args) -> exit status`.

Status 0 is success, 1 a failure that one line on stderr explains, 2 wrong use, 130 an interrupt.
"""

import argparse
import difflib
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import hpad
from hpad.cli import output, retired
from hpad.cli.output import Failure

COMMANDS: Final = (
    *("run", "demo", "cluster", "replay", "check", "convert"),
    *("sources", "adapters", "doctor", "config", "version"),
)
_INTERRUPTED: Final = 130
_BROKEN_PIPE: Final = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. `argv` is that of the process unless given (without the program)."""
    with output.printing():
        return _run(list(sys.argv[1:] if argv is None else argv))


def _run(arguments: Sequence[str]) -> int:
    try:
        args = _parsed(arguments)
        status: int = args.run(args)
        if sys.stdout is not None:  # as it is where the caller has closed it
            sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _write_no_more()
        return _BROKEN_PIPE
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:  # what names no file was printed
            raise
        _write_no_more()
        print(f"hpad: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    except Exception as error:
        if not _expected(error):
            raise
        print(f"hpad: {error}", file=sys.stderr)
        return 1
    return status


def _write_no_more() -> None:
    """Drop what is still buffered, which would raise again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for; ends the process with status 2 at a mistake, with the option that was probably meant."""
    parser, commands = _parser(arguments)
    if (
        arguments
        and arguments[0].startswith("-")
        and arguments[0].partition("=")[0] not in parser._option_string_actions
    ):
        parser.error(f"{arguments[0]} comes too early: options follow the command, as in `hpad run {arguments[0]}`")
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        called = commands.choices[next(name for name in arguments if name in commands.choices)]
        called.exit(2, _refusal(called, unknown))
    return args


def _refusal(called: argparse.ArgumentParser, unknown: Sequence[str]) -> str:
    """What to print about arguments that the command does not take: a line each for flags of old versions of
    Kubernetes, one for all others."""
    sentences, rest = retired.advice(unknown)
    if rest:
        near = difflib.get_close_matches(rest[0].partition("=")[0], called._option_string_actions, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        sentences.append(f"unknown: {' '.join(rest)}{hint}")
    lines = [f"{called.prog}: {sentence}\n" for sentence in sentences]
    return "".join([*lines, f"`{called.prog} --help` tells all.\n"])


def _parser(arguments: Sequence[str]) -> tuple[argparse.ArgumentParser, Any]:
    """The program's parser, and the parsers of the commands."""
    parser = argparse.ArgumentParser(
        prog="hpad",
        description="Scales Kubernetes workloads as the HorizontalPodAutoscaler controller does.",
        epilog="`hpad COMMAND --help` tells all about a command.",
    )
    parser.add_argument("--version", action="version", version=f"hpad {hpad.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in _needed(arguments):
        importlib.import_module(f"hpad.cli.{name}").add_parser(commands)
    return parser, commands


def _needed(arguments: Sequence[str]) -> Sequence[str]:
    """The commands whose files have to be read: the one that is called, else (for --help and mistakes) all."""
    if arguments and arguments[0] in COMMANDS:
        return arguments[:1]
    return COMMANDS


def _expected(error: Exception) -> bool:
    """Whether an error was foreseen, and so says all there is to say: hpad's own, not a bug's."""
    own = type(error).__module__.partition(".")[0] == "hpad"
    return isinstance(error, Failure) or (own and isinstance(error, ValueError))
