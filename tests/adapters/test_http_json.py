"""Numbers in JSON documents, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from support.http_stub import Stub, serving

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample, Query
from hpad.api import settings_errors
from hpad.api.selector import Operator, Requirement, Selector
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


class Endpoint(Stub):
    """Serves DOCUMENT under /stats."""

    async def ask(
        self, *queries: Query, path: str = "jobs.waiting", where: str = "/stats", **options: Any
    ) -> list[Answer]:
        """Returns the answers of an adapter whose metric "depth" is at that path of the document."""
        metric = {"url": f"{self.url}{where}", "path": path, "params": options.pop("params", [])}
        settings = msgspec.convert(
            {"metrics": {"depth": metric}, "request_timeout": "60s", **options}, HttpJson.Settings
        )
        async with testing.context("http") as context:
            return await HttpJson(settings, context).answer(queries or [testing.external("depth")])


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    """Answers by the path of the request."""
    match request.path:
        case "/stats":
            return web.json_response(DOCUMENT)
        case "/hang":
            await asyncio.Event().wait()
        case "/text":
            return web.Response(text="<html>")
        case "/redirect":
            raise web.HTTPFound("http://localhost:1/stats?token=secret")
        case "/large":
            return web.Response(body=b" " * (20 << 20))
    return web.Response(status=404)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    endpoint = Endpoint()
    endpoint.handler = answer
    async with serving(endpoint.handle) as endpoint.url:
        yield endpoint


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("jobs.waiting", (80_000,)),
        ("queues[1].depth", (4500,)),
        ("queues[*].depth", (3000, 4500)),
        ("queues[-1].depth", (4500,)),
    ],
)
async def test_numbers_by_path(endpoint: Endpoint, path: str, values: tuple[int, ...]) -> None:
    (answer,) = await endpoint.ask(path=path)
    assert isinstance(answer, ExternalSample)
    assert answer.values == values


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("jobs.gone", "no 'gone'"),
        ("queues[2].depth", "too short"),
        ("queues[-3].depth", "too short"),
        ("jobs[0]", "another kind"),
        ("none", "another kind"),
        ("yes", "another kind"),
        ("text", "another kind"),
        ("huge", "another kind"),
        ("empty[*]", "is empty"),
        ("", "another kind"),
    ],
)
async def test_a_value_that_is_not_a_number_is_an_error(endpoint: Endpoint, path: str, error: str) -> None:
    (answer,) = await endpoint.ask(path=path)
    assert isinstance(answer, AdapterError)
    assert error in answer.message


@pytest.mark.parametrize("path", [".a", "a..b", "a[x]", "a[", "a[--1]"])
def test_invalid_paths_are_refused(path: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="path"):
        msgspec.convert({"metrics": {"depth": {"url": "http://h", "path": path}}}, HttpJson.Settings)


async def test_listed_parameters_are_sent_encoded(endpoint: Endpoint) -> None:
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
    ("where", "error"),
    [
        ("/nowhere", "answers 404"),
        ("/redirect?token=secret", "a redirect (302) to http://localhost"),
        ("/text", "something other than JSON"),
        ("/large", "max_bytes"),
    ],
)
async def test_each_fault_has_its_own_error(endpoint: Endpoint, where: str, error: str) -> None:
    (answer,) = await endpoint.ask(where=where)
    assert isinstance(answer, AdapterError)
    assert error in answer.message
    assert "secret" not in answer.message


async def test_a_slow_document_fails_only_its_own_metrics(endpoint: Endpoint) -> None:
    metrics = {name: {"url": f"{endpoint.url}/{name}", "path": "jobs.waiting"} for name in ("hang", "stats")}
    settings = msgspec.convert({"metrics": metrics, "request_timeout": "5s"}, HttpJson.Settings)
    async with testing.context("http") as context, asyncio.timeout(60):
        slow, fine = await HttpJson(settings, context).answer([testing.external("hang"), testing.external("stats")])
    assert isinstance(slow, AdapterError)
    assert "did not answer within 5s" in slow.message
    assert isinstance(fine, ExternalSample)


@pytest.mark.parametrize("timeout", ["0s", "-1s", "5"])
def test_invalid_timeouts_are_refused(timeout: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=timeout):
        msgspec.convert({"metrics": {}, "request_timeout": timeout}, HttpJson.Settings)


async def test_the_adapter_keeps_the_contract(endpoint: Endpoint) -> None:
    metrics = {
        "depth": {"url": f"{endpoint.url}/stats", "path": "jobs.waiting"},
        "one": {"url": f"{endpoint.url}/stats", "path": "queues[0].depth", "params": ["queue"]},
        "gone": {"url": f"{endpoint.url}/gone", "path": ""},
    }
    settings = msgspec.convert({"metrics": metrics, "request_timeout": "60s"}, HttpJson.Settings)
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
    ("url", "error"),
    [
        ("http://me:s3cr3t@h", "contains credentials"),
        ("http://me:s3cr3t@h:port", "is not a URL, or its port is not a number"),
        ("ftp://h", "'ftp://h' is not of the form"),
        ("http://h/?key=s3cr3t#a", "'http://h/' is followed by #"),
        ("http://h/?key=s3cr3t", "'http://h/' has not the host \"pod\""),
        ("http://h:0", "'http://h:0' is not of the form"),
    ],
)
def test_invalid_urls_are_refused_without_the_password(url: str, error: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=f"url: {error}") as refused:
        msgspec.convert({"metrics": {"depth": {"url": url, "path": "", "pods": "each"}}}, HttpJson.Settings)
    assert "s3cr3t" not in str(refused.value)


async def own(endpoint: Endpoint, where: str = "/stats", path: str = "jobs.waiting", **fields: Any) -> Answer:
    """Returns the answer to a query that an Autoscaler brings along."""
    query = testing.own_query(HttpJson.QuerySchema(where, path, **fields), fields.get("params") and "queue=a")
    (answer,) = await endpoint.ask(query, base_url=f"{endpoint.url}/", headers={"X-Key": "s3cr3t"})
    return answer


async def test_an_autoscaler_names_a_document_below_the_base_url(endpoint: Endpoint) -> None:
    answer = await own(endpoint, "/stats?state=ready", params=["queue"])
    assert isinstance(answer, ExternalSample)
    assert answer.values == (80_000,)
    (request,) = endpoint.requests
    assert (request.path_qs, request.headers["X-Key"]) == ("/stats?state=ready&queue=a", "s3cr3t")
    missing = await own(endpoint, "/none")
    assert isinstance(missing, AdapterError)
    assert "answers 404" in missing.message


@pytest.mark.parametrize(
    "url",
    [
        *("", "stats", "//elsewhere/stats", "http://elsewhere/stats", "@elsewhere/stats", "/a b", "/ü", "/a#b", "/a\n"),
        *("/../stats", "/a/%2e%2e/stats", "/a/..%2fstats", "/a\\..\\stats", "/..;x/stats", "/%252e%252e/stats", "/a/."),
        "/%c0%ae%c0%ae/stats",
    ],
)
def test_an_autoscaler_reaches_nothing_above_the_base_url(url: str) -> None:
    (found,) = settings_errors.check({"url": url, "path": ""}, HttpJson.QuerySchema)
    assert 'is not a path behind base_url, such as "/queues/mail"' in found.text


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"headers": {"X": "y"}}, "headers: unknown field"),
        ({"body": "x"}, "body: unknown field"),
        ({"path": 'jobs{queue=~"a|b"}', "format": "prometheus"}, "an own query takes = and != only, not =~"),
        ({"path": "a.."}, 'is not of the form "queues[0].depth"'),
        ({"url": "/<<then>>"}, "is not a time"),
    ],
)
def test_what_an_autoscaler_may_not_say_is_named(fields: dict[str, Any], error: str) -> None:
    (found,) = settings_errors.check({"url": "/stats", "path": "", **fields}, HttpJson.QuerySchema)
    assert error in found.text


def test_a_source_without_a_base_url_takes_no_queries() -> None:
    metrics = {"depth": {"url": "http://h", "path": ""}}
    assert HttpJson.closed(msgspec.convert({"metrics": metrics}, HttpJson.Settings)).startswith("base_url: is missing")
    with pytest.raises(msgspec.ValidationError, match="base_url: ends in a query"):
        msgspec.convert({"metrics": {}, "base_url": "http://h/a?b"}, HttpJson.Settings)


def test_a_source_for_queries_alone_needs_no_metrics() -> None:
    assert HttpJson.closed(msgspec.convert({"base_url": "http://h/a"}, HttpJson.Settings)) == ""


@pytest.mark.parametrize("fields", [{}, {"metrics": {}, "base_url": ""}])
def test_a_source_that_could_answer_nothing_is_refused(fields: dict[str, Any]) -> None:
    (found,) = settings_errors.check(fields, HttpJson.Settings)
    assert found.text.startswith("metrics: is empty; write a metric, such as depth: {")
    assert found.text.endswith("}, or base_url for queries of Autoscalers")
