"""`hpad completion`: scripts that complete the commands and flags of hpad in bash and zsh.

A script calls `hpad completion SHELL --words=WORDS` for each completion, so it fits every later version of hpad.
"""

import argparse
from collections.abc import Sequence
from typing import Final, NamedTuple

from hpad import cli


class WordPlace(NamedTuple):
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


def place(parser: argparse.ArgumentParser, words: Sequence[str], begun: str) -> WordPlace:
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
        return WordPlace(_choices(expects), expects)
    if begun.startswith("-"):
        return WordPlace(tuple(sorted(option for option in options if len(option) > 2 or option == begun)))
    current = positionals[taken] if taken < len(positionals) else None
    return WordPlace(()) if current is None else WordPlace(_choices(current), current)


def _choices(action: argparse.Action) -> tuple[str, ...]:
    return tuple(map(str, action.choices or ()))


HELP: Final = "print a script that completes commands and flags in bash or zsh"
DESCRIPTION: Final = "Print a script that completes the commands and flags of hpad in a shell."
EPILOG: Final = """\
examples:
  source <(hpad completion bash)                            in this bash; in ~/.bashrc for each one
  source <(hpad completion zsh)                             in this zsh, after compinit; in ~/.zshrc for each one
  hpad completion zsh > "${fpath[1]}/_hpad"                 as a file that zsh loads when it needs it
"""
_BASH: Final = """\
_hpad() {
    local IFS=$'\\n'
    COMPREPLY=($(\"$1\" completion bash --words="${COMP_WORDS[*]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _hpad hpad
"""
_ZSH: Final = """\
#compdef hpad
_hpad() {
    local -a found
    found=("${(@f)$("${words[1]}" completion zsh --words="${(F)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -a found; else _files; fi
}
if [ "$funcstack[1]" = "_hpad" ]; then _hpad "$@"; else compdef _hpad hpad; fi
"""
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(_SCRIPTS), metavar="SHELL", help="bash or zsh")
    # One argument with a line for each word, since argparse takes no "--" into a list.
    parser.add_argument("--words", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Prints the script, or what may stand for the last of the words; 0."""
    if args.words is None:
        print(_SCRIPTS[args.shell], end="")
        return 0
    *words, begun = args.words.split("\n")
    parser, _ = cli.make_parser(words)
    for each in place(parser, words, begun).words:
        if each.startswith(begun):
            print(each)
    return 0
