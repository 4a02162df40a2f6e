"""Credentials go to servers that the configuration names or trusts, and to those that prove their names by TLS."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from support import http_stub, kafka_broker
from support.kafka_broker import PASSWORD, TOKEN, USER, Broker, serving
from support.redis_lab import commands, masters

from hpad import testing
from hpad.adapter import Adapter, AdapterError, Answer, or_error
from hpad_adapters.credentials import Trust, trusted_hosts_error
from hpad_adapters.kafka import Kafka
from hpad_adapters.redis import Redis

pytestmark = pytest.mark.usefixtures("patient_redis")
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LENGTH = testing.external("redis_list_length", "key=a")
SECRET = b"s3cr3t"


@asynccontextmanager
async def listening(talk: Talk, tls: Any = None) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, EOFError), contextlib.closing(writer):
            await talk(reader, writer)

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


class Victim:
    """A server that keeps what it reads, and answers as a Redis with an empty list."""

    def __init__(self) -> None:
        self.got = b""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers = {b"AUTH": b"+OK\r\n", b"ROLE": b"*1\r\n$6\r\nmaster\r\n", b"TYPE": b"+list\r\n", b"LLEN": b":7\r\n"}
        async for command in commands(reader):
            self.got += command
            writer.write(answers.get(command.split()[0], b""))


async def answer(adapter: type[Adapter], settings: dict[str, Any], query: Any = LENGTH) -> Answer:
    async with testing.context("source") as context:
        made = adapter(msgspec.convert(settings, adapter.Settings), context)
        found = await or_error(made.answer, [query])
    return found if isinstance(found, AdapterError) else found[0]


def naming(reply: bytes) -> Talk:
    """Returns a node or sentinel that answers with OK to AUTH, and then with this."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for command in commands(reader):
            writer.write(b"+OK\r\n" if command.startswith(b"AUTH") else reply)

    return talk


def redis_settings(way: str, port: int) -> dict[str, Any]:
    nodes = {"nodes": [f"127.0.0.1:{port}"]}
    named = {"cluster": nodes} if way != "sentinel" else {"sentinel": {"master": "main", **nodes}}
    return {**named, "password": SECRET.decode()}


def redis_reply(way: str, port: int) -> bytes:
    """Returns the answer of a node or sentinel that names another server."""
    number = b"%d" % port
    return {
        "slots": b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%b\r\n" % number,
        "sentinel": masters(b"127.0.0.1", port),
    }[way]


@pytest.mark.parametrize("way", ["slots", "sentinel"])
async def test_a_redis_that_another_one_names_gets_no_password(way: str) -> None:
    victim = Victim()
    async with listening(victim.talk) as port, listening(naming(redis_reply(way, port))) as first:
        settings = redis_settings(way, first)
        refused = await answer(Redis, settings)
        assert isinstance(refused, AdapterError)
        assert f"Redis 127.0.0.1:{port} gets no credentials" in refused.message
        assert "or write it into trusted_hosts, as one of: names, " in refused.message
        assert victim.got == b""
        found = await answer(Redis, {**settings, "trusted_hosts": ["127.0.0.1"]})
    assert not isinstance(found, AdapterError), found
    assert SECRET in victim.got


@pytest.mark.parametrize("kind", [b"MOVED", b"ASK"])
async def test_a_redirection_gets_no_password(kind: bytes) -> None:
    victim, replies = Victim(), dict[bool, bytes]()

    async def node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for command in commands(reader):
            writer.write(b"+OK\r\n" if command.startswith(b"AUTH") else replies[b"SLOTS" in command])

    async with listening(victim.talk) as port, listening(node) as own:
        replies |= {True: redis_reply("slots", own), False: b"-%b 15495 127.0.0.1:%d\r\n" % (kind, port)}
        refused = await answer(Redis, redis_settings("slots", own))
    assert isinstance(refused, AdapterError)
    # redis-py follows ASK to nodes of the map only.
    assert ("gets no credentials" if kind == b"MOVED" else "did not answer as Redis does") in refused.message
    assert victim.got == b""


