"""Runs kubectl, with the flags that choose the cluster and the user.

kubectl has the kubeconfig, the credentials and their plugins; hpad handles none of them. kubectl gets no input.
"""

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Final

from hpad.api.text import harmless
from hpad.cli.output import Failure

_LONGEST_ERROR: Final = 2000
_LOG_PREFIX: Final = re.compile(r"^[IWEF]\d{4} \S+ +\d+ \S+\] ")
"""The head of a log line: severity and date, time, thread, file. Source: k8s.io/klog."""
_REPEATED: Final = re.compile(r"^[IWEF]\d{4} \S+ +\d+ memcache\.go:")
"""The log line of each attempt to reach a server; at the end kubectl says the same."""
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
    said = [line for line in lines if line.strip() and not _REPEATED.match(line)] or lines
    text = harmless(" ".join(filter(None, (_LOG_PREFIX.sub("", line).strip() for line in said))))
    for prefix in _PREFIXES:
        text = text.removeprefix(prefix)
    return text
