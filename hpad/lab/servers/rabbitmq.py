"""Starts a RabbitMQ broker with its management API, of Debian's package `rabbitmq-server`.

Node, port mapper (epmd), ports, home and data folder are private and on loopback; a RabbitMQ of the machine is not
affected.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec

from hpad import clock
from hpad.lab.servers import ports

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
EPMD = "/usr/bin/epmd"
ABSENT = f"{PROGRAM} is missing: install Debian's package rabbitmq-server"
_READY_TIMEOUT = 180.0
_POLL_SECONDS = 0.2
_GONE_TIMEOUT = 5.0
_GONE_POLL_SECONDS = 0.02


class User(msgspec.Struct, frozen=True):
    """A user with RabbitMQ's `tags` ("administrator", "monitoring", ...).

    The user has all permissions in `vhosts`, may read in those of `reads`, and has access without any permission on
    queues to those of `sees`.
    """

    name: str
    password: str
    tags: Sequence[str] = ()
    vhosts: Sequence[str] = ()
    sees: Sequence[str] = ()
    reads: Sequence[str] = ()


class Queue(msgspec.Struct, frozen=True):
    name: str
    vhost: str = "/"
    durable: bool = True


ADMIN = User("hpad", "hpad-lab", ("administrator",), ("/",))


class RabbitMQServer:
    """One broker: use `async with`, or start() and stop(), which another event loop may call.

    `admin` has full permissions on every vhost. `plugins` are enabled in addition to the management API;
    `configuration` are further lines of rabbitmq.conf. A start takes 7 to 10 seconds.
    """

    def __init__(
        self,
        *,
        admin: User = ADMIN,
        users: Sequence[User] = (),
        vhosts: Sequence[str] = ("/",),
        queues: Sequence[Queue] = (),
        plugins: Sequence[str] = (),
        configuration: Sequence[str] = (),
    ) -> None:
        self.admin = admin
        self.amqp_port, self.management_port, self._dist_port, self._epmd_port = ports.free(4)
        self._definitions = _definitions(admin, users, vhosts, queues)
        self._plugins = ("rabbitmq_management", *plugins)
        self._configuration = configuration
        self._folder: Path | None = None
        self._processes: list[subprocess.Popen[bytes]] = []

    @staticmethod
    def installed() -> bool:
        """Returns whether the package is installed."""
        return PROGRAM.exists() and Path(EPMD).exists()

    @property
    def management_url(self) -> str:
        """The base URL of the management API, without credentials."""
        return f"http://127.0.0.1:{self.management_port}"

    async def start(self) -> None:
        """Starts the broker and waits for its API, AMQP port and queues; raises RuntimeError with the log."""
        if not await asyncio.to_thread(self.installed):
            raise RuntimeError(ABSENT)
        try:
            await asyncio.to_thread(self._launch)
            await self._until_ready()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Kills broker and epmd, and removes the folder with all data; a regular shutdown would only be slower."""
        await asyncio.to_thread(self._kill)
        await self._until_gone()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            self._folder = None

    async def restart(self) -> None:
        """Kills broker and epmd, and starts them again with the data on disk, as after a loss of power."""
        await asyncio.to_thread(self._kill)
        await self._until_gone()
        assert self._folder is not None
        await asyncio.to_thread(self._run, self._folder, self._environment(self._folder))
        await self._until_ready()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _launch(self) -> None:
        folder = self._folder = Path(tempfile.mkdtemp(prefix="hpad-rabbitmq-"))
        self._write_files(folder)
        self._run(folder, self._environment(folder))

    def _run(self, folder: Path, environment: Mapping[str, str]) -> None:
        epmd = [EPMD, "-port", str(self._epmd_port), "-address", "127.0.0.1"]
        with (folder / "out.log").open("ab") as log:
            for command in (epmd, [str(PROGRAM)]):
                self._processes.append(
                    subprocess.Popen(
                        command,
                        env=os.environ | environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        cwd=folder,
                        # Ctrl-C must not reach the broker before its users have stopped; `_kill` needs the group
                        start_new_session=True,
                    )
                )

    def _write_files(self, folder: Path) -> None:
        for name in ("mnesia", "log", "home"):
            (folder / name).mkdir()
        (folder / "empty").touch()
        (folder / "enabled_plugins").write_text(f"[{','.join(self._plugins)}].\n")
        (folder / "definitions.json").write_bytes(msgspec.json.encode(self._definitions))
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.local = 127.0.0.1:{self.amqp_port}\n"
            "management.tcp.ip = 127.0.0.1\n"
            f"management.tcp.port = {self.management_port}\n"
            f"load_definitions = {folder}/definitions.json\n"
            "log.console = false\nlog.file.level = warning\n" + "".join(f"{line}\n" for line in self._configuration)
        )

    def _environment(self, folder: Path) -> dict[str, str]:
        return {
            "HOME": f"{folder}/home",
            # an address as host name works where no name resolves, not even "localhost"
            "RABBITMQ_NODENAME": "hpad@127.0.0.1",
            "RABBITMQ_USE_LONGNAME": "true",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.amqp_port),
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/empty",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    async def _until_ready(self) -> None:
        system = clock.SystemClock()
        deadline = system.monotonic() + _READY_TIMEOUT
        headers = {"Authorization": aiohttp.encode_basic_auth(self.admin.name, self.admin.password)}
        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=5)) as http:
            while not await self._is_up(http):
                dead = self._processes[-1].poll() is not None
                if dead or system.monotonic() > deadline:
                    raise RuntimeError(await asyncio.to_thread(self._failure, dead))
                await system.sleep(_POLL_SECONDS)

    async def _is_up(self, http: aiohttp.ClientSession) -> bool:
        """Returns whether all queues exist and AMQP connections are accepted, which the broker starts last."""
        complete = await _queues(http, self.management_url) >= len(self._definitions["queues"])
        return complete and await ports.listens(self.amqp_port)

    def _failure(self, dead: bool) -> str:
        what = "ended" if dead else f"was not ready within {_READY_TIMEOUT:.0f} s"
        log = (self._folder / "out.log").read_text(errors="replace")[-2000:] if self._folder else ""
        return f"rabbitmq-server {what}: {log}"

    async def _until_gone(self) -> None:
        """Waits until the ports are closed: the broker is a grandchild, so its process cannot be waited for."""
        system = clock.SystemClock()
        deadline = system.monotonic() + _GONE_TIMEOUT
        for port in (self.amqp_port, self.management_port):
            while await ports.listens(port) and system.monotonic() < deadline:
                await system.sleep(_GONE_POLL_SECONDS)

    def _kill(self) -> None:
        while self._processes:
            process = self._processes.pop()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # rabbitmq-server is a shell script: the broker is its child
            process.wait()