@pytest.mark.parametrize("insecure", [False, True])
async def test_a_redis_that_proves_its_name_gets_the_password(tmp_path: Path, insecure: bool) -> None:
    authority, ca = trustme.CA(), str(tmp_path / "ca.pem")
    authority.cert_pem.write_to_path(ca)
    tls, victim = http_stub.server_tls(authority), Victim()
    async with listening(victim.talk, tls) as port, listening(naming(redis_reply("slots", port)), tls) as first:
        settings = redis_settings("slots", first)
        settings["cluster"]["tls"] = True
        found = await answer(Redis, {**settings, "insecure": True} if insecure else {**settings, "ca": ca})
    assert isinstance(found, AdapterError) == insecure
    assert (SECRET in victim.got) != insecure


@pytest.mark.parametrize(("mechanism", "refused"), [("PLAIN", True), ("OAUTHBEARER", True), ("SCRAM-SHA-256", False)])
async def test_a_broker_that_another_one_names_gets_no_password(mechanism: str, refused: bool, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    user = {"username": USER, "password": PASSWORD}
    login = {"sasl": mechanism, **({"token_file": str(tmp_path / "token")} if mechanism == "OAUTHBEARER" else user)}
    query = testing.external("kafka_lag", "group=shop,topic=orders")
    leader, first = Broker(mechanism), Broker(mechanism)
    async with serving(leader), serving(first) as address:
        partitions = [(0, number, 1, [1], [1]) for number in (0, 1)]
        brokers = [(1, "127.0.0.1", leader.port, None), (2, "10.1.2.3", 9092, None)]
        first.answers[kafka_broker.METADATA] = (0, brokers, "c", 1, [(0, "orders", False, partitions)])
        settings = {"bootstrap_servers": [address], "request_timeout": "60s", **login}
        found = await answer(Kafka, settings, query)
        assert isinstance(found, AdapterError) == refused
        if isinstance(found, AdapterError):
            assert "or write it into trusted_hosts, as one of: names, " in found.message
            assert not leader.asked
        trusting = await answer(Kafka, {**settings, "trusted_hosts": ["127.0.0.1"]}, query)
    assert not isinstance(trusting, AdapterError), trusting


@pytest.mark.parametrize(
    ("host", "port", "trusted"),
    [
        ("redis-0", 6379, True),
        ("REDIS-0.", 6379, True),
        ("redis-0", 6380, False),
        ("a.redis.svc", 1, True),
        ("redis.svc", 1, False),
        ("aredis.svc", 1, False),
        ("a.redis.svc.evil.example", 1, False),
        ("one.example", 1, True),
        ("10.1.2.3", 1, True),
        ("10.2.2.3", 1, False),
        ("10.1.2.3.example", 1, False),
        ("0x0a010203", 1, False),
        ("fd00::7", 1, True),
        ("fe00::7", 1, False),
    ],
)
def test_which_hosts_are_trusted(host: str, port: int, trusted: bool) -> None:
    hosts = ["*.redis.svc", "one.example", "10.1.0.0/16", "fd00::/8"]
    trust = Trust([("redis-0", 6379)], hosts, verified=False)
    if trusted:
        trust.check("Redis", host, port)
    else:
        with pytest.raises(AdapterError, match="gets no credentials"):
            trust.check("Redis", host, port)


@pytest.mark.parametrize("host", ["", "*", "a b", "10.1.2.3/16", "http://h", "h:6379", "a.*.b"])
def test_what_is_no_host_is_refused(host: str) -> None:
    assert "trusted_hosts: " in trusted_hosts_error(["fine", host])
    for adapter, settings in ((Redis, {"url": "redis://h"}), (Kafka, {"bootstrap_servers": ["h"]})):
        with pytest.raises(msgspec.ValidationError, match="trusted_hosts"):
            msgspec.convert({**settings, "trusted_hosts": [host]}, adapter.Settings)
