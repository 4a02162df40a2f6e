"""Limits, redirects and error sentences of requests, against servers on loopback."""

import asyncio
import contextlib

import msgspec
import pytest
from aiohttp import web
from support.http_stub import SECRET, SERVER, get, hang_up, refusal

from hpad.adapter import AdapterError, Context
from hpad.adapter_http import TooLargeError, count_elements, decoded, url_error
from hpad.lab.servers import ports


async def test_a_body_without_end_is_cut_off(stub, context: Context) -> None:
    sent = 0

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)
            sent += 65536

    stub.handler = endless
    with pytest.raises(TooLargeError) as caught:
        await get(context, stub.url, max_bytes=1 << 16)
    assert caught.value.message == "the server answers more than max_bytes (65536)"
    assert (caught.value.alive, caught.value.lasting) == (True, True)
    assert sent < 64 << 20


async def test_a_body_of_exactly_the_limit_is_accepted(stub, context: Context) -> None:
    stub.answers("x" * 1000)
    assert len(await get(context, stub.url, max_bytes=1000)) == 1000
    await refusal(context, stub.url, max_bytes=999)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"[1,2,3]", "answers more than max_elements (3)"),
        (b"[" * 200_000, "something other than a list"),
        (b"[1, 2", "something other than a list"),
        (b"<html>", "something other than a list"),
        (b'"\xff"', "something other than a list"),
    ],
)
def test_json_is_bounded_in_elements_and_depth(body: bytes, error: str) -> None:
    limit = 3 if b"3" in body else None
    with pytest.raises(AdapterError) as caught:
        decoded(msgspec.json.Decoder(), body, SERVER, "a list", max_elements=limit)
    assert error in caught.value.message


def test_elements_are_counted_in_linear_time() -> None:
    """A string that is never closed and holds many escaped quotes: a backtracking count would take hours."""
    for end in (b"", b"\\"):
        assert count_elements(b"," * 10 + b'"' + b'\\"' * 200_000 + end, 5) == 11


async def test_a_server_that_does_not_answer_is_a_timeout(stub, context: Context) -> None:
    async def hang(request: web.BaseRequest) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    stub.handler = hang
    assert await refusal(context, stub.url, timeout=0.2) == "the server did not answer within 0.2s"
    # A request leaves the call that it belongs to the time to return the answers of others.
    brief = msgspec.structs.replace(context, timeout=0.2)
    assert await refusal(brief, stub.url, timeout=60) == "the server did not answer within 0.18s"


async def test_no_redirect_is_followed(stub, context: Context) -> None:
    other = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other.append(await reader.read(100))

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        for target in (f"http://127.0.0.1:{port}/", f"//localhost:{port}/"):
            stub.answers(status=302, Location=target)
            message = await refusal(context, stub.url, bearer_token=SECRET)
            assert message.startswith("the server answers with a redirect (302) to ")
            assert f":{port}" in message
            assert message.endswith(", which is not followed: write that address")
    assert other == []
    stub.requests.clear()
    stub.answers(status=307, Location="/there")
    assert "a redirect (307) to /there," in await refusal(context, stub.url)
    assert len(stub.requests) == 1


async def test_each_failure_has_its_own_sentence(stub, context: Context) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            writer.write(b"220 mail ready\r\n")
            await reader.read(100)

    stub.handler = hang_up
    assert await refusal(context, f"http://127.0.0.1:{ports.free(1)[0]}") == "the server refused the connection"
    assert "host name does not resolve" in await refusal(context, "http://metrics.invalid/")
    for name in ("metrics..invalid", f"{'m' * 64}.invalid", "127.1"):
        assert "host name is not valid" in await refusal(context, f"http://{name}/")
    assert "does not speak TLS" in await refusal(context, stub.url.replace("http:", "https:"))
    assert await refusal(context, stub.url) == "the server closed the connection without an answer"
    async with await asyncio.start_server(talk, "127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        assert "did not answer in HTTP" in await refusal(context, url)


async def test_an_answer_that_ends_early_has_its_own_sentence(stub, context: Context) -> None:
    async def truncated(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"name": "a", ')
        assert request.transport is not None
        request.transport.close()
        return response

    stub.handler = truncated
    assert await refusal(context, stub.url) == "the server broke off in the middle of its answer"


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("http://h:80/x", ""),
        (f"http://me:{SECRET}@h", "contains credentials: write them as settings of their own"),
        (f"http://me:{SECRET}@h:port", "is not a URL, or its port is not a number"),
        ("h:80", "'h:80' is not of the form \"http://h\""),
        ("http://h:0", "'http://h:0' is not of the form \"http://h\""),
        ("http://a b:1", "'http://a b:1' is not of the form \"http://h\""),
        ("http://<host>:1", "'http://<host>:1' is not of the form \"http://h\""),
        ("http://$(HOST):1", "'http://$(HOST):1' is not of the form \"http://h\""),
        ("http://h:1/<<now>>", ""),
    ],
)
def test_the_error_about_a_url_repeats_no_password(url: str, error: str) -> None:
    assert url_error(url, ("http", "https"), "http://h") == error
