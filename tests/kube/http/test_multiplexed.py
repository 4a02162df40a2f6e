"""How the frames of answers are read, in any pieces and any order, and what is sent for a request."""

import asyncio

import pytest
from support.raw_http2 import (
    ACK,
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    OK,
    PADDED,
    PING,
    PREFACE,
    PRIORITIZED,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    Sent,
    Streams,
    answer,
    data,
    encoded,
    frame,
    headers,
    sent,
    settings,
    window_update,
)

from hpad.kube.http.exchange import Answer, Failed

EMPTY = encoded((":status", "409"), ("retry-after", "3"))
HINTS = headers(1, encoded((":status", "100"))) + headers(1, encoded((":status", "103"), ("link", "</a>")))
WHOLE = {
    "two frames": (answer(), 200, b"ok"),
    "several": (headers(1) + data(1, b"o", 0) + data(1, b"", 0) + data(1, b"k", 0) + data(1, b""), 200, b"ok"),
    "headers only": (headers(1, EMPTY, END_HEADERS | END_STREAM), 409, b""),
    "continued": (
        frame(HEADERS, 0, 1, EMPTY[:3])
        + frame(CONTINUATION, 0, 1)
        + frame(CONTINUATION, 0, 1, EMPTY[3:5])
        + frame(CONTINUATION, END_HEADERS, 1, EMPTY[5:])
        + data(1, b"no"),
        409,
        b"no",
    ),
    "continued to the end": (
        frame(HEADERS, END_STREAM, 1, EMPTY[:3]) + frame(CONTINUATION, END_HEADERS, 1, EMPTY[3:]),
        409,
        b"",
    ),
    "padded": (
        frame(HEADERS, END_HEADERS | PADDED, 1, b"\x03" + OK + b"\0\0\0")
        + frame(DATA, PADDED, 1, b"\x02o\0\0")
        + frame(DATA, PADDED, 1, b"\0")
        + frame(DATA, PADDED | END_STREAM, 1, b"\0k"),
        200,
        b"ok",
    ),
    "prioritized": (
        frame(HEADERS, END_HEADERS | PRIORITIZED | PADDED, 1, b"\x01\x80\0\0\0\x07" + OK + b"\0") + data(1, b"ok"),
        200,
        b"ok",
    ),
    "informational": (HINTS + answer(), 200, b"ok"),
    "trailers": (headers(1) + data(1, b"ok", 0) + headers(1, EMPTY, END_HEADERS | END_STREAM), 200, b"ok"),
    "among others": (
        frame(PRIORITY, 0, 1, b"\0\0\0\0\x10")
        + frame(0x0A, 0xFF, 0, b"h2=:1")  # ALTSVC
        + headers(1)
        + frame(0x21, 0xFF, 77, b"unknown")
        + window_update(0, 9)
        + window_update(1, 9)
        + frame(PING, ACK, 0, b"12345678")
        + settings((0x99, 7))
        + frame(SETTINGS, ACK, 0)
        + data(1, b"ok"),
        200,
        b"ok",
    ),
    "reserved bits": (headers(2**31 | 1) + data(2**31 | 1, b"ok"), 200, b"ok"),
}


@pytest.mark.parametrize("name", WHOLE)
async def test_an_answer_is_the_same_in_any_two_pieces(name):
    pieces, status, body = WHOLE[name]
    for position in range(len(pieces) + 1):
        streams = Streams()
        got = await streams.answered(pieces[:position], pieces[position:])
        assert isinstance(got, Answer), position
        assert (got.status, got.body) == (status, body)
        assert (streams.transport.ended, streams.losses, streams.connection.busy) == ("", 0, 0)
        assert streams.connection.used


@pytest.mark.parametrize("name", WHOLE)
async def test_an_answer_arrives_byte_by_byte(name):
    pieces, status, body = WHOLE[name]
    got = await Streams().answered(*(pieces[each : each + 1] for each in range(len(pieces))))
    assert isinstance(got, Answer)
    assert (got.status, got.body) == (status, body)


@pytest.mark.parametrize("name", WHOLE)
async def test_an_answer_that_ends_early_is_none(name):
    pieces, status, _ = WHOLE[name]
    for position in range(len(pieces)):
        streams = Streams()
        got = await streams.answered(pieces[:position], end=True)
        assert isinstance(got, Failed), position
        assert got.reason == "Disconnected"
        assert got.status in (0, 100, 103, status)
        assert got.unheard == (got.status == 0)
        assert not got.refused
        assert streams.losses == 1


