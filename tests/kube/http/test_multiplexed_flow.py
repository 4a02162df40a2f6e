"""Flow control of bodies in both directions, and SETTINGS that change it."""

import asyncio

import pytest
from support.raw_http2 import (
    DATA,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    PADDED,
    RST_STREAM,
    WINDOW_UPDATE,
    Sent,
    Streams,
    answer,
    data,
    frame,
    headers,
    reset,
    settings,
    window_update,
)

from hpad.kube.http.exchange import Answer, Failed
from hpad.kube.http.multiplexed import WINDOW

PART = 2**16
"""The largest frame that the server may send."""


def bodies(found: list[Sent]) -> dict[int, bytes]:
    """The bodies by stream; after the last part of each there is nothing more."""
    got: dict[int, bytes] = {}
    ended = set()
    for each in found:
        assert each.kind in (HEADERS, DATA)
        assert each.stream not in ended
        got[each.stream] = got.get(each.stream, b"") + (each.content if each.kind == DATA else b"")
        if each.flags & END_STREAM:
            ended.add(each.stream)
    return {stream: body for stream, body in got.items() if stream in ended}


async def sends(streams, *received):
    streams.receives(*received)
    await asyncio.sleep(0)
    return [each for each in streams.frames() if each.kind == DATA]


async def test_a_body_is_cut_to_the_frames_that_the_server_takes():
    streams = Streams()
    body = bytes(range(256)) * 200
    task = await streams.started(body=body)
    found = streams.frames()
    assert [len(each.content) for each in found[1:]] == [2**14, 2**14, 2**14, len(body) - 3 * 2**14]
    assert bodies(found) == {1: body}
    streams.receives(answer(1))
    assert isinstance(await task, Answer)


async def test_a_larger_frame_is_used_where_the_server_takes_it():
    streams = Streams()
    streams.receives(settings((MAX_FRAME_SIZE, 2**24 - 1)))
    await streams.started(body=b"x" * 50_000)
    assert [len(each.content) for each in streams.frames()[1:]] == [50_000]


async def test_a_body_waits_for_credit_of_the_connection_and_of_its_stream():
    streams = Streams()
    body = bytes(range(250)) * 400  # 100,000 bytes
    await streams.started(body=body)
    found = streams.frames()
    assert sum(len(each.content) for each in found[1:]) == 2**16 - 1
    assert await sends(streams, window_update(0, 10)) == []
    assert [len(each.content) for each in await sends(streams, window_update(1, 7))] == [7]
    assert [len(each.content) for each in await sends(streams, window_update(1, 2**20))] == [3]
    rest = await sends(streams, window_update(0, 2**20))
    assert rest[-1].flags == END_STREAM
    assert b"".join(each.content for each in rest) == body[2**16 - 1 + 10 :]


async def test_a_stream_without_credit_delays_no_other():
    streams = Streams()
    streams.receives(settings((INITIAL_WINDOW_SIZE, 5)))
    await streams.started(body=b"longer")
    await streams.started(body=b"short")
    assert bodies(streams.frames()) == {3: b"short"}
    assert await sends(streams, window_update(1, 1)) == [Sent(DATA, END_STREAM, 1, b"r")]


async def test_bodies_share_the_credit_of_the_connection_in_their_order():
    streams = Streams()
    streams.receives(settings((INITIAL_WINDOW_SIZE, 2**20)))
    for content in (b"a" * 2**16, b"b" * 10, b"c"):
        await streams.started(body=content)
    assert bodies(streams.frames()) == {}
    first = await sends(streams, window_update(0, 6))
    assert first == [Sent(DATA, END_STREAM, 1, b"a"), Sent(DATA, 0, 3, b"b" * 5)]
    assert await sends(streams, window_update(0, 6)) == [
        Sent(DATA, END_STREAM, 3, b"b" * 5),
        Sent(DATA, END_STREAM, 5, b"c"),
    ]


@pytest.mark.parametrize("body", [None, b""])
async def test_a_request_without_a_body_does_not_wait_for_credit(body):
    """An empty body takes none."""
    streams = Streams()
    await streams.started(body=b"x" * 2**16)
    task = await streams.started(body=body)
    last = streams.frames()[-1]
    assert (last.kind, last.stream, last.flags & END_STREAM) == (HEADERS, 3, END_STREAM)
    streams.receives(answer(3))
    assert isinstance(await task, Answer)


async def test_a_window_can_become_negative():
    """RFC 9113, section 6.9.2: a sender must track it, and wait until it is positive again."""
    streams = Streams()
    await streams.started(body=b"x" * (2**16 - 1 + 20))
    streams.frames()
    assert await sends(streams, settings((INITIAL_WINDOW_SIZE, 2**16 - 1 - 100)), window_update(0, 2**20)) == []
    assert await sends(streams, window_update(1, 100)) == []
    assert [len(each.content) for each in await sends(streams, window_update(1, 3))] == [3]
    assert [len(each.content) for each in await sends(streams, settings((INITIAL_WINDOW_SIZE, 2**16)))] == [17]


