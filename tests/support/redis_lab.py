"""Servers of Debian's redis-server for tests: single ones, a master with a sentinel, and a cluster of three nodes."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from hpad.lab.servers import ports

PROGRAM = shutil.which("redis-server")
needs_redis = pytest.mark.skipif(
    PROGRAM is None, reason="redis-server is missing: install Debian's package redis-server"
)
_START_SECONDS = 120


def encoded(command: Sequence[str]) -> bytes:
    """Encodes a command in RESP2."""
    parts = [part.encode() for part in command]
    return b"".join((b"*%d\r\n" % len(parts), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)))


async def commands(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yields each command of a client, its parts with spaces between; several may arrive at once, or one in pieces."""
    while count := await reader.readline():
        parts = []
        for _ in range(int(count[1:])):
            size = int((await reader.readline())[1:])
            parts.append((await reader.readexactly(size + 2))[:-2])
        yield b" ".join(parts)


def masters(host: bytes, port: int) -> bytes:
    """Returns the answer to SENTINEL MASTERS of a sentinel that knows one master."""
    state = {b"name": b"main", b"ip": host, b"port": b"%d" % port, b"flags": b"master", b"num-other-sentinels": b"0"}
    fields = b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for pair in state.items() for each in pair)
    return b"*1\r\n*%d\r\n" % (2 * len(state)) + fields


class Server:
    """A redis-server with the options of redis.conf in a folder of its own; `sentinel`: as a sentinel."""

    def __init__(self, folder: Path, port: int, options: dict[str, object], *, sentinel: bool = False) -> None:
        assert PROGRAM is not None
        folder.mkdir(exist_ok=True)
        self.port = port
        self._password = str(options.get("requirepass", ""))
        lines = {"bind": "127.0.0.1", "port": port, "dir": folder, **({} if sentinel else {"save": "''"}), **options}
        (folder / "redis.conf").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
        with (folder / "log").open("wb") as log:
            command = [PROGRAM, folder / "redis.conf", *(["--sentinel"] if sentinel else [])]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def until(self, text: str, *command: str) -> None:
        """Waits until the server answers a command with that text in the answer."""
        self.wait()
        deadline = time.monotonic() + _START_SECONDS
        while text not in self.cli(*command):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def wait(self) -> None:
        """Waits until the server accepts connections."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", self.port), 60):
                return
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def cli(self, *command: str) -> str:
        """Returns what redis-cli prints for a command."""
        environment = {**os.environ, "REDISCLI_AUTH": self._password} if self._password else None
        run = ["redis-cli", "-e", "-p", str(self.port), *command]
        return subprocess.run(run, env=environment, capture_output=True, check=True, text=True).stdout.strip()

    def pause(self) -> None:
        """Stops the process, so that it accepts connections and answers nothing."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continues the process after `pause`."""
        os.kill(self._process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Kills the process, unless it has ended."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def started(*servers: Server) -> Iterator[None]:
    """Waits for the servers, and stops them at the end."""
    try:
        for server in servers:
            server.wait()
        yield
    finally:
        for server in servers:
            server.stop()


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[list[Server]]:
    """Yields the three nodes of a cluster, whose slots redis-cli has divided among them."""
    options = {"cluster-enabled": "yes", "cluster-require-full-coverage": "no", "cluster-node-timeout": 60_000}
    # The port of the cluster bus is 10000 above that of clients, unless it is named.
    buses = ports.free(6)
    nodes = [
        Server(folder / str(index), port, {**options, "cluster-port": buses[3 + index]})
        for index, port in enumerate(buses[:3])
    ]
    with started(*nodes):
        addresses = [f"127.0.0.1:{node.port}" for node in nodes]
        nodes[0].cli("--cluster", "create", *addresses, "--cluster-yes")
        for node in nodes:
            node.until("cluster_state:ok", "CLUSTER", "INFO")
        yield nodes
