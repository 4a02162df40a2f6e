"""Faults between the adapter and its server: each has its own error, and no error holds a secret."""

import asyncio
import re
import ssl
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
import trustme
from aiohttp import web
from support import prometheus_lab as lab
from support.http_stub import Stub

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample
from hpad.lab.servers import ports
from hpad.lab.servers.prometheus import ABSENT, PrometheusServer
from hpad_adapters.prometheus import Prometheus, samples

SECRET = "s3cr3t-t0k3n"
ONE = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [lab.NOW, "1"]}]}}


async def ask(url: str, *names: str, **options: Any) -> list[Answer]:
    """Returns the answers of an adapter whose secrets are all SECRET, unless `options` set others."""
    metrics = options.pop("metrics", {name: {"query": name} for name in names or ("depth",)})
    secrets = {"bearer_token": SECRET, "params": {"tenant": SECRET}, "headers": {"X-Key": SECRET}}
    options = {**secrets, "query_timeout": "60s", **options}
    settings = msgspec.convert({"url": url, "metrics": metrics, **options}, Prometheus.Settings)
    async with testing.context("prom", clock=lab.FrozenClock()) as context:
        return await Prometheus(settings, context).answer([testing.external(name) for name in metrics])


async def refusal(url: str, **options: Any) -> AdapterError:
    (answer,) = await ask(url, **options)
    assert isinstance(answer, AdapterError)
    assert SECRET not in answer.message
    assert '"prom"' in answer.message
    return answer


@pytest.fixture
def server(stub: Stub) -> Stub:
    """A server that answers every query with one value."""
    stub.answers(ONE)
    return stub


def reply(status: int, body: object = None, **headers: str) -> dict[str, Any]:
    """The arguments of Stub.answers for JSON, or for a page of HTML without a body."""
    kind = {"body": "<html>", "content_type": "text/html"} if body is None else {"body": body}
    return {"status": status, **kind, **headers}


def text(status: int, body: str, kind: str = "text/plain") -> dict[str, Any]:
    """The arguments of Stub.answers for an answer that is no JSON."""
    return {"status": status, "body": body, "content_type": kind}


@pytest.mark.parametrize(
    ("answer", "message", "blame"),
    [
        (reply(401), "401, the credentials are missing or wrong", "source"),
        (reply(403), "403, the credentials do not allow", "source"),
        (reply(404), "404, there is no Prometheus API", "source"),
        (
            reply(422, {"status": "error", "errorType": "execution", "error": "many-to-many"}),
            "many-to-many",
            "spec",
        ),
        (
            reply(400, {"status": "error", "errorType": "bad_data", "error": "parse error"}),
            "400: parse error",
            "spec",
        ),
        (reply(503, {"status": "error", "errorType": "timeout", "error": "query timed out"}), "gave up", "source"),
        (
            reply(302, Location=f"https://login.example.com/?t={SECRET}"),
            "a redirect (302) to https://login.example.com/, which is not followed",
            "source",
        ),
        (reply(307, Location=f"http://localhost:1/?t={SECRET}"), "a redirect (307) to http://localhost:1/,", "source"),
        (reply(200), "answers text/html, not JSON", "source"),
        (
            reply(200, {"status": "success", "data": {"resultType": "vector", "result": [{"value": 1}]}}),
            "something other than an answer of the Prometheus API",
            "source",
        ),
        (reply(200, {"status": "error", "error": "odd"}), "odd", "source"),
        (
            text(401, "no org id\n"),
            "401, the credentials are missing or wrong (username, password, bearer_token, headers): no org id",
            "source",
        ),
        (
            text(400, '\nmissing route for "/api/v1/query"\ntraceback'),
            'answers 400: missing route for "/api/v1/query"',
            "source",
        ),
        (text(502, "<html>\n<head><title>502 Bad Gateway</title>"), "answers 502: 502 Bad Gateway", "source"),
        (text(500, "x" * 500), f"answers 500: {'x' * 200}…", "source"),
        (text(500, ""), "answers 500", "source"),
        (text(200, "<title>Log in</title>", "text/html"), "not JSON; is that a Prometheus?: Log in", "source"),
        (
            reply(403, {"message": "no Route matched"}),
            '403, the credentials do not allow this: {"message":"no Route',
            "source",
        ),
        (
            reply(302, Location=f"//me:{SECRET}@sso.example.com/login?to=x"),
            "redirect (302) to //sso.example.com/login, ",
            "source",
        ),
        (
            reply(308, Location="https://other.example.com/prom"),
            "to https://other.example.com/prom, which",
            "source",
        ),
        (reply(200, ["no", "object"]), "something other than an answer of", "source"),
    ],
)
async def test_each_bad_answer_has_its_own_error(
    server: Stub, answer: dict[str, Any], message: str, blame: str
) -> None:
    server.answers(**answer)
    error = await refusal(server.url)
    assert message in error.message
    assert "\n" not in error.message
    if answer["status"] == 400:
        assert "credentials" not in error.message
    assert error.blame == blame
    assert len(server.requests) == 1


