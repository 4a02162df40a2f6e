"""What the programs `hpad` and `kubectl-hpad` share: the parser, and how errors become messages and exit statuses."""

import argparse
import errno
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from hpad.cli import output
from hpad.cli.output import Failure

_INTERRUPTED: Final = 130  # 128 and the number of the signal, as shells report it: SIGINT
_BROKEN_PIPE: Final = 141  # SIGPIPE


class Parser(argparse.ArgumentParser):
    """A parser that keeps the line breaks of descriptions and examples, as do the parsers of its subcommands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        self._splits = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses as argparse, and also takes options between the files of a list, such as `a.yaml --flag b.yaml`.

        argparse gives a list only the arguments up to the first option, unless all options are parsed first.
        """
        lists = any(action.nargs in ("*", "+", "?") for action in self._get_positional_actions())
        if not lists or self._splits or "--" in (args or ()):
            return super().parse_known_args(args, namespace)
        self._splits = True  # it calls this method, twice
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._splits = False


def run(program: str, parse: Callable[[], argparse.Namespace]) -> int:
    """Parses the arguments, runs the command `args.run(args)`, and returns the exit status."""
    with output.printing():
        return _run(program, parse)


def _run(program: str, parse: Callable[[], argparse.Namespace]) -> int:
    try:
        args = parse()
        status: int = args.run(args)
        if sys.stdout is not None:  # None if the caller closed it
            sys.stdout.flush()  # here, since the interpreter would report a full disk with a traceback
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _discard_buffered_output()
        return _BROKEN_PIPE
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:  # standard output names no file
            raise
        _discard_buffered_output()
        print(f"{program}: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    except (Failure, ValueError) as error:
        # A ValueError of another package is a bug: only the message of hpad's own errors suffices.
        if type(error).__module__.partition(".")[0] != "hpad":
            raise
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    return status


def _discard_buffered_output() -> None:
    """Sends buffered output to /dev/null, so that the interpreter does not raise again when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
