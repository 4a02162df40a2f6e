"""OAuth2 tokens of a RabbitMQ source: a provider and a management API that record their requests."""

import base64

import msgspec
import pytest
from aiohttp import web
from support.brokers import PATIENT

from hpad import testing
from hpad.adapter import AdapterError, ExternalSample
from hpad_adapters import rabbitmq

QUEUE = {"name": "q", "messages": 5, "messages_ready": 3, "messages_unacknowledged": 2}
SECRET = "s3:cr&t/ü"


class Provider:
    """Grants tokens t1, t2, …; the broker accepts `good`. `seen` holds the Authorization headers at the broker."""

    def __init__(self, stub) -> None:
        self.authorizations: list[str | None] = []
        self.seen: list[str | None] = []
        self.good = "t1"
        self.expires: object = 3600
        self.refusal: tuple[int, str] | None = None
        self._stub = stub
        stub.handler = self.handle

    @property
    def requests(self) -> list[dict[str, str]]:
        """The forms of the requests for tokens."""
        return [form for form in self._stub.forms if form]

    async def handle(self, request: web.Request) -> web.Response:
        if request.path == "/token":
            self.authorizations.append(request.headers.get("Authorization"))
            if self.refusal is not None:
                return web.Response(status=self.refusal[0], text=self.refusal[1], content_type="application/json")
            return web.json_response({"access_token": f"t{len(self.requests)}", "expires_in": self.expires})
        self.seen.append(request.headers.get("Authorization"))
        if self.seen[-1] != f"Bearer {self.good}":
            return web.json_response({"error": "not_authorized", "reason": "no"}, status=401)
        return web.json_response(QUEUE)


@pytest.fixture
def provider(stub) -> Provider:
    return Provider(stub)


def source(stub, rabbit, **changed: object) -> rabbitmq.RabbitMQ:
    oauth = {"token_url": f"{stub.url}/token", "client_id": "hpad", "client_secret": SECRET} | changed
    settings = {"url": stub.url, "oauth2": oauth, **PATIENT}
    return rabbitmq.RabbitMQ(msgspec.convert(settings, rabbitmq.Settings), rabbit)


async def ask(adapter: rabbitmq.RabbitMQ):
    [answer] = await adapter.answer([testing.external("queue_messages", "queue=q")])
    return answer


async def test_a_token_is_requested_once_and_cached(stub, rabbit, provider):
    adapter = source(stub, rabbit, scopes=["rabbitmq.tag:monitoring", "rabbitmq.read:*/*"], params={"audience": "mq"})
    for _ in range(3):
        assert isinstance(await ask(adapter), ExternalSample)
    assert provider.requests == [
        {
            "grant_type": "client_credentials",
            "scope": "rabbitmq.tag:monitoring rabbitmq.read:*/*",
            "audience": "mq",
        }
    ]
    [authorization] = provider.authorizations
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"hpad:s3%3Acr%26t%2F%C3%BC"


async def test_client_auth_body_sends_the_secret_in_the_form(stub, rabbit, provider, tmp_path):
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    adapter = source(stub, rabbit, client_secret="", client_secret_file=str(tmp_path / "secret"), client_auth="body")
    assert isinstance(await ask(adapter), ExternalSample)
    assert (provider.requests[0]["client_id"], provider.requests[0]["client_secret"]) == ("hpad", SECRET)
    assert provider.authorizations == [None]


async def test_a_refused_token_is_replaced_once(stub, rabbit, provider):
    adapter = source(stub, rabbit)
    assert isinstance(await ask(adapter), ExternalSample)
    provider.good = "t2"
    assert isinstance(await ask(adapter), ExternalSample)
    assert len(provider.requests) == 2
    provider.good = "another"
    answer = await ask(adapter)
    assert isinstance(answer, AdapterError)
    assert "refused the token (401: no): it needs the scope" in answer.message
    assert len(provider.requests) == 3


@pytest.mark.parametrize(("expires", "forms"), [("0", 2), (0.0, 2), (3600, 1), ("3600", 1)])
async def test_a_token_that_expires_is_replaced_before_it_is_used(stub, rabbit, provider, expires, forms):
    provider.expires = expires
    adapter = source(stub, rabbit)
    await ask(adapter)
    provider.good = f"t{forms}"
    assert isinstance(await ask(adapter), ExternalSample)
    assert len(provider.requests) == forms
    assert provider.seen == ["Bearer t1", f"Bearer t{forms}"]


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        ((401, '{"error": "invalid_client"}'), "answered 401 (invalid_client): check client_id"),
        ((401, "<html>"), "answered 401: check client_id"),
        ((400, '{"error": "invalid_scope"}'), "answered 400 (invalid_scope): check scopes"),
        ((400, '{"error": "invalid_request"}'), "answered 400 (invalid_request)|"),
        ((400, f'{{"error": "{SECRET}"}}'), "answered 400|"),
        ((302, "{}"), "answered 302, a redirect to "),
        ((200, '{"access_token": "t", "expires_in": "nan"}'), "answered something other than a token"),
        ((200, "{}"), "answered something other than a token"),
        ((200, "<html>"), "answered something other than a token"),
        ((200, '{"access_token": "a\\nb"}'), "answered something other than a token"),
        ((200, '{"access_token": "t", "expires_in": "-inf"}'), "answered something other than a token"),
        ((200, '{"access_token": "one two"}'), "answered something other than a token"),
        ((200, f'{{"access_token": "{"t" * 16385}"}}'), "answered something other than a token"),
    ],
)
async def test_the_error_names_a_provider_that_grants_no_token(stub, rabbit, provider, refusal, error):
    provider.refusal = refusal
    answer = await ask(source(stub, rabbit))
    assert isinstance(answer, AdapterError)
    assert answer.message.startswith(f"the token_url {stub.url}/token ")
    assert error in f"{answer.message}|"
    assert SECRET not in answer.message
    assert provider.seen == []


async def test_a_token_file_is_read_for_each_request(stub, rabbit, provider, tmp_path):
    token = tmp_path / "token"
    options = {"url": stub.url, "bearer_token_file": str(token), **PATIENT}
    adapter = rabbitmq.RabbitMQ(rabbitmq.Settings(**options), rabbit)
    missing = await ask(adapter)
    assert missing == AdapterError(f"bearer_token: {token} cannot be read: No such file or directory")
    token.write_text("t1\n")
    assert isinstance(await ask(adapter), ExternalSample)