async def test_headers_are_those_of_the_answer_alone():
    hints = headers(1, encoded((":status", "103"), ("link", "</a>")))
    own = headers(1, encoded((":status", "429"), ("retry-after", "7")))
    trailers = headers(1, encoded(("retry-after", "8")), END_HEADERS | END_STREAM)
    got = await Streams().answered(hints + own + data(1, b"busy", 0) + trailers)
    assert isinstance(got, Answer)
    assert (got.status, got.body, got.headers) == (429, b"busy", {"Retry-After": "7"})


async def test_answers_come_in_any_order_and_share_nothing():
    streams = Streams()
    tasks = [await streams.started() for _ in range(3)]
    streams.receives(headers(5), headers(1, EMPTY), data(5, b"five", 0), data(1, b"one", 0), headers(3))
    streams.receives(data(3, b"three") + data(1, b"+1") + data(5, b"+5"))
    found = [await each for each in tasks]
    assert [(each.status, each.body) for each in found] == [(409, b"one+1"), (200, b"three"), (200, b"five+5")]
    assert [each.headers for each in found] == [{"Retry-After": "3"}, {}, {}]


async def test_the_connection_begins_with_its_preface_and_settings():
    streams = Streams(ready=False)
    (written,) = streams.transport.written
    assert written.startswith(PREFACE)
    first, second = sent(written.removeprefix(PREFACE))
    assert (first.kind, first.flags, first.stream) == (SETTINGS, 0, 0)
    values = {int.from_bytes(first.content[at : at + 2]): first.content[at + 2 : at + 6] for at in range(0, 24, 6)}
    # no dynamic table, no push, and frames of 64 KiB
    assert [int.from_bytes(values[name]) for name in (1, 2, 5)] == [0, 0, 2**16]
    assert second.kind == 8
    assert not streams.connection.ready.done()
    streams.receives(settings((3, 100)))
    assert streams.connection.ready.done()
    assert streams.connection.limit == 100
    await asyncio.sleep(0)
    assert streams.transport.written[1:] == [frame(SETTINGS, ACK, 0)]


