"""The flags that all commands of `kubectl hpad` have, before or after the name of the command."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from hpad.cli.kubectl.command import Kubectl
from hpad.cli.output import Failure

KUBECTL: Final = {
    "kubeconfig": "FILE",
    "context": "NAME",
    "cluster": "NAME",
    "user": "NAME",
    "as": "USER",
    "as-group": "GROUP",
    "as-uid": "UID",
    "server": "URL",
    "token": "TOKEN",
    "certificate-authority": "FILE",
    "client-certificate": "FILE",
    "client-key": "FILE",
    "tls-server-name": "NAME",
    "insecure-skip-tls-verify": "",
}
"""The flags of kubectl that choose cluster and user, with the name of their value ("": none). kubectl gets them."""
_REACH: Final = {
    "service": ("NAMESPACE/NAME", "the Service of hpad (default: the one with its label)"),
    "address": ("HOST:PORT", "where hpad listens (also HPAD_LISTEN); start with https:// if it serves TLS"),
    "token-file": ("FILE", "hpad gets the first bearer token of this file"),
    "cacert": ("FILE", "trust an hpad certified by these authorities (PEM)"),
    "server-name": ("NAME", "the name in hpad's certificate (default in a cluster: SERVICE.NAMESPACE.svc)"),
}
"""The flags that choose hpad, and authenticate with it."""
_REPEATED: Final = ("as-group",)
DEFAULTS: Final[dict[str, Any]] = {
    **{name.replace("-", "_"): None for name in KUBECTL},
    **{name.replace("-", "_"): None for name in _REACH},
    **{"namespace": None, "all_namespaces": False, "verbose": False, "output": ""},
}
_ACCOUNT_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""The namespace of a pod, which kubectl uses where there is no kubeconfig."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags to the parser of the plugin. Those that are not given leave no attribute: DEFAULTS apply."""
    _add_general(parser)
    _add_connection(parser, str)


def add_to_command(parser: argparse.ArgumentParser, formats: Sequence[str] = ()) -> None:
    """Adds the flags to the parser of a command, whose help shows the general ones only, and `-o` with `formats`.

    No `formats`: the command has an `-o` of its own.
    """
    _add_general(parser)
    if formats:
        _add(
            parser,
            "-o",
            "--output",
            choices=formats,
            help=f"one of {', '.join(formats)} (default: {'text' if 'text' in formats else 'plain text'})",
        )
    _add_connection(parser, lambda text: argparse.SUPPRESS)
    parser.epilog = f"{parser.epilog}\n`kubectl hpad --help` lists the flags for the connection, such as --context.\n"


def _add_general(parser: argparse.ArgumentParser) -> None:
    _add(parser, "-n", "--namespace", metavar="NAME", help="the namespace of the HPAs (default: that of the context)")
    _add(parser, "-A", "--all-namespaces", action="store_true", help="the HPAs of all namespaces")
    _add(parser, "-v", "--verbose", action="store_true", help="say on standard error how hpad is reached")


def _add_connection(parser: argparse.ArgumentParser, text: Callable[[str], str]) -> None:
    """Adds the flags for the connection; `text` makes their help."""
    reach: Any = parser.add_argument_group("how hpad is reached")
    for name, (value, meaning) in _REACH.items():
        kind: dict[str, Any] = {"type": Path} if value == "FILE" else {}
        _add(reach, f"--{name}", metavar=value, help=text(meaning), **kind)
    chosen: Any = parser.add_argument_group("kubectl's flags for cluster and user")
    for name, value in KUBECTL.items():
        options: dict[str, Any] = {"metavar": value} if value else {"action": "store_true"}
        if name in _REPEATED:
            options["action"] = "append"
        short = ["-s"] if name == "server" else []
        _add(chosen, *short, f"--{name}", help=text("passed on to kubectl"), **options)


def _add(parser: Any, *names: str, **options: Any) -> None:
    parser.add_argument(*names, default=argparse.SUPPRESS, **options)


def chosen(args: argparse.Namespace) -> Iterator[str]:
    """Yields the flags of kubectl on the command line, as kubectl takes them."""
    for name in KUBECTL:
        value = getattr(args, name.replace("-", "_"))
        for each in value if isinstance(value, list) else [value]:
            if each is not None and each is not False:
                yield f"--{name}" if each is True else f"--{name}={each}"


def namespace(args: argparse.Namespace, program: Kubectl) -> str:
    """Returns the namespace of the HPAs: that of the command line, else that of kubectl's context."""
    if args.namespace is not None:
        return str(args.namespace)
    try:
        return program.output("config", "view", "--minify", "--output=jsonpath={..namespace}") or "default"
    except Failure:
        return _own_namespace()


def _own_namespace() -> str:
    """Returns the namespace of this pod; "default" outside of pods."""
    try:
        return _ACCOUNT_NAMESPACE.read_text("utf-8").strip() or "default"
    except OSError:
        return "default"
