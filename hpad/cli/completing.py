"""What may stand at the end of a command line, by the parsers of its commands, for completion in a shell."""

import argparse
from collections.abc import Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """Where the word to be completed stands.

    `words` are what parsers offer for it. `takes` is the argument that gets the word as its value; None for a flag or a
    command.
    """

    words: tuple[str, ...]
    takes: argparse.Action | None = None

    @property
    def is_file(self) -> bool:
        """Whether the word names a file or folder."""
        return self.takes is not None and self.takes.metavar in _FILES


_FILES = ("FILE", "DIR", "MANIFEST", "MANIFEST2")


def place(parser: argparse.ArgumentParser, words: Sequence[str], begun: str) -> Place:
    """Returns the place of `begun`, the word after `words`. Mistakes in them are left alone: the user still types."""
    options = dict(parser._option_string_actions)
    positionals = [action for action in parser._actions if not action.option_strings]
    taken = 0
    expects: argparse.Action | None = None
    for index, word in enumerate(words):
        current = positionals[taken] if taken < len(positionals) else None
        if expects is not None:
            expects = None
        elif word in options:
            expects = options[word] if options[word].nargs != 0 else None
        elif word.startswith("-"):
            continue
        elif isinstance(current, argparse._SubParsersAction) and word in current.choices:
            inner = place(current.choices[word], words[index + 1 :], begun)
            shared = tuple(options) if begun.startswith("-") and not inner.takes else ()
            return inner._replace(words=tuple(dict.fromkeys((*inner.words, *shared))))
        elif current is not None and current.nargs not in ("*", "+"):
            taken += 1
    if expects is not None:
        return Place(_choices(expects), expects)
    if begun.startswith("-"):
        return Place(tuple(sorted(option for option in options if len(option) > 2 or option == begun)))
    current = positionals[taken] if taken < len(positionals) else None
    return Place(()) if current is None else Place(_choices(current), current)


def _choices(action: argparse.Action) -> tuple[str, ...]:
    return tuple(map(str, action.choices or ()))