@pytest.mark.parametrize("number", ["1_000", "１２", " 1", "1\n", "x", ""])
async def test_a_value_that_go_does_not_write_is_no_number(server: Stub, number: str) -> None:
    """Python reads most of these."""
    rows = [{"metric": {}, "value": [1, number]}]
    server.answers({"status": "success", "data": {"resultType": "vector", "result": rows}})
    (answer,) = await ask(server.url)
    assert isinstance(answer, AdapterError)
    assert answer.message == "the answer holds a value that is not a number"


async def test_a_value_beyond_64_bits_is_no_fault_of_the_server(server: Stub) -> None:
    """Whoever writes `vector(1e300)` keeps no other query of the batch waiting for a retry, and opens no breaker."""
    rows = [{"metric": {}, "value": [1, "1e300"]}]
    server.answers({"status": "success", "data": {"resultType": "vector", "result": rows}})
    (answer,) = await ask(server.url)
    assert isinstance(answer, AdapterError)
    assert answer.message == "the value 1e300 does not fit into 64 bits of thousandths"
    assert (answer.lasting, answer.alive) == (True, True)


async def test_a_partial_answer_is_an_error(server: Stub) -> None:
    """VictoriaMetrics reports it while a part of its storage does not answer."""
    server.answers({**ONE, "isPartial": True})
    error = await refusal(server.url)
    assert "in part only" in error.message
    assert error.blame == "source"
    server.answers({**ONE, "isPartial": False})
    assert [type(answer) for answer in await ask(server.url)] == [ExternalSample]


NO_ROWS = {"resultType": "vector", "result": None}


@pytest.mark.parametrize(
    "answer",
    [
        {**ONE, "warnings": None, "infos": None, "error": None, "errorType": None, "isPartial": None},
        {**ONE, "data": {**ONE["data"], "result": [{"metric": None, "values": None, "value": [lab.NOW, "1"]}]}},
    ],
)
async def test_an_empty_list_may_be_null(server: Stub, answer: object) -> None:
    """Go writes a list that was never made as null."""
    server.answers(answer)
    assert [type(answer) for answer in await ask(server.url)] == [ExternalSample]


@pytest.mark.parametrize(
    "data",
    [
        NO_ROWS,
        {"resultType": "matrix", "result": None},
        {"resultType": "", "result": None},
        {"resultType": None, "result": None},
        {"resultType": "vector", "result": [{"metric": {"a": "b"}, "values": None, "value": None}]},
    ],
)
async def test_an_answer_without_rows_is_missing_or_zero_and_no_fault_of_the_server(server: Stub, data: object) -> None:
    server.answers({"status": "success", "data": data, "warnings": None})
    (missing,) = await ask(server.url)
    assert isinstance(missing, AdapterError)
    assert ("no values for" in missing.message, missing.blame) == (True, "spec")
    metrics = {"depth": {"query": "depth", "empty": "zero"}}
    (zero,) = await ask(server.url, metrics=metrics)
    assert isinstance(zero, ExternalSample)
    assert zero.values == (0,)


@pytest.mark.parametrize("data", [None, {}, {"resultType": "scalar", "result": None}, {"result": 1}, []])
async def test_an_answer_without_data_is_no_zero(server: Stub, data: object) -> None:
    server.answers({"status": "success", "data": data})
    (answer,) = await ask(server.url, metrics={"depth": {"query": "depth", "empty": "zero"}})
    assert isinstance(answer, AdapterError)