async def _queues(http: aiohttp.ClientSession, url: str) -> int:
    """Returns the number of queues, -1 while the API does not answer; the API starts before definitions are loaded."""
    try:
        async with http.get(f"{url}/api/overview") as response:
            body = await response.read()
            return int(msgspec.json.decode(body)["object_totals"]["queues"]) if response.status == 200 else -1
    except (aiohttp.ClientError, TimeoutError, KeyError):
        return -1


def _definitions(
    admin: User, users: Sequence[User], vhosts: Sequence[str], queues: Sequence[Queue]
) -> Mapping[str, Any]:
    all_users = (msgspec.structs.replace(admin, vhosts=tuple(vhosts)), *users)
    everything, nothing = ({"configure": pattern, "write": pattern, "read": pattern} for pattern in (".*", "^$"))
    reading = nothing | {"read": ".*"}
    return {
        "users": [{"name": u.name, "password": u.password, "tags": ",".join(u.tags)} for u in all_users],
        "vhosts": [{"name": name} for name in vhosts],
        "permissions": [
            {"user": user.name, "vhost": vhost, **permission}
            for user in all_users
            for names, permission in ((user.vhosts, everything), (user.reads, reading), (user.sees, nothing))
            for vhost in names
        ],
        "queues": [
            {"name": q.name, "vhost": q.vhost, "durable": q.durable, "auto_delete": False, "arguments": {}}
            for q in queues
        ],
    }
