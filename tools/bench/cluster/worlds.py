"""The servers that a controller is measured with, each a process of its own; all end with their context."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import trustme

from hpad.lab.cluster import kubeconfig
from tools.bench.cluster.population import Population

ROOT = Path(__file__).resolve().parents[3]
_END_SECONDS = 30.0


class World(Protocol):
    """A running API server with its population. `processes` are the pids by name."""

    kubeconfig: Path
    processes: Mapping[str, int]

    def counts(self) -> Mapping[str, float]:
        """Returns the requests since the start, by verb and resource."""

    def mark(self) -> None:
        """Begins to count HPAs whose status is written."""

    def reconciled(self) -> int:
        """Returns the number of HPAs whose status was written since the last mark."""


class ChildWorld:
    """A server that is a Python process (see `child`)."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", folder: Path, authority: Path | None) -> None:
        self.processes = {name: process.pid}
        self.kubeconfig = folder / "kubeconfig"
        self._process = process
        self._log = folder / "server.log"
        self.url = str(self._line())
        kubeconfig.write(self.kubeconfig, self.url, authority=authority)

    def counts(self) -> Mapping[str, float]:
        return cast("Mapping[str, float]", self.asked("counts")["requests"])

    def reconciled(self) -> int:
        return int(self.asked("counts")["reconciled"])

    def mark(self) -> None:
        self.asked("mark")

    def asked(self, command: str) -> Any:
        """Returns the answer to a command (`child`; those of the stub: `stub.storms`)."""
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> Any:
        """Reads a line of JSON from the server. Raises RuntimeError with the end of its log if it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server has ended:\n{self._log.read_text()[-2000:]}")
        return json.loads(line)


@contextlib.contextmanager
def stub(folder: Path, population: Population, *, tls: bool = True) -> Iterator[ChildWorld]:
    """Runs the stub server."""
    options = certificates(folder) if tls else {}
    authority = folder / "ca.crt" if tls else None
    with child("tools.bench.cluster.stub", folder, population, options) as process:
        yield ChildWorld("stub", process, folder, authority)


@contextlib.contextmanager
def embedded(folder: Path, population: Population, period: float) -> Iterator[World]:
    """Runs the embedded API server."""
    options = {"period": period}
    with child("tools.bench.cluster.embedded", folder, population, options) as process:
        yield ChildWorld("embedded", process, folder, None)


@contextlib.contextmanager
def child(
    module: str, folder: Path, population: Population, options: Mapping[str, Any]
) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs a module as a server process, which ends with its standard input."""
    command = [sys.executable, "-m", module, json.dumps({"population": population, **options})]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=ROOT)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def certificates(folder: Path) -> dict[str, str]:
    """Writes `ca.crt`, and a certificate of that authority for loopback; returns the paths of its files."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    issued = authority.issue_cert("127.0.0.1", "localhost")
    files = {"certificate": str(folder / "server.crt"), "key": str(folder / "server.key")}
    issued.private_key_pem.write_to_path(files["key"])
    for blob in issued.cert_chain_pems:
        blob.write_to_path(files["certificate"], append=True)
    return files


def started(
    server: str, folder: Path, population: Population, *, period: float, tls: bool
) -> contextlib.AbstractContextManager[World]:
    """Starts a server by its name. `period` is that of the controllers, in seconds."""
    if server == "real":
        from tools.bench.cluster import real  # needs the folder `tests` on the path

        return real.started(folder, population)
    if server == "embedded":
        return embedded(folder, population, period)
    return stub(folder, population, tls=tls)
