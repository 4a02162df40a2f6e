"""Servers that quote a secret in their refusals, and settings that have it inline, in a file or in a variable."""

import asyncio
import base64
import contextlib
import html
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from support.raw_http2 import encoded, headers, settings

pytest.importorskip("aiormq", reason="needs the extra amqp")  # here: its import blocks the event loop
SECRET = 'pl4nted/of&the+"server"'
VARIABLE = "HPAD_TEST_PLANTED"
WAYS = ("inline", "file", "env")
FORMS = (
    SECRET,
    quote(SECRET, safe=""),
    html.escape(SECRET),
    json.dumps(SECRET)[1:-1],
    base64.b64encode(f"hpad:{SECRET}".encode()).decode(),
    "pl4nted",
)
TEXT = " ".join(("denied:", *FORMS[:5]))
_STATUSES = (400, 401, 403, 500)
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def named(name: str, way: str, folder: Path) -> dict[str, str]:
    """Returns the secret as a setting of that name."""
    suffix, value = {"inline": ("", SECRET), "file": ("_file", str(folder / "secret")), "env": ("_env", VARIABLE)}[way]
    return {f"{name}{suffix}": value}


def referred(way: str, folder: Path) -> str | dict[str, str]:
    """Returns the secret as a value that may be {file: …} or {env: …}."""
    return SECRET if way == "inline" else {way: str(folder / "secret") if way == "file" else VARIABLE}


def settings_of(source: str, port: int, way: str, folder: Path) -> list[dict[str, Any]]:
    """Returns settings of the source for each field that can hold the secret."""
    at, url = f"127.0.0.1:{port}", f"http://127.0.0.1:{port}"
    password = named("password", way, folder)
    login = {"username": "hpad", **password}
    key = {"access_key_id": "AKID", **named("secret_access_key", way, folder)}
    bearer, header = named("bearer_token", way, folder), {"headers": {"X-Key": referred(way, folder)}}
    token_url = f"{url}/?client_secret={quote(SECRET, safe='')}"
    granted = {"oauth2": {"token_url": token_url, "client_id": "hpad", **named("client_secret", way, folder)}}
    query = {"metrics": {"depth": {"query": "depth"}}}
    document = {"metrics": {"depth": {"url": url, "path": "depth"}}}
    parameter = {"params": {"api_key": referred(way, folder)}}
    prometheus = [{"url": url, **query, **each} for each in (login, bearer, header)]
    every: dict[str, list[dict[str, Any]]] = {
        "celery over rabbitmq": [{"rabbitmq": {"url": url, **each}} for each in (login, granted)],
        "celery over redis": [{"redis": {"url": f"redis://{at}", **password}}],
        "http-json": [{**document, **each} for each in (login, bearer, header, parameter, granted)],
        "kafka": [{"bootstrap_servers": [at], "sasl": "PLAIN", **login}],
        "keda-external": [{"address": at, "metrics": {"depth": {"metadata": {"apiKey": referred(way, folder)}}}}],
        "nats-jetstream": [{"url": url, **header}],
        "postgresql": [{"host": "127.0.0.1", "port": port, "database": "d", "sslmode": "disable", **login, **query}],
        "prometheus": prometheus,
        "rabbitmq": [{"url": url, **each} for each in (login, granted, *([bearer] if way == "file" else []))],
        "rabbitmq over amqp": [{"url": f"amqp://{at}", "source": "amqp", **login}],
        "redis": [{"url": f"redis://{at}", **password}],
        "redis cluster": [{"cluster": {"nodes": [at]}, **password}],
        "redis sentinel": [{"sentinel": {"master": "main", "nodes": [at], **password}}],
        "seasonal": prometheus,
        "sqs": [{"region": "eu-west-1", "endpoint_url": url, **key}],
    }
    return every.get(source, [{}])


async def _http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int) -> None:
    await reader.readuntil(b"\r\n\r\n")
    names = ("error", "reason", "message", "error_description", "detail")
    body = json.dumps({"kind": "Status", "status": "error", "errorType": "x", **dict.fromkeys(names, TEXT)}).encode()
    head = f"HTTP/1.1 {status} {TEXT}\r\nContent-Type: application/json\r\nConnection: close\r\nX-Said: {TEXT}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


async def _redis(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int) -> None:
    await reader.read(4096)
    writer.write(f"-ERR {TEXT}\r\n".encode() * 8)


async def _postgresql(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int) -> None:
    await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big") - 4)
    writer.write(b"R" + struct.pack(">II", 8, 3))  # the password in clear
    await reader.read(4096)
    fields = f"SFATAL\0VFATAL\0C28P01\0M{TEXT}\0\0".encode()
    writer.write(b"E" + struct.pack(">I", 4 + len(fields)) + fields)


async def _amqp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int) -> None:
    from pamqp import commands, frame

    await reader.readexactly(8)
    writer.write(frame.marshal(commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"), 0))
    await reader.read(4096)
    writer.write(frame.marshal(commands.Connection.Close(status, f"ACCESS_REFUSED - {TEXT}"[:250], 10, 10), 0))
    await reader.read(4096)


async def _kafka(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int) -> None:
    from support import kafka_broker

    broker = kafka_broker.Broker("PLAIN")
    broker.answers[kafka_broker.AUTHENTICATE] = (58, TEXT, b"")
    await broker.serve(reader, writer)


async def _grpc(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int) -> None:
    await reader.read(4096)
    fields = (":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "16")
    writer.write(settings() + headers(1, encoded(*fields, ("grpc-message", quote(TEXT, safe=" "))), 0x5))
    await reader.read(4096)


_TALKS = {
    "celery over redis": _redis,
    "kafka": _kafka,
    "keda-external": _grpc,
    "postgresql": _postgresql,
    "rabbitmq over amqp": _amqp,
    "redis": _redis,
    "redis cluster": _redis,
    "redis sentinel": _redis,
}


@asynccontextmanager
async def quoting(source: str, status: int) -> AsyncIterator[int]:
    """Serves a port that refuses each request of the source with TEXT; over HTTP with this status."""
    talk = _TALKS.get(source, _http)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, EOFError), contextlib.closing(writer):
            await talk(reader, writer, status)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


def statuses(source: str) -> tuple[int, ...]:
    """Returns the statuses with which a server of the source can refuse; one where it speaks no HTTP."""
    return (403,) if source in _TALKS else _STATUSES
