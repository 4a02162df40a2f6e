"""HTTP/2 of the cluster bench's stub server: what it sends for the bytes of a client, and hpad as its client."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import hpack
import pytest
from support import raw_http

from hpad.clock import SystemClock
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.http import frames
from hpad.kube.http.exchange import Head
from hpad.kube.http.pool import Pool
from hpad.kube.http.shared import Shared
from tools.bench.cluster import worlds
from tools.bench.cluster.population import Population
from tools.bench.cluster.stub import header_block, http, http1, http2
from tools.bench.cluster.stub.api import Api
from tools.bench.cluster.stub.http import Answer, Channel, Handler, Request
from tools.bench.cluster.stub.listen import listen, tls
from tools.bench.cluster.stub.storms import Storms
from tools.bench.cluster.stub.watching import Change

HEAD = Head({"Accept": "application/json", "Authorization": "Bearer s3cret"})
POPULATION = Population(hpas=3, pods=2, metrics=1, per_namespace=2)
HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
LARGE = b"0123456789abcdef" * 2**16 * 10
"""More than the client takes before it gives more credit, and more than one frame holds."""

Frame = tuple[int, int, int, bytes]
"""Kind, flags, stream and content."""


def frames_of(data: bytes) -> list[Frame]:
    found, at = [], 0
    while at < len(data):
        high, low, kind, flags, stream = frames.read_head(data, at)
        end = at + frames.HEAD_SIZE + (high << 8 | low)
        found.append((kind, flags, stream, data[at + frames.HEAD_SIZE : end]))
        at = end
    return found


def block(method: str, path: str) -> bytes:
    return frames.headers({":method": method, ":scheme": "https", ":authority": "api", ":path": path})


def get(stream: int, path: str) -> bytes:
    return frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, block("GET", path))


def credit(stream: int, more: int) -> bytes:
    return frames.frame(frames.WINDOW_UPDATE, 0, stream, frames.number(more))


def echo(_: Channel, request: Request) -> Answer:
    return Answer(f"{request.method} {request.path}?{request.query} ".encode() + request.body)


class Transport(raw_http.Transport):
    def is_closing(self) -> bool:
        return bool(self.ended)


class Client:
    """The client's side of a connection without a network."""

    def __init__(self, handler: Handler = echo, settings: dict[int, int] | None = None) -> None:
        self.transport = Transport()
        self.server = http2.Connection(handler)
        self.server.connection_made(self.transport)
        self.server.data_received(frames.PREFACE + frames.settings(settings or {}))

    async def received(self) -> list[Frame]:
        """Returns the frames that came since the last call."""
        for _ in range(5):
            await asyncio.sleep(0)
        found = frames_of(b"".join(self.transport.written))
        self.transport.written.clear()
        return found

    async def answered(self, *data: bytes) -> list[Frame]:
        """Returns the frames that come after these bytes, without those that open the connection."""
        await self.received()
        for each in data:
            self.server.data_received(each)
        return await self.received()


def body(found: Iterable[Frame], stream: int) -> bytes:
    return b"".join(content for kind, _, number, content in found if (kind, number) == (frames.DATA, stream))


def ended(found: Iterable[Frame]) -> list[int]:
    """Returns the streams of the answers that are complete."""
    return [stream for kind, flags, stream, _ in found if kind == frames.DATA and flags & frames.END_STREAM]


async def test_settings_and_pings_are_acknowledged() -> None:
    client = Client()
    ping = frames.frame(frames.PING, 0, 0, b"12345678")
    opening = await client.received()
    assert [each[:2] for each in opening] == [(frames.SETTINGS, 0), (frames.WINDOW_UPDATE, 0), (frames.SETTINGS, 1)]
    assert await client.answered(ping) == [(frames.PING, frames.ACK, 0, b"12345678")]
    assert await client.answered(frames.frame(frames.SETTINGS, frames.ACK, 0)) == []


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_requests_that_arrive_in_pieces_are_answered(size: int) -> None:
    put = frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block("PUT", "/a"))
    data = put + frames.frame(frames.DATA, 0, 1, b"xy") + get(3, "/b?q=1") + frames.frame(frames.DATA, 1, 1, b"z")
    found = await Client().answered(*(data[at : at + size] for at in range(0, len(data), size)))
    assert ended(found) == [3, 1]
    assert (body(found, 1), body(found, 3)) == (b"PUT /a? xyz", b"GET /b?q=1 ")
    heads = [dict(frames.decoded(content)) for kind, *_, content in found if kind == frames.HEADERS]
    assert [(each[b":status"], each[b"content-type"]) for each in heads] == [(b"200", b"application/json")] * 2


async def test_answers_of_one_pass_of_the_loop_are_written_together() -> None:
    client = Client()
    await client.received()
    for stream in (1, 3, 5):
        client.server.data_received(get(stream, "/"))
    await asyncio.sleep(0)
    (written,) = client.transport.written
    assert ended(frames_of(written)) == [1, 3, 5]


