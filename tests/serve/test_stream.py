"""The stream of decisions, read by real HTTP clients."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
import structlog
from support import api_world, http_server
from support.api_world import QUEUE, World, scaled_up
from support.engine import Workload, series

from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.daemon import process
from hpad.engine.conditions import COMPETING_WRITERS, TRUE, Condition
from hpad.serve import limits, stream
from hpad.settings.model import Serving

SOON = 60.0
"""Seconds; no test waits as long unless it fails."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with api_world.opened() as made:
        yield made


class Reader:
    """The events of one stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def part(self) -> str:
        """Returns the next event or comment, "" at the end."""
        lines = []
        async with asyncio.timeout(SOON):
            while line := (await self.response.content.readline()).decode():
                if line == "\n":
                    return "".join(lines)
                lines.append(line)
        return ""

    async def decision(self) -> dict[str, Any]:
        """Returns the data of the next event, after any comments."""
        while (part := await self.part()) == ": keep-alive\n":
            pass
        kind, data = part.splitlines()
        assert kind == "event: decision"
        assert data.startswith("data: ")
        summary: dict[str, Any] = json.loads(data.removeprefix("data: "))
        return summary

    async def names(self, count: int) -> list[str]:
        return [(await self.decision())["name"] for _ in range(count)]


@contextlib.asynccontextmanager
async def followed(world: World, query: str = "") -> AsyncIterator[Reader]:
    """Opens a stream and reads its first line."""
    async with world.session.get(f"{world.server.url}/api/v1/decisions{query}") as response:
        assert (response.status, response.content_type) == (200, "text/event-stream"), await response.text()
        reader = Reader(response)
        assert await reader.part() == "retry: 15000\n"
        yield reader


async def until(world: World, clients: int) -> None:
    """Waits until the server has this number of streams."""
    async with asyncio.timeout(SOON):
        while len(world.server.streams) != clients:  # noqa: ASYNC110  # the server reports it nowhere
            await asyncio.sleep(0.01)


async def test_each_change_of_a_decision_is_an_event_with_the_summary(world: World) -> None:
    work = Workload(QUEUE, replicas=2)
    async with followed(world) as reader:
        for value in (20, 20):  # the second turn comes to the same decision as the first
            work.reconcile(series(value), after=15)
            world.decided(work)
        first = await reader.decision()
        work.reconcile(series(60), after=15)
        world.decided(work)
        second = await reader.decision()
    assert (first["name"], first["desiredReplicas"], second["desiredReplicas"]) == ("web", 2, 6)
    _, listed = await world.get("hpas")
    assert second == listed["items"][0]


async def test_streams_are_filtered(world: World) -> None:
    async with (
        followed(world, "?namespace=shop") as shop,
        followed(world, "?namespace=shop&name=web") as web,
        followed(world, "?search=CART") as cart,
        followed(world, "?kind=Autoscaler") as autoscalers,
    ):
        for namespace, name in (("default", "web"), ("shop", "cart"), ("shop", "web"), ("shop", "last-cart")):
            world.decided(scaled_up(), name, namespace)
        assert await shop.names(3) == ["cart", "web", "last-cart"]
        assert await web.names(1) == ["web"]
        assert await cart.names(2) == ["cart", "last-cart"]
        world.decided(scaled_up(), "last", kind="Autoscaler")
        found = await autoscalers.decision()
        assert (found["name"], found["kind"]) == ("last", "Autoscaler")


async def test_a_wrong_filter_is_a_400(world: World) -> None:
    meant = "unknown query parameter 'namspace' (did you mean \"namespace\"?)"
    error = f"{meant}: this path takes namespace, kind, search, name"
    assert await world.get("decisions?namspace=shop") == (400, {"error": error})


async def test_an_idle_stream_has_comments_and_outlives_the_time_limit_of_requests(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS", 0.05)
    monkeypatch.setattr(stream.Streams, "keep_alive", 0.1)
    async with followed(world) as reader:
        assert [await reader.part() for _ in range(4)] == [": keep-alive\n"] * 4
        world.decided(scaled_up())
        assert (await reader.decision())["name"] == "web"


async def test_streams_leave_the_slots_of_requests_free(world: World) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2 * limits.CONCURRENT_REQUESTS):
            await stack.enter_async_context(followed(world))
        assert (await world.get("hpas"))[0] == 200


async def test_too_many_streams_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_CLIENTS", 3)
    monkeypatch.setattr(stream.Streams, "keep_alive", 0.1)
    async with contextlib.AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(followed(world)) for _ in range(3)]
        async with world.session.get(f"{world.server.url}/api/v1/decisions") as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "15")
            assert await response.json() == {"error": "3 clients follow the decisions already, which is the most"}
        world.decided(scaled_up())
        for reader in readers:
            while await reader.part() == ": keep-alive\n":
                pass
    await until(world, 0)  # clients that have left are noticed at the next comment
    async with followed(world) as reader:
        world.decided(scaled_up(), "other")
        assert await reader.names(1) == ["other"]


async def test_without_clients_the_decisions_are_not_followed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream.Streams, "keep_alive", 0.1)
    async with followed(world):
        assert len(world.decisions._listeners) == 1
    await until(world, 0)
    assert len(world.decisions._listeners) == 0


@contextlib.asynccontextmanager
async def idle_client(world: World) -> AsyncIterator[None]:
    """Opens a stream of the namespace `default`, whose events have 200 kB each, and reads nothing."""
    world.decided(scaled_up())
    noted = Condition(COMPETING_WRITERS, TRUE, message="x" * 200_000)
    found = world.source.found[Key("default", "web")]
    world.source.put(msgspec.structs.replace(found, status=HorizontalPodAutoscalerStatus(conditions=(noted,))))
    host, port = world.server.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1024)
    before = len(world.server.streams)
    writer.write(b"GET /api/v1/decisions?namespace=default HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await until(world, before + 1)
    yield
    writer.close()


def change(world: World, count: int) -> None:
    """Adds a decision of the HPA default/web that differs from the one before."""
    work = Workload(QUEUE, replicas=2)
    work.reconcile(series(20 + count % 2 * 60))
    assert work.done is not None
    metadata = world.source.found[Key("default", "web")].metadata
    hpa = msgspec.structs.replace(work.done.view.hpa, metadata=metadata)
    world.decisions.add(msgspec.structs.replace(work.done, view=msgspec.structs.replace(work.done.view, hpa=hpa)))


LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, process.loop_factory()], ids=["asyncio", "default"])


@LOOPS
def test_a_client_that_leaves_too_many_events_unread_is_dropped(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_WAITING", 20)

    async def main() -> int:
        async with api_world.opened() as world, followed(world, "?namespace=shop") as other, idle_client(world):
            count = 0
            while len(world.server.streams) == 2 and count < 1000:
                change(world, count)
                count += 1
                await asyncio.sleep(0)
            world.decided(scaled_up(), "cart", "shop")
            assert await other.names(1) == ["cart"]
            return count

    with asyncio.Runner(loop_factory=loop) as runner:
        assert 20 < runner.run(main()) < 1000


@LOOPS
def test_a_client_that_takes_nothing_for_too_long_is_dropped(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream.Streams, "patience", 0.3)
    monkeypatch.setattr(stream, "MOST_WAITING", 10**9)

    async def main() -> None:
        async with api_world.opened() as world, idle_client(world):
            for count in range(100):  # 20 MB, more than all buffers between two sockets
                change(world, count)
            await until(world, 0)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


async def test_a_stream_ends_after_its_longest_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose credentials were withdrawn meanwhile cannot reconnect."""
    monkeypatch.setattr(stream.Streams, "longest", 0.1)
    async with followed(world) as reader:
        assert await reader.part() == ""


