"""How requests end without an answer: reset streams, servers that close, silence; and streams that are read."""

import asyncio

import pytest
from support import virtual_time
from support.raw_http2 import (
    CANCEL,
    END_HEADERS,
    END_STREAM,
    LAST_STREAM,
    PING,
    REFUSED_STREAM,
    RST_STREAM,
    Sent,
    Streams,
    answer,
    data,
    encoded,
    frame,
    goaway,
    headers,
    reset,
)
from support.scripted_server import until

from hpad.kube.http.exchange import Answer, Failed

CODES = (
    *("NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED"),
    *("FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM"),
    *("INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED"),
)
"""RFC 9113, section 7."""


@pytest.mark.parametrize("code", [*range(14), 99, 2**32 - 1])
@pytest.mark.parametrize("arrived", [b"", headers(3), headers(3) + data(3, b"o", 0)], ids=["none", "headers", "body"])
async def test_a_reset_ends_its_stream_alone_and_names_its_code(code, arrived):
    streams = Streams()
    await streams.answered(answer(1))
    tasks = [await streams.started() for _ in range(2)]
    streams.receives(arrived, reset(3, code), answer(5))
    first, second = [await each for each in tasks]
    assert isinstance(first, Failed)
    assert isinstance(second, Answer)
    name = CODES[code] if code < len(CODES) else str(code)
    assert (first.reason, name in first.message) == ("Disconnected", True)
    assert first.status == (200 if arrived else 0)
    assert (first.refused, first.unheard) == (code == REFUSED_STREAM, False)
    assert streams.transport.ended == ""


async def test_an_answer_that_is_complete_before_the_reset_counts():
    """Go's server resets a stream with NO_ERROR if it does not want the rest of a body."""
    streams = Streams()
    task = await streams.started(body=b"x" * 2**17)
    streams.receives(answer(1), reset(1, 0))
    assert isinstance(await task, Answer)


async def test_a_server_that_goes_away_answers_what_it_has_accepted():
    """Requests after the last one that it names can be sent again, whatever they are."""
    streams = Streams()
    tasks = [await streams.started() for _ in range(3)]
    streams.receives(goaway(3))
    refused = await tasks[2]
    assert isinstance(refused, Failed)
    assert (refused.refused, refused.unheard, refused.reason) == (True, False, "Disconnected")
    assert (streams.losses, streams.transport.ended) == (1, "")
    late = await streams.answered()
    assert isinstance(late, Failed)
    assert late.refused
    streams.receives(answer(3), answer(1))
    assert isinstance(await tasks[0], Answer)
    assert isinstance(await tasks[1], Answer)
    assert (streams.losses, streams.transport.ended) == (1, "closed")


async def test_a_server_goes_away_in_two_steps():
    """RFC 9113, section 6.8: first with the largest number, then with that of the last request that it accepted."""
    streams = Streams()
    tasks = [await streams.started() for _ in range(2)]
    streams.receives(goaway(LAST_STREAM))
    assert not any(each.done() for each in tasks)
    assert streams.connection.closed
    streams.receives(goaway(1))
    refused = await tasks[1]
    assert isinstance(refused, Failed)
    assert refused.refused
    streams.receives(answer(1))
    assert isinstance(await tasks[0], Answer)
    assert (streams.losses, streams.transport.ended) == (1, "closed")


async def test_a_server_that_goes_away_while_nothing_runs_is_left_at_once():
    streams = Streams()
    await streams.answered(answer(1))
    streams.receives(goaway(1))
    assert (streams.losses, streams.transport.ended) == (1, "closed")


async def test_a_server_that_goes_away_and_closes_breaks_what_it_has_accepted():
    streams = Streams()
    task = await streams.started()
    streams.receives(goaway(1))
    streams.ends()
    got = await task
    assert isinstance(got, Failed)
    assert (got.unheard, got.refused) == (True, False)


async def test_an_error_with_which_a_server_goes_away_is_named():
    streams = Streams()
    tasks = [await streams.started() for _ in range(2)]
    streams.receives(goaway(1, 11, b"too_many_pings"))
    streams.ends()
    for each in tasks:
        got = await each
        assert isinstance(got, Failed)
        assert "ENHANCE_YOUR_CALM" in got.message


@virtual_time.in_virtual_time
async def test_a_dead_connection_is_aborted_at_the_first_time_out():
    """Nothing was heard since the request was sent, so that the others would wait in vain."""
    streams = Streams()
    first, second = await streams.started(timeout=7), await streams.started(timeout=60)
    got = await first
    assert virtual_time.now() == 7
    assert isinstance(got, Failed)
    assert (got.reason, got.message) == ("Timeout", "https://api did not answer in time")
    other = await second
    assert isinstance(other, Failed)
    assert other.unheard
    assert (streams.transport.ended, streams.losses, virtual_time.now()) == ("aborted", 1, 7)


@pytest.mark.parametrize("heard", [frame(PING, 0, 0, b"12345678"), answer(3), headers(3), headers(1)])
@virtual_time.in_virtual_time
async def test_a_time_out_on_a_living_connection_ends_its_stream_alone(heard):
    streams = Streams()
    first, second = await streams.started(timeout=7), await streams.started(timeout=60)
    await asyncio.sleep(3)
    streams.receives(heard, frame(PING, 0, 0, b"12345678"))
    await asyncio.sleep(0)
    streams.frames()
    got = await first
    assert virtual_time.now() == 7
    assert isinstance(got, Failed)
    assert (got.reason, got.status) == ("Timeout", 200 if heard == headers(1) else 0)
    await asyncio.sleep(0)
    assert streams.frames() == [Sent(RST_STREAM, 0, 1, CANCEL.to_bytes(4))]
    if not second.done():
        streams.receives(data(3, b"") if heard == headers(3) else answer(3))
    assert isinstance(await second, Answer)
    assert streams.transport.ended == ""


