"""One rule for white space in secret files, in every adapter: exactly one trailing line end is removed."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.brokers import PATIENT
from support.redis_lab import encoded

from hpad import testing
from hpad.adapter import Adapter, AdapterError, Context, Query
from hpad_adapters.http_json import HttpJson
from hpad_adapters.prometheus import Prometheus
from hpad_adapters.rabbitmq import RabbitMQ
from hpad_adapters.redis import Redis

QUEUE = testing.external("queue_messages_ready", "queue=a")
CONTENTS = pytest.mark.parametrize(
    ("content", "secret"),
    [(b" a\tb \n", " a\tb "), (b" a\tb \r\n", " a\tb "), (b"a", "a"), (b"a\n\n", "a\n"), (b"a\r", "a\r")],
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "secret"


async def ask(adapter: type[Adapter], settings: dict[str, Any], query: Query, context: Context) -> None:
    """Sends one request; the servers of these tests give no usable answer."""
    patient = PATIENT if adapter is RabbitMQ else {}
    source = adapter(msgspec.convert({**patient, **settings}, adapter.Settings), context)
    with contextlib.suppress(AdapterError):
        await source.answer([query])
    await source.aclose()


@contextlib.asynccontextmanager
async def recording(hello: bytes, last: bytes) -> AsyncIterator[tuple[int, bytearray]]:
    """A server that greets, reads until `last` has come, and closes; yields its port and what it reads."""
    received = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            writer.write(hello)
            while last not in received and (part := await reader.read(4096)):
                received.extend(part)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], received


@CONTENTS
@pytest.mark.parametrize(
    ("adapter", "settings", "query"),
    [
        (RabbitMQ, {}, QUEUE),
        (Prometheus, {"metrics": {"depth": {"query": "depth"}}}, testing.external("depth")),
    ],
    ids=["rabbitmq", "prometheus"],
)
async def test_passwords_of_basic_authentication(stub, context, file, content, secret, adapter, settings, query):
    file.write_bytes(content)
    await ask(adapter, {"url": stub.url, "username": "me", "password_file": str(file), **settings}, query, context)
    assert {base64.b64decode(request.headers["Authorization"][6:]) for request in stub.requests} == {
        f"me:{secret}".encode()
    }


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
@pytest.mark.parametrize(
    ("adapter", "setting", "query"),
    [
        (RabbitMQ, "bearer_token_file", QUEUE),
        (Prometheus, "bearer_token_file", testing.external("depth")),
        (Prometheus, "headers", testing.external("depth")),
        (HttpJson, "headers", testing.external("depth")),
    ],
    ids=["rabbitmq-token", "prometheus-token", "prometheus-header", "http-json-header"],
)
async def test_tokens_and_headers(stub, context, file, end, adapter, setting, query):
    """The white space within is kept. HTTP itself does not carry white space at the ends of a header."""
    file.write_bytes(f"a \tb{end}".encode())
    options: dict[str, Any] = {setting: str(file)} if setting != "headers" else {"headers": {"X": {"file": str(file)}}}
    if adapter is not HttpJson:
        options["url"] = stub.url
    if adapter is not RabbitMQ:
        options["metrics"] = {"depth": {"query": "depth"} if adapter is Prometheus else {"url": stub.url, "path": ""}}
    await ask(adapter, options, query, context)
    sent = {request.headers.get("X") or request.headers["Authorization"] for request in stub.requests}
    assert sent == {"a \tb" if setting == "headers" else "Bearer a \tb"}


@CONTENTS
async def test_oauth2_client_secrets(stub, context, file, content, secret):
    file.write_bytes(content)
    oauth2 = {"token_url": f"{stub.url}/token", "client_id": "me", "client_secret_file": str(file)}
    await ask(RabbitMQ, {"url": stub.url, "oauth2": {**oauth2, "client_auth": "body"}}, QUEUE, context)
    assert [form["client_secret"] for form in stub.forms] == [secret]


@CONTENTS
async def test_redis_passwords(context, file, content, secret):
    file.write_bytes(content)
    query = testing.external("redis_list_length", "key=a")
    async with recording(b"+OK\r\n", b"LLEN") as (port, received):
        await ask(Redis, {"url": f"redis://127.0.0.1:{port}", "password_file": str(file)}, query, context)
    assert received.startswith(encoded(("AUTH", secret)))


@CONTENTS
@pytest.mark.parametrize("setting", ["password_file", "bearer_token_file"])
async def test_amqp_passwords_and_tokens(context, file, content, secret, setting):
    commands = pytest.importorskip("pamqp.commands", reason="needs the extra amqp")
    marshal = pytest.importorskip("pamqp.frame").marshal
    file.write_bytes(content)
    user = {"username": "hpad"} if setting == "password_file" else {}
    start = marshal(commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"), 0)
    async with recording(start, b"en_US") as (port, received):
        settings = {"url": f"amqp://127.0.0.1:{port}", "source": "amqp", setting: str(file), **user}
        await ask(RabbitMQ, settings, QUEUE, context)
    assert b"\0hpad\0" + secret.encode() + b"\x05en_US" in received
