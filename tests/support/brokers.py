"""A RabbitMQ broker that all workers share, since each start takes five seconds of CPU time.

It starts before `support.workers` forks, if a test needs it, and stops after the last test. A test has queues, or a
vhost, of its own.
"""

import asyncio
import contextlib
import itertools
import os
import tempfile
import urllib.parse
from collections.abc import AsyncIterator, Generator, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import trustme
import yarl

from hpad.lab.demo.workloads import amqp
from hpad.lab.servers import ports, rabbitmq

PLAIN = rabbitmq.User("plain", "plain-pw", (), ("/",))
STRANGER = rabbitmq.User("stranger", "stranger-pw", ("monitoring",))
MANY = 503
VHOSTS = ("/", "a/b", "ü", "many", "mine")
MONITOR = rabbitmq.User("monitor", "m0nitor:pw/ü", ("monitoring",), sees=VHOSTS)
READER = rabbitmq.User("reader", "re4der:pw/ü", (), reads=VHOSTS)
"""For AMQP: from RabbitMQ 4.2.6 on a user needs a permission on each queue."""

GUEST = rabbitmq.User("guest", "guest", ("administrator",), ("/",))
"""The user that a new RabbitMQ has."""
OF_TESTS = ("worker_tasks", "spike", "tasks", "held")
"""Queues of the vhost "/", each for one test."""

PATIENT: Final = {"request_timeout": "60s", "connect_timeout": "60s"}
"""Settings of a source: with the defaults, a pause of two seconds of a busy machine is an error of the broker."""

_numbers = itertools.count()
_running: list["Broker | BaseException"] = []
"""The broker, or why it did not start."""


