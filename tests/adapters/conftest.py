"""A real RabbitMQ, one per test session, a cluster, and a server whose answers a test sets."""

import asyncio
import contextlib
import itertools
import os
import socket
import urllib.parse
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
import yarl
from support import http_stub

from hpad import clock as clocks
from hpad import testing
from hpad.adapter import Context
from hpad.kube import client
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.cluster import ApiReads
from hpad.lab.cluster import Cluster
from hpad.lab.demo.workloads import amqp
from hpad.lab.servers import ports, rabbitmq

PLAIN = rabbitmq.User("plain", "plain-pw", (), ("/",))
STRANGER = rabbitmq.User("stranger", "stranger-pw", ("monitoring",))
MANY = 1_203
"""More than two pages."""
VHOSTS = ("/", "a/b", "ü", "many", "mine")
MONITOR = rabbitmq.User("monitor", "m0nitor:pw/ü", ("monitoring",), sees=VHOSTS)

collect_ignore = [] if os.environ.get("HPAD_TEST_RABBITMQ") else ["test_rabbitmq_named_broker.py"]

_numbers = itertools.count()


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
        self.stream_url = f"rabbitmq-stream://127.0.0.1:{self.stream_port}"
        self.stream_tls_url = f"rabbitmq-stream+tls://127.0.0.1:{stream_tls_port}"
        self.ca = str(folder / "ca.pem")
        self.client = str(folder / "client.pem")

    async def declare(self, vhost: str = "/", name: str | None = None, kind: str = "classic") -> str:
        """Creates an empty queue and returns its name, by default a new one."""
        name = name or f"queue-{next(_numbers)}"
        body = {"durable": kind != "classic", "arguments": {"x-queue-type": kind}}
        await self._request("PUT", f"/api/queues/{_quoted(vhost)}/{_quoted(name)}", body)
        return name

    async def define(self, **definitions: object) -> None:
        """Creates objects by definitions, also with names that no path can hold."""
        await self._request("POST", "/api/definitions", definitions)

    def connect(self) -> amqp.Connection:
        """Returns a client of vhost "/" with all permissions; its methods block."""
        admin = self.server.admin
        url = f"amqp://{admin.name}:{admin.password}@127.0.0.1:{self.server.amqp_port}/"
        return amqp.Connection(url, timeout=60.0)

    async def publish(self, queue: str, count: int, vhost: str = "/", **properties: object) -> None:
        """Publishes messages to a queue."""
        message = {"properties": properties, "routing_key": queue, "payload": "work", "payload_encoding": "string"}
        for _ in range(count):
            await self._request("POST", f"/api/exchanges/{_quoted(vhost)}/amq.default/publish", message)

    @contextlib.asynccontextmanager
    async def holding(self, queue: str, count: int) -> AsyncIterator[list[Any]]:
        """Receives messages of a queue of vhost "/" and acknowledges none, as a busy consumer does; yields them."""
        aiormq = pytest.importorskip("aiormq", reason="needs the extra amqp")
        admin = self.server.admin
        connection = await aiormq.connect(f"amqp://{admin.name}:{admin.password}@127.0.0.1:{self.server.amqp_port}/")
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


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker with the users, vhosts and queues of the constants above, which no test changes."""
    if not rabbitmq.RabbitMQServer.installed():
        pytest.skip(rabbitmq.ABSENT)
    many = [rabbitmq.Queue(f"q{number:04}", "many") for number in range(MANY)]
    folder = tmp_path_factory.mktemp("rabbitmq")
    extra = tls_port, amqps_port, stream_port, stream_tls_port, metrics_port = ports.free(5)
    server = rabbitmq.RabbitMQServer(
        users=(MONITOR, PLAIN, STRANGER),
        vhosts=VHOSTS,
        queues=many,
        plugins=("rabbitmq_stream", "rabbitmq_prometheus"),
        configuration=(
            *_tls_configuration(folder, tls_port, amqps_port),
            f"stream.listeners.tcp.local = 127.0.0.1:{stream_port}",
            f"stream.listeners.ssl.local = 127.0.0.1:{stream_tls_port}",
            "prometheus.tcp.ip = 127.0.0.1",
            f"prometheus.tcp.port = {metrics_port}",
        ),
    )
    asyncio.run(server.start())
    yield Broker(server, extra, folder)
    asyncio.run(server.stop())
    for port in (server.management_port, server.amqp_port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 1)


@pytest.fixture
async def rabbit() -> AsyncIterator[Context]:
    """The Context of a source named "rabbit"."""
    async with testing.context("rabbit") as context:
        yield context


class KubernetesApi:
    """An embedded cluster, and the Context with which adapters read it."""

    def __init__(self, cluster: Cluster, context: Context) -> None:
        self.cluster = cluster
        self.context = context


@pytest.fixture
async def kubernetes() -> AsyncIterator[KubernetesApi]:
    """A cluster without controllers and processes: the test sets pods and their usage."""
    clock = clocks.SystemClock()
    async with (
        Cluster(kubelet=False, controllers=False) as cluster,
        client.Client(ClusterConfig(server=cluster.url), clock) as api,
        testing.context("metrics-server", api=ApiReads(api)) as context,
    ):
        yield KubernetesApi(cluster, context)


@pytest.fixture
async def context() -> AsyncIterator[Context]:
    """The Context of a source that needs no API server."""
    async with testing.context("source") as context:
        yield context


@pytest.fixture
async def stub() -> AsyncIterator[http_stub.Stub]:
    """A server whose answers the test sets."""
    stub = http_stub.Stub()
    async with http_stub.serving(stub.handle) as stub.url:
        yield stub
