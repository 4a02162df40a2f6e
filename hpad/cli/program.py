"""What the programs `hpad` and `kubectl-hpad` share: the parser, and how errors become messages and exit statuses."""

import argparse
import errno
import gc
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn

from hpad.api.text import closest, near, shown
from hpad.cli import output
from hpad.cli.output import Failure, WrongUse

_INTERRUPTED: Final = 130  # 128 and the number of the signal, as shells report it: SIGINT
_BROKEN_PIPE: Final = 141  # SIGPIPE
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The disk is full, or the user or the process has reached its limit."""


_SURROGATES: Final = re.compile("[\ud800-\udfff]")
"""What Python makes of bytes in arguments that are not UTF-8."""
_EXAMPLES: Final = "examples:"
_YOUNG: Final = 20_000
"""New objects, less those that were freed, between two searches among the new ones.

While all goes well that is minutes. Errors with their tracebacks are the garbage that is left: each search finds it.
"""
_MIDDLE: Final = 5
"""Searches among new objects between two among those that have survived one, as errors that are kept for a while do."""
_ALL: Final = 10
"""The same between two searches among all objects but those of `keep_all`."""


def collect_seldom() -> None:
    """Sets the thresholds of the garbage collector for a process of hpad: nearly everything is freed by its references.

    The collector looks for objects that only refer to each other. hpad makes next to none of them, but keeps many
    objects for each HPA: with Python's own thresholds the search takes a seventh of the CPU time at 2,000 HPAs, and
    each search among all objects stops the event loop for as long as 100 ms. It also takes a tenth of each start, since
    imported modules stay.
    """
    gc.set_threshold(_YOUNG, _MIDDLE, _ALL)


class HelpAll(argparse._HelpAction):
    """The flag that prints the help with the rare flags."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        assert isinstance(parser, CommandParser)
        parser._print_message(parser.format_help(whole=True), sys.stdout)
        parser.exit()


class CommandParser(argparse.ArgumentParser):
    """A parser that keeps the line breaks of descriptions and examples, as do the parsers of its subcommands.

    Its help begins with the examples, and leaves out the flags that `hide` names. A value that is none of the choices
    gets the nearest one as a suggestion.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        # argparse would take "-10m" for an unknown option, as it would "-10" without this expression.
        self._negative_number_matcher = re.compile(r"-[0-9.].*")
        self._splits = False
        self._rare: frozenset[str] = frozenset()

    def hide(self, rare: Iterable[str]) -> None:
        """Leaves the flags with these `dest` out of `--help`; `--help-all` shows them."""
        self.add_argument("--help-all", action=HelpAll, help="show this help with all flags, and exit")
        self._rare = frozenset(rare)

    @property
    def lists_all(self) -> str:
        """The sentence that names the help with all arguments."""
        return f"`{self.prog} {'--help-all' if self._rare else '--help'}` lists all arguments."

    def error(self, message: str) -> NoReturn:
        """Ends the process with status 2 and one sentence, which a usage of many lines would hide."""
        self.exit(2, f"{self.prog}: {message}\n{self.lists_all}\n")

    def format_help(self, *, whole: bool = False) -> str:
        """Returns the help: usage, description, examples, arguments, and the rest of the epilog."""
        paragraphs = (self.epilog or "").split("\n\n")
        first = [each for each in paragraphs if each.startswith(_EXAMPLES)]
        rest = [each for each in paragraphs if each and each not in first]
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        for text in filter(None, (self.description, *first)):
            formatter.add_text(text)
        for group in self._action_groups:
            actions = [each for each in group._group_actions if whole or each.dest not in self._rare]
            if actions:
                formatter.start_section(group.title)
                formatter.add_text(group.description)
                formatter.add_arguments(actions)
                formatter.end_section()
        formatter.add_text("\n\n".join([*rest, *([] if whole or not self._rare else [self.lists_all])]))
        return formatter.format_help()

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        """Parses a value; the parser itself says what is wrong with one."""
        try:
            return text if action.type is None else action.type(text)  # type: ignore[operator]  # no name of a registry
        except ValueError as error:
            raise argparse.ArgumentError(action, str(error)) from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(each) for each in action.choices]
        suggestion = near(str(value), tuple(known))
        raise argparse.ArgumentError(action, f"{shown(str(value))} is none of {', '.join(known)}{suggestion}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses as argparse, and also takes options between the files of a list, such as `a.yaml --flag b.yaml`.

        argparse gives a list only the arguments up to the first option, unless all options are parsed first.
        """
        broken = next((each for each in args or () if not each.isascii() and _SURROGATES.search(each)), None)
        if broken is not None:
            self.error(f"argument {shown(broken)} is not UTF-8")
        lists = any(action.nargs in ("*", "+", "?") for action in self._get_positional_actions())
        if not lists or self._splits or "--" in (args or ()):
            return super().parse_known_args(args, namespace)
        self._splits = True  # it calls this method, twice
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._splits = False


def near_option(argument: str, parser: argparse.ArgumentParser) -> str:
    """Returns a suggestion for a misspelt option, or "". Dashes do not count: all options would resemble each other."""
    known = {option.lstrip("-"): option for option in parser._option_string_actions}
    close = closest(argument.partition("=")[0].lstrip("-"), tuple(known))
    return "" if close is None else f"; did you mean {shown(known[close])}?"


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int] | None,
    text: str,
    description: str = "",
    epilog: str = "",
    **options: Any,
) -> argparse.ArgumentParser:
    """Adds a command, and returns its parser. `options` are those of argparse.

    `run` runs it; None: each of its actions has one. `text` is its line in the list of commands, and as a sentence the
    default of `description`.
    """
    description = description or f"{text[0].upper()}{text[1:]}."
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=description, epilog=epilog, **options
    )
    parser.set_defaults(run=run)
    return parser


def called(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Returns the parser of the command and subcommand that the arguments name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            name = next((each for each in arguments if each in action.choices), None)
            if name is not None:
                return called(action.choices[name], arguments[arguments.index(name) + 1 :])
    return parser


@output.printing()
def run(program: str, parse: Callable[[], argparse.Namespace]) -> int:
    """Parses the arguments, runs the command `args.run(args)`, and returns the exit status."""
    try:
        args = parse()
        status: int = args.run(args)
        sys.stdout.flush()  # here, since the interpreter would report a full disk with a traceback
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _discard_buffered_output()
        return _BROKEN_PIPE
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:  # standard output names no file
            raise
        _discard_buffered_output()
        print(f"{program}: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    except WrongUse as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
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
