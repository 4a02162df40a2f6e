"""Secrets that an adapter reads are hidden without effort of the adapter, also after a rotation, and in its log."""

import asyncio
import base64
import re
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
import structlog
from support import http_stub

from hpad import clock as clocks
from hpad import settings, testing
from hpad.adapter import AdapterError, Answer, Query, hide
from hpad.adapter_http import Http, HttpOptions, OAuth2, SecretRef, read_secrets
from hpad.kube import client
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.errors import ApiError
from hpad.sources import call, limits, manager, plugins
from hpad.sources.redact import Redactor

SECRET, OLD, TOKEN = "pl4nted-secret", "pl4nted-before", "pl4nted-token"


class Outsider:
    """An adapter of a third party, which reads a secret and says it in an error and in the log."""

    serves = frozenset({"External"})
    Settings = msgspec.defstruct("Settings", [("secret", Any, "")])

    def __init__(self, secret: Any, context: Any) -> None:
        self._secret = secret
        self._log = context.log
        self.text = ""

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        secret = (await read_secrets({"secret": self._secret}))["secret"]
        hide(TOKEN)
        self._log.warning("the server warns", warnings=[f"{self.text} {secret}"], of={"token": TOKEN})
        return [AdapterError(f"the server said: {self.text} {secret} {TOKEN}")] * len(queries)

    async def aclose(self) -> None: ...


async def test_a_rotated_secret_of_a_foreign_adapter_stays_hidden(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{OLD}\n")
    redactor = Redactor({})
    with structlog.testing.capture_logs() as logged:
        async with testing.context("source") as context:
            adapter = Outsider(SecretRef(file=str(file)), redactor.guarded(context))
            caller = call.Caller(
                "source",
                adapter,
                clock=clocks.SystemClock(),
                log=context.log,
                limits=limits.CallLimits(),
                redact=redactor,
            )
            await caller.call([testing.external("x")], retries=0)
            file.write_text(f"{SECRET}\n")
            adapter.text = OLD
            [answer] = await caller.call([testing.external("x")], retries=0)
    assert isinstance(answer, AdapterError)
    assert answer.message == "the server said: *** *** ***"
    assert logged[1]["warnings"] == ["*** ***"]
    assert logged[1]["of"] == {"token": "***"}


async def test_a_source_knows_the_secrets_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    redactors = [Redactor({}), Redactor({})]
    for redactor, secret in zip(redactors, (SECRET, OLD), strict=True):
        monkeypatch.setenv("HPAD_TEST_PLANTED", secret)
        with redactor.active():
            await read_secrets({"x": SecretRef(env="HPAD_TEST_PLANTED"), "queue": "orders"})
    assert redactors[0]("orders") == "orders"
    hide(TOKEN)  # outside every source
    assert [redactor(f"{SECRET} {OLD} {TOKEN}") for redactor in redactors] == [
        f"*** {OLD} {TOKEN}",
        f"{SECRET} *** {TOKEN}",
    ]


async def test_tokens_and_the_parameters_of_a_token_url_are_hidden() -> None:
    stub = http_stub.Stub()
    redactor = Redactor({})
    async with http_stub.serving(stub.handle) as url, testing.context("source") as context:
        granted = OAuth2(token_url=f"{url}/token?code={SECRET}", client_id="me", client_secret=OLD)
        http = Http(context, HttpOptions(oauth2=granted))
        stub.answers({"access_token": TOKEN})
        with redactor.active():
            await http.headers()
            stub.answers({"error": "invalid_client"}, status=400)
            with pytest.raises(AdapterError) as refused:
                await Http(context, HttpOptions(oauth2=granted)).headers()
    assert refused.value.message.startswith(f"the token_url {url}/token answered 400")
    assert SECRET not in refused.value.message
    assert SECRET not in repr(granted)
    assert redactor(f"{TOKEN} {OLD}") == "*** ***"


@pytest.mark.parametrize("name", ["client_secret", "api_key", "access_token"])
def test_secrets_in_urls_of_the_settings_are_hidden(name: str) -> None:
    redactor = Redactor({"metrics": {"depth": {"url": f"http://h/x?page=10000&{name}=pl4%2Fnted"}}})
    assert redactor("10000 pl4/nted pl4%2Fnted") == "10000 *** ***"


class Marked(msgspec.Struct):
    seed: Annotated[str, msgspec.Meta(extra_json_schema={"writeOnly": True})] = ""
    plain: str = ""


def test_fields_that_a_schema_marks_as_secrets_are_hidden() -> None:
    redactor = Redactor({"seed": SECRET, "plain": OLD})
    redactor.mark({"seed": SECRET, "plain": OLD}, Marked)
    assert redactor(f"{SECRET} {OLD}") == f"*** {OLD}"


async def test_a_proxy_before_the_api_server_does_not_show_its_password() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"(?i)proxy-authorization: (.*)\r", head)
        said = base64.b64encode(f"hpad:{SECRET}".encode()).decode() if found is None else found[1].decode()
        writer.write(f"HTTP/1.1 407 {said} {SECRET}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        proxy = f"http://hpad:{SECRET}@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        config = ClusterConfig("https://10.0.0.1:6443", ssl=ssl.create_default_context(), proxy=proxy)
        async with client.Client(config, clocks.SystemClock()) as api:
            with pytest.raises(ApiError) as refused:
                await api.request("GET", "/version")
    assert "the proxy before https://10.0.0.1:6443 answered 407" in refused.value.message
    assert SECRET not in refused.value.message
    assert base64.b64encode(f"hpad:{SECRET}".encode()).decode() not in refused.value.message


async def test_the_errors_of_a_source_that_cannot_be_set_up_are_redacted() -> None:
    class Broken(Outsider):
        def __init__(self, secret: Any, context: Any) -> None:
            hide(SECRET)
            raise AdapterError(f"{SECRET} is wrong")

    made = settings.SourceSettings(name="source", adapter="broken", settings={})
    gatherer = manager.Gatherer((made,), contexts=plugins.Contexts(clocks.SystemClock()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "adapter_class", lambda _: Broken)
        await gatherer.start()
    problems = gatherer.problems()
    await gatherer.aclose()
    assert problems["source"].message == 'source "source": *** is wrong'