async def test_an_error_without_data_is_quoted(server: Stub) -> None:
    server.answers({"status": "error", "data": None, "errorType": "execution", "error": "boom"}, status=422)
    assert "boom" in (await refusal(server.url)).message


async def test_an_answer_of_20_megabytes(server: Stub) -> None:
    server.answers(b" " * (20 << 20))
    assert f"more than max_bytes ({16 << 20})" in (await refusal(server.url)).message


@pytest.mark.parametrize(("count", "on_loop"), [(10, True), (20_000, False)])
async def test_threads_read_an_answer_of_many_series(
    server: Stub, monkeypatch: pytest.MonkeyPatch, count: int, on_loop: bool
) -> None:
    """As for a query that lacks its sum: on the event loop it would delay all HPAs."""
    rows = [{"metric": {"queue": f"a-name-as-long-as-usual-{n}"}, "value": [lab.NOW, "1"]} for n in range(count)]
    server.answers({"status": "success", "data": {"resultType": "vector", "result": rows}})
    found = set()
    for name in ("series", "sample"):
        original = getattr(samples, name)

        def recorded(*arguments: Any, original: Any = original) -> Any:
            found.add(threading.current_thread() is threading.main_thread())
            return original(*arguments)

        monkeypatch.setattr(samples, name, recorded)
    (answer,) = await ask(server.url)
    assert isinstance(answer, ExternalSample)
    assert answer.values == (1000,) * count
    assert found == {on_loop}


async def test_a_slow_query_fails_only_its_own_metric(server: Stub) -> None:
    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        if (await request.post())["query"] == "slow":
            await asyncio.Event().wait()
        return web.json_response(ONE)

    server.handler = slow
    late, fine = await ask(server.url, "slow", "fine", query_timeout="5s")
    assert isinstance(late, AdapterError)
    assert "did not answer within" in late.message
    assert isinstance(fine, ExternalSample)


@pytest.mark.parametrize("refused", ["q77", "q3|q77", "q"])
async def test_a_metric_that_the_server_refuses_fails_alone(server: Stub, refused: str) -> None:
    """A limit on series or bytes is that of a request, and one request is for many HPAs."""
    bad = set(refused.split("|"))

    async def limited(request: web.BaseRequest) -> web.StreamResponse:
        asked = re.findall(r"q\d+", str((await request.post())["query"]))
        if bad & set(asked) or bad == {"q"}:
            body = {"status": "error", "errorType": "execution", "error": "too many series"}
            return web.json_response(body, status=422)
        rows = [{"metric": {"queue": queue}, "value": [lab.NOW, "1"]} for queue in asked]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": rows}})

    server.handler = limited
    query = "sum(depth{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
    settings = msgspec.convert({"url": server.url, "metrics": {"depth": {"query": query}}}, Prometheus.Settings)
    async with testing.context("prom", clock=lab.FrozenClock()) as context:
        asked = [testing.external("depth", f"queue=q{number}") for number in range(200)]
        answers = await Prometheus(settings, context).answer(asked)
    failed = {f"q{number}" for number, answer in enumerate(answers) if isinstance(answer, AdapterError)}
    assert failed == (bad if bad != {"q"} else {f"q{number}" for number in range(200)})
    assert len(server.requests) <= 1 + 2 * 32
    assert all("too many series" in answer.message for answer in answers if isinstance(answer, AdapterError))


async def test_the_timeout_includes_the_wait_for_a_slot(server: Stub) -> None:
    """Otherwise the batch would take a timeout per slot, and the answers in hand would come too late."""

    async def hang(request: web.BaseRequest) -> web.StreamResponse:
        if len(server.requests) > 2:
            await asyncio.Event().wait()
        return web.json_response(ONE)

    server.handler = hang
    answers = await ask(server.url, *(f"m{number}" for number in range(20)), concurrency=2, query_timeout="5s")
    assert [type(answer) for answer in answers[:2]] == [ExternalSample] * 2
    unsent = "was not asked within 6s, because other queries used up the concurrency (2)"
    errors = [answer.message.partition(") ")[2] for answer in answers[2:] if isinstance(answer, AdapterError)]
    assert errors == ["did not answer within 6s"] * 2 + [unsent] * 16
    assert len(server.requests) < 10


