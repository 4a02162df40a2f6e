"""The flags that all commands of `kubectl hpad` have, and kubectl itself, which gets those for cluster and user.

kubectl has the kubeconfig, the credentials and their plugins; hpad handles none of them. kubectl gets no input.
"""

import argparse
import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from hpad.api.text import harmless
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


def kubectl(args: argparse.Namespace) -> "Kubectl":
    """Returns kubectl with the flags of the command line."""
    return Kubectl(tuple(chosen(args)))


def chosen(args: argparse.Namespace) -> Iterator[str]:
    """Yields the flags of kubectl on the command line, as kubectl takes them."""
    for name in KUBECTL:
        value = getattr(args, name.replace("-", "_"))
        for each in value if isinstance(value, list) else [value]:
            if each is not None and each is not False:
                yield f"--{name}" if each is True else f"--{name}={each}"


def namespace(args: argparse.Namespace, program: "Kubectl") -> str:
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


# Running kubectl.

_LONGEST_ERROR: Final = 2000
_LOG_PREFIX: Final = re.compile(r"^[IWEF]\d{4} \S+ +\d+ \S+\] ")
"""The head of a log line: severity and date, time, thread, file. Source: k8s.io/klog."""
_PREFIXES: Final = ("error: ", "Error: ")
_FORBIDDEN: Final = "Error from server (Forbidden): "
_REFUSED: Final = "Error from server "
_FORWARDING: Final = re.compile(rb"^Forwarding from 127\.0\.0\.1:([0-9]+) -> ")


class Forbidden(Failure):
    """The user may not do this."""


@dataclass(frozen=True)
class Kubectl:
    """The kubectl on the PATH. `flags` are those of kubectl that choose cluster and user, such as `--context=x`."""

    flags: Sequence[str] = ()

    def output(self, *arguments: str) -> str:
        """Runs a command and returns its standard output; raises Forbidden, and Failure if it fails otherwise."""
        with self._started(arguments) as (process, errors):
            assert process.stdout is not None
            text = process.stdout.read().decode("utf-8", "replace")
            if process.wait() != 0:
                raise _failure(arguments[0], errors)
            return text

    @contextlib.contextmanager
    def forwarding(self, namespace: str, pod: str, port: int) -> Iterator["Forward"]:
        """Forwards a free port of this machine to the port of a pod, until the end of the block.

        Raises Failure if kubectl ends before it listens, such as Forbidden.
        """
        command = ("port-forward", "--address=127.0.0.1", f"--namespace={namespace}", f"pod/{pod}", f":{port}")
        with self._started(command) as (process, errors):
            assert process.stdout is not None
            found = next(filter(None, map(_FORWARDING.match, process.stdout)), None)
            if found is None:
                process.wait()
                raise _failure(command[0], errors)
            yield Forward(int(found[1]), process, errors)

    @contextlib.contextmanager
    def _started(self, arguments: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
        """Starts kubectl, and ends it with the block. Raises Failure if there is none."""
        command = ["kubectl", *self.flags, *arguments]
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
            except OSError as error:
                raise Failure(f"kubectl cannot be started: {error.strerror}; it must be on the PATH") from None
            with process:
                try:
                    yield process, errors
                finally:
                    process.terminate()


@dataclass(frozen=True)
class Forward:
    """A port of this machine that kubectl forwards."""

    port: int
    process: subprocess.Popen[bytes]
    errors: IO[bytes]

    def require(self) -> None:
        """Raises Failure if kubectl has ended: its port may belong to another process by now."""
        if self.process.poll() is not None:
            raise _failure("port-forward", self.errors)

    def said(self) -> str:
        """Returns what kubectl has written to its standard error, as one line."""
        return _said(self.errors)


def _failure(name: str, errors: IO[bytes]) -> Failure:
    said = _said(errors)
    if said.startswith(_FORBIDDEN):
        return Forbidden(said.removeprefix(_FORBIDDEN))
    return Failure(
        f"kubectl {name}: {said.removeprefix(_REFUSED)}" if said else f"kubectl {name} ends without an error message"
    )


def _said(errors: IO[bytes]) -> str:
    """Returns the end of the standard error as one line, without the prefixes of kubectl and of its log lines."""
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - _LONGEST_ERROR))
    lines = errors.read().decode("utf-8", "replace").split("\n")
    text = harmless(" ".join(filter(None, (_LOG_PREFIX.sub("", line).strip() for line in lines))))
    for prefix in _PREFIXES:
        text = text.removeprefix(prefix)
    return text
