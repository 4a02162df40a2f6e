"""What is not HTTP/2, or breaks its rules, ends the connection with an error that says what it was."""

import asyncio

import pytest
from support.raw_http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    OK,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Streams,
    answer,
    data,
    encoded,
    frame,
    headers,
    reset,
    settings,
    window_update,
)

from hpad.kube.http.connection import LARGEST_HEAD
from hpad.kube.http.exchange import Answer, Failed

MALFORMED = {
    "HTTP/1.1": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a large frame": b"\x01\x00\x01" + frame(DATA, 0, 1)[3:],
    "a pushed stream": frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\x02" + OK),
    "a body without headers": data(1, b"x"),
    "a body after an informational answer": headers(1, encoded((":status", "103"))) + data(1, b"x"),
    "an informational answer at the end": headers(1, encoded((":status", "100")), END_HEADERS | END_STREAM),
    "an answer without a status": headers(1, encoded(("a", "b"))),
    "headers that cannot be decoded": headers(1, b"\xbe"),
    "a body of the connection": data(0, b"x"),
    "headers of the connection": headers(0),
    "a reset of the connection": reset(0, 0),
    "a body of a stream that was never opened": data(3, b"x"),
    "headers of a stream that was never opened": headers(3),
    "a reset of a stream that was never opened": reset(3, 0),
    "credit for a stream that was never opened": window_update(3, 1),
    "headers of a stream of the server": headers(2),
    "padding of a body": frame(DATA, PADDED, 1, b"\x02\0"),
    "padding of headers": frame(HEADERS, PADDED | END_HEADERS, 1, b"\x09" + OK),
    "a continuation without a beginning": frame(CONTINUATION, END_HEADERS, 1, OK),
    "a continuation of another stream": frame(HEADERS, 0, 1, OK) + frame(CONTINUATION, END_HEADERS, 3, b""),
    "a continuation of ended headers": headers(1) + frame(CONTINUATION, END_HEADERS, 1),
    "headers that break off for a body": frame(HEADERS, 0, 1, OK) + data(1, b"x"),
    "headers that break off for others": frame(HEADERS, 0, 1, OK) + headers(1),
    "headers that break off for a ping": frame(HEADERS, 0, 1, OK) + frame(PING, 0, 0, b"12345678"),
    "headers that break off for an unknown frame": frame(HEADERS, 0, 1, OK) + frame(0x77, 0, 0),
    "headers that break off for a priority": frame(HEADERS, 0, 1, OK) + frame(PRIORITY, 0, 1, b"\0\0\0\0\x10"),
    "headers that are too large": b"".join(
        frame(HEADERS if not number else CONTINUATION, 0, 1, b"x" * 2**14) for number in range(5)
    ),
    "settings of a wrong size": frame(SETTINGS, 0, 0, b"12345"),
    "settings of a stream": frame(SETTINGS, 0, 1),
    "acknowledged settings with content": frame(SETTINGS, ACK, 0, b"\0" * 6),
    "a window that is too large": settings((INITIAL_WINDOW_SIZE, 2**31)),
    "frames of no size": settings((MAX_FRAME_SIZE, 0)),
    "frames that are too small": settings((MAX_FRAME_SIZE, 2**14 - 1)),
    "frames that are too large": settings((MAX_FRAME_SIZE, 2**24)),
    "a ping of a wrong size": frame(PING, 0, 0, b"1234567"),
    "a ping of a stream": frame(PING, 0, 1, b"12345678"),
    "a goaway of a wrong size": frame(GOAWAY, 0, 0, b"1234567"),
    "a goaway of a stream": frame(GOAWAY, 0, 1, b"\0" * 8),
    "a reset of a wrong size": frame(RST_STREAM, 0, 1, b"123"),
    "credit of a wrong size": frame(WINDOW_UPDATE, 0, 0, b"12345"),
    "no credit": window_update(0, 0),
    "no credit of a stream": window_update(1, 0),
    "more credit than there can be": window_update(0, 2**31 - 1),
    "more credit of a stream than there can be": window_update(1, 2**31 - 1),
    "more credit by settings than there can be": window_update(1, 2**31 - 2**16)
    + settings((INITIAL_WINDOW_SIZE, 2**17)),
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed_frames_end_the_connection(name):
    content = MALFORMED[name]
    for pieces in ([content], [content[each : each + 1] for each in range(len(content))]):
        streams = Streams()
        task = await streams.started()
        streams.receives(*pieces)
        streams.receives(answer(1))  # nothing that follows is read
        got = await task
        assert isinstance(got, Failed)
        assert got.reason == "Disconnected"
        assert got.message.startswith("the answer of https://api cannot be read: not HTTP/2: ")
        assert not got.unheard
        assert not got.refused
        assert (streams.transport.ended, streams.losses) == ("aborted", 1)
        await asyncio.sleep(0)


async def test_malformed_frames_end_all_requests():
    streams = Streams()
    await streams.answered(answer(1))
    tasks = [await streams.started() for _ in range(2)]
    streams.receives(MALFORMED["HTTP/1.1"])
    assert {str(await each) for each in tasks} == {
        "the answer of https://api cannot be read: not HTTP/2: a frame that is larger than allowed"
    }


@pytest.mark.parametrize(
    "first",
    [
        frame(SETTINGS, ACK, 0),
        frame(PING, 0, 0, b"12345678"),
        headers(1),
        window_update(0, 1),
        frame(0x77, 0, 0),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"<html>" + b" " * 100,
        b"\x15\x03\x01\x00\x02\x02\x0a" * 3,
    ],
)
async def test_a_connection_that_does_not_begin_with_settings_is_refused(first):
    """RFC 9113, section 3.4."""
    streams = Streams(ready=False)
    streams.receives(first)
    assert (streams.transport.ended, streams.losses) == ("aborted", 1)
    assert streams.connection.ready.done()


async def test_headers_just_below_the_limit_are_read():
    block = encoded((":status", "409"), *((f"x-{number}", "\1" * 1000) for number in range(62)), huffman=False)
    assert LARGEST_HEAD - 4096 < len(block) <= LARGEST_HEAD
    got = await Streams().answered(
        frame(HEADERS, END_STREAM, 1, block[: 2**14]),
        *(frame(CONTINUATION, 0, 1, block[at : at + 2**14]) for at in range(2**14, len(block), 2**14)),
        frame(CONTINUATION, END_HEADERS, 1),
    )
    assert isinstance(got, Answer)
    assert got.headers["X-59"] == "\1" * 1000


async def test_equal_faults_have_equal_messages():
    """So there is no address of memory in them: else each would be logged, as that of an episode of its own."""
    got = await Streams().answered(headers(1, b"\x08\x03409\xff"))
    assert "0x" not in str(got)
