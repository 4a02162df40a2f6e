"""No write leaves the process after the leadership lease has ended, wherever it was held up."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.lease_candidates import ANY, Candidate
from support.lease_candidates import Server as LeaseServer
from support.virtual_time import VirtualClock, in_virtual_time, now, until

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.clock import SystemClock
from hpad.election.owner import Edited, NotOwned, Permit
from hpad.engine.conditions import Event
from hpad.kube import client as clients
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.errors import ApiError
from hpad.kube.events import EventRecorder
from hpad.kube.http.exchange import Allowed, Answer
from hpad.kube.http.session import Session

CONFIG = ClusterConfig("http://127.0.0.1:1")
RENEW_DEADLINE = 10.0
LARGE = b"x" * (64 << 20)
"""More than the buffers of two sockets hold."""


class Stalling:
    """A Sender that is held up before it asks for permission, and between permission and hand-over."""

    def __init__(self, before: float = 0.0, after: float = 0.0) -> None:
        self.sent: list[float] = []
        self._before, self._after = before, after

    async def send(
        self, method: str, target: str, head: Any, body: bytes | None, timeout: float, allowed: Allowed | None
    ) -> Answer:
        await asyncio.sleep(self._before)
        if allowed is not None:
            allowed()
        await asyncio.sleep(self._after)
        self.sent.append(now())
        return Answer(200, {}, b"{}")

    async def aclose(self) -> None: ...


def client_with(sender: Any, monkeypatch: pytest.MonkeyPatch) -> clients.Client:
    monkeypatch.setattr(clients, "_sender", lambda *_: sender)
    return clients.Client(CONFIG, VirtualClock())


async def written(client: clients.Client, allowed: Callable[[], Any]) -> None:
    await client.request("PUT", "/scale", body=b"{}", allowed=allowed, timeout=600.0)


def permit_of(candidate: Candidate) -> Permit:
    return Permit(candidate.leader, ANY, HorizontalPodAutoscaler())


@in_virtual_time
async def test_a_write_that_stalls_after_its_permission_ends_with_the_lease() -> None:
    with pytest.MonkeyPatch.context() as patch:
        sender = Stalling(after=60.0)
        client = client_with(sender, patch)
        candidate = Candidate("a", LeaseServer()).start()
        await until(lambda: candidate.leads)
        await asyncio.sleep(30)
        candidate.network.cut = True
        began = now()
        with pytest.raises(ApiError, match="before the permission for the write ended"):
            await written(client, permit_of(candidate).require)
        assert began < now() <= began + RENEW_DEADLINE
        await asyncio.sleep(120)
    assert sender.sent == []
    await candidate.stop()


@in_virtual_time
async def test_a_write_that_stalls_before_its_permission_is_refused() -> None:
    with pytest.MonkeyPatch.context() as patch:
        sender = Stalling(before=60.0)
        client = client_with(sender, patch)
        candidate = Candidate("a", LeaseServer()).start()
        await until(lambda: candidate.leads)
        candidate.network.cut = True
        with pytest.raises(NotOwned):
            await written(client, permit_of(candidate).require)
    assert sender.sent == []
    await candidate.stop()


@in_virtual_time
async def test_a_renewal_before_the_permission_counts() -> None:
    """A write may wait for a connection for longer than the lease was when it began."""
    with pytest.MonkeyPatch.context() as patch:
        sender = Stalling(before=60.0, after=1.0)
        client = client_with(sender, patch)
        candidate = Candidate("a", LeaseServer()).start()
        await until(lambda: candidate.leads)
        await written(client, permit_of(candidate).require)
    assert len(sender.sent) == 1
    await candidate.stop()


@in_virtual_time
@pytest.mark.parametrize("stall", [{"before": 60.0}, {"after": 60.0}])
async def test_an_event_is_not_written_after_the_lease(stall: dict[str, float]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        sender = Stalling(**stall)
        events = EventRecorder(client_with(sender, patch))
        candidate = Candidate("a", LeaseServer()).start()
        await until(lambda: candidate.leads)
        candidate.network.cut = True
        hpa = HorizontalPodAutoscaler()
        events.record(hpa, Event("Normal", "SuccessfulRescale", "New size: 4"), permit_of(candidate).require_owned)
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(events.run())
            await events.flush()
            writing.cancel()
    assert (sender.sent, events.dropped) == ([], 1)
    await candidate.stop()


@in_virtual_time
async def test_an_edit_of_the_hpa_does_not_prevent_an_event() -> None:
    candidate = Candidate("a", LeaseServer()).start()
    await until(lambda: candidate.leads)
    deleted = Permit(candidate.leader, ANY, HorizontalPodAutoscaler(), lambda key: None)
    assert 0 < (deleted.require_owned() or 0) <= RENEW_DEADLINE
    with pytest.raises(Edited):
        deleted.require()
    await candidate.stop()


@in_virtual_time
async def test_a_read_needs_no_permission() -> None:
    with pytest.MonkeyPatch.context() as patch:
        sender = Stalling(after=600.0)
        await client_with(sender, patch).request("GET", "/scale", timeout=900.0)
    assert len(sender.sent) == 1


@pytest.mark.filterwarnings("ignore:Sending a large body")
async def test_what_the_connection_has_not_sent_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server does not read before the permission has ended: the rest of the write stays in the process."""
    reads, received = asyncio.Event(), 0
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        await reads.wait()
        try:
            while part := await reader.read(1 << 20):
                received += len(part)
        except ConnectionError:
            pass
        writer.close()
        closed.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        config = ClusterConfig(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        sender = Session(config, SystemClock(), "hpad", 99)
        monkeypatch.setattr(clients, "_sender", lambda *_: sender)
        client = clients.Client(config, SystemClock())
        with pytest.raises(ApiError, match="before the permission for the write ended"):
            await client.request("PUT", "/scale", body=LARGE, allowed=lambda: 0.5, timeout=600.0)
        reads.set()
        async with asyncio.timeout(60):
            await closed.wait()
        await client.aclose()
    assert received < len(LARGE)


async def test_the_check_of_a_body_is_made_where_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing reaches the server, not even the head, if the permission ends while aiohttp prepares the request."""

    class Ended(Exception):
        pass

    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(100))
        writer.close()

    def ends() -> None:
        raise Ended

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        config = ClusterConfig(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        sender = Session(config, SystemClock(), "hpad", 99)
        monkeypatch.setattr(clients, "_sender", lambda *_: sender)
        client = clients.Client(config, SystemClock())
        with pytest.raises(Ended):
            await client.request("PUT", "/scale", body=b"{}", allowed=ends)
        await client.aclose()
        await asyncio.sleep(0)
    assert heard in ([], [b""])
