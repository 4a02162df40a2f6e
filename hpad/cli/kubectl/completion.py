"""Completion in the shell: the program `kubectl_complete-hpad`, which kubectl 1.26 and later run for `kubectl hpad`.

It gets the words after `kubectl hpad`, the last of which is to be completed, and prints one candidate per line, then a
directive. Source: https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/ and spf13/cobra, completions.go.
"""

import argparse
import contextlib
import io
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from hpad.cli import completion
from hpad.cli.fetch import AUTOSCALERS
from hpad.cli.kubectl import flags, make_parser
from hpad.cli.kubectl.command import Kubectl
from hpad.cli.output import Failure

_FILES: Final = 0
_NO_FILES: Final = 4
"""Directives: the shell completes names of files where there is no candidate, or it does not."""
_ANY: Final = "web"
"""In place of the word that is completed: flags of a command that has no name yet would be lost with its error."""
_TIMEOUT: Final = "--request-timeout=5s"
_NAMES: Final = 'jsonpath={range .items[*]}{.metadata.name}{"\\n"}{end}'


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the candidates for the last argument; 0. Says nothing about mistakes, since the user still types."""
    *words, begun = list(sys.argv[1:] if argv is None else argv) or [""]
    found, directive = _candidates(words, begun)
    for each in found:
        if each.startswith(begun):
            print(each)
    print(f":{directive}")
    return 0


def _candidates(words: Sequence[str], begun: str) -> tuple[Iterable[str], int]:
    parser, _ = make_parser()
    found = completion.place(parser, words, begun)
    if found.takes is None or found.words:
        return found.words, _NO_FILES
    if found.takes.dest in ("name", "names"):
        return _names(words, parser, begun), _NO_FILES
    if found.takes.dest == "namespace":
        return _listed("namespaces", words[:-1], parser), _NO_FILES
    return (), _FILES if found.is_file else _NO_FILES


def _names(words: Sequence[str], parser: argparse.ArgumentParser, begun: str) -> Iterable[str]:
    """Returns the names of HPAs, and those of Autoscalers as `autoscaler/web`, as far as they may begin like this."""
    kind, slash, _ = begun.partition("/")
    found = [] if slash else [*_listed("horizontalpodautoscalers", words, parser)]
    known = [each for each in AUTOSCALERS if (each == kind if slash else each.startswith(begun))]
    if known:
        found += [f"{known[0]}/{name}" for name in _listed("autoscalers.hpad.io", words, parser)]
    return found


def _listed(kind: str, words: Sequence[str], parser: argparse.ArgumentParser) -> Iterable[str]:
    """Returns the names of the objects of a kind, in the chosen cluster and namespace; () if kubectl fails."""
    args = argparse.Namespace(**flags.DEFAULTS)
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        parser.parse_known_args([*words, _ANY], args)
    scope = ["--all-namespaces"] if args.all_namespaces else []
    scope += [f"--namespace={args.namespace}"] if args.namespace else []
    try:
        program = Kubectl((*flags.chosen(args), _TIMEOUT))
        return program.output("get", kind, f"--output={_NAMES}", *scope).split()
    except Failure:
        return ()
