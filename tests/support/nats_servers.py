"""Real NATS servers with JetStream on loopback: one by itself, or a cluster of three."""

import asyncio
import contextlib
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nats
import nats.errors
from nats.js.api import ConsumerConfig

from hpad.lab.servers import ports

# Debian installs it into a folder that is not in the path of every user.
PROGRAM = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")
ABSENT = "nats-server is missing: install Debian's package nats-server"
_SECONDS = 120.0
_ACCOUNTS = """
accounts {
  SHOP { jetstream: enabled, users: [{user: shop, password: shop}] }
  OTHER { jetstream: enabled, users: [{user: other, password: other}] }
}
"""


class Servers:
    """Servers named n1, n2 and so on, whose monitoring endpoints have one port at 127.0.0.1, 127.0.0.2 and so on."""

    def __init__(self, folder: Path, count: int, more: str = "") -> None:
        assert PROGRAM is not None
        self.http_port, self._client_port, *routes = ports.free(2 + count)
        self._processes = []
        addresses = [f"nats://127.0.0.{number}:{port}" for number, port in enumerate(routes, 1)]
        for number, route in enumerate(routes, 1):
            lines = [
                f'server_name: n{number}\nport: {self._client_port}\nhost: "127.0.0.{number}"',
                f'http: "127.0.0.{number}:{self.http_port}"',
                more or f'jetstream {{ store_dir: "{folder}/js{number}", max_mem: 16MB, max_file: 64MB }}{_ACCOUNTS}',
                f'cluster {{ name: c, listen: "127.0.0.{number}:{route}", routes: {addresses} }}' if count > 1 else "",
            ]
            (folder / f"n{number}.conf").write_text("\n".join(lines).replace("'", '"'))
            with (folder / f"n{number}.log").open("wb") as log:
                command = [PROGRAM, "-c", str(folder / f"n{number}.conf")]
                self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def url(self, number: int = 1) -> str:
        """Returns the monitoring endpoint of a server."""
        return f"http://127.0.0.{number}:{self.http_port}"

    def wait(self) -> None:
        """Waits until each server is healthy, which one of a cluster is once it knows the leader."""
        deadline = time.monotonic() + _SECONDS
        for number in range(1, len(self._processes) + 1):
            while not _is_healthy(f"{self.url(number)}/healthz"):
                assert time.monotonic() < deadline
                time.sleep(0.02)

    async def fill(self, replicas: int, consumers: Sequence[str]) -> None:
        """Makes in SHOP the stream `orders` of 7 messages, of which each consumer has got 3 and acknowledged 1."""
        client: Any = await nats.connect(f"nats://shop:shop@127.0.0.1:{self._client_port}")
        stream = client.jetstream(timeout=10)
        deadline = time.monotonic() + _SECONDS
        while True:
            # While a cluster has no leader, a request gets no answer.
            with contextlib.suppress(nats.errors.Error):
                await stream.add_stream(name="orders", subjects=["orders"], num_replicas=replicas)
                break
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        for _ in range(7):
            await stream.publish("orders", b"order")
        for name in consumers:
            await stream.add_consumer("orders", ConsumerConfig(durable_name=name, ack_wait=3600))
            subscription = await stream.pull_subscribe_bind(consumer=name, stream="orders")
            messages = await subscription.fetch(3, timeout=60)
            await messages[0].ack_sync(timeout=60)
        await client.close()

    def stop(self) -> None:
        """Ends the servers and waits for them."""
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False
