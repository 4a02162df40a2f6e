"""What a metric was: the same as the adapter would have answered at each moment, and no secret in what goes wrong."""

import asyncio
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from aiohttp import web
from support import prometheus_lab as lab

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample, ObjectSample, PodSample, Query
from hpad.lab.servers.prometheus import ABSENT, PrometheusServer
from hpad_adapters.prometheus import Prometheus

SECRET = "s3cr3t-t0k3n"
METRICS: dict[str, dict[str, Any]] = {
    "depth": {"query": 'sum(queue_depth{namespace="<<.Namespace>>",<<.LabelMatchers>>}) by (<<.GroupBy>>)'},
    "shards": {"query": 'queue_depth{namespace="shop",queue="sharded"}'},
    "rps": {"query": 'sum(rate(http_requests_total{namespace="<<.Namespace>>"}[2m])) by (pod)', "types": ["Pods"]},
    "hits": {"query": "ingress_requests{<<.LabelMatchers>>}", "object": "ingress", "types": ["Object"]},
    "windowed": {"query": 'windowed{namespace="shop"}', "window": {"fetch": "5m", "last": "1m"}},
    "stepped": {"query": 'sum(windowed{namespace="shop"})', "window": {"fetch": "5m", "last": "2m", "step": "15s"}},
    "number": {"query": "vector(3) + 1.5"},
    "scalar": {"query": "scalar(vector(7))"},
    "never": {"query": "no_such_series"},
    "long": {"query": f'sum(queue_depth{{queue=~"{"|".join(f"q{index}" for index in range(4000))}|orders"}})'},
}
QUERIES = [
    testing.external("depth", "queue=orders", namespace="shop"),
    testing.external("depth", "queue=nan", namespace="shop"),
    testing.external("shards"),
    testing.pods_metric("rps", "app=web", namespace="shop"),
    testing.object_metric("hits", "Ingress", "main.route", namespace="shop"),
    testing.external("windowed"),
    testing.external("stepped"),
    testing.external("number"),
    testing.external("scalar"),
    testing.external("never"),
    testing.external("long"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    yield from lab.serve()


class ClockAt(lab.FrozenClock):
    """Always at one moment."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment


def moments(count: int = 5, step: int = 60) -> list[datetime]:
    """Moments that end where the samples do."""
    end = datetime.fromtimestamp(lab.NOW, UTC)
    return [end - timedelta(seconds=step * back) for back in range(count - 1, -1, -1)]


def settings_of(url: str, **options: Any) -> Any:
    return msgspec.convert({"url": url, "metrics": METRICS, **options}, Prometheus.Settings)


async def history(url: str, query: Query, times: Sequence[datetime], **options: Any) -> list[Answer]:
    async with testing.context("prom", clock=lab.FrozenClock(), api=lab.PodsApi()) as context:
        return await Prometheus(settings_of(url, **options), context).history(query, times)


def figures(answer: Answer) -> object:
    """What counts of an answer: its values, or its error."""
    if isinstance(answer, PodSample):
        return {pod: value.value for pod, value in answer.values.items()}
    if isinstance(answer, ExternalSample):
        return answer.values
    return answer.value if isinstance(answer, ObjectSample) else answer.message


@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("query", "method"),
    [*((query, "POST") for query in QUERIES), *((query, "GET") for query in QUERIES[:-1])],  # a URL is not so long
    ids=lambda each: each if isinstance(each, str) else f"{each.name} {each.selector or ''}",
)
async def test_each_moment_has_the_answer_of_then(server: PrometheusServer, query: Query, method: str) -> None:
    times = moments()
    found = await history(server.url, query, times, method=method)
    expected = []
    for moment in times:
        async with testing.context("prom", clock=ClockAt(moment), api=lab.PodsApi()) as context:
            expected += await Prometheus(settings_of(server.url), context).answer([query])
    assert list(map(figures, found)) == list(map(figures, expected))
    if query.name in ("depth", "rps", "hits", "windowed", "long") and "nan" not in str(query.selector):
        assert not any(isinstance(answer, AdapterError) for answer in found)


@pytest.mark.prometheus
async def test_before_the_first_sample_there_is_no_value(server: PrometheusServer) -> None:
    query = testing.external("depth", "queue=orders", namespace="shop")
    found = await history(server.url, query, moments(count=4, step=400))  # of ten minutes of samples
    assert [isinstance(answer, AdapterError) for answer in found] == [True, True, False, False]


class Server:
    """Answers every query with what it is told."""

    def __init__(self) -> None:
        self.url = ""
        self.answer = web.json_response
        self.status, self.body, self.headers = 200, b"", {"Content-Type": "application/json"}
        self.requests: list[tuple[str, dict[str, str], dict[str, str], dict[str, str]]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.requests.append((request.path, dict(request.query), form, dict(request.headers)))
        return web.Response(status=self.status, body=self.body, headers=self.headers)


@pytest.fixture
async def pretender() -> AsyncIterator[Server]:
    made = Server()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


GOOD = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'


async def test_what_is_sent_is_what_the_source_sends(pretender: Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    pretender.body = GOOD
    options = {"bearer_token_file": str(tmp_path / "token"), "params": {"dedup": "true"}, "headers": {"X-Org": "shop"}}
    await history(pretender.url, testing.external("number"), moments(), **options)
    ((path, parameters, form, headers),) = pretender.requests
    assert (path, parameters) == ("/api/v1/query_range", {"dedup": "true"})
    assert (form["query"], form["step"]) == ("vector(3) + 1.5", "60")
    assert (headers["Authorization"], headers["X-Org"]) == (f"Bearer {SECRET}", "shop")


@pytest.mark.parametrize(
    ("status", "body", "headers", "said"),
    [
        (401, b'{"status":"error"}', {}, "the credentials are missing or wrong"),
        (302, b"", {"Location": f"http://elsewhere/{SECRET}"}, "redirects, which queries of the past do not follow"),
        (200, b"<html>", {"Content-Type": "text/html"}, "answers text/html, not JSON"),
        (200, b"{", {}, "something other than an answer of the Prometheus API"),
        (200, b'{"status":"success","data":[]}', {}, "something other than an answer of the Prometheus API"),
        (
            200,
            b'{"status":"success","data":{"result":[{"metric":5}]}}',
            {},
            "something other than an answer of the Prometheus API",
        ),
        (400, b'{"status":"error","errorType":"bad_data","error":"no such thing"}', {}, "answers 400: no such thing"),
        (200, b'"' + b"x" * 3000 + b'"', {}, "more than max_bytes (2000)"),
        (200, b"no gzip", {"Content-Encoding": "gzip"}, "answers with a broken content encoding"),
    ],
)
async def test_what_goes_wrong_is_said_as_by_the_source(
    pretender: Server, status: int, body: bytes, headers: dict[str, str], said: str
) -> None:
    pretender.status, pretender.body = status, body
    pretender.headers = {"Content-Type": "application/json", **headers}
    with pytest.raises(AdapterError) as caught:
        await history(pretender.url, testing.external("number"), moments(), bearer_token=SECRET, max_bytes=2000)
    assert said in caught.value.message
    assert SECRET not in caught.value.message
    assert len(pretender.requests) == 1


async def test_the_proxy_is_that_of_the_source(pretender: Server) -> None:
    pretender.body = GOOD
    await history("http://metrics.invalid:9090", testing.external("number"), moments(), proxy=pretender.url)
    ((_, _, _, headers),) = pretender.requests
    assert headers["Host"] == "metrics.invalid:9090"


async def test_nobody_listens() -> None:
    with pytest.raises(AdapterError, match="cannot be reached"):
        await history("http://127.0.0.1:9", testing.external("number"), moments())


@pytest.mark.prometheus
@pytest.mark.skipif(not PrometheusServer.installed(), reason=ABSENT)
async def test_certificates_are_those_of_the_source(tmp_path: Path) -> None:
    ours, strange = trustme.CA(), trustme.CA()
    certificate = ours.issue_cert("127.0.0.1", "prom.example.com")
    for name, blob in (("cert", certificate.cert_chain_pems[0]), ("key", certificate.private_key_pem)):
        blob.write_to_path(str(tmp_path / name))
    ours.cert_pem.write_to_path(str(tmp_path / "ca"))
    strange.cert_pem.write_to_path(str(tmp_path / "strange"))
    config = f"tls_server_config:\n  cert_file: {tmp_path}/cert\n  key_file: {tmp_path}/key\n"
    context = ssl.create_default_context(cafile=str(tmp_path / "ca"))
    async with PrometheusServer(web_config=config, tls=context) as server:

        async def asked(**options: Any) -> object:
            try:
                return figures((await history(server.url, testing.external("number"), moments(), **options))[-1])
            except AdapterError as error:
                return error.message

        assert await asked(ca=str(tmp_path / "ca")) == (4500,)
        assert await asked(ca=str(tmp_path / "ca"), server_name="prom.example.com") == (4500,)
        assert await asked(insecure=True) == (4500,)
        for refused in ({"ca": str(tmp_path / "strange")}, {}, {"ca": str(tmp_path / "ca"), "server_name": "other"}):
            assert "refuses or fails TLS" in str(await asked(**refused))


def test_the_library_is_loaded_only_to_ask() -> None:
    code = (
        "import sys, hpad_adapters.prometheus, hpad.cli.history, hpad.cli.sources\n"
        "assert not {'requests', 'prometheus_api_client'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_the_loop_goes_on_meanwhile(pretender: Server) -> None:
    """The pretender answers on the loop that asks: a call that blocked it would never come back."""
    pretender.body = GOOD
    async with asyncio.timeout(60):
        found = await history(pretender.url, testing.external("number"), moments())
    assert len(found) == 5
