"""Past values of a metric: what the adapter would have answered at each time; no error holds a secret."""

import asyncio
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from support import prometheus_lab as lab
from support.http_stub import Stub

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
    """A clock that stands at one time."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment


def moments(count: int = 5, step: int = 60) -> list[datetime]:
    """Returns times that end with the newest sample."""
    end = datetime.fromtimestamp(lab.NOW, UTC)
    return [end - timedelta(seconds=step * back) for back in range(count - 1, -1, -1)]


def settings_of(url: str, **options: Any) -> Any:
    return msgspec.convert({"url": url, "metrics": METRICS, "query_timeout": "60s", **options}, Prometheus.Settings)


async def history(url: str, query: Query, times: Sequence[datetime], **options: Any) -> list[Answer]:
    async with testing.context("prom", clock=lab.FrozenClock(), api=lab.PodsApi()) as context:
        return await Prometheus(settings_of(url, **options), context).history(query, times)


def figures(answer: Answer) -> object:
    """Returns the values of an answer, or the message of its error."""
    if isinstance(answer, PodSample):
        return {pod: value.value for pod, value in answer.values.items()}
    if isinstance(answer, ExternalSample):
        return answer.values
    return answer.value if isinstance(answer, ObjectSample) else answer.message


@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("query", "method"),
    [
        *((query, "POST") for query in QUERIES),
        *((query, "GET") for query in QUERIES[:-1]),
    ],  # the last is too long to GET
    ids=lambda each: each if isinstance(each, str) else f"{each.name} {each.selector or ''}",
)
async def test_past_answers_equal_those_of_their_time(server: PrometheusServer, query: Query, method: str) -> None:
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


GOOD = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'


async def test_the_request_has_the_credentials_and_parameters_of_the_source(stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    stub.answers(GOOD)
    options = {"bearer_token_file": str(tmp_path / "token"), "params": {"dedup": "true"}, "headers": {"X-Org": "shop"}}
    await history(stub.url, testing.external("number"), moments(), **options)
    (request,), (form,) = stub.requests, stub.forms
    headers = request.headers
    assert (request.path, dict(request.query)) == ("/api/v1/query_range", {"dedup": "true"})
    assert (form["query"], form["step"]) == ("vector(3) + 1.5", "60")
    assert (headers["Authorization"], headers["X-Org"]) == (f"Bearer {SECRET}", "shop")


@pytest.mark.parametrize(
    ("status", "body", "headers", "text"),
    [
        (401, b'{"status":"error"}', {}, "the credentials are missing or wrong"),
        (302, b"", {"Location": f"http://elsewhere/{SECRET}"}, "redirects, which queries of the past do not follow"),
        (200, b"<html>", {"content_type": "text/html"}, "answers text/html, not JSON"),
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
async def test_errors_have_the_sentences_of_the_source(
    stub: Stub, status: int, body: bytes, headers: dict[str, str], text: str
) -> None:
    stub.answers(body, status, **headers)
    with pytest.raises(AdapterError) as caught:
        await history(stub.url, testing.external("number"), moments(), bearer_token=SECRET, max_bytes=2000)
    assert text in caught.value.message
    assert SECRET not in caught.value.message
    assert len(stub.requests) == 1


async def test_the_proxy_of_the_source_is_used(stub: Stub) -> None:
    stub.answers(GOOD)
    await history("http://metrics.invalid:9090", testing.external("number"), moments(), proxy=stub.url)
    (request,) = stub.requests
    assert request.headers["Host"] == "metrics.invalid:9090"


async def test_a_refused_connection_is_an_error() -> None:
    with pytest.raises(AdapterError, match="cannot be reached"):
        await history("http://127.0.0.1:9", testing.external("number"), moments())


@pytest.mark.prometheus
@pytest.mark.skipif(not PrometheusServer.installed(), reason=ABSENT)
async def test_the_tls_options_of_the_source_are_used(tmp_path: Path) -> None:
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


def test_the_library_is_imported_only_for_a_request() -> None:
    code = (
        "import sys, hpad_adapters.prometheus, hpad.cli.history, hpad.cli.sources\n"
        "assert not {'requests', 'prometheus_api_client'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_the_event_loop_is_not_blocked(stub: Stub) -> None:
    """The stub answers on the same loop: a blocked loop would never answer."""
    stub.answers(GOOD)
    async with asyncio.timeout(60):
        found = await history(stub.url, testing.external("number"), moments())
    assert len(found) == 5
