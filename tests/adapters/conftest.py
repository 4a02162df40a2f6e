"""A real RabbitMQ, a cluster, and a server whose answers a test sets."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest
from support import brokers, celery_forks, http_stub

from hpad import clock as clocks
from hpad import testing
from hpad.adapter import Context
from hpad.kube import client
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.cluster import ApiReads
from hpad.lab.cluster import Cluster
from hpad_adapters.redis_servers import clients

collect_ignore = [] if os.environ.get("HPAD_TEST_RABBITMQ") else ["test_rabbitmq_named_broker.py"]


@pytest.fixture(scope="session")
def broker(shared_broker: brokers.Broker) -> brokers.Broker:
    """The broker of `support.brokers`."""
    return shared_broker


@pytest.fixture(scope="session")
def forks() -> Iterator[celery_forks.Forks]:
    """Starts workers of Celery."""
    made = celery_forks.Forks()
    yield made
    made.close()


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
def patient_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a node and a sentinel of Redis a minute: a busy machine may stand still for longer than hpad waits."""
    monkeypatch.setattr(clients, "NODE_SECONDS", 60.0)
    monkeypatch.setattr(clients, "SENTINEL_SECONDS", 60.0)


@pytest.fixture
async def stub() -> AsyncIterator[http_stub.Stub]:
    """A server whose answers the test sets."""
    stub = http_stub.Stub()
    async with http_stub.serving(stub.handle) as stub.url:
        yield stub
