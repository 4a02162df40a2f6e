"""Bodies and credentials of the requests of `http-json`, as a real server receives them."""

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from aiohttp import web
from support.http_stub import SECRET, Stub, server_tls, serving

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, ExternalSample
from hpad.api.selector import Operator, Requirement, Selector
from hpad_adapters.http_json import HttpJson


async def ask(context: Context, url: str, *, metric: dict[str, Any] | None = None, **options: Any) -> Answer:
    settings = {"metrics": {"depth": {"url": url, "path": "n", **(metric or {})}}, "request_timeout": "60s", **options}
    (answer,) = await HttpJson(msgspec.convert(settings, HttpJson.Settings), context).answer(
        [testing.external("depth")]
    )
    return answer


@pytest.fixture
def secret(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    return {"file": str(tmp_path / "secret")}


@pytest.fixture
def bodies(stub: Stub) -> list[bytes]:
    """Answers {"n": 7}; holds the bodies that the server received."""
    received: list[bytes] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        received.append(await request.read())
        return web.json_response({"n": 7})

    stub.handler = handler
    return received


@pytest.mark.parametrize(
    ("body", "sent", "kind"),
    [
        (
            {"query": {"term": {"state": "ü"}}, "size": 0},
            '{"query":{"term":{"state":"ü"}},"size":0}',
            "application/json",
        ),
        ([1, 2], "[1,2]", "application/json"),
        ("fields @timestamp", "fields @timestamp", "text/plain"),
    ],
)
async def test_a_body_is_posted(
    stub: Stub, context: Context, bodies: list[bytes], body: Any, sent: str, kind: str
) -> None:
    answer = await ask(context, stub.url, metric={"body": body})
    assert isinstance(answer, ExternalSample)
    (request,) = stub.requests
    assert (request.method, request.content_type, bodies) == ("POST", kind, [sent.encode()])


async def test_a_configured_content_type_replaces_that_of_the_body(
    stub: Stub, context: Context, bodies: list[bytes]
) -> None:
    await ask(context, stub.url, metric={"body": "a=1"}, headers={"content-type": "application/x-www-form-urlencoded"})
    (request,) = stub.requests
    assert request.headers.getall("Content-Type") == ["application/x-www-form-urlencoded"]


async def test_equal_bodies_are_one_request_and_others_are_not(
    stub: Stub, context: Context, bodies: list[bytes]
) -> None:
    metrics = {name: {"url": stub.url, "path": "n", "body": body} for name, body in zip("abc", "xxy", strict=True)}
    adapter = HttpJson(msgspec.convert({"metrics": metrics}, HttpJson.Settings), context)
    answers = await adapter.answer([testing.external(name) for name in metrics])
    assert all(isinstance(answer, ExternalSample) for answer in answers)
    assert sorted(bodies) == [b"x", b"y"]


async def test_times_are_filled_in_for_each_request(
    stub: Stub, context: Context, bodies: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = datetime(2026, 1, 31, 12, 0, 30, 500_000, UTC)
    monkeypatch.setattr(type(context.clock), "now", lambda clock: moment)
    url = f"{stub.url}/?from=<<now-5m>>&to=<<now>>"
    answer = await ask(context, url, metric={"body": {"from": "<<now-1m30s:ms>>", "to": "<<now+1h:iso>>"}})
    assert isinstance(answer, ExternalSample)
    seconds = int(moment.timestamp())
    assert dict(stub.requests[0].query) == {"from": str(seconds - 300), "to": str(seconds)}
    assert bodies == [b'{"from":"%d500","to":"2026-01-31T13:00:30Z"}' % (seconds - 90)]


async def test_a_selector_cannot_bring_a_time(stub: Stub, context: Context, bodies: list[bytes]) -> None:
    query = msgspec.structs.replace(
        testing.external("depth"), selector=Selector((Requirement("a", Operator.EQUALS, ("<<now>>",)),))
    )
    settings = {"metrics": {"depth": {"url": stub.url, "path": "n", "params": ["a"]}}}
    await HttpJson(msgspec.convert(settings, HttpJson.Settings), context).answer([query])
    assert dict(stub.requests[0].query) == {"a": "<<now>>"}


async def test_an_api_key_in_a_header_or_a_parameter(
    stub: Stub, context: Context, bodies: list[bytes], secret: dict[str, str]
) -> None:
    await ask(context, f"{stub.url}/a?b=1", headers={"X-API-KEY": secret}, params={"api_key": secret, "c": "é&d"})
    (request,) = stub.requests
    assert request.headers["X-API-KEY"] == SECRET
    assert dict(request.query) == {"b": "1", "api_key": SECRET, "c": "é&d"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"no such tenant\nmore", ": no such tenant"),
        (b'{\n "error": "gone"\n}', ': { "error": "gone" }'),
        (b"<html>", ""),
    ],
)
async def test_a_refusal_is_quoted(stub: Stub, context: Context, body: bytes, said: str) -> None:
    stub.answers(body, status=400, content_type="text/plain")
    refused = await ask(context, stub.url)
    assert isinstance(refused, AdapterError)
    assert refused.message == f"{stub.url} answers 400{said}"


