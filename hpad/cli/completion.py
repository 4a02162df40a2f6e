"""`hpad completion`: scripts that complete the commands and flags of hpad in bash and zsh.

A script calls `hpad completion SHELL --words=WORDS` for each completion, so it fits every later version of hpad.
"""

import argparse
from typing import Any, Final

from hpad import cli
from hpad.cli import completing

_EPILOG: Final = """\
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


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "completion",
        help="print a script that completes commands and flags in bash or zsh",
        description="Print a script that completes the commands and flags of hpad in a shell.",
        epilog=_EPILOG,
    )
    parser.add_argument("shell", choices=tuple(_SCRIPTS), metavar="SHELL", help="bash or zsh")
    # One argument with a line for each word, since argparse takes no "--" into a list.
    parser.add_argument("--words", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the script, or what may stand for the last of the words; 0."""
    if args.words is None:
        print(_SCRIPTS[args.shell], end="")
        return 0
    *words, begun = args.words.split("\n")
    parser, _ = cli.make_parser(words)
    for each in completing.place(parser, words, begun).words:
        if each.startswith(begun):
            print(each)
    return 0
