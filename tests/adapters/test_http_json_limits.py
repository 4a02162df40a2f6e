"""Documents that are too large, and a certificate authority that is replaced, over real HTTP."""

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from aiohttp import web
from support import free_ports, virtual_time
from support.http_stub import Handler, server_tls, serving
from support.scripted_source import A, B, Scripted, opened

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample, Query
from hpad.sources import limits
from hpad_adapters.http_json import HttpJson, documents

MOST = 50_000
"""The default limit for the elements of a document."""


def documents_by_name(documents: dict[str, bytes]) -> Handler:
    """Serves the documents by their names."""

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(body=documents[request.path[1:]], headers={"Connection": "close"})

    return answer


async def ask(documents: dict[str, bytes], path: str = "a[*]", **options: Any) -> dict[str, Answer]:
    """The answers to one metric for each document."""
    async with serving(documents_by_name(documents)) as url, testing.context("http") as context:
        metrics = {name: {"url": f"{url}/{name}", "path": path} for name in documents}
        settings = msgspec.convert({"metrics": metrics, "request_timeout": "60s", **options}, HttpJson.Settings)
        answers = await HttpJson(settings, context).answer([testing.external(name) for name in documents])
    return dict(zip(documents, answers, strict=True))


def numbers(count: int) -> bytes:
    """A document of one object, one list, and `count` numbers."""
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
async def test_a_document_of_too_many_elements_fails_only_its_own_metrics(body: bytes) -> None:
    answers = await ask({"large": body, "small": numbers(3)})
    refused, fine = answers["large"], answers["small"]
    assert isinstance(refused, AdapterError)
    assert "/large answers more than max_elements (50000)" in refused.message
    assert (refused.blame, refused.alive, refused.lasting) == ("source", True, True)
    assert isinstance(fine, ExternalSample)


async def test_documents_of_autoscalers_that_hang_leave_connections_to_those_of_the_configuration() -> None:
    release, waiting = asyncio.Event(), asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.path != "/depth":
            waiting.set()
            await release.wait()
        return web.Response(body=b"7")

    async with serving(answer) as url, testing.context("http") as context:
        metrics = {"depth": {"url": f"{url}/depth", "path": ""}}
        settings = {"metrics": metrics, "base_url": url, "request_timeout": "60s"}
        adapter = HttpJson(msgspec.convert(settings, HttpJson.Settings), context)
        own = [testing.own_query(HttpJson.QuerySchema(f"/slow/{number}", "")) for number in range(40)]
        asked = asyncio.create_task(adapter.answer(own))
        await waiting.wait()
        async with asyncio.timeout(30):
            answers = await adapter.answer([testing.external("depth")])
        release.set()
        assert [type(answer) for answer in [*answers, *await asked]] == [ExternalSample] * 41


@pytest.mark.parametrize("number", [b"0x" + b"f" * 100_000, b"9" * 5000, b"1_" * 5000 + b"1"])
def test_a_long_number_of_yaml_is_refused_before_it_is_computed(number: bytes) -> None:
    began = time.process_time()
    with pytest.raises(AdapterError, match="something other than YAML"):
        documents.tree("yaml", b"a: [" + number + b"]", "x", MOST)
    assert time.process_time() - began < 3
    text = documents.tree("yaml", b'a: ["' + b"f" * 5000 + b'"]', "x", MOST)
    assert text == {"a": ["f" * 5000]}


async def test_the_limit_counts_every_element() -> None:
    answers = await ask({"most": numbers(MOST - 2), "more": numbers(MOST - 1)})
    assert isinstance(answers["most"], ExternalSample)
    assert len(answers["most"].values) == MOST - 2
    assert isinstance(answers["more"], AdapterError)


async def test_delimiters_within_strings_are_not_elements() -> None:
    text = json.dumps({"note": ',[{"\\' * 100_000, "a": [7]}).encode()
    answer = (await ask({"note": text}))["note"]
    assert isinstance(answer, ExternalSample)
    assert answer.values == (7000,)


async def test_documents_are_decoded_outside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document may hold as many numbers as the limit allows, which takes long to decode."""
    threads = set()
    decoded = documents.decoded

    def noted(*arguments: Any, **options: Any) -> Any:
        threads.add(threading.current_thread())
        return decoded(*arguments, **options)

    monkeypatch.setattr(documents, "decoded", noted)
    answers = await ask({"small": numbers(3)})
    assert isinstance(answers["small"], ExternalSample)
    assert threads
    assert threading.main_thread() not in threads


async def test_the_limit_can_be_set() -> None:
    answers = await ask({"large": numbers(60_000)}, max_elements=60_002)
    assert isinstance(answers["large"], ExternalSample)
    for wrong in ({"max_elements": 0}, {"max_bytes": 0}, {"max_elements": -1}):
        with pytest.raises(msgspec.ValidationError, match=">= 1"):
            msgspec.convert({"metrics": {}, **wrong}, HttpJson.Settings)


@pytest.mark.parametrize("body", [b"<html>", b'{"a":"x"}', b'{"b":1}', b'{"a":[]}', b" " * (2 << 20), numbers(60_000)])
async def test_an_error_of_a_document_leaves_the_server_alive(body: bytes) -> None:
    answer = (await ask({"odd": body}))["odd"]
    assert isinstance(answer, AdapterError)
    assert (answer.blame, answer.alive) == ("source", True)


def test_an_error_of_one_document_opens_no_breaker() -> None:
    async def behave(queries: Sequence[Query]) -> Any:
        if any(query.name == A.name for query in queries):
            raise AdapterError("http://h/a answers more than max_bytes (hunter22)", alive=True)

    async def main() -> None:
        adapter = Scripted(behave)
        source = opened(adapter, fresh=0.0)
        for _ in range(60):
            refused = await source.ask(A)
            await asyncio.sleep(1)
        assert len(adapter.batches) == 60
        assert refused == AdapterError("http://h/a answers more than max_bytes (***)")
        assert source.report("x").state == limits.OK
        assert isinstance(await source.ask(B), ExternalSample)

    virtual_time.run(main())


async def test_a_replaced_authority_is_used(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    authorities = [trustme.CA(), trustme.CA()]

    with free_ports.port() as port:
        async with testing.context("http") as context:
            adapter: HttpJson | None = None
            for authority in authorities:
                async with serving(documents_by_name({"m": b'{"a": 3}'}), tls=server_tls(authority), port=port) as url:
                    if adapter is None:
                        settings = {"metrics": {"m": {"url": f"{url}/m", "path": "a"}}, "ca": str(ca)}
                        authority.cert_pem.write_to_path(ca)
                        adapter = HttpJson(msgspec.convert(settings, HttpJson.Settings), context)
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