async def test_a_stop_ends_all_streams_at_once() -> None:
    async with asyncio.timeout(SOON), contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(trust_env=False))
        async with http_server.opened(Serving()) as server:
            url = f"{server.url}/api/v1/decisions"
            responses = [await stack.enter_async_context(session.get(url)) for _ in range(5)]
        for response in responses:
            assert await response.read() == b"retry: 15000\n\n"


async def test_an_error_while_an_event_is_made_ends_the_streams(world: World) -> None:
    """Their clients reconnect and read the list again, so they miss nothing."""

    def broken(key: object) -> None:
        raise RuntimeError("boom")

    world.source.get = broken  # type: ignore[method-assign,assignment]
    with structlog.testing.capture_logs() as logged:
        async with followed(world) as reader:
            world.decided(scaled_up())
            assert await reader.part() == ""
    assert [line["log_level"] for line in logged] == ["error"]


async def test_decisions_of_deleted_hpas_are_left_out(world: World) -> None:
    async with followed(world) as reader:
        world.decided(scaled_up(), "gone")
        world.source.found.clear()
        world.decided(scaled_up(), "web")
        assert await reader.names(1) == ["web"]


async def test_a_head_request_is_answered_without_a_stream(world: World) -> None:
    async with world.session.head(f"{world.server.url}/api/v1/decisions") as response:
        assert (response.status, response.content_type) == (200, "text/event-stream")
    assert len(world.server.streams) == 0
