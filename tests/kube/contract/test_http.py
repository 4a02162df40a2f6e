"""What goes over the wire: many requests and watches at once, and large bodies."""

import asyncio
import json
from contextlib import aclosing

REQUESTS = 150
WATCHES = 120


def config_map(size):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"x": "y" * size}}


async def test_requests_and_watches_run_at_once_and_carry_large_bodies(api):
    path = f"/api/v1/namespaces/{api.namespace}/configmaps"
    await api.ask("POST", path, config_map(900_000))
    found = await asyncio.gather(*(api.client.request("GET", f"{path}/large") for _ in range(REQUESTS)))
    assert {len(json.loads(each)["data"]["x"]) for each in found} == {900_000}

    async def watch():
        seen = b""
        async with aclosing(api.client.stream(path, {"watch": "1", "timeoutSeconds": "300"}, 60.0)) as parts:
            while b"\n" not in seen:
                seen += await anext(parts)
        return seen

    for watched in await asyncio.gather(*(watch() for _ in range(WATCHES))):
        assert json.loads(watched.splitlines()[0])["type"] == "ADDED"
