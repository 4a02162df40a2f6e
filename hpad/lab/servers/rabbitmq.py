"""A real RabbitMQ with its management API, started from Debian's package `rabbitmq-server`.

Nothing of the machine's own RabbitMQ is touched: node, port mapper (epmd), ports, home and data folder are private,
and all of it is on the loopback interface.
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
_READY_WITHIN = 180.0
_POLL_SECONDS = 0.2
_GONE_WITHIN = 5.0
_GONE_POLL_SECONDS = 0.02


class User(msgspec.Struct, frozen=True):
    """`tags` as RabbitMQ has them ("administrator", "monitoring", ...).

    May do everything in each of `vhosts`, and may see, without touching any queue, each of `sees`.
    """

    name: str
    password: str
    tags: Sequence[str] = ()
    vhosts: Sequence[str] = ()
    sees: Sequence[str] = ()


class Queue(msgspec.Struct, frozen=True):
    name: str
    vhost: str = "/"
    durable: bool = True


ADMIN = User("hpad", "hpad-lab", ("administrator",), ("/",))


class RabbitMQServer:
    """One broker: `async with`, or start() and stop() (which may be called from another event loop).

    `admin` is an administrator with full permissions on every vhost. `plugins` beside that of the management API, and
    lines of `configuration` (rabbitmq.conf) are as RabbitMQ has them. A start takes 7 to 10 seconds.
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
        """Whether the package is there."""
        return PROGRAM.exists() and Path(EPMD).exists()

    @property
    def management_url(self) -> str:
        """Where the management API answers, without credentials."""
        return f"http://127.0.0.1:{self.management_port}"

    async def start(self) -> None:
        """Return once the API and the AMQP port answer and all queues are there; raises RuntimeError with the log."""
        if not await asyncio.to_thread(self.installed):
            raise RuntimeError(ABSENT)
        try:
            await asyncio.to_thread(self._launch)
            await self._until_ready()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End both processes and remove the folder; the data goes too, so an orderly stop would gain nothing."""
        await asyncio.to_thread(self._kill)
        await self._until_gone()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            self._folder = None

    async def restart(self) -> None:
        """As after a loss of power: both processes are killed, and begin anew with what is on disk."""
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
                        start_new_session=True,  # so that Ctrl-C is ours to judge, and stop() finds all of it
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
            # An address for a name: also where nothing resolves, not even "localhost".
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
        deadline = system.monotonic() + _READY_WITHIN
        headers = {"Authorization": aiohttp.encode_basic_auth(self.admin.name, self.admin.password)}
        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=5)) as http:
            while not await self._is_up(http):
                dead = self._processes[-1].poll() is not None
                if dead or system.monotonic() > deadline:
                    raise RuntimeError(await asyncio.to_thread(self._failure, dead))
                await system.sleep(_POLL_SECONDS)

    async def _is_up(self, http: aiohttp.ClientSession) -> bool:
        """All queues are there, and clients are let in, which a broker begins with last."""
        complete = await _queues(http, self.management_url) >= len(self._definitions["queues"])
        return complete and await ports.listens(self.amqp_port)

    def _failure(self, dead: bool) -> str:
        what = "ended" if dead else f"was not ready within {_READY_WITHIN:.0f} s"
        log = (self._folder / "out.log").read_text(errors="replace")[-2000:] if self._folder else ""
        return f"rabbitmq-server {what}: {log}"

    async def _until_gone(self) -> None:
        """The broker is no child of ours, so its ports tell whether it is dead yet."""
        system = clock.SystemClock()
        deadline = system.monotonic() + _GONE_WITHIN
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
    """How many queues there are, -1 while nothing answers: the API is up before the definitions are loaded."""
    try:
        async with http.get(f"{url}/api/overview") as response:
            body = await response.read()
            return int(msgspec.json.decode(body)["object_totals"]["queues"]) if response.status == 200 else -1
    except (aiohttp.ClientError, TimeoutError, KeyError):
        return -1


def _definitions(
    admin: User, users: Sequence[User], vhosts: Sequence[str], queues: Sequence[Queue]
) -> Mapping[str, Any]:
    everyone = (msgspec.structs.replace(admin, vhosts=tuple(vhosts)), *users)
    everything, nothing = ({"configure": pattern, "write": pattern, "read": pattern} for pattern in (".*", "^$"))
    return {
        "users": [{"name": u.name, "password": u.password, "tags": ",".join(u.tags)} for u in everyone],
        "vhosts": [{"name": name} for name in vhosts],
        "permissions": [
            {"user": user.name, "vhost": vhost, **permission}
            for user in everyone
            for names, permission in ((user.vhosts, everything), (user.sees, nothing))
            for vhost in names
        ],
        "queues": [
            {"name": q.name, "vhost": q.vhost, "durable": q.durable, "auto_delete": False, "arguments": {}}
            for q in queues
        ],
    }