async def test_queries_of_autoscalers_that_hang_leave_a_request_to_those_of_the_configuration(server: Stub) -> None:
    hanging, release = asyncio.Semaphore(0), asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        if "slow" in str((await request.post())["query"]):
            hanging.release()
            await release.wait()
        return web.json_response(ONE)

    server.handler = hang
    settings = msgspec.convert({"url": server.url, "metrics": {"depth": {"query": "depth"}}}, Prometheus.Settings)
    own = [testing.own_query(Prometheus.QuerySchema(f"slow_{number}")) for number in range(30)]
    async with testing.context("prom", clock=lab.FrozenClock()) as context:
        adapter = Prometheus(settings, context)
        asked = asyncio.create_task(adapter.answer(own))
        for _ in range(settings.concurrency - 1):
            await hanging.acquire()
        answers = await adapter.answer([testing.external("depth")])
        release.set()
        assert [type(answer) for answer in [*answers, *await asked]] == [ExternalSample] * 31


async def test_a_refused_connection_is_an_error() -> None:
    (port,) = ports.free(1)
    assert "refused the connection" in (await refusal(f"http://127.0.0.1:{port}")).message


async def test_the_parts_of_a_request(server: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tenant").write_text("shop\n")
    monkeypatch.setenv("KEY", "from the environment")
    headers = {"X-Scope-OrgID": {"file": str(tmp_path / "tenant")}, "X-Key": {"env": "KEY"}, "X-Plain": "plain"}
    await ask(f"{server.url}/prometheus/", headers=headers, query_timeout="60s")
    (request,), (form,) = server.requests, server.forms
    assert (request.method, request.path) == ("POST", "/prometheus/api/v1/query")
    assert dict(request.query) == {"tenant": SECRET}
    assert form == {"query": "depth", "time": f"{lab.NOW}.000", "timeout": "60000ms"}
    sent = [request.headers[name] for name in ("X-Scope-OrgID", "X-Key", "X-Plain", "Authorization")]
    assert sent == ["shop", "from the environment", "plain", f"Bearer {SECRET}"]


async def test_a_token_is_read_again_when_its_file_changes(server: Stub, tmp_path: Path) -> None:
    file = tmp_path / "token"
    settings = msgspec.convert(
        {
            "url": server.url,
            "metrics": {"depth": {"query": "depth"}},
            "bearer_token_file": str(file),
            "query_timeout": "60s",
        },
        Prometheus.Settings,
    )
    async with testing.context("prom", clock=lab.FrozenClock()) as context:
        adapter = Prometheus(settings, context)
        for content in ("first", "second one", "", None):
            file.write_text(f"{content}\n") if content is not None else file.unlink()
            (answer,) = await adapter.answer([testing.external("depth")])
            if content:
                assert isinstance(answer, ExternalSample)
                assert server.requests[-1].headers["Authorization"] == f"Bearer {content}"
            else:
                assert isinstance(answer, AdapterError)
                assert str(file) in answer.message


async def test_warnings_are_logged_once(server: Stub) -> None:
    server.answers({**ONE, "warnings": ["partial response"]})
    settings = msgspec.convert(
        {"url": server.url, "metrics": {"depth": {"query": "depth"}}, "query_timeout": "60s"}, Prometheus.Settings
    )
    with structlog.testing.capture_logs() as logs:
        async with testing.context("prom", clock=lab.FrozenClock()) as context:
            adapter = Prometheus(settings, context)
            for _ in range(3):
                await adapter.answer([testing.external("depth")])
    assert [entry["warning"] for entry in logs] == ["partial response"]


@pytest.mark.parametrize(
    ("text", "milli"), [("5.000000000000001", 5000), ("0.0001", 1), ("-1.5", -1500), ("1e3", 10**6)]
)
async def test_numbers_round_away_from_zero_but_not_for_noise(server: Stub, text: str, milli: int) -> None:
    data = {"resultType": "scalar", "result": [lab.NOW, text]}
    server.answers({"status": "success", "data": data})
    (answer,) = await ask(server.url)
    assert isinstance(answer, ExternalSample)
    assert answer.values == (milli,)


@pytest.mark.parametrize("text", ["1e30", "one"])
async def test_invalid_numbers_are_errors(server: Stub, text: str) -> None:
    data = {"resultType": "vector", "result": [{"metric": {}, "value": [lab.NOW, text]}]}
    server.answers({"status": "success", "data": data})
    (answer,) = await ask(server.url)
    assert isinstance(answer, AdapterError)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"url": f"http://me:{SECRET}@prometheus"}, "contains credentials"),
        ({"url": f"http://me:{SECRET}@prometheus:port"}, "its port is not a number"),
        ({"url": "prometheus:9090"}, "is not of the form"),
        ({"url": "http://p", "username": "me"}, 'password: is missing for user "me"'),
        ({"url": "http://p", "username": "me", "password": SECRET, "bearer_token": SECRET}, "not two of them"),
        ({"url": "http://p", "headers": {"X": {"file": "a", "env": "b"}}}, "one of file and env"),
        ({"url": "http://p", "bearer_token_file": "a", "bearer_token_env": "b"}, "give one of"),
        ({"url": "http://p", "query_timeout": "5"}, "not a duration"),
        ({"url": "http://p", "key": "k"}, "no cert"),
        (
            {"url": "http://p", "metrics": {"a": {"query": "b", "window": {"fetch": "1m", "last": "2m"}}}},
            "within fetch",
        ),
        ({"url": "http://p", "metrics": {"a": {"query": "b", "types": ["Pod"]}}}, "'Pod' is not one of"),
        ({"url": "http://p", "metrics": {"a": {"query": "b", "reduce": "median"}}}, "median"),
        (
            {"url": "http://p", "metrics": {"a": {"query": "b", "types": ["External"], "reduce": "max"}}},
            "reduce: the values of an External metric are added up; write max(…) in the query",
        ),
        ({"url": "http://p", "nonsense": 1}, "nonsense"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(settings, Prometheus.Settings)
    assert text in str(refused.value)
    assert SECRET not in str(refused.value)


WEB_CONFIG = """
tls_server_config:
  cert_file: {folder}/server.pem
  key_file: {folder}/server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: {folder}/ca.pem
basic_auth_users:
  hpad: $2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay
"""


@pytest.mark.prometheus
@pytest.mark.skipif(not PrometheusServer.installed(), reason=ABSENT)
async def test_certificates_and_users_of_a_real_server(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued, client = authority.issue_cert("localhost", "127.0.0.1"), authority.issue_cert("hpad")
    for name, certificate in (("server", issued), ("client", client)):
        certificate.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
        certificate.private_key_pem.write_to_path(tmp_path / f"{name}.key")
    context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    context.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
    (tmp_path / "password").write_text("test\n")
    good: dict[str, Any] = {
        "ca": str(tmp_path / "ca.pem"),
        "cert": str(tmp_path / "client.pem"),
        "key": str(tmp_path / "client.key"),
        "username": "hpad",
        "password_file": str(tmp_path / "password"),
        "query_timeout": "120s",
        "metrics": {"one": {"query": "vector(1)"}},
    }
    async with PrometheusServer(web_config=WEB_CONFIG.format(folder=tmp_path), tls=context) as server:

        async def outcome(**changes: Any) -> Answer:
            settings = msgspec.convert({"url": server.url, **good, **changes}, Prometheus.Settings)
            async with testing.context("prom", clock=lab.FrozenClock()) as capabilities:
                return (await Prometheus(settings, capabilities).answer([testing.external("one")]))[0]

        def text(answer: Answer) -> str:
            assert isinstance(answer, AdapterError)
            return answer.message

        assert isinstance(await outcome(), ExternalSample)
        assert isinstance(await outcome(ca="", insecure=True), ExternalSample)
        assert "not trusted" in text(await outcome(ca=""))
        assert "not trusted" in text(await outcome(server_name="elsewhere"))
        assert "absent.pem cannot be used" in text(await outcome(ca=str(tmp_path / "absent.pem")))
        refused = text(await outcome(cert="", key=""))
        assert (
            "require a client certificate" in refused or "closed the connection" in refused
        )  # the reset may outrun the server's reason
        assert "401" in text(await outcome(password_file="", password="wrong"))
