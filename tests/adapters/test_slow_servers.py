"""Sources of extras whose server accepts connections and says nothing: an attempt can be cancelled at any time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from hpad import testing
from hpad.adapter import Adapter, Query
from hpad_adapters.kafka import Kafka
from hpad_adapters.keda_external import KedaExternal
from hpad_adapters.nats_jetstream import NatsJetStream
from hpad_adapters.postgresql import PostgreSQL
from hpad_adapters.sqs import Sqs

ENDED_SECONDS = 60.0


@asynccontextmanager
async def silent() -> AsyncIterator[tuple[int, asyncio.Event]]:
    """Serves a port; the event is set once a client has sent something."""
    heard = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1024):
            heard.set()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


def source(kind: type[Adapter], port: int) -> tuple[dict[str, Any], Query]:
    if kind is Kafka:
        return {"bootstrap_servers": [f"127.0.0.1:{port}"]}, testing.external("kafka_lag", "group=g,topic=t")
    if kind is KedaExternal:
        return {"address": f"127.0.0.1:{port}", "metrics": {"storms": {}}}, testing.external("storms")
    if kind is NatsJetStream:
        return {"url": f"http://127.0.0.1:{port}"}, testing.external("nats_consumer_lag", "stream=s,consumer=c")
    if kind is PostgreSQL:
        metrics = {"depth": {"query": "SELECT 1"}}
        database = {"host": "127.0.0.1", "port": port, "database": "d", "username": "u", "sslmode": "disable"}
        return {**database, "metrics": metrics}, testing.external("depth")
    keys = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": "not-a-secret"}
    return {"region": "eu-west-1", "endpoint_url": f"http://127.0.0.1:{port}", **keys}, testing.external(
        "sqs_messages", "queue=jobs"
    )


@pytest.mark.parametrize("kind", [Kafka, KedaExternal, NatsJetStream, PostgreSQL, Sqs])
async def test_an_attempt_at_a_silent_server_ends_when_it_is_cancelled(kind: type[Adapter]) -> None:
    async with silent() as (port, heard), testing.context("slow") as context:
        options, query = source(kind, port)
        adapter = kind(msgspec.convert(options, kind.Settings), context)
        attempt = asyncio.create_task(adapter.answer([query]))
        async with asyncio.timeout(ENDED_SECONDS):
            await heard.wait()
            attempt.cancel()
            await asyncio.wait({attempt})
            await adapter.aclose()
        assert attempt.cancelled()