async def test_a_larger_window_of_new_streams_applies_to_those_in_progress():
    streams = Streams()
    streams.receives(settings((INITIAL_WINDOW_SIZE, 0)))
    await streams.started(body=b"body")
    assert bodies(streams.frames()) == {}
    assert await sends(streams, settings((INITIAL_WINDOW_SIZE, 9))) == [Sent(DATA, END_STREAM, 1, b"body")]
    await streams.started(body=b"123456789")
    assert bodies(streams.frames()) == {3: b"123456789"}


async def test_the_last_of_equal_settings_counts():
    streams = Streams()
    streams.receives(settings((INITIAL_WINDOW_SIZE, 1), (MAX_CONCURRENT_STREAMS, 5), (INITIAL_WINDOW_SIZE, 4)))
    streams.receives(settings((MAX_CONCURRENT_STREAMS, 9), (MAX_CONCURRENT_STREAMS, 7)))
    await streams.started(body=b"four")
    assert bodies(streams.frames()) == {1: b"four"}
    assert streams.connection.limit == 7


async def test_a_server_that_allows_no_stream_for_a_while_is_asked_all_the_same():
    """It refuses the stream, and says so."""
    streams = Streams()
    streams.receives(settings((MAX_CONCURRENT_STREAMS, 0)))
    assert streams.connection.limit == 1


@pytest.mark.parametrize("ends", [answer(1), reset(1, 0), reset(1, 8)])
async def test_a_stream_that_ends_before_its_body_was_sent_sends_no_more(ends):
    streams = Streams()
    task = await streams.started(body=b"x" * 2**17)
    streams.frames()
    streams.receives(ends, window_update(0, 2**20), window_update(1, 2**20))
    outcome = await task
    await asyncio.sleep(0)
    if isinstance(outcome, Answer):  # the server is told that the rest does not come
        assert streams.frames() == [Sent(RST_STREAM, 0, 1, b"\0\0\0\x08")]
    else:
        assert streams.frames() == []
    await streams.started(body=b"next")
    assert bodies(streams.frames()) == {3: b"next"}


async def test_a_cancelled_request_sends_no_more_of_its_body():
    streams = Streams()
    task = await streams.started(body=b"x" * 2**17)
    streams.frames()
    task.cancel()
    await asyncio.wait({task})
    assert await sends(streams, window_update(0, 2**20)) == []


async def test_a_large_answer_gets_credit_as_it_arrives():
    """With a window of its own per stream, and one of the connection that is renewed as well."""
    streams = Streams(largest=2**30)
    task = await streams.started()
    streams.receives(headers(1))
    streams.frames()
    window, total = WINDOW, 2**24
    for _ in range(total // PART):
        assert window >= PART, "the server could not go on"
        streams.receives(data(1, b"x" * PART, 0))
        window -= PART
        await asyncio.sleep(0)
        for each in streams.frames():
            assert (each.kind, each.stream) == (WINDOW_UPDATE, 1)
            window += int.from_bytes(each.content)
        assert window <= WINDOW
    streams.receives(data(1, b""))
    outcome = await task
    assert isinstance(outcome, Answer)
    assert len(outcome.body) == total


async def test_the_connection_gets_credit_for_everything_that_arrives():
    """Also for streams that were given up, and for padding."""
    streams = Streams(largest=2**31)
    task, part = await streams.started(), b"\x80" + b"x" * (PART - 1)
    streams.receives(headers(1))
    task.cancel()
    await asyncio.wait({task})
    streams.frames()
    piece = frame(DATA, PADDED, 1, part) * 16
    for _ in range(2**29 // len(part) // 16):
        streams.connection.data_received(piece)
    assert streams.frames() == []
    streams.receives(frame(DATA, 0, 1, b"x"))
    await asyncio.sleep(0)
    assert streams.frames() == [Sent(WINDOW_UPDATE, 0, 0, (2**29 + 1).to_bytes(4))]


async def test_a_stream_that_is_not_read_gets_no_credit():
    streams = Streams()
    incoming = await streams.streamed(headers(1))
    streams.frames()
    for _ in range(WINDOW // PART):
        streams.receives(data(1, b"x" * PART, 0))
    await asyncio.sleep(0)
    assert streams.frames() == []
    assert len(await incoming.read()) == WINDOW
    await asyncio.sleep(0)
    assert streams.frames() == [Sent(WINDOW_UPDATE, 0, 1, WINDOW.to_bytes(4))]
    incoming.drop()


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_server_that_sends_more_than_its_credit_is_refused(streamed):
    """It would fill the memory."""
    streams = Streams(largest=2**30)
    incoming = await streams.streamed(headers(1))
    for _ in range(WINDOW // PART):
        streams.receives(data(1, b"x" * PART, 0))
    streams.receives(data(1, b"x", 0))
    assert streams.transport.ended == "aborted"
    await incoming.read()
    with pytest.raises(Failed, match="not HTTP/2: more of a body than allowed"):
        await incoming.read()
