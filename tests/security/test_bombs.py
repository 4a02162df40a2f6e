"""A compressed answer that expands beyond the limit is an error, and is not expanded first."""

import functools
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from hpad import testing
from hpad.adapter import AdapterError
from hpad_adapters.prometheus import Prometheus
from hpad_adapters.rabbitmq import RabbitMQ

EXPANDED = 200 << 20
SOURCES: dict[type, dict[str, Any]] = {
    Prometheus: {"metrics": {"depth": {"query": "x"}}},
    RabbitMQ: {},
}


@functools.cache
def spaces() -> bytes:
    """Returns 200 MiB of spaces, compressed; made once, since that takes a second."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(compressor.compress(b" " * (1 << 20)) for _ in range(EXPANDED >> 20)) + compressor.flush()


@asynccontextmanager
async def bomb() -> AsyncIterator[str]:
    """A server whose answers are 200 MiB of spaces, compressed although clients ask for `identity`."""
    compressed = spaces()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        assert request.headers["Accept-Encoding"] == "identity"
        response = web.Response(body=compressed, content_type="application/json")
        response.headers["Content-Encoding"] = "gzip"
        return response

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("kind", SOURCES)
async def test_a_compressed_answer_is_expanded_only_up_to_the_limit(kind: Any) -> None:
    async with bomb() as url, testing.context("compressed") as context:
        adapter = kind(msgspec.convert({"url": url, **SOURCES[kind]}, kind.Settings), context)
        tracemalloc.start()
        try:
            name = "queue_messages" if kind is RabbitMQ else "depth"
            (answer,) = await adapter.answer([testing.external(name, "queue=work" if kind is RabbitMQ else None)])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await adapter.aclose()
    assert isinstance(answer, AdapterError)
    assert answer.blame == "source"
    assert peak < 100 << 20
