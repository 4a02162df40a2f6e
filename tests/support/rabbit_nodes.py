"""A RabbitMQ of one node or several on loopback: one port mapper (epmd), found by a list of their names.

For tests that kill nodes, turn off statistics, or need the plugin of each node. `HPAD_TEST_RABBITMQ` names the program.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp

from hpad.lab.servers import ports, rabbitmq

PLUGINS = "[rabbitmq_management,rabbitmq_prometheus,rabbitmq_stream,rabbitmq_stream_management]."
USER, PASSWORD = "hpad", "hpad-lab"
_READY_SECONDS = 240.0
_POLL_SECONDS = 0.5


class Node:
    """One node. `name` is what the broker calls it; ports are those of AMQP, the management API and the plugin."""

    def __init__(self, number: int) -> None:
        self.name = f"n{number}@127.0.0.1"
        self.amqp_port, self.management_port, self.metrics_port, self.dist_port = ports.free(4)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The management API."""
        return f"http://127.0.0.1:{self.management_port}"

    @property
    def metrics_url(self) -> str:
        """The plugin rabbitmq_prometheus."""
        return f"http://127.0.0.1:{self.metrics_port}"

    @property
    def amqp_url(self) -> str:
        """AMQP, with the user, for vhost "/"."""
        return f"amqp://{USER}:{PASSWORD}@127.0.0.1:{self.amqp_port}/"


class RabbitMQNodes:
    """Use `async with`. `configuration` are further lines of rabbitmq.conf. Three nodes take half a minute to start."""

    def __init__(self, count: int = 3, *, statistics: bool = True, configuration: Sequence[str] = ()) -> None:
        self.nodes = [Node(number) for number in range(1, count + 1)]
        self._statistics = statistics
        self._configuration = configuration
        [self.epmd_port] = ports.free(1)
        self._epmd: subprocess.Popen[bytes] | None = None
        self.folder = Path()

    async def __aenter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="hpad-nodes-"))
        try:
            await asyncio.to_thread(self._prepare)
            await asyncio.gather(*map(self.revive, self.nodes))
            await self._until_joined()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            await self.kill(node)
        if self._epmd is not None:
            await asyncio.to_thread(_killed, self._epmd)
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    async def kill(self, node: Node) -> None:
        """Kills a node, as a loss of power does; waits until its ports are closed."""
        process, node.process = node.process, None
        if process is not None:
            await asyncio.to_thread(_killed, process)
        for port in (node.amqp_port, node.management_port):
            while await ports.listens(port):  # noqa: ASYNC110  # nothing tells that it is closed
                await asyncio.sleep(0.05)

    async def revive(self, node: Node) -> None:
        """Starts a node, with the data that it had; waits until it answers."""
        node.process = await asyncio.to_thread(self._run, node)
        async with asyncio.timeout(_READY_SECONDS):
            while not (await ports.listens(node.amqp_port) and await ports.listens(node.management_port)):
                if node.process.poll() is not None:
                    log = await asyncio.to_thread((self.folder / "out.log").read_text, errors="replace")
                    raise RuntimeError(f"{node.name} ended: {log[-2000:]}")
                await asyncio.sleep(_POLL_SECONDS)

    async def api(self, method: str, path: str, body: object = None, node: Node | None = None) -> Any:
        """Asks the management API of a node, by default the first that runs; returns the decoded JSON, or None."""
        asked = node or next(each for each in self.nodes if each.process is not None)
        headers = {"Authorization": aiohttp.encode_basic_auth(USER, PASSWORD)}
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.request(method, f"{asked.url}/api/{path}", json=body) as response,
        ):
            assert response.status in (200, 201, 204), (path, response.status, await response.text())
            return await response.json() if response.status == 200 else None

    def environment(self, node: Node) -> dict[str, str]:
        """The variables with which the program, and the tools of the package, mean this node."""
        folder = self.folder / node.name
        return {
            "HOME": f"{self.folder}/home",  # nodes with one cookie trust each other
            "RABBITMQ_NODENAME": node.name,
            "RABBITMQ_USE_LONGNAME": "true",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(node.amqp_port),
            "RABBITMQ_DIST_PORT": str(node.dist_port),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/empty",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _prepare(self) -> None:
        (self.folder / "home").mkdir()
        (self.folder / "home" / ".erlang.cookie").write_text("HPADTESTS")
        (self.folder / "home" / ".erlang.cookie").chmod(0o400)
        for node in self.nodes:
            folder = self.folder / node.name
            for name in ("mnesia", "log"):
                (folder / name).mkdir(parents=True)
            (folder / "empty").touch()
            (folder / "enabled_plugins").write_text(PLUGINS)
            (folder / "rabbitmq.conf").write_text("".join(f"{line}\n" for line in self._lines(node)))
        command = [rabbitmq.EPMD, "-port", str(self.epmd_port), "-address", "127.0.0.1"]
        self._epmd = subprocess.Popen(command, start_new_session=True)

    def _lines(self, node: Node) -> list[str]:
        stream_port, *_ = ports.free(1)
        lines = [
            f"listeners.tcp.local = 127.0.0.1:{node.amqp_port}",
            "management.tcp.ip = 127.0.0.1",
            f"management.tcp.port = {node.management_port}",
            "prometheus.tcp.ip = 127.0.0.1",
            f"prometheus.tcp.port = {node.metrics_port}",
            f"stream.listeners.tcp.1 = 127.0.0.1:{stream_port}",
            f"default_user = {USER}",
            f"default_pass = {PASSWORD}",
            "log.console = false",
            "log.file.level = warning",
        ]
        if len(self.nodes) > 1:
            lines.append("cluster_formation.peer_discovery_backend = classic_config")
            lines += (
                f"cluster_formation.classic_config.nodes.{n} = {each.name}" for n, each in enumerate(self.nodes, 1)
            )
        if not self._statistics:
            lines.append("management_agent.disable_metrics_collector = true")
        return [*lines, *self._configuration]

    def _run(self, node: Node) -> subprocess.Popen[bytes]:
        with (self.folder / "out.log").open("ab") as log:
            return subprocess.Popen(
                [str(rabbitmq.PROGRAM)],
                env=os.environ | self.environment(node),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    async def _until_joined(self) -> None:
        async with asyncio.timeout(_READY_SECONDS):
            while True:
                with contextlib.suppress(aiohttp.ClientError, AssertionError):
                    running = [each for each in await self.api("GET", "nodes") if each.get("running")]
                    if len(running) == len(self.nodes):
                        return
                await asyncio.sleep(_POLL_SECONDS)


def _killed(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # the program is a shell script: the broker is its child
    process.wait()