async def test_requests_of_one_pass_leave_in_one_write():
    streams = Streams()
    await asyncio.sleep(0)
    streams.transport.written.clear()
    tasks = [
        asyncio.ensure_future(streams.connection.exchange(b"\x82", body, asyncio.get_running_loop().time() + 60))
        for body in (None, b"{}", b"")
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    (written,) = streams.transport.written
    assert list(sent(written)) == [
        Sent(HEADERS, END_HEADERS | END_STREAM, 1, b"\x20\x82"),
        Sent(HEADERS, END_HEADERS, 3, b"\x82"),
        Sent(DATA, END_STREAM, 3, b"{}"),
        Sent(HEADERS, END_HEADERS | END_STREAM, 5, b"\x82"),
    ]
    streams.receives(answer(1), answer(3), answer(5))
    await asyncio.gather(*tasks)


async def test_the_first_headers_say_that_there_is_no_dynamic_table():
    """Else a server that allows a smaller one than 4,096 bytes refuses them: RFC 7541, section 4.2."""
    streams = Streams()
    await streams.answered(answer(1))
    await streams.started()
    assert [each.content for each in streams.frames()] == [b"\x20\x82", b"\x82"]


@pytest.mark.parametrize(("size", "sizes"), [(2**14, [2**14]), (2**14 + 1, [2**14, 1]), (40_000, [2**14, 2**14, 7232])])
async def test_long_headers_go_on_in_further_frames(size, sizes):
    streams = Streams()
    await streams.answered(answer(1))
    streams.frames()
    await streams.started(b"h" * size)
    found = streams.frames()
    assert [each.kind for each in found] == [HEADERS, *[CONTINUATION] * (len(sizes) - 1)]
    assert [len(each.content) for each in found] == sizes
    assert [each.flags & END_HEADERS for each in found] == [*[0] * (len(sizes) - 1), END_HEADERS]
    assert [each.flags & END_STREAM for each in found] == [END_STREAM, *[0] * (len(sizes) - 1)]


async def test_a_ping_is_answered_and_its_answer_is_not():
    streams = Streams()
    streams.receives(frame(PING, 0, 0, b"12345678"), frame(PING, ACK, 0, b"87654321"))
    await asyncio.sleep(0)
    assert streams.frames() == [Sent(PING, ACK, 0, b"12345678")]


@pytest.mark.parametrize("size", [1, 9])
async def test_an_answer_that_is_too_large_ends_its_stream_alone(size):
    streams = Streams(largest=2)
    tasks = [await streams.started() for _ in range(2)]
    streams.frames()
    streams.receives(headers(1), data(1, b"x" * size, 0), data(1, b"x" * 2, 0), data(1, b"ignored"), answer(3))
    first, second = [await each for each in tasks]
    assert isinstance(first, Failed)
    assert (first.reason, first.status) == ("TooLarge", 200)
    assert isinstance(second, Answer)
    await asyncio.sleep(0)
    assert streams.frames() == [Sent(RST_STREAM, 0, 1, b"\0\0\0\x08")]


async def test_an_answer_as_large_as_allowed_is_read():
    assert isinstance(await Streams(largest=2).answered(answer(1, b"ok")), Answer)


@pytest.mark.parametrize("arrived", [b"", headers(1), headers(1) + data(1, b"o", 0)])
async def test_a_cancelled_request_ends_its_stream_alone(arrived):
    streams = Streams()
    cancelled, other = await streams.started(), await streams.started()
    streams.receives(arrived)
    streams.frames()
    cancelled.cancel()
    await asyncio.wait({cancelled})
    assert cancelled.cancelled()
    await asyncio.sleep(0)
    assert streams.frames() == [Sent(RST_STREAM, 0, 1, CANCEL.to_bytes(4))]
    streams.receives(headers(1), data(1, b"late"), answer(3))  # the server had sent it before it knew
    assert isinstance(await other, Answer)
    assert isinstance(await streams.answered(answer(5)), Answer)


async def test_a_request_that_is_cancelled_before_it_has_left_is_ended_as_well():
    """Its frames are on their way; the server gets them together with the end."""
    streams = Streams()
    task = asyncio.ensure_future(streams.connection.exchange(b"\x82", None, asyncio.get_running_loop().time() + 60))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert [each.kind for each in streams.frames()] == [HEADERS, RST_STREAM]


async def test_a_request_that_is_cancelled_after_its_answer_sends_nothing():
    streams = Streams()
    task = await streams.started()
    streams.frames()
    streams.receives(answer(1))
    task.cancel()
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert streams.frames() == []


async def test_frames_of_a_stream_that_has_ended_are_ignored():
    streams = Streams()
    await streams.answered(answer(1))
    streams.receives(headers(1), data(1, b"x"), window_update(1, 9), frame(RST_STREAM, 0, 1, b"\0\0\0\0"))
    assert isinstance(await streams.answered(answer(3)), Answer)


async def test_a_closed_connection_sends_nothing_and_takes_no_request():
    streams = Streams()
    await streams.answered(answer(1))
    streams.frames()
    streams.connection.close()
    assert (streams.transport.ended, streams.losses) == ("closed", 1)
    got = await streams.answered()
    assert isinstance(got, Failed)
    assert got.refused
    streams.connection.connection_lost(None)
    streams.connection.close()
    streams.connection.abort()
    await asyncio.sleep(0)
    assert (streams.frames(), streams.losses) == ([], 1)
    assert streams.connection.gone.done()


async def test_a_connection_that_is_to_be_closed_ends_what_it_has_begun():
    streams = Streams()
    task = await streams.started()
    streams.connection.close()
    assert (streams.transport.ended, streams.losses) == ("", 1)
    streams.receives(answer(1))
    assert isinstance(await task, Answer)
    assert streams.transport.ended == "closed"


async def test_a_connection_that_is_closed_with_a_failure_ends_all_requests_with_it():
    streams = Streams()
    tasks = [await streams.started() for _ in range(2)]
    failure = Failed("Closed", "has been closed")
    streams.connection.close(failure)
    assert [await each for each in tasks] == [failure, failure]
    assert streams.transport.ended == "closed"


async def test_a_reset_connection_ends_all_requests():
    streams = Streams()
    tasks = [await streams.started() for _ in range(2)]
    streams.receives(headers(3), data(3, b"o", 0))
    streams.ends(ConnectionResetError())
    first, second = [await each for each in tasks]
    assert isinstance(first, Failed)
    assert isinstance(second, Failed)
    assert (first.unheard, first.status, second.unheard, second.status) == (True, 0, False, 200)
    assert second.message == "the answer of https://api broke off (connection reset)"


async def test_an_idle_connection_knows_since_when():
    streams = Streams()
    loop = asyncio.get_running_loop()
    opened = streams.connection.idle_since
    assert opened <= loop.time()
    task = await streams.started()
    assert streams.connection.idle_since > loop.time()
    streams.receives(answer(1))
    await task
    assert opened <= streams.connection.idle_since <= loop.time()


async def test_a_connection_without_numbers_for_streams_is_replaced():
    streams = Streams()
    streams.connection._next = 2**31 - 3
    assert isinstance(await streams.answered(answer(2**31 - 3)), Answer)
    assert (streams.losses, streams.transport.ended) == (0, "")
    assert isinstance(await streams.answered(answer(2**31 - 1)), Answer)
    assert (streams.losses, streams.transport.ended) == (1, "closed")
    got = await streams.answered()
    assert isinstance(got, Failed)
    assert got.refused
