"""Tokens: a provider and a management API that speak as the real ones do, and tell what they were asked."""

import base64
from urllib.parse import unquote_plus

import msgspec
import pytest
from aiohttp import web

from hpad import testing
from hpad.adapter import AdapterError, ExternalSample
from hpad_adapters import rabbitmq

QUEUE = {"name": "q", "messages": 5, "messages_ready": 3, "messages_unacknowledged": 2}
SECRET = "s3:cr&t/ü"


class Provider:
    """Grants tokens t1, t2, …; the broker takes the one that is `good`."""

    def __init__(self, stub) -> None:
        self.forms: list[dict[str, str]] = []
        self.authorizations: list[str | None] = []
        self.seen: list[str | None] = []
        self.good = "t1"
        self.expires: object = 3600
        self.refusal: tuple[int, str] | None = None
        stub.handler = self.handle

    async def handle(self, request: web.Request) -> web.Response:
        if request.path == "/token":
            self.forms.append(dict(await _form(request)))
            self.authorizations.append(request.headers.get("Authorization"))
            if self.refusal is not None:
                return web.Response(status=self.refusal[0], text=self.refusal[1], content_type="application/json")
            return web.json_response({"access_token": f"t{len(self.forms)}", "expires_in": self.expires})
        self.seen.append(request.headers.get("Authorization"))
        if self.seen[-1] != f"Bearer {self.good}":
            return web.json_response({"error": "not_authorized", "reason": "no"}, status=401)
        return web.json_response(QUEUE)


async def _form(request: web.Request) -> list[tuple[str, str]]:
    text = (await request.read()).decode()
    return [(unquote_plus(key), unquote_plus(value)) for key, _, value in (p.partition("=") for p in text.split("&"))]


@pytest.fixture
def provider(stub) -> Provider:
    return Provider(stub)


def source(stub, rabbit, **changed: object) -> rabbitmq.RabbitMQ:
    oauth = {"token_url": f"{stub.url}/token", "client_id": "hpad", "client_secret": SECRET} | changed
    return rabbitmq.RabbitMQ(msgspec.convert({"url": stub.url, "oauth2": oauth}, rabbitmq.Settings), rabbit)


async def ask(adapter: rabbitmq.RabbitMQ):
    [answer] = await adapter.answer([testing.external("queue_messages", "queue=q")])
    return answer


async def test_a_token_is_asked_for_once_and_kept(stub, rabbit, provider):
    adapter = source(stub, rabbit, scopes=["rabbitmq.tag:monitoring", "rabbitmq.read:*/*"], params={"audience": "mq"})
    for _ in range(3):
        assert isinstance(await ask(adapter), ExternalSample)
    assert provider.forms == [
        {
            "grant_type": "client_credentials",
            "scope": "rabbitmq.tag:monitoring rabbitmq.read:*/*",
            "audience": "mq",
        }
    ]
    [authorization] = provider.authorizations
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"hpad:s3%3Acr%26t%2F%C3%BC"


async def test_the_secret_goes_into_the_form_where_the_provider_wants_it_there(stub, rabbit, provider, tmp_path):
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    adapter = source(stub, rabbit, client_secret="", client_secret_file=str(tmp_path / "secret"), client_auth="body")
    assert isinstance(await ask(adapter), ExternalSample)
    assert (provider.forms[0]["client_id"], provider.forms[0]["client_secret"]) == ("hpad", SECRET)
    assert provider.authorizations == [None]


async def test_a_token_that_is_refused_is_replaced_once(stub, rabbit, provider):
    adapter = source(stub, rabbit)
    assert isinstance(await ask(adapter), ExternalSample)
    provider.good = "t2"
    assert isinstance(await ask(adapter), ExternalSample)
    assert len(provider.forms) == 2
    provider.good = "none of them"
    answer = await ask(adapter)
    assert isinstance(answer, AdapterError)
    assert "refused the token (401: no): it needs the scope" in answer.message
    assert len(provider.forms) == 3


@pytest.mark.parametrize(("expires", "forms"), [("0", 2), (0.0, 2), (3600, 1), ("3600", 1)])
async def test_a_token_that_expires_is_replaced_before_it_is_used(stub, rabbit, provider, expires, forms):
    provider.expires = expires
    adapter = source(stub, rabbit)
    await ask(adapter)
    provider.good = f"t{forms}"
    assert isinstance(await ask(adapter), ExternalSample)
    assert len(provider.forms) == forms
    assert provider.seen == ["Bearer t1", f"Bearer t{forms}"]


@pytest.mark.parametrize(
    ("refusal", "complaint"),
    [
        ((401, '{"error": "invalid_client"}'), "answered 401 (invalid_client): check client_id"),
        ((400, f'{{"error": "{SECRET}"}}'), "answered 400: check client_id"),
        ((302, "{}"), "answered 302: check client_id"),
        ((200, '{"access_token": "t", "expires_in": "nan"}'), "answered something other than a token"),
        ((200, "{}"), "answered something other than a token"),
        ((200, "<html>"), "answered something other than a token"),
        ((200, '{"access_token": "a\\nb"}'), "answered something other than a token"),
    ],
)
async def test_a_provider_that_gives_no_token_is_named_and_no_secret_is(stub, rabbit, provider, refusal, complaint):
    provider.refusal = refusal
    answer = await ask(source(stub, rabbit))
    assert isinstance(answer, AdapterError)
    assert answer.message.startswith(f"the token_url {stub.url}/token ")
    assert complaint in answer.message
    assert SECRET not in answer.message
    assert provider.seen == []


async def test_a_token_from_a_file_is_read_each_time(stub, rabbit, provider, tmp_path):
    token = tmp_path / "token"
    given = {"url": stub.url, "bearer_token_file": str(token)}
    adapter = rabbitmq.RabbitMQ(rabbitmq.Settings(**given), rabbit)
    missing = await ask(adapter)
    assert missing == AdapterError(f"bearer_token: {token} cannot be read: No such file or directory")
    token.write_text("t1\n")
    assert isinstance(await ask(adapter), ExternalSample)
