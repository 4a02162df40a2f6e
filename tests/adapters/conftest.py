"""A real RabbitMQ, one per test session, and a server that answers whatever a test says."""

import asyncio
import contextlib
import itertools
import socket
import struct
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import aiohttp
import pytest
import trustme
import yarl
from aiohttp import web

from hpad import clock as clocks
from hpad import testing
from hpad.adapter import Context
from hpad.kube import client
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.cluster import Api
from hpad.lab.cluster import Cluster
from hpad.lab.demo.workloads import amqp
from hpad.lab.servers import ports, rabbitmq

PLAIN = rabbitmq.User("plain", "plain-pw", (), ("/",))
STRANGER = rabbitmq.User("stranger", "stranger-pw", ("monitoring",))
MANY = 1_203
"""More than two pages."""
VHOSTS = ("/", "a/b", "ü", "many", "mine")
MONITOR = rabbitmq.User("monitor", "m0nitor:pw/ü", ("monitoring",), sees=VHOSTS)

_numbers = itertools.count()


class Broker:
    """What tests do with the server, through its management API as its administrator."""

    def __init__(self, server: rabbitmq.RabbitMQServer, extra: Sequence[int], folder: Path) -> None:
        tls_port, amqps_port = extra
        self.server = server
        self.url = server.management_url
        self.tls_url = f"https://127.0.0.1:{tls_port}"
        self.amqps_url = f"amqps://127.0.0.1:{amqps_port}"
        self.amqp_url = f"amqp://127.0.0.1:{server.amqp_port}"
        self.ca = str(folder / "ca.pem")
        self.client = str(folder / "client.pem")

    async def declare(self, vhost: str = "/", name: str | None = None, kind: str = "classic") -> str:
        """Make an empty queue; its name is new unless given."""
        name = name or f"queue-{next(_numbers)}"
        body = {"durable": kind != "classic", "arguments": {"x-queue-type": kind}}
        await self._request("PUT", f"/api/queues/{_quoted(vhost)}/{_quoted(name)}", body)
        return name

    async def define(self, **definitions: object) -> None:
        """What is there besides, under names that no path can hold too."""
        await self._request("POST", "/api/definitions", definitions)

    def connect(self) -> amqp.Connection:
        """A client of vhost "/" that may do everything; its methods block."""
        admin = self.server.admin
        url = f"amqp://{admin.name}:{admin.password}@127.0.0.1:{self.server.amqp_port}/"
        return amqp.Connection(url, timeout=60.0)

    async def publish(self, queue: str, count: int, vhost: str = "/") -> None:
        """Put messages on a queue."""
        message = {"properties": {}, "routing_key": queue, "payload": "work", "payload_encoding": "string"}
        for _ in range(count):
            await self._request("POST", f"/api/exchanges/{_quoted(vhost)}/amq.default/publish", message)

    @contextlib.asynccontextmanager
    async def holding(self, queue: str, count: int) -> AsyncIterator[None]:
        """Take messages off a queue of vhost "/" and acknowledge none, as a busy consumer does (AMQP 0-9-1)."""
        admin = self.server.admin
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.amqp_port)
        try:
            writer.write(b"AMQP\0\0\x09\1")
            await _frame(reader)  # connection.start
            login = f"\0{admin.name}\0{admin.password}".encode()
            start_ok = struct.pack(">HHI", 10, 11, 0) + b"\5PLAIN" + struct.pack(">I", len(login)) + login + b"\5en_US"
            await _call(reader, writer, 0, start_ok)  # connection.tune
            _send(writer, 0, struct.pack(">HHHIH", 10, 31, 2047, 131072, 0))  # connection.tune-ok
            await _call(reader, writer, 0, struct.pack(">HH", 10, 40) + b"\1/\0\0")
            await _call(reader, writer, 1, struct.pack(">HH", 20, 10) + b"\0")
            get = struct.pack(">HHHB", 60, 70, 0, len(queue)) + queue.encode() + b"\0"
            for _ in range(count):
                assert (await _call(reader, writer, 1, get))[:4] == struct.pack(">HH", 60, 71)  # basic.get-ok
                await _frame(reader)
                await _frame(reader)
            yield
        finally:
            writer.close()
            await writer.wait_closed()

    async def _request(self, method: str, path: str, body: object) -> None:
        admin = self.server.admin
        headers = {"Authorization": aiohttp.encode_basic_auth(admin.name, admin.password)}
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.request(method, yarl.URL(self.url + path, encoded=True), json=body) as response,
        ):
            assert response.status in (200, 201, 204), await response.text()