@pytest.mark.parametrize("status", [200, 201, 404, 409, 503])
async def test_an_answer_has_its_status(status: int) -> None:
    found = await Client(lambda *_: Answer(b"{}", status)).answered(get(1, "/"))
    assert frames.status(found[0][3]) == status


async def test_an_answer_is_sent_as_far_as_the_client_gives_credit() -> None:
    client = Client(lambda *_: Answer(LARGE), {frames.INITIAL_WINDOW_SIZE: 100_000, frames.MAX_FRAME_SIZE: 20_000})
    found = await client.answered(get(1, "/"))
    assert len(body(found, 1)) == frames.DEFAULT_WINDOW, "of the connection"
    found += await client.answered(credit(0, 2**30))
    assert len(body(found, 1)) == 100_000, "of the stream"
    found += await client.answered(credit(1, 1))
    assert len(body(found, 1)) == 100_001
    found += await client.answered(frames.settings({frames.INITIAL_WINDOW_SIZE: 200_000}))
    assert len(body(found, 1)) == 200_001, "settings change what open streams may send"
    assert ended(found) == []
    found += await client.answered(credit(1, 2**30))
    assert body(found, 1) == LARGE
    assert ended(found) == [1]
    assert max(len(content) for kind, *_, content in found if kind == frames.DATA) == 20_000


async def test_an_answer_that_waits_for_credit_does_not_delay_others() -> None:
    client = Client(lambda _, request: Answer(LARGE if request.path == "/large" else b"ok"))
    await client.answered(credit(0, 2**30))
    assert ended(await client.answered(get(1, "/large"), get(3, "/small"))) == [3]


async def test_a_large_request_gets_new_credit() -> None:
    client, sent = Client(), 0
    await client.answered(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block("PUT", "/")))
    allowance = {0: 100 * 2**18, 1: 2**18}
    while sent < 2**25:
        sent += 2**16
        found = await client.answered(frames.frame(frames.DATA, 0, 1, b"." * 2**16))
        for stream in allowance:
            more = (content for kind, _, of, content in found if (kind, of) == (frames.WINDOW_UPDATE, stream))
            allowance[stream] += sum(frames.read_number(each)[0] for each in more) - 2**16
        assert min(allowance.values()) >= 0


async def test_headers_are_read_in_any_form() -> None:
    encoder = hpack.Encoder()
    fields = [(":method", "GET"), (":scheme", "https"), (":path", "/a?b=c"), ("accept", "application/x")]
    blocks = [encoder.encode(fields, huffman=True), encoder.encode(fields, huffman=True), encoder.encode(fields)]
    assert len(blocks[1]) < len(blocks[0]), "the second request refers to what the first one left in the table"
    seen: list[Request] = []

    def keep(_: Channel, request: Request) -> Answer:
        seen.append(request)
        return Answer(b"")

    client = Client(keep)
    for number, encoded in enumerate(blocks):
        stream = 2 * number + 1
        begun = frames.frame(frames.HEADERS, frames.END_STREAM, stream, encoded[:2])
        rest = frames.frame(frames.CONTINUATION, frames.END_HEADERS, stream, encoded[2:])
        assert ended(await client.answered(begun, rest)) == [stream]
    assert [each[:3] for each in seen] == [("GET", "/a", "b=c")] * 3
    assert all(b"application/x" in each.head for each in seen)


@pytest.mark.parametrize("size", [1, 126, 127, 128, 300, 20_000])
def test_headers_of_hpad_are_read_without_a_decoder(size: int) -> None:
    path = frames.path("/" + "p" * size + "?q=1")
    encoded = frames.method("PUT") + path + HEAD.block + frames.content_length(size)
    method, target, query, head = header_block.plain(encoded) or pytest.fail("not read")
    assert (method, target, query) == header_block.stateful(hpack.Decoder(), encoded)[:3]
    assert (method, target, query) == ("PUT", "/" + "p" * size, "q=1")
    assert b"Bearer s3cret" in head
    assert header_block.plain(encoded[:-1]) is None, "they break off"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: api\r\n\r\n",
        frames.PREFACE + frames.frame(frames.CONTINUATION, 0, 1, b""),
        frames.PREFACE + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff\xff"),
        frames.PREFACE + frames.frame(frames.WINDOW_UPDATE, 0, 0, b"1"),
        frames.PREFACE + frames.frame(frames.DATA, 0, 1, b"." * (2**18 + 1)),
    ],
)
async def test_a_client_that_speaks_something_else_loses_its_connection(data: bytes) -> None:
    transport = Transport()
    server = http2.Connection(echo)
    server.connection_made(transport)
    server.data_received(data)
    assert transport.ended == "aborted"


