"""Hostile servers, and servers other than Redis: too large replies are refused before they are read."""

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample
from hpad_adapters.redis import Redis
from hpad_adapters.redis_servers import replies as redis

OPENED = b"+OK\r\n"
"""The answer to SELECT, which begins each connection."""


class Hostile:
    """Answers each connection with `pieces`, taken one by one as the client reads; `sent` counts bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.sent = 0
        self._pieces = pieces

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(4096)
            for piece in self._pieces:
                writer.write(piece)
                await writer.drain()
                self.sent += len(piece)
        writer.close()


@asynccontextmanager
async def listening(pieces: Iterator[bytes]) -> AsyncIterator[tuple[Hostile, str]]:
    hostile = Hostile(pieces)
    server = await asyncio.start_server(hostile.serve, "127.0.0.1", 0)
    async with server:
        yield hostile, f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def ask(url: str, name: str = "redis_list_length", selector: str = "key=a") -> Answer:
    """Returns the answer of a Redis at that address; an error of the whole batch is that of the query."""
    settings = msgspec.convert({"url": url}, Redis.Settings)
    async with testing.context("redis") as context:
        try:
            (answer,) = await Redis(settings, context).answer([testing.external(name, selector)])
        except AdapterError as error:
            return error
    return answer


async def answer_to(reply: bytes, name: str = "redis_list_length", selector: str = "key=a") -> Answer:
    """Returns the answer for this reply to the command that counts."""
    kind = b"+list\r\n" if name == "redis_list_length" else b"+stream\r\n"
    async with listening(iter((OPENED, kind, reply))) as (_, url):
        return await ask(url, name, selector)


def message(answer: Any) -> str:
    assert isinstance(answer, AdapterError), answer
    assert answer.blame == "source"
    return answer.message


def endless(opening: bytes, piece: bytes) -> Iterator[bytes]:
    yield OPENED + b"+stream\r\n" + opening
    while True:
        yield piece


TEXT = b"$1048576\r\n" + b"x" * (1 << 20) + b"\r\n"


@pytest.mark.parametrize(
    ("opening", "piece", "error"),
    [
        (b"*60000\r\n", TEXT, "sent more than 4 MiB"),
        (b"*2\r\n:1\r\n*60000\r\n", TEXT, "sent more than 4 MiB"),
        (b"*60000\r\n", b"*1\r\n:1\r\n" * 4096, "sent more than 65536 elements"),
        (b"*60000\r\n", b"+" + b"x" * 60_000 + b"\r\n", "sent more than 4 MiB"),
        (b"*60000\r\n", b"-" + b"x" * 60_000 + b"\r\n", "sent more than 4 MiB"),
        (b"*1000000000\r\n", b":1\r\n" * 4096, "sent more than 65536 elements"),
        (b"$5000000\r\n", b"x" * (1 << 20), "sent more than 4 MiB"),
        (b"$9999999999\r\n", b"x" * (1 << 20), "sent more than 4 MiB"),
        (b"+", b"x" * (1 << 20), "sent a line without end"),
        (b"", b"*1\r\n" * 4096, "nested more than 8 levels deep"),
    ],
)
async def test_an_answer_without_end_takes_no_more_than_the_budget(opening: bytes, piece: bytes, error: str) -> None:
    """Memory is bounded as well: buffers of the connection and decoded texts, including some copies."""
    async with listening(endless(opening, piece)) as (hostile, url):
        tracemalloc.start()
        try:
            answer = await ask(url, "redis_stream_pending", "key=a,group=g")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert error in message(answer)
    assert peak < 8 * redis.MAX_BYTES
    assert hostile.sent < 8 * redis.MAX_BYTES  # the budget and the buffers of two sockets


async def test_the_budget_is_for_the_whole_answer_not_for_each_reply() -> None:
    reply = b"*1\r\n$1048576\r\n" + b"x" * (1 << 20) + b"\r\n"
    queries = [testing.external("redis_stream_pending", f"key=k{index},group=g") for index in range(5)]
    async with listening(iter((OPENED, *[b"+stream\r\n" + reply] * 5))) as (_, url):
        settings = msgspec.convert({"url": url}, Redis.Settings)
        async with testing.context("redis") as context:
            with pytest.raises(AdapterError, match="sent more than 4 MiB"):
                await Redis(settings, context).answer(queries)


@pytest.mark.parametrize(
    "length", [b"-2", b"-5", b"-1048576", b"+3", b" 3", b"3 ", b"1_0", b"0x3", b"", b"-0", "٣".encode()]
)
@pytest.mark.parametrize("kind", [b"$", b"*"])
async def test_an_invalid_length_is_refused(kind: bytes, length: bytes) -> None:
    answer = await answer_to(kind + length + b"\r\nabc\r\n:1\r\n")
    assert "where the length of a value belongs" in message(answer)


@pytest.mark.parametrize("nil", [b"$-1\r\n", b"*-1\r\n", b"*1\r\n$-1\r\n", b"*0\r\n", b"$0\r\n\r\n"])
async def test_nil_and_empty_replies_are_not_numbers(nil: bytes) -> None:
    for name, selector in (("redis_list_length", "key=a"), ("redis_stream_pending", "key=a,group=g")):
        assert "is not a number" in message(await answer_to(nil, name, selector))


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b":-5\r\n", "is -5, which is not a count"),
        (b":9223372036854775807\r\n", "which is not a count"),
        (b":9223372036854775808\r\n", "where a whole number of 64 bits belongs"),
        (b":" + b"9" * 5000 + b"\r\n", "where a whole number of 64 bits belongs"),
        (b":1_000\r\n", "where a whole number of 64 bits belongs"),
        (b": 3\r\n", "where a whole number of 64 bits belongs"),
        (b":\r\n", "where a whole number of 64 bits belongs"),
        (b"*1\r\n:3\r\n", "is not a number"),
        (b"$2\r\n12\r\n", "is not a number"),
        (b"$2\r\n123\r\n", "longer than its length"),
        (b",1.5\r\n", "did not answer in RESP2"),
        (b"#t\r\n", "did not answer in RESP2"),
        (b"%1\r\n+a\r\n:1\r\n", "did not answer in RESP2"),
        (b"\r\n", "did not answer in RESP2"),
    ],
)
async def test_each_invalid_count_has_its_own_error(reply: bytes, error: str) -> None:
    assert error in message(await answer_to(reply))


async def test_a_large_reply_within_the_budget_is_read() -> None:
    """A consumer group with 10,000 consumers is a valid reply."""
    consumers = b"".join(b"*2\r\n$12\r\nconsumer-%03d\r\n$1\r\n1\r\n" % (index % 1000) for index in range(10_000))
    reply = b"*4\r\n:10000\r\n$3\r\n1-0\r\n$3\r\n9-0\r\n*10000\r\n" + consumers
    answer = await answer_to(reply, "redis_stream_pending", "key=a,group=g")
    assert isinstance(answer, ExternalSample)
    assert answer.values == (10_000_000,)


async def test_an_invalid_type_is_not_repeated() -> None:
    async with listening(iter((OPENED, b"*2\r\n+secret\r\n+secret\r\n:1\r\n"))) as (_, url):
        error = message(await ask(url))
    assert "is not a type" in error
    assert "secret" not in error


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"HTTP/1.1 400\r\n", "did not answer in RESP2"),
        (b"$99999999999\r\n", "where the length of a value belongs"),
        (b":x\r\n", "where a whole number of 64 bits belongs"),
        (b"+OK\r\n", "broke off"),
        (b"", "broke off"),
    ],
)
async def test_a_server_other_than_redis_is_an_error(reply: bytes, error: str) -> None:
    async with listening(iter((reply,))) as (_, url):
        assert error in message(await ask(url))
