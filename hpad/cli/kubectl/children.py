"""Runs kubectl as a child process, with the flags that choose the cluster and the user.

kubectl has the kubeconfig, the credentials and their plugins; hpad handles none of them. A child gets no terminal, is
limited in time, and is killed together with its own children: it leads a process group of its own.
"""

import contextlib
import os
import re
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Final

from hpad.api.text import harmless
from hpad.cli.output import Failure
from hpad.clock import SystemClock

START_SECONDS: Final = 20.0
"""The time in which a kubectl must have started or ended; a credential plugin may contact another server."""
_GRACE_SECONDS: Final = 1.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LONGEST_ERROR: Final = 2000
_LOG_PREFIX: Final = re.compile(r"^[IWEF]\d{4} \S+ +\d+ \S+\] ")
"""The head of a log line: severity and date, time, thread, file. Source: k8s.io/klog."""
_GIVEN_UP: Final = "context canceled"
_PREFIXES: Final = ("error: ", "Error: ", "Error from server ")


class Kubectl:
    """The kubectl on the PATH. `flags` are those of kubectl that choose cluster and user, such as `--context=x`."""

    def __init__(self, flags: Sequence[str] = (), *, seconds: float = START_SECONDS) -> None:
        self._flags = tuple(flags)
        self._seconds = seconds

    def output(self, *arguments: str) -> str:
        """Runs a command and returns its standard output; raises Failure if it fails or takes too long."""
        with self._started(arguments) as child:
            text = child.read()
            if child.process.wait() != 0:
                raise Failure(child.explained("fails"))
            return text

    @contextlib.contextmanager
    def serving(self, *arguments: str, ready: re.Pattern[str]) -> Iterator[tuple["Child", re.Match[str]]]:
        """Runs a command until the end of the block; enters it once a line of its output matches `ready`.

        Raises Failure if the command ends before, or takes too long.
        """
        with self._started(arguments) as child:
            yield child, child.await_line(ready)

    @contextlib.contextmanager
    def _started(self, arguments: Sequence[str]) -> Iterator["Child"]:
        command = ["kubectl", *self._flags, *arguments]
        with tempfile.TemporaryFile() as errors, contextlib.ExitStack() as stack:
            with _signals_delayed():
                process = stack.enter_context(_process(command, errors))
            yield Child(process, errors, f"kubectl {arguments[0]}", self._seconds)


class Child:
    """A running kubectl. `name` is its command, for messages."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes], name: str, seconds: float) -> None:
        self.process = process
        self._errors = errors
        self._name = name
        self._seconds = seconds
        self._clock = SystemClock()
        self._deadline = self._clock.monotonic() + seconds
        self._partial = b""

    def read(self) -> str:
        """Returns the output until its end; raises Failure if it takes too long."""
        return b"".join(self._pieces()).decode("utf-8", "replace")

    def await_line(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Returns the match of the first line of the output that matches; raises Failure if there is none in time."""
        for piece in self._pieces():
            *lines, self._partial = (self._partial + piece).split(b"\n")
            for line in lines:
                if found := pattern.search(line.decode("utf-8", "replace")):
                    return found
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_GRACE_SECONDS)
        raise Failure(self.explained("ends"))

    def explained(self, what: str) -> str:
        """Returns a sentence on what happens, with what kubectl has written to its standard error."""
        said = self.said()
        return f"{self._name}: {said}" if said else f"{self._name} {what} without an error message"

    def said(self) -> str:
        """Returns the end of the standard error as one line, without the prefixes of kubectl and of its log lines.

        Leaves out that a request was given up, which was done by this process.
        """
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _LONGEST_ERROR))
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        kept = [_LOG_PREFIX.sub("", line).strip() for line in lines if not line.endswith(_GIVEN_UP)]
        text = harmless(" ".join(filter(None, kept)))
        for prefix in _PREFIXES:
            text = text.removeprefix(prefix)
        return text

    def _pieces(self) -> Iterator[bytes]:
        assert self.process.stdout is not None
        source = self.process.stdout.fileno()
        while True:
            seconds = self._deadline - self._clock.monotonic()
            if seconds <= 0 or not select.select([source], [], [], seconds)[0]:
                raise Failure(f"{self._name} does not answer within {self._seconds:g}s{self._hint()}")
            piece = os.read(source, 65536)
            if not piece:
                return
            yield piece

    def _hint(self) -> str:
        said = self.said()
        return f": {said}" if said else ""


@contextlib.contextmanager
def _signals_delayed() -> Iterator[None]:
    """Delivers signals at the end of the block. One that came while a child is started would leave it running."""
    delayed: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: delayed.append(number)) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in delayed:
            signal.raise_signal(each)


@contextlib.contextmanager
def _process(command: Sequence[str], errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process; ends it and its group with the block. Raises Failure if there is no such program."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
    except OSError as error:
        raise Failure(f"kubectl cannot be started: {error.strerror}; it must be on the PATH") from None
    try:
        yield process
    finally:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
        _signal(process.pid, signal.SIGKILL)  # children of kubectl, such as credential plugins, may ignore SIGTERM
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
