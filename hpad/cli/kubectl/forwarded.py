"""hpad through `kubectl port-forward`, which also reaches an hpad that listens on loopback or asks for tokens."""

import contextlib
import re
from collections.abc import Callable
from typing import Any, Final

from hpad.cli.client import Direct
from hpad.cli.fetch import Refusal
from hpad.cli.kubectl.children import Child, Kubectl
from hpad.cli.kubectl.discovery import Pod
from hpad.cli.output import Failure

_FORWARDING: Final = re.compile(r"^Forwarding from 127\.0\.0\.1:([0-9]+) -> ")


class Forwarded:
    """A Reader of one pod. Starts kubectl at the first request; `stack` ends it.

    `connect` returns the Reader of an address (HOST:PORT) to which the port of the pod is forwarded.
    """

    def __init__(
        self, kubectl: Kubectl, pod: Pod, connect: Callable[[str, Pod], Direct], stack: contextlib.ExitStack
    ) -> None:
        self._kubectl = kubectl
        self._pod = pod
        self._connect = connect
        self._stack = stack
        self._opened: tuple[Child, Direct] | None = None

    def __str__(self) -> str:
        return str(self._pod)

    def get(self, path: str) -> Any:
        """See Reader.get."""
        if self._opened is None:
            self._opened = self._open()
        child, direct = self._opened
        if child.process.poll() is not None:  # its port may belong to another process by now, which must get no token
            raise Failure(f"{self}: {child.explained('ends')}")
        try:
            return direct.get(path)
        except Refusal:
            raise
        except Failure as failure:
            said = child.said()
            raise Failure(f"{failure}{f' ({said})' if said else ''}") from None

    def _open(self) -> tuple[Child, Direct]:
        arguments = ("port-forward", "--address=127.0.0.1", f"--namespace={self._pod.namespace}")
        serving = self._kubectl.serving(*arguments, f"pod/{self._pod.name}", f":{self._pod.port}", ready=_FORWARDING)
        try:
            child, found = self._stack.enter_context(serving)
        except Failure as failure:
            raise Failure(f"{self}: {failure}") from None
        return child, self._connect(f"127.0.0.1:{found[1]}", self._pod)
