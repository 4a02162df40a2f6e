"""Documents that are too large, and an authority that is exchanged, over real HTTP."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from aiohttp import web
from support import virtual_time
from support.scripted_source import A, B, Scripted, opened

from hpad import adapter_http, testing
from hpad.adapter import AdapterError, Answer, ExternalSample, Query
from hpad.sources import report
from hpad_adapters.http_json import HttpJson

MOST = 50_000
"""The elements of a document that are taken by default."""


@asynccontextmanager
async def serving(documents: dict[str, bytes], tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[str]:
    """Serves the documents by their names; gives the address."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=documents[request.match_info["name"]], headers={"Connection": "close"})

    application = web.Application()
    application.add_routes([web.get("/{name}", answer)])
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    yield f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def ask(documents: dict[str, bytes], path: str = "a[*]", **options: Any) -> dict[str, Answer]:
    """The answers to one metric for each document."""
    async with serving(documents) as url, testing.context("http") as context:
        metrics = {name: {"url": f"{url}/{name}", "path": path} for name in documents}
        settings = msgspec.convert({"metrics": metrics, **options}, HttpJson.Settings)
        answers = await HttpJson(settings, context).answer([testing.external(name) for name in documents])
    return dict(zip(documents, answers, strict=True))


def numbers(count: int) -> bytes:
    """A document of one object, one list, and so many numbers."""
    return json.dumps({"a": [1] * count}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":[' + b"1," * 520_000 + b"1]}",
        b'{"a":[' + b",".join(b'"%dm"' % number for number in range(100_000)) + b"]}",
        b'{"a":[' + b"[]," * 30_000 + b"1]}",
        b'{"a":[' + b'{"b":1},' * 30_000 + b"1]}",
        b"[" * 60_000,
        b'{"a":[1],' + b",".join(b'"%d":1' % number for number in range(60_000)) + b"}",
    ],
    ids=["numbers", "texts", "lists", "objects", "nested", "fields"],
)
async def test_a_document_of_too_many_elements_is_refused_by_name_and_spoils_no_other(body: bytes) -> None:
    answers = await ask({"large": body, "small": numbers(3)})
    refused, fine = answers["large"], answers["small"]
    assert isinstance(refused, AdapterError)
    assert "/large answers more than max_elements (50000)" in refused.message
    assert (refused.blame, refused.alive, refused.lasting) == ("source", True, True)
    assert isinstance(fine, ExternalSample)


async def test_the_limit_is_on_elements_to_the_last_one() -> None:
    answers = await ask({"most": numbers(MOST - 2), "more": numbers(MOST - 1)})
    assert isinstance(answers["most"], ExternalSample)
    assert len(answers["most"].values) == MOST - 2
    assert isinstance(answers["more"], AdapterError)


async def test_signs_in_texts_are_no_elements() -> None:
    text = json.dumps({"note": ',[{"\\' * 100_000, "a": [7]}).encode()
    answer = (await ask({"note": text}))["note"]
    assert isinstance(answer, ExternalSample)
    assert answer.values == (7000,)


async def test_the_limit_can_be_set() -> None:
    answers = await ask({"large": numbers(60_000)}, max_elements=60_002)
    assert isinstance(answers["large"], ExternalSample)
    for wrong in ({"max_elements": 0}, {"max_bytes": 0}, {"max_elements": -1}):
        with pytest.raises(msgspec.ValidationError, match="1 or more"):
            msgspec.convert({"metrics": {}, **wrong}, HttpJson.Settings)


@pytest.mark.parametrize("body", [b"<html>", b'{"a":"x"}', b'{"b":1}', b'{"a":[]}', b" " * (2 << 20), numbers(60_000)])
async def test_what_is_wrong_with_a_document_is_said_of_a_server_that_works(body: bytes) -> None:
    answer = (await ask({"odd": body}))["odd"]
    assert isinstance(answer, AdapterError)
    assert (answer.blame, answer.alive) == ("source", True)


def test_an_error_of_one_document_opens_no_breaker() -> None:
    async def behave(queries: Sequence[Query]) -> Any:
        if any(query.name == A.name for query in queries):
            raise AdapterError("http://h/a answers more than max_bytes (hunter22)", lasting=True, alive=True)

    async def main() -> None:
        adapter = Scripted(behave)
        source = opened(adapter, fresh=0.0)
        for _ in range(60):
            refused = await source.ask(A)
            await asyncio.sleep(1)
        assert len(adapter.batches) == 60
        assert refused == AdapterError("http://h/a answers more than max_bytes (***)")
        assert source.report("x").state == report.OK
        assert isinstance(await source.ask(B), ExternalSample)

    virtual_time.run(main())


def test_texts_are_told_apart_in_linear_time() -> None:
    """A quote that is never closed, before many that are escaped: each byte is looked at once."""
    body = b'"' + b'\\"' * 200_000
    assert adapter_http.count_elements(b"," * 10 + body, 5) == 11
    assert adapter_http._STRING.sub(b"", body + b"\\") == b""


async def test_an_exchanged_authority_is_taken_up(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    authorities = [trustme.CA(), trustme.CA()]

    def secured(authority: trustme.CA) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        return context

    port = 0
    async with testing.context("http") as context:
        adapter: HttpJson | None = None
        for authority in authorities:
            async with serving({"m": b'{"a": 3}'}, secured(authority), port) as url:
                if adapter is None:
                    port = int(url.rpartition(":")[2])
                    told = {"metrics": {"m": {"url": f"{url}/m", "path": "a"}}, "ca": str(ca)}
                    authority.cert_pem.write_to_path(ca)
                    adapter = HttpJson(msgspec.convert(told, HttpJson.Settings), context)
                else:
                    (untrusted,) = await adapter.answer([testing.external("m")])
                    assert isinstance(untrusted, AdapterError)
                    authority.cert_pem.write_to_path(ca)
                (answer,) = await adapter.answer([testing.external("m")])
                assert isinstance(answer, ExternalSample)
        assert adapter is not None
        ca.unlink()
        (gone,) = await adapter.answer([testing.external("m")])
    assert isinstance(gone, AdapterError)
    assert f"{ca} cannot be used" in gone.message
