"""A source of each adapter at a server that the test chooses, for the faults that all servers have."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from support.brokers import PATIENT

from hpad import clock as clocks
from hpad import testing
from hpad.adapter import Adapter, Query
from hpad.kube import client
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.cluster import ApiReads
from hpad.sources import plugins

SECRET = "s3cr3t"
_LOGIN = {"username": "hpad", "password": SECRET}


class Server(NamedTuple):
    """A port of 127.0.0.1, and the file of the authority of its certificate; "" without TLS."""

    port: int
    ca: str = ""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, scheme: str = "http") -> str:
        """Returns a URL, whose scheme has an s at its end with TLS."""
        return f"{scheme}{'s' if self.ca else ''}://{self.address}"


def _options(source: str, at: Server) -> dict[str, Any]:
    """Returns the settings of a source."""
    tls = {"ca": at.ca}
    redis = {"password": SECRET, **tls}
    nodes = {"nodes": [at.address], "tls": bool(at.ca)}
    options: dict[str, dict[str, Any]] = {
        "celery over rabbitmq": {"rabbitmq": {"url": at.url(), **_LOGIN, **PATIENT, **tls}},
        "celery over redis": {"redis": {"url": at.url("redis"), **redis}},
        "http-json": {"metrics": {"depth": {"url": at.url(), "path": "depth"}}, **_LOGIN, **tls},
        "kafka": {
            "bootstrap_servers": [at.address],
            "request_timeout": "60s",
            **({"tls": True, **tls} if at.ca else {}),
        },
        "keda-external": {"address": at.address, "metrics": {"depth": {}}, **({"tls": True, **tls} if at.ca else {})},
        "nats-jetstream": {"url": at.url(), **tls},
        "postgresql": {
            **{"host": "127.0.0.1", "port": at.port, "database": "d", "metrics": {"depth": {"query": "SELECT 1"}}},
            **{**_LOGIN, **({"sslmode": "verify-full", **tls} if at.ca else {"sslmode": "disable"})},
        },
        "prometheus": {"url": at.url(), "metrics": {"depth": {"query": "depth"}}, **_LOGIN, **tls},
        "rabbitmq": {"url": at.url(), **_LOGIN, **PATIENT, **tls},
        "rabbitmq over amqp": {"url": at.url("amqp"), "source": "amqp", **_LOGIN, **PATIENT, **tls},
        "redis": {"url": at.url("redis"), **redis},
        "redis cluster": {"cluster": nodes, **redis},
        "redis sentinel": {"sentinel": {"master": "main", **nodes}, **redis},
        "seasonal": {"url": at.url(), "metrics": {"depth": {"query": "depth"}}, **_LOGIN, **tls},
        "sqs": {
            **{"region": "eu-west-1", "endpoint_url": at.url()},
            **{"access_key_id": "AKIDEXAMPLE", "secret_access_key": SECRET},
        },
    }
    return options.get(source, {})


QUERIES: dict[str, Query] = {
    "celery over rabbitmq": testing.external("celery_tasks", "queue=mail"),
    "celery over redis": testing.external("celery_tasks", "queue=mail"),
    "custom-metrics": testing.pods_metric("depth", "app=web"),
    "external-metrics": testing.external("depth"),
    "http-json": testing.external("depth"),
    "kafka": testing.external("kafka_lag", "group=g,topic=t"),
    "keda-external": testing.external("depth"),
    "kubernetes-workload": testing.external("workload_pods", "app=web"),
    "metrics-server": testing.resource("cpu", "app=web"),
    "nats-jetstream": testing.external("nats_consumer_lag", "stream=s,consumer=c"),
    "postgresql": testing.external("depth"),
    "prometheus": testing.external("depth"),
    "rabbitmq": testing.external("queue_messages", "queue=mail"),
    "rabbitmq over amqp": testing.external("queue_messages_ready", "queue=mail"),
    "redis": testing.external("redis_list_length", "key=mail"),
    "redis cluster": testing.external("redis_list_length", "key=mail"),
    "redis sentinel": testing.external("redis_list_length", "key=mail"),
    "seasonal": testing.external("depth"),
    "sqs": testing.external("sqs_messages", "queue=mail"),
}
"""Each source that has a server, and a query that it answers."""
_CLASSES = {source: plugins.adapter_class(source.partition(" ")[0]) for source in QUERIES}
THROUGH_THE_API_SERVER = ("custom-metrics", "external-metrics", "kubernetes-workload", "metrics-server")
_OVER_HTTP = ("celery over rabbitmq", "http-json", "nats-jetstream", "prometheus", "rabbitmq", "seasonal", "sqs")
_OTHER_CERTIFICATES = ("postgresql", "sqs")
"""PostgreSQL offers TLS by a message of its own, and SQS takes its authority from the environment."""
CASES = {
    "down": tuple(QUERIES),
    "silent": tuple(QUERIES),
    "garbage": tuple(QUERIES),
    "wrong credentials": (*_OVER_HTTP, *THROUGH_THE_API_SERVER),
    "expired certificate": tuple(source for source in QUERIES if source not in _OTHER_CERTIFICATES),
    "empty answer": tuple(QUERIES),
    "a number that is worked off": tuple(QUERIES),
    "a quoted secret": tuple(QUERIES),
}
"""The sources for which `test_faults.py` has a test of each fault."""


@asynccontextmanager
async def adapter(source: str, at: Server) -> AsyncIterator[Adapter]:
    """Yields the adapter of a source whose server, or API server, is `at`."""
    kind, clock = _CLASSES[source], clocks.SystemClock()
    config = ClusterConfig(at.url(), ssl.create_default_context(cafile=at.ca) if at.ca else None)
    async with (
        client.Client(config, clock) as api,
        testing.context("source", api=ApiReads(api) if source in THROUGH_THE_API_SERVER else None) as context,
    ):
        made = kind(msgspec.convert(_options(source, at), kind.Settings), context)
        yield made
        await made.aclose()