class Broker:
    """The server, and its management API as its administrator."""

    def __init__(self, server: rabbitmq.RabbitMQServer, extra: Sequence[int], folder: Path) -> None:
        tls_port, amqps_port, self.stream_port, stream_tls_port, metrics_port = extra
        self.server = server
        self.url = server.management_url
        self.metrics_url = f"http://127.0.0.1:{metrics_port}"
        self.tls_url = f"https://127.0.0.1:{tls_port}"
        self.amqps_url = f"amqps://127.0.0.1:{amqps_port}"
        self.amqp_url = f"amqp://127.0.0.1:{server.amqp_port}"
        self.admin_url = f"amqp://{server.admin.name}:{server.admin.password}@127.0.0.1:{server.amqp_port}/"
        self.stream_url = f"rabbitmq-stream://127.0.0.1:{self.stream_port}"
        self.stream_tls_url = f"rabbitmq-stream+tls://127.0.0.1:{stream_tls_port}"
        self.ca = str(folder / "ca.pem")
        self.client = str(folder / "client.pem")

    async def start(self) -> None:
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop()

    async def declare(self, vhost: str = "/", name: str | None = None, kind: str = "classic") -> str:
        """Creates an empty queue and returns its name, by default a new one."""
        name = name or f"queue-{os.getpid()}-{next(_numbers)}"
        body = {"durable": kind != "classic", "arguments": {"x-queue-type": kind}}
        await self._request("PUT", f"/api/queues/{_quoted(vhost)}/{_quoted(name)}", body)
        return name

    async def define(self, **definitions: object) -> None:
        """Creates objects by definitions, also with names that no path can hold."""
        await self._request("POST", "/api/definitions", definitions)

    async def remove(self, path: str) -> None:
        """Removes an object of the management API, such as "users/NAME"."""
        await self._request("DELETE", f"/api/{path}", None)

    def connect(self) -> amqp.Connection:
        """Returns a client of vhost "/" with all permissions; its methods block."""
        return amqp.Connection(self.admin_url, timeout=60.0)

    async def publish(self, queue: str, count: int, vhost: str = "/", **properties: object) -> None:
        """Publishes messages to a queue."""
        message = {"properties": properties, "routing_key": queue, "payload": "work", "payload_encoding": "string"}
        for _ in range(count):
            await self._request("POST", f"/api/exchanges/{_quoted(vhost)}/amq.default/publish", message)

    @contextlib.asynccontextmanager
    async def holding(self, queue: str, count: int) -> AsyncIterator[list[Any]]:
        """Receives messages of a queue of vhost "/" and acknowledges none, as a busy consumer does; yields them."""
        aiormq = pytest.importorskip("aiormq", reason="needs the extra amqp")
        connection = await aiormq.connect(self.admin_url)
        try:
            channel = await connection.channel()
            received = [(await channel.basic_get(queue)).delivery for _ in range(count)]
            assert [each.name for each in received] == ["Basic.GetOk"] * count
            yield received
        finally:
            await connection.close()

    async def version(self) -> tuple[int, ...]:
        """Returns the version of the broker."""
        overview = await self._request("GET", "/api/overview", None)
        return tuple(int(part) for part in overview["rabbitmq_version"].split(".")[:3])

    async def _request(self, method: str, path: str, body: object) -> Any:
        admin = self.server.admin
        headers = {"Authorization": aiohttp.encode_basic_auth(admin.name, admin.password)}
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.request(method, yarl.URL(self.url + path, encoded=True), json=body) as response,
        ):
            assert response.status in (200, 201, 204), await response.text()
            return await response.json() if response.status == 200 else None


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _tls_configuration(folder: Path, port: int, amqps_port: int) -> tuple[str, ...]:
    """TLS ports of the management API and of AMQP that require a client certificate of the authority."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    served = authority.issue_cert("127.0.0.1", "broker.example.com")
    served.private_key_pem.write_to_path(folder / "key.pem")
    served.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    authority.issue_cert("hpad").private_key_and_cert_chain_pem.write_to_path(folder / "client.pem")
    options = {
        "cacertfile": f"{folder}/ca.pem",
        "certfile": f"{folder}/cert.pem",
        "keyfile": f"{folder}/key.pem",
        "verify": "verify_peer",
        "fail_if_no_peer_cert": "true",
    }
    return (
        "management.ssl.ip = 127.0.0.1",
        f"management.ssl.port = {port}",
        f"listeners.ssl.local = 127.0.0.1:{amqps_port}",
        *(
            f"{section}.{name} = {value}"
            for section in ("management.ssl", "ssl_options")
            for name, value in options.items()
        ),
    )


def _made(folder: Path) -> Broker:
    extra = tls_port, amqps_port, stream_port, stream_tls_port, metrics_port = ports.free(5)
    server = rabbitmq.RabbitMQServer(
        users=(GUEST, MONITOR, READER, PLAIN, STRANGER),
        vhosts=VHOSTS,
        queues=[
            *(rabbitmq.Queue(f"q{number:04}", "many") for number in range(MANY)),
            *(rabbitmq.Queue(name) for name in OF_TESTS),
        ],
        plugins=("rabbitmq_stream", "rabbitmq_prometheus"),
        configuration=(
            *_tls_configuration(folder, tls_port, amqps_port),
            f"stream.listeners.tcp.local = 127.0.0.1:{stream_port}",
            f"stream.listeners.ssl.local = 127.0.0.1:{stream_tls_port}",
            "prometheus.tcp.ip = 127.0.0.1",
            f"prometheus.tcp.port = {metrics_port}",
        ),
    )
    return Broker(server, extra, folder)


@pytest.fixture(scope="session")
def shared_broker() -> Broker:
    """The Broker with the users, vhosts and queues of the constants above, which no test changes."""
    if not rabbitmq.RabbitMQServer.installed():
        pytest.skip(rabbitmq.ABSENT)
    [found] = _running
    if isinstance(found, BaseException):
        raise found
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, Any, Any]:
    """Starts the broker if a test needs it, and stops it when all tests have ended."""
    if not _needed(session):
        return (yield)
    with tempfile.TemporaryDirectory(prefix="hpad-broker-") as folder:
        broker = _made(Path(folder))
        try:
            _running.append(asyncio.run(_start(broker)) or broker)
            return (yield)
        finally:
            asyncio.run(broker.stop())


def _needed(session: pytest.Session) -> bool:
    """Returns whether a test has the fixture, or names it in a parameter."""
    if session.config.option.collectonly or not rabbitmq.RabbitMQServer.installed():
        return False
    functions = [item for item in session.items if isinstance(item, pytest.Function)]
    parameters = (item.callspec.params.values() for item in functions if hasattr(item, "callspec"))
    return any("shared_broker" in item.fixturenames for item in functions) or any(
        "shared_broker" in each for each in parameters
    )


async def _start(broker: Broker) -> BaseException | None:
    [error] = await asyncio.gather(broker.start(), return_exceptions=True)
    return error
