"""A number out of a JSON document, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample
from hpad.api.selector import Operator, Requirement, Selector
from hpad.lab.servers import ports
from hpad_adapters.http_json import HttpJson

DOCUMENT = {
    "jobs": {"waiting": 80, "by.name": 1},
    "queues": [{"name": "a", "depth": 3}, {"name": "b", "depth": "4.5"}],
    "none": None,
    "yes": True,
    "empty": [],
    "text": "many",
    "huge": 1e300,
}


class Endpoint:
    """Serves DOCUMENT; `requests` holds what was asked for."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.url = ""

    async def document(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        return web.json_response(DOCUMENT)

    async def ask(self, *asked: Any, path: str = "jobs.waiting", where: str = "/stats", **options: Any) -> list[Answer]:
        """The answers of an adapter whose metric "depth" is at that path of the document."""
        metric = {"url": f"{self.url}{where}", "path": path, "params": options.pop("params", [])}
        settings = msgspec.convert({"metrics": {"depth": metric}, **options}, HttpJson.Settings)
        async with testing.context("http") as context:
            return await HttpJson(settings, context).answer(asked or [testing.external("depth")])


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    made = Endpoint()

    async def hang(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def text(request: web.Request) -> web.Response:
        return web.Response(text="<html>")

    async def redirect(request: web.Request) -> web.Response:
        raise web.HTTPFound("http://localhost:1/stats?token=secret")

    async def large(request: web.Request) -> web.Response:
        return web.Response(body=b" " * (20 << 20))

    application = web.Application()
    application.add_routes(
        [
            web.get("/stats", made.document),
            web.get("/hang", hang),
            web.get("/text", text),
            web.get("/redirect", redirect),
            web.get("/large", large),
        ]
    )
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("jobs.waiting", (80_000,)),
        ("queues[1].depth", (4500,)),
        ("queues[*].depth", (3000, 4500)),
    ],
)
async def test_numbers_by_path(endpoint: Endpoint, path: str, values: tuple[int, ...]) -> None:
    (answer,) = await endpoint.ask(path=path)
    assert isinstance(answer, ExternalSample)
    assert answer.values == values


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("jobs.gone", "no 'gone'"),
        ("queues[2].depth", "too short"),
        ("jobs[0]", "another kind"),
        ("none", "another kind"),
        ("yes", "another kind"),
        ("text", "another kind"),
        ("huge", "another kind"),
        ("empty[*]", "is empty"),
        ("", "another kind"),
    ],
)
async def test_what_is_no_number_is_missing(endpoint: Endpoint, path: str, said: str) -> None:
    (answer,) = await endpoint.ask(path=path)
    assert isinstance(answer, AdapterError)
    assert said in answer.message


@pytest.mark.parametrize("path", [".a", "a..b", "a[x]", "a[", "a[-1]"])
def test_paths_that_are_none(path: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="path"):
        msgspec.convert({"metrics": {"depth": {"url": "http://h", "path": path}}}, HttpJson.Settings)


async def test_only_listed_parameters_reach_the_url_and_encoded(endpoint: Endpoint) -> None:
    odd = "a&token=1#x/../ü"
    asked = msgspec.structs.replace(
        testing.external("depth"), selector=Selector((Requirement("queue", Operator.EQUALS, (odd,)),))
    )
    (answer,) = await endpoint.ask(asked, where="/stats?fixed=1", params=["queue"])
    assert isinstance(answer, ExternalSample)
    assert endpoint.requests[0].path == "/stats"
    assert dict(endpoint.requests[0].query) == {"fixed": "1", "queue": odd}


@pytest.mark.parametrize("selector", ["host=evil", "queue=a,host=evil", "queue in (a,b)", None])
async def test_a_selector_beyond_the_list_is_refused(endpoint: Endpoint, selector: str | None) -> None:
    (answer,) = await endpoint.ask(testing.external("depth", selector), params=["queue"])
    assert isinstance(answer, AdapterError)
    assert (answer.blame, "queue=…" in answer.message) == ("spec", True)
    assert endpoint.requests == []


async def test_a_document_is_fetched_once_with_the_headers(endpoint: Endpoint, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("Bearer secret\n")
    headers = {"Authorization": {"file": str(tmp_path / "token")}, "X-Tenant": "shop"}
    await endpoint.ask(*[testing.external("depth", namespace=name) for name in ("a", "b")], headers=headers)
    (request,) = endpoint.requests
    assert (request.headers["Authorization"], request.headers["X-Tenant"]) == ("Bearer secret", "shop")
    (answer,) = await endpoint.ask(headers={"Authorization": {"file": str(tmp_path / "gone")}})
    assert isinstance(answer, AdapterError)
    assert str(tmp_path / "gone") in answer.message


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("/nowhere", "answers 404"),
        ("/redirect?token=secret", "redirects to another host (localhost)"),
        ("/text", "something other than JSON"),
        ("/large", "max_bytes"),
    ],
)
async def test_faults(endpoint: Endpoint, where: str, said: str) -> None:
    (answer,) = await endpoint.ask(where=where)
    assert isinstance(answer, AdapterError)
    assert said in answer.message
    assert "secret" not in answer.message


async def test_a_slow_document_spoils_its_own_metrics_alone(endpoint: Endpoint) -> None:
    metrics = {name: {"url": f"{endpoint.url}/{name}", "path": "jobs.waiting"} for name in ("hang", "stats")}
    settings = msgspec.convert({"metrics": metrics, "request_timeout": "1s"}, HttpJson.Settings)
    async with testing.context("http") as context, asyncio.timeout(60):
        slow, fine = await HttpJson(settings, context).answer([testing.external("hang"), testing.external("stats")])
    assert isinstance(slow, AdapterError)
    assert "did not answer within 1s" in slow.message
    assert isinstance(fine, ExternalSample)


@pytest.mark.parametrize("timeout", ["0s", "-1s", "5"])
def test_a_timeout_that_is_none(timeout: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=timeout):
        msgspec.convert({"metrics": {}, "request_timeout": timeout}, HttpJson.Settings)


async def test_nobody_listens() -> None:
    endpoint = Endpoint()
    endpoint.url = f"http://127.0.0.1:{ports.free(1)[0]}"
    (answer,) = await endpoint.ask()
    assert isinstance(answer, AdapterError)
    assert "refused the connection" in answer.message


async def test_keeps_the_contract(endpoint: Endpoint) -> None:
    metrics = {
        "depth": {"url": f"{endpoint.url}/stats", "path": "jobs.waiting"},
        "one": {"url": f"{endpoint.url}/stats", "path": "queues[0].depth", "params": ["queue"]},
        "gone": {"url": f"{endpoint.url}/gone", "path": ""},
    }
    settings = msgspec.convert({"metrics": metrics}, HttpJson.Settings)
    queries = [
        testing.external("depth"),
        testing.external("one", "queue=a"),
        testing.external("one"),
        testing.external("gone"),
        testing.external("unknown"),
    ]
    async with testing.context("http") as context:
        answers = await testing.check_adapter(HttpJson(settings, context), queries)
    assert [isinstance(answer, ExternalSample) for answer in answers] == [True, True, False, False, False]


@pytest.mark.parametrize(
    "url", ["http://me:s3cr3t@h", "http://me:s3cr3t@h:port", "ftp://h", "http://h/#a", "http://h:0"]
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="url") as refused:
        msgspec.convert({"metrics": {"depth": {"url": url, "path": ""}}}, HttpJson.Settings)
    assert "s3cr3t" not in str(refused.value)