@virtual_time.in_virtual_time
async def test_each_request_has_its_own_deadline():
    """A connection has one timer, which is moved only when it must be."""
    loop = asyncio.get_running_loop()
    streams = Streams()
    ended = {}

    def note(timeout):
        return lambda _: ended.setdefault(timeout, loop.time())

    for timeout in (10, 60, 3, 30):
        (await streams.started(timeout=timeout)).add_done_callback(note(timeout))
    streams.receives(frame(PING, 0, 0, b"12345678"))
    await asyncio.sleep(100)
    assert ended == {3: 3, 10: 10, 30: 30, 60: 60}
    began = loop.time()
    assert isinstance(await (await streams.started(timeout=5)), Failed)
    assert loop.time() - began == 5


@virtual_time.in_virtual_time
async def test_a_later_deadline_moves_no_timer():
    loop = asyncio.get_running_loop()
    streams, timers, call_at = Streams(), [], loop.call_at
    loop.call_at = lambda when, *rest: timers.append(when) or call_at(when, *rest)  # type: ignore[method-assign]
    for number in range(50):
        task = await streams.started(timeout=10)
        streams.receives(answer(2 * number + 1))
        await task
    assert len(timers) == 1


# Streams that are read as they arrive.


async def test_a_stream_is_read_as_it_arrives():
    streams = Streams()
    incoming = await streams.streamed(headers(1, encoded((":status", "200"), ("x", "y"))))
    assert (incoming.status, incoming.headers) == (200, {"X": "y"})
    reading = asyncio.ensure_future(incoming.read())
    await asyncio.sleep(0)
    streams.receives(data(1, b"", 0))
    await asyncio.sleep(0)
    assert not reading.done()
    streams.receives(data(1, b"a", 0))
    assert await reading == b"a"
    streams.receives(data(1, b"b", 0), data(1, b"c"))
    assert await incoming.read() == b"bc"
    assert await incoming.read() == b""
    assert await incoming.read() == b""
    incoming.drop()
    await asyncio.sleep(0)
    assert [each.kind for each in streams.frames()] == [1]


async def test_a_stream_with_headers_alone_has_ended():
    incoming = await Streams().streamed(headers(1, encoded((":status", "410")), END_HEADERS | END_STREAM))
    assert (incoming.status, await incoming.read()) == (410, b"")


async def test_a_stream_that_breaks_off_is_read_up_to_there():
    streams = Streams()
    incoming = await streams.streamed(headers(1))
    streams.receives(data(1, b"a", 0), reset(1, 2))
    assert await incoming.read() == b"a"
    with pytest.raises(Failed, match="INTERNAL_ERROR"):
        await incoming.read()


async def test_a_dropped_stream_is_reset_and_leaves_the_connection_to_others():
    streams = Streams()
    incoming = await streams.streamed(headers(1) + data(1, b"a", 0))
    streams.frames()
    incoming.drop()
    incoming.drop()
    await asyncio.sleep(0)
    assert streams.frames() == [Sent(RST_STREAM, 0, 1, CANCEL.to_bytes(4))]
    streams.receives(data(1, b"late"))
    assert isinstance(await streams.answered(answer(3)), Answer)


async def test_a_stream_that_is_cancelled_before_its_headers_is_reset():
    streams = Streams()
    task = asyncio.ensure_future(streams.streamed())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert streams.connection.busy == 0
    await asyncio.sleep(0)
    assert [each.kind for each in streams.frames()] == [1, RST_STREAM]


@virtual_time.in_virtual_time
async def test_a_silent_stream_ends_after_its_time():
    """Whatever arrives starts its time anew."""
    streams = Streams()
    incoming = await streams.streamed(headers(1), silence=10)
    for _ in range(3):
        await asyncio.sleep(9)
        streams.receives(data(1, b"a", 0))
        assert await incoming.read() == b"a"
    with pytest.raises(Failed, match="did not answer in time"):
        await incoming.read()
    assert virtual_time.now() == 37
    assert streams.transport.ended == "aborted"


@virtual_time.in_virtual_time
async def test_a_silent_stream_beside_a_busy_one_ends_alone():
    streams = Streams()
    silent = await streams.streamed(headers(1), silence=10)
    busy = await streams.streamed(headers(3), silence=10)
    for _ in range(3):
        await asyncio.sleep(5)
        streams.receives(data(3, b"a", 0))
    with pytest.raises(Failed, match="did not answer in time"):
        await silent.read()
    assert await busy.read() == b"aaa"
    assert streams.transport.ended == ""


async def test_a_stream_holds_the_connection():
    streams = Streams()
    first, second = await streams.streamed(headers(1)), await streams.streamed(headers(3))
    await until(lambda: not streams.transport.paused)  # it also waits for a moment after a little has arrived
    seen = []

    async def held_within():
        seen.append(streams.transport.paused)
        await second.hold(held)
        seen.append(streams.transport.paused)

    async def held():
        seen.append(streams.transport.paused)

    await first.hold(held_within)
    seen.append(streams.transport.paused)
    assert seen == [True, True, True, False]


async def test_a_hold_that_is_cancelled_or_outlives_the_connection_ends():
    streams = Streams()
    incoming = await streams.streamed(headers(1))
    await until(lambda: not streams.transport.paused)
    holding = asyncio.ensure_future(incoming.hold(asyncio.Event().wait))
    await asyncio.sleep(0)
    assert streams.transport.paused
    holding.cancel()
    await asyncio.wait({holding})
    assert not streams.transport.paused
    await incoming.hold(lambda: asyncio.sleep(0, streams.ends()))
    await incoming.hold(lambda: asyncio.sleep(0))