async def test_a_key_in_a_parameter_stays_out_of_errors(stub: Stub, context: Context, secret: dict[str, str]) -> None:
    stub.answers(b"", status=403)
    refused = await ask(context, stub.url, params={"api_key": secret})
    lost = await ask(context, stub.url, params={"api_key": {"file": "/nowhere/key"}})
    assert isinstance(refused, AdapterError)
    assert isinstance(lost, AdapterError)
    assert refused.message == f"{stub.url} answers 403"
    assert lost.message.startswith("params: api_key: /nowhere/key cannot be read")


async def test_basic_and_bearer_authentication(
    stub: Stub, context: Context, bodies: list[bytes], secret: dict[str, str]
) -> None:
    await ask(context, stub.url, username="me", password_file=secret["file"])
    await ask(context, stub.url, username="key")
    await ask(context, stub.url, bearer_token_file=secret["file"])
    basic = [base64.b64encode(text.encode()).decode() for text in (f"me:{SECRET}", "key:")]
    sent = [request.headers["Authorization"] for request in stub.requests]
    assert sent == [*(f"Basic {text}" for text in basic), f"Bearer {SECRET}"]


async def test_oauth2_tokens_are_replaced_when_refused(stub: Stub, context: Context, secret: dict[str, str]) -> None:
    tokens = iter(("old", "new"))

    async def handler(request: web.BaseRequest) -> web.Response:
        if request.path == "/token":
            return web.json_response({"access_token": next(tokens), "expires_in": 3600})
        if request.headers["Authorization"] == "Bearer new":
            return web.json_response({"n": 7})
        return web.Response(status=401)

    stub.handler = handler
    oauth2 = {"token_url": f"{stub.url}/token", "client_id": "hpad", "client_secret_file": secret["file"]}
    assert isinstance(await ask(context, stub.url, oauth2=oauth2, metric={"body": {}}), ExternalSample)
    assert [request.path for request in stub.requests] == ["/token", "/", "/token", "/"]


async def test_a_client_certificate(context: Context, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca")
    authority.issue_cert("hpad").private_key_and_cert_chain_pem.write_to_path(tmp_path / "client")
    files = {"ca": str(tmp_path / "ca"), "cert": str(tmp_path / "client")}

    async def handler(request: web.BaseRequest) -> web.Response:
        return web.json_response({"n": 7})

    async with serving(handler, tls=server_tls(authority, clients=authority)) as url:
        assert isinstance(await ask(context, url, **files), ExternalSample)
        refused = await ask(context, url, ca=files["ca"])
    assert isinstance(refused, AdapterError)


async def test_an_expired_certificate(context: Context, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca")
    tls = server_tls(authority)
    authority.issue_cert("127.0.0.1", not_after=datetime(2020, 1, 1, tzinfo=UTC)).configure_cert(tls)

    async def handler(request: web.BaseRequest) -> web.Response:
        return web.json_response({"n": 7})

    async with serving(handler, tls=tls) as url:
        refused = await ask(context, url, ca=str(tmp_path / "ca"))
    assert isinstance(refused, AdapterError)
    assert "certificate has expired" in refused.message


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"password": SECRET}, "username: is missing"),
        ({"username": "a:b"}, "username: .*colon"),
        ({"username": "me", "bearer_token": SECRET}, "not two of them"),
        ({"bearer_token": SECRET, "bearer_token_file": "/f"}, "give one of bearer_token"),
        ({"key": "/k"}, "no cert"),
        ({"params": {"k": {"file": "/f", "env": "E"}}}, "give one of file and env"),
        ({"max_pods": 0}, ">= 1"),
    ],
)
def test_invalid_credentials_are_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=error) as refused:
        msgspec.convert({"metrics": {}, **options}, HttpJson.Settings)
    assert SECRET not in str(refused.value)


def test_all_errors_are_reported_at_once() -> None:
    metric = {"url": "http://h/?a=<<nwo>>", "path": "a[", "method": "GET", "body": "<<now-x>>", "pods": "sum"}
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert({"metrics": {"depth": metric}}, HttpJson.Settings)
    fields = [line.partition(":")[0] for line in str(refused.value).splitlines()]
    assert fields == ["url", "url", "body", "body", "path"]
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(
            {"base_url": "http://h", "username": "a:b", "bearer_token": "t", "key": "/k"}, HttpJson.Settings
        )
    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == ["username", "username", "key"]
