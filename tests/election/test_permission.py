"""No write leaves the process after the leadership lease has ended, wherever it was held up."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from support.lease_candidates import ANY, Candidate
from support.lease_candidates import Server as LeaseServer
from support.raw_http import OK, RawServer
from support.virtual_time import VirtualClock, in_virtual_time, now, run, until

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.clock import SystemClock
from hpad.election.owner import Edited, NotLeading, Permit
from hpad.engine.conditions import Event
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.client import Client, Limiter
from hpad.kube.errors import ApiError
from hpad.kube.events import EventRecorder

RENEW_DEADLINE = 10.0
LARGE = b"x" * (64 << 20)
"""More than the buffers of two sockets hold."""


@asynccontextmanager
async def leading() -> AsyncIterator[Candidate]:
    candidate = Candidate("a", LeaseServer()).start()
    await until(lambda: candidate.leads, every=0.5)
    try:
        yield candidate
    finally:
        await candidate.stop()


async def written(client: Client, candidate: Candidate) -> None:
    hpa = HorizontalPodAutoscaler()
    permit = Permit(candidate.leader, ANY, hpa, lambda _: hpa)
    await client.request("PUT", "/scale", body=b"{}", allowed=permit.require, timeout=600.0)


@asynccontextmanager
async def stalling() -> AsyncIterator[tuple[Client, list[bytes]]]:
    """A client of a server that accepts connections and says nothing, also in TLS; what the server has heard."""
    heard: list[bytes] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            heard.append(await reader.read(-1))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        config = ClusterConfig(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with Client(config, VirtualClock()) as client:
            yield client, heard


def test_a_write_that_stalls_after_its_permission_ends_with_the_lease() -> None:
    """It stalls while it connects."""

    async def main() -> None:
        async with leading() as candidate, stalling() as (client, heard):
            await asyncio.sleep(30)
            candidate.network.cut = True
            await until(lambda: candidate.leader.remaining < 3.0, every=0.5)
            began, left = now(), candidate.leader.remaining
            with pytest.raises(ApiError, match="before the permission for the write ended"):
                await written(client, candidate)
            assert began < now() <= began + left
            await asyncio.sleep(120)
        assert len(heard) == 1  # the connection has ended in the handshake

    run(main(), io_grace=0.02)


@asynccontextmanager
async def slow(server: RawServer) -> AsyncIterator[Client]:
    """A client whose next request waits for a minute."""
    clock = VirtualClock()
    async with Client(ClusterConfig(server.url), clock, limiter=Limiter(clock, 1 / 60.0, 1)) as client:
        await client.request("GET", "/")
        yield client


def test_a_write_that_stalls_before_its_permission_is_refused() -> None:
    async def main() -> None:
        async with RawServer(OK).serving() as server, leading() as candidate:
            async with slow(server) as client:
                candidate.network.cut = True
                with pytest.raises(NotLeading):
                    await written(client, candidate)
            assert len(server.requests) == 1

    run(main(), io_grace=0.02)


def test_a_renewal_before_the_permission_counts() -> None:
    """A write may wait for the limiter for longer than the lease was when it began."""

    async def main() -> None:
        async with RawServer(OK).serving() as server, leading() as candidate:
            async with slow(server) as client:
                await written(client, candidate)
            assert len(server.requests) == 2

    run(main(), io_grace=0.02)


async def recorded(client: Client, candidate: Candidate) -> None:
    """Records an event, and expects that it is dropped."""
    events = EventRecorder(client)
    hpa = HorizontalPodAutoscaler()
    permit = Permit(candidate.leader, ANY, hpa, lambda _: hpa)
    events.record(permit.hpa, Event("Normal", "SuccessfulRescale", "New size: 4"), permit.require_leading)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(events.run())
        await events.flush(60)
        writing.cancel()
    assert events.dropped == 1


def test_an_event_is_not_written_after_the_lease() -> None:
    async def main() -> None:
        async with RawServer(OK).serving() as server, leading() as candidate:
            async with slow(server) as client:
                candidate.network.cut = True
                await recorded(client, candidate)
            assert len(server.requests) == 1
        async with leading() as candidate, stalling() as (client, heard):
            candidate.network.cut = True
            await until(lambda: candidate.leader.remaining < 3.0, every=0.5)
            await recorded(client, candidate)
            assert not candidate.leads
        assert all(each[:1] == b"\x16" for each in heard)  # a handshake

    run(main(), io_grace=0.02)


@in_virtual_time
async def test_an_edit_of_the_hpa_does_not_prevent_an_event() -> None:
    async with leading() as candidate:
        deleted = Permit(candidate.leader, ANY, HorizontalPodAutoscaler(), lambda key: None)
        assert 0 < (deleted.require_leading() or 0) <= RENEW_DEADLINE
        with pytest.raises(Edited):
            deleted.require()


@pytest.mark.filterwarnings("ignore:Sending a large body")
async def test_what_the_connection_has_not_sent_is_dropped() -> None:
    """The server does not read before the permission has ended: the rest of the write stays in the process."""
    reads, received = asyncio.Event(), 0
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            await reads.wait()
            while part := await reader.read(1 << 20):
                received += len(part)
        closed.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        config = ClusterConfig(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        client = Client(config, SystemClock())
        with pytest.raises(ApiError, match="before the permission for the write ended"):
            await client.request("PUT", "/scale", body=LARGE, allowed=lambda: 4.0, timeout=600.0)
        reads.set()
        async with asyncio.timeout(60):
            await closed.wait()
        await client.aclose()
    assert received < len(LARGE)
