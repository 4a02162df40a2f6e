"""How the bytes of an answer are read: in any pieces, incomplete, too many, or no answer at all."""

import asyncio

import pytest
from support import virtual_time
from support.raw_http import OK, Exchanges

from hpad.kube.http.connection import LARGEST_HEAD
from hpad.kube.http.exchange import Answer, Failed, TooLarge

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\n\r\n"
    b"3;ext=1\r\n{}x\r\nA\r\n0123456789\r\n0\r\nT: later\r\n\r\n"
)
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nto the end"
WHOLE = {
    "length": (OK, 200, b"ok"),
    "chunked": (CHUNKED, 200, b"{}x0123456789"),
    "informational": (CONTINUE + OK, 200, b"ok"),
    "no content": (b"HTTP/1.1 204 No Content\r\nDate: now\r\n\r\n", 204, b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b""),
    "empty": (b"HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\nX-Folded: a\r\n\r\n", 409, b""),
    "kept alive by 1.0": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
}
LAST = {
    "close": (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
    "1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
}


@pytest.mark.parametrize("name", WHOLE | LAST)
async def test_an_answer_is_the_same_in_any_two_pieces(name: str) -> None:
    answer, status, body = (WHOLE | LAST)[name]
    for position in range(len(answer) + 1):
        exchanges = Exchanges()
        got = await exchanges.answered(answer[:position], answer[position:])
        assert isinstance(got, Answer), position
        assert (got.status, got.body) == (status, body)
        ends = ("", 1, 0) if name in WHOLE else ("closed", 0, 1)
        assert (exchanges.transport.ended, exchanges.released, exchanges.losses) == ends


@pytest.mark.parametrize("name", WHOLE | LAST)
async def test_an_answer_arrives_byte_by_byte(name: str) -> None:
    answer, status, body = (WHOLE | LAST)[name]
    got = await Exchanges().answered(*(answer[each : each + 1] for each in range(len(answer))))
    assert isinstance(got, Answer)
    assert (got.status, got.body) == (status, body)


@pytest.mark.parametrize("name", WHOLE | LAST)
async def test_an_answer_that_ends_early_is_none(name: str) -> None:
    answer, status, _ = (WHOLE | LAST)[name]
    head = answer.rindex(b"\r\n\r\n" if name != "chunked" else b"\r\n\r\n3;ext") + 4
    for position in range(len(answer)):
        exchanges = Exchanges()
        got = await exchanges.answered(answer[:position], end=True)
        assert isinstance(got, Failed), position
        assert (got.reason, got.unheard) == ("Disconnected", position == 0)
        assert got.status == (status if position >= head else 0)
        assert (exchanges.released, exchanges.losses) == (0, 1)


async def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    head = UNTIL_CLOSED.index(b"\r\n\r\n") + 4
    for position in range(len(UNTIL_CLOSED) + 1):
        exchanges = Exchanges()
        got = await exchanges.answered(UNTIL_CLOSED[:position], end=True)
        if position < head:
            assert isinstance(got, Failed)
        else:
            assert isinstance(got, Answer)
            assert got.body == UNTIL_CLOSED[head:position]
        assert (exchanges.released, exchanges.losses) == (0, 1)


async def test_an_answer_without_a_length_that_is_reset_is_none() -> None:
    exchanges = Exchanges()
    task = await exchanges.started()
    exchanges.connection.data_received(UNTIL_CLOSED)
    exchanges.connection.connection_lost(ConnectionResetError())
    got = await task
    assert isinstance(got, Failed)
    assert got.message == "the answer of http://api broke off (connection reset)"


async def test_a_coding_that_is_not_chunked_ends_with_the_connection() -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nzipped"
    got = await Exchanges().answered(answer, end=True)
    assert isinstance(got, Answer)
    assert got.body == b"zipped"


@pytest.mark.parametrize(
    "garbage",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x0a",
        b"<html>",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/9.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 2x0 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    ],
)
async def test_anything_but_http_is_refused(garbage: bytes) -> None:
    for pieces in ([garbage], [garbage[each : each + 1] for each in range(len(garbage))]):
        exchanges = Exchanges()
        got = await exchanges.answered(*pieces, end=True)
        assert isinstance(got, Failed)
        assert got.reason == "Disconnected"
        assert not got.unheard
        assert (exchanges.released, exchanges.losses) == (0, 1)


