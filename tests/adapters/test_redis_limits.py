"""Servers other than Redis, and replies that are no answer: each gets an error, and none is zero."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample
from hpad_adapters.redis import Redis
from hpad_adapters.redis_servers import connection


@asynccontextmanager
async def listening(*pieces: bytes) -> AsyncIterator[str]:
    """Yields the URL of a server that answers each connection with the pieces, and closes it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            await reader.read(1)
            writer.write(b"".join(pieces))
            writer.write_eof()
            await reader.read()  # what a closed socket has not read resets what is on its way

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


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
    async with listening(kind, reply) as url:
        return await ask(url, name, selector)


def message(answer: Any) -> str:
    assert isinstance(answer, AdapterError), answer
    assert answer.blame == "source"
    return answer.message


@pytest.mark.parametrize("nil", [b"$-1\r\n", b"*-1\r\n", b"$0\r\n\r\n"])
async def test_nil_and_empty_replies_are_not_numbers(nil: bytes) -> None:
    for name, selector in (("redis_list_length", "key=a"), ("redis_stream_pending", "key=a,group=g")):
        assert "is not a number" in message(await answer_to(nil, name, selector))


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b":-5\r\n", "is -5, which is not a count"),
        (b":9223372036854775807\r\n", "which is not a count"),
        (b":9223372036854775808\r\n", "which is not a count"),
        (b":" + b"9" * 5000 + b"\r\n", "did not answer in RESP2"),
        (b":\r\n", "did not answer in RESP2"),
        (b"*1\r\n:3\r\n", "is not a number"),
        (b"*1\r\n$-1\r\n", "is not a number"),
        (b"*0\r\n", "is not a number"),
        (b"$2\r\n12\r\n", "is not a number"),
        (b"$-5\r\nabc\r\n", "did not answer in RESP2"),
        (b"*-2\r\n", "is not a number"),
        (b"*1\r\n" * 2000 + b":1\r\n", "did not answer in RESP2"),
        (b",1.5\r\n", "did not answer in RESP2"),
        (b"#t\r\n", "did not answer in RESP2"),
        (b"%1\r\n+a\r\n:1\r\n", "did not answer in RESP2"),
        (b"\r\n", "did not answer in RESP2"),
    ],
)
async def test_each_invalid_count_has_its_own_error(reply: bytes, error: str) -> None:
    assert error in message(await answer_to(reply))


async def test_a_large_reply_is_read() -> None:
    """A stream with 10,000 groups is a valid reply."""
    groups = b"".join(b"*4\r\n+name\r\n+g%d\r\n+pending\r\n:%d\r\n" % (index, index) for index in range(10_000))
    answer = await answer_to(b"*10000\r\n" + groups, "redis_stream_pending", "key=a,group=g9999")
    assert isinstance(answer, ExternalSample)
    assert answer.values == (9_999_000,)


@pytest.mark.parametrize(
    "reply", [b"$40000\r\n" + b"x" * 40_000, b"$9000\r\n" + b"x" * 9000 + b"\r\n", b":1\r\n" * 9000]
)
async def test_a_server_sends_at_most_some_bytes_in_a_batch(reply: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_BYTES", 30_000)
    assert "answers more than" in message(await answer_to(b"*30000\r\n" + reply * 4))


async def test_other_tasks_run_while_many_small_replies_are_read() -> None:
    source = asyncio.StreamReader()
    source.feed_data(b":1\r\n" * 10_000)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    reader, other = connection.BoundedReader(source), asyncio.create_task(count())
    for _ in range(10_000):
        assert await reader.readline() == b":1\r\n"
    other.cancel()
    assert turns >= 10


async def test_an_invalid_type_is_not_repeated() -> None:
    async with listening(b"*2\r\n+secret\r\n+secret\r\n:1\r\n") as url:
        error = message(await ask(url))
    assert "is not a type" in error
    assert "secret" not in error


NO_REDIS = "did not answer in RESP2: is this the port of a Redis server?"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", NO_REDIS),
        (b"220 mail.example.com ESMTP\r\n", NO_REDIS),
        (b"\x00\xffgarbage\r\n", NO_REDIS),
        (b"x" * 100_000, NO_REDIS),
        (b":x\r\n", NO_REDIS),
        (b"AMQP\x00\x00\x09\x01", "closed the connection without an answer"),
        (b"$99999\r\nabc", "broke off in the middle of its answer"),
        (b"$99999999999\r\nabc", "answers more than 32 MiB"),
        (b"+OK\r\n", "closed the connection without an answer"),
        (b"", "closed the connection without an answer"),
    ],
)
async def test_a_server_other_than_redis_is_an_error(reply: bytes, error: str) -> None:
    """The error names the server, once."""
    async with listening(reply) as url:
        found = message(await ask(url))
    assert found == f"Redis {url.removeprefix('redis://')} {error}"