def _send(writer: asyncio.StreamWriter, channel: int, method: bytes) -> None:
    writer.write(struct.pack(">BHI", 1, channel, len(method)) + method + b"\xce")


async def _frame(reader: asyncio.StreamReader) -> bytes:
    _, _, size = struct.unpack(">BHI", await reader.readexactly(7))
    return (await reader.readexactly(size + 1))[:-1]


async def _call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, channel: int, method: bytes) -> bytes:
    _send(writer, channel, method)
    return await _frame(reader)


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _tls_configuration(folder: Path, port: int, amqps_port: int) -> tuple[str, ...]:
    """A second port of the management API, and one of AMQP, that want to see a certificate of our authority."""
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
        *(f"{room}.{name} = {value}" for room in ("management.ssl", "ssl_options") for name, value in options.items()),
    )


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Users, vhosts and queues that no test changes are loaded with the start; see the constants above."""
    if not rabbitmq.RabbitMQServer.installed():
        pytest.skip(rabbitmq.ABSENT)
    many = [rabbitmq.Queue(f"q{number:04}", "many") for number in range(MANY)]
    folder = tmp_path_factory.mktemp("rabbitmq")
    extra = tls_port, amqps_port = ports.free(2)
    server = rabbitmq.RabbitMQServer(
        users=(MONITOR, PLAIN, STRANGER),
        vhosts=VHOSTS,
        queues=many,
        configuration=_tls_configuration(folder, tls_port, amqps_port),
    )
    asyncio.run(server.start())
    yield Broker(server, extra, folder)
    asyncio.run(server.stop())
    for port in (server.management_port, server.amqp_port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 1)


@pytest.fixture
async def rabbit() -> AsyncIterator[Context]:
    """The capabilities of a source named "rabbit"."""
    async with testing.context("rabbit") as context:
        yield context


class KubernetesApi:
    """An embedded cluster, and the way adapters read it."""

    def __init__(self, cluster: Cluster, context: Context) -> None:
        self.cluster = cluster
        self.context = context


@pytest.fixture
async def kubernetes() -> AsyncIterator[KubernetesApi]:
    """A cluster without controllers and processes: pods and their usage are what the test sets."""
    clock = clocks.SystemClock()
    async with (
        Cluster(kubelet=False, controllers=False) as cluster,
        client.Client(ClusterConfig(server=cluster.url), clock) as api,
        testing.context("metrics-server", api=Api(api)) as context,
    ):
        yield KubernetesApi(cluster, context)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Stub:
    """A server on loopback whose answers are the test's; remembers the requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[web.Request] = []
        self.handler: Handler | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        assert self.handler is not None
        return await self.handler(request)

    def answers(
        self, body: str | bytes = b"", status: int = 200, content_type: str = "application/json", **headers: str
    ):
        """Answer every request alike."""
        encoded = body.encode() if isinstance(body, str) else body

        async def handler(request: web.Request) -> web.Response:
            return web.Response(body=encoded, status=status, content_type=content_type, headers=headers)

        self.handler = handler


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    """The server listens before the test begins and is gone after it."""
    made: list[Stub] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        return await made[0].handle(request)

    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    made.append(Stub(f"http://{host}:{port}"))
    yield made[0]
    await runner.cleanup()