@pytest.mark.parametrize("more", [OK, b"x", b"HTTP/1.1 500 Late\r\n", b"\0" * 9, b"HTTP/1.1 200 OK\r\n\r\nx"])
@pytest.mark.parametrize("name", WHOLE)
async def test_bytes_after_an_answer_close_the_connection(name: str, more: bytes) -> None:
    answer, status, body = WHOLE[name]
    exchanges = Exchanges()
    got = await exchanges.answered(answer + more)
    assert isinstance(got, Answer)
    assert (got.status, got.body) == (status, body)
    assert "T" not in got.headers or name == "chunked"
    assert (exchanges.transport.ended, exchanges.released, exchanges.losses) == ("closed", 0, 1)


async def test_bytes_between_answers_close_the_connection() -> None:
    exchanges = Exchanges()
    await exchanges.answered(OK)
    exchanges.connection.data_received(OK)
    assert (exchanges.transport.ended, exchanges.losses) == ("aborted", 1)


async def test_an_answer_before_the_request_is_no_answer() -> None:
    exchanges = Exchanges()
    exchanges.connection.data_received(OK)
    got = await exchanges.answered()
    assert isinstance(got, Failed)
    assert exchanges.transport.written == []
    assert (exchanges.transport.ended, exchanges.losses) == ("aborted", 1)


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"", b"\r\n"),
        (b"HTTP/1.1 200 ", b"x"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 OK\r\n", b"x" * 99),
        (b"HTTP/1.1 200 OK\r\n", b"A: 1\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n", b"T: 1\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;", b"x"),
    ],
    ids=["line", "status", "value", "name", "headers", "informational", "trailers", "extension"],
)
async def test_a_head_without_an_end_is_refused(start: bytes, more: bytes) -> None:
    exchanges = Exchanges()
    task = await exchanges.started()
    exchanges.connection.data_received(start + more)
    fed, piece = 0, more * (1000 // len(more))
    while not task.done() and fed < 2**20:
        exchanges.connection.data_received(piece)
        fed += len(piece)
        await asyncio.sleep(0)
    got = await task
    assert isinstance(got, Failed)
    assert fed <= LARGEST_HEAD + 2 * len(piece)
    assert exchanges.transport.ended == "aborted"
    assert "too large" in got.message


async def test_a_head_just_below_the_limit_is_read() -> None:
    filler = b"".join(b"X-%d: %b\r\n" % (number, b"v" * 990) for number in range(60))
    answer = b"HTTP/1.1 200 OK\r\n" + filler + b"Content-Length: 2\r\n\r\nok"
    got = await Exchanges().answered(*(answer[each : each + 1000] for each in range(0, len(answer), 1000)))
    assert isinstance(got, Answer)
    assert got.headers["X-59"] == "v" * 990


@pytest.mark.parametrize("status", [200, 500])
async def test_an_announced_size_above_the_limit_is_not_read(status: int) -> None:
    exchanges = Exchanges(largest=10)
    got = await exchanges.answered(b"HTTP/1.1 %d X\r\ncontent-length: 11\r\n\r\n" % status)
    assert isinstance(got, TooLarge)
    assert (got.status, exchanges.transport.ended) == (status, "aborted")


@pytest.mark.parametrize("coding", [b"Transfer-Encoding: chunked", b"X: until closed"])
async def test_a_size_above_the_limit_is_counted(coding: bytes) -> None:
    exchanges = Exchanges(largest=10)
    pieces = [b"5\r\n12345\r\n" if b"chunked" in coding else b"12345"] * 3
    got = await exchanges.answered(b"HTTP/1.1 200 OK\r\n" + coding + b"\r\n\r\n", *pieces)
    assert isinstance(got, TooLarge)
    assert exchanges.transport.ended == "aborted"


async def test_a_size_at_the_limit_is_read_and_one_more_byte_at_once_is_not() -> None:
    assert isinstance(await Exchanges(largest=2).answered(OK), Answer)
    assert isinstance(await Exchanges(largest=1).answered(OK), TooLarge)


async def test_a_long_answer_in_tiny_chunks_is_read() -> None:
    """More bytes around the body than a head may have are no reason to refuse it."""
    pieces = [b"1\r\nx\r\n"] * LARGEST_HEAD
    got = await Exchanges().answered(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *pieces, b"0\r\n\r\n")
    assert isinstance(got, Answer)
    assert got.body == b"x" * LARGEST_HEAD


async def test_a_long_answer_in_chunks_whose_sizes_arrive_alone_is_read() -> None:
    number = LARGEST_HEAD // 2
    pieces = [b"1\r\n", b"x\r\n"] * number
    got = await Exchanges().answered(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *pieces, b"0\r\n\r\n")
    assert isinstance(got, Answer)
    assert got.body == b"x" * number


async def test_headers_of_an_informational_answer_are_not_those_of_the_answer() -> None:
    got = await Exchanges().answered(CONTINUE + OK)
    assert isinstance(got, Answer)
    assert got.headers == {"Content-Length": "2"}


async def test_answers_on_one_connection_share_nothing() -> None:
    exchanges = Exchanges()
    first = await exchanges.answered(b"HTTP/1.1 429 Busy\r\nretry-after:  7 \r\nContent-Length: 3\r\n\r\n", b"a", b"bc")
    second = await exchanges.answered(OK)
    third = await exchanges.answered(CHUNKED)
    assert isinstance(first, Answer)
    assert isinstance(second, Answer)
    assert isinstance(third, Answer)
    assert (first.status, first.body, first.headers["Retry-After"]) == (429, b"abc", "7")
    assert (second.status, second.body, second.headers) == (200, b"ok", {"Content-Length": "2"})
    assert third.body == b"{}x0123456789"
    assert exchanges.released == 3


async def test_a_connection_with_unsent_bytes_of_its_request_is_closed() -> None:
    """The server answered before it had read the request: the rest would begin the next one."""
    exchanges = Exchanges()
    exchanges.transport.unsent = 1
    assert isinstance(await exchanges.answered(OK), Answer)
    assert (exchanges.transport.ended, exchanges.released) == ("closed", 0)


@pytest.mark.parametrize("arrived", [b"", OK[:20], OK[:-1]])
async def test_a_cancelled_exchange_closes_its_connection(arrived: bytes) -> None:
    exchanges = Exchanges()
    task = await exchanges.started()
    if arrived:
        exchanges.connection.data_received(arrived)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert (exchanges.transport.ended, exchanges.released, exchanges.losses) == ("aborted", 0, 1)


async def test_an_exchange_that_is_cancelled_after_its_answer_keeps_its_connection() -> None:
    exchanges = Exchanges()
    task = await exchanges.started()
    exchanges.connection.data_received(OK)
    task.cancel()
    await asyncio.wait({task})
    assert (exchanges.transport.ended, exchanges.released) == ("", 1)
    assert isinstance(await exchanges.answered(OK), Answer)


@virtual_time.in_virtual_time
async def test_an_exchange_times_out_and_closes_its_connection() -> None:
    exchanges = Exchanges()
    task = await exchanges.started(timeout=7)
    exchanges.connection.data_received(OK[:-1])
    got = await task
    assert virtual_time.now() == 7
    assert isinstance(got, Failed)
    assert (got.reason, got.message, got.status) == ("Timeout", "http://api did not answer in time", 200)
    assert (exchanges.transport.ended, exchanges.losses) == ("aborted", 1)


@virtual_time.in_virtual_time
async def test_each_exchange_has_its_own_deadline() -> None:
    """A connection has one timer, which is moved only when it must be."""
    exchanges = Exchanges()
    for timeout in (10, 10, 60, 3):
        task = await exchanges.started(timeout)
        await asyncio.sleep(1)
        exchanges.connection.data_received(OK)
        assert isinstance(await task, Answer)
    await asyncio.sleep(100)
    task = await exchanges.started(5)
    began = virtual_time.now()
    assert isinstance(await task, Failed)
    assert virtual_time.now() - began == 5


@pytest.mark.parametrize(("first", "answered", "second", "ends"), [(60, 1, 5, 6), (10, 8, 10, 18), (10, 8, 1, 9)])
@virtual_time.in_virtual_time
async def test_the_deadline_of_an_earlier_exchange_is_not_that_of_the_next(
    first: float, answered: float, second: float, ends: float
) -> None:
    exchanges = Exchanges()
    task = await exchanges.started(first)
    await asyncio.sleep(answered)
    exchanges.connection.data_received(OK)
    assert isinstance(await task, Answer)
    assert isinstance(await (await exchanges.started(second)), Failed)
    assert virtual_time.now() == ends


@virtual_time.in_virtual_time
async def test_a_later_deadline_moves_no_timer() -> None:
    loop = asyncio.get_running_loop()
    exchanges, timers, call_at = Exchanges(), [], loop.call_at
    loop.call_at = lambda when, *rest: timers.append(when) or call_at(when, *rest)  # type: ignore[method-assign]
    for _ in range(50):
        task = await exchanges.started(10)
        exchanges.connection.data_received(OK)
        await task
    assert len(timers) == 1


async def test_a_closed_connection_leaves_its_pool_once() -> None:
    exchanges = Exchanges()
    await exchanges.answered(OK)
    exchanges.connection.close()
    exchanges.connection.abort()
    exchanges.connection.connection_lost(None)
    assert exchanges.losses == 1
    assert exchanges.connection.gone.done()
