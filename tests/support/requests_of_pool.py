"""Requests by the pool of hpad.kube.http to a server on loopback."""

import pytest
from support.raw_http import RawServer

from hpad.clock import SystemClock
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.http.exchange import Answer, Failed, Head
from hpad.kube.http.pool import Pool

HEAD = Head({"Accept": "application/json"})


def opened(server: RawServer, largest: int = 2**20) -> Pool:
    return Pool(ClusterConfig(server.url), SystemClock(), "hpad", largest)


async def ask(client: Pool, method: str = "GET", body: bytes | None = None, allowed=None, timeout=30.0) -> Answer:
    return await client.send(method, "/path", HEAD, body, timeout, allowed)


async def fails(client: Pool, method: str = "GET", body: bytes | None = None, allowed=None, timeout=30.0) -> Failed:
    with pytest.raises(Failed) as caught:
        await ask(client, method, body, allowed, timeout)
    return caught.value