async def test_a_watch_sends_each_change_in_a_frame_until_the_client_leaves() -> None:
    api = Api(POPULATION)
    client = Client(api.handle)
    found = await client.answered(get(1, f"{HPAS}?watch=true&timeoutSeconds=60&sendInitialEvents=true"))
    lines = body(found, 1).splitlines()
    assert [json.loads(each)["type"] for each in lines] == ["ADDED"] * 3 + ["BOOKMARK"]
    feed = api.feeds["horizontalpodautoscalers"]
    for number in range(2):
        feed.publish(Change(2000 + number, "team-0", b"change %d\n" % number))
    found = await client.received()
    assert [each[3] for each in found] == [b"change 0\n", b"change 1\n"]
    assert ended(found) == []
    await client.answered(frames.frame(frames.RST_STREAM, 0, 1, frames.number(frames.CANCEL)))
    feed.publish(Change(2002, "team-0", b"change 2\n"))
    assert await client.received() == []


async def test_a_stream_waits_until_the_client_has_taken_what_was_sent() -> None:
    channels: list[Channel] = []

    def begin(channel: Channel, _: Request) -> None:
        channels.append(channel)
        channel.begin()
        channel.send([b"." * 70_000, b"end"])

    client = Client(begin)
    found = await client.answered(get(1, "/"))
    waiting = asyncio.ensure_future(channels[0].drained())
    found += await client.received()
    assert not waiting.done()
    found += await client.answered(credit(0, 2**20), credit(1, 2**20))
    await asyncio.wait_for(waiting, 60)
    channels[0].end()
    found += await client.received()
    assert body(found, 1) == b"." * 70_000 + b"end"
    assert ended(found) == [1]


async def test_the_end_of_the_connection_ends_its_streams() -> None:
    channels: list[Channel] = []

    def begin(channel: Channel, _: Request) -> None:
        channels.append(channel)
        channel.begin()
        channel.send([b"." * 70_000])

    client, closed = Client(begin), list[bool]()
    await client.answered(get(1, "/"))
    channels[0].closed = lambda: closed.append(True)
    client.server.connection_lost(None)
    await asyncio.wait_for(channels[0].drained(), 60)
    assert channels[0].gone
    assert closed == [True]


@pytest.fixture(params=["asyncio", "uvloop"])
def factory(request: pytest.FixtureRequest) -> Any:
    import uvloop

    return asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop


@asynccontextmanager
async def served(
    handler: Handler, folder: Path, connections: set[http.Connection]
) -> AsyncIterator[tuple[str, ssl.SSLContext]]:
    """Runs a server with TLS; yields its URL and a client's context."""
    files = worlds.certificates(folder)
    server, url = await listen(handler, tls(files["certificate"], files["key"]), connections)
    async with server:
        yield url, ssl.create_default_context(cafile=str(folder / "ca.crt"))
        for each in list(connections):
            each.transport.abort()


def test_hpad_sends_all_requests_over_one_connection_and_watches_over_another(tmp_path: Path, factory: Any) -> None:
    async def main() -> None:
        api, connections = Api(POPULATION), set[http.Connection]()

        def handle(channel: Channel, request: Request) -> Answer | None:
            return Answer(LARGE) if request.path == "/large" else api.handle(channel, request)

        async with served(handle, tmp_path, connections) as (url, context):
            client = Shared(ClusterConfig(url, ssl=context), SystemClock(), "hpad", 2**30)
            sent = (client.send("GET", path, HEAD, None, 60, None) for path in ("/large", "/version", HPAS, "/large"))
            answers = await asyncio.gather(*sent)
            assert answers[0].body == answers[3].body == LARGE
            assert len(json.loads(answers[2].body)["items"]) == 3
            watch = f"{HPAS}?watch=true&timeoutSeconds=60&sendInitialEvents=true"
            async with client.stream(watch, HEAD, 60) as first, client.stream(watch, HEAD, 60) as second:
                assert b"ADDED" in await first.read()
                assert b"ADDED" in await second.read()
                assert [type(each) for each in connections] == [http2.Connection] * 2
                Storms(api, connections).disconnect()
                assert (await client.send("GET", "/version", HEAD, None, 60, None)).status == 200
            await client.aclose()

    run(main, factory)


def test_a_client_without_http2_is_served_with_http1(tmp_path: Path, factory: Any) -> None:
    async def main() -> None:
        connections: set[http.Connection] = set()
        async with served(echo, tmp_path, connections) as (url, context):
            client = Pool(ClusterConfig(url, ssl=context), SystemClock(), "hpad", 2**20)
            answer = await client.send("PUT", "/a?b=c", HEAD, b"xyz", 60, None)
            assert (answer.status, answer.body) == (200, b"PUT /a?b=c xyz")
            assert [type(each) for each in connections] == [http1.Connection]
            await client.aclose()

    run(main, factory)


def run(main: Callable[[], Any], factory: Any) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(asyncio.wait_for(main(), 60))
