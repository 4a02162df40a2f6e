"""A real Redis Cluster of three nodes: keys of several nodes in one answer, redirections, and nodes that fail."""

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from redis.crc import key_slot
from support import http_stub
from support.redis_lab import Server, cluster, commands, needs_redis

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample, Query
from hpad.lab.servers import ports
from hpad_adapters.redis import Redis
from hpad_adapters.redis_servers import clients

pytestmark = pytest.mark.usefixtures("patient_redis")
KEYS = ("jobs:a", "jobs:b", "jobs:c", "jobs:{a}:high", "{}jobs", "jobs:ü")


def slot(key: str) -> int:
    return key_slot(key.encode())


def of(key: str) -> Query:
    return testing.external("redis_list_length", f"key=k{KEYS.index(key)}")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        for count, key in enumerate(KEYS, 1):
            made[0].cli("-c", "RPUSH", key, *map(str, range(count)))
        yield made


@asynccontextmanager
async def adapter(*named: int | str, tls: bool = False, **options: Any) -> AsyncIterator[Redis]:
    """Yields an adapter for a cluster of which these nodes or ports are configured."""
    addresses = [f"127.0.0.1:{node}" if isinstance(node, int) else node for node in named]
    keys = {f"k{index}": key for index, key in enumerate(KEYS)}
    async with testing.context("redis") as context:
        fields = {"cluster": {"nodes": addresses, "tls": tls}, "keys": keys, **options}
        settings = msgspec.convert(fields, Redis.Settings)
        yield Redis(settings, context)


def values(answers: list[Answer]) -> list[Any]:
    return [answer.values[0] if isinstance(answer, ExternalSample) else answer for answer in answers]


@needs_redis
@pytest.mark.redis
class TestCluster:
    async def test_keys_of_all_nodes_are_in_one_answer(self, nodes: list[Server]) -> None:
        owners = {nodes[0].cli("CLUSTER", "KEYSLOT", key) for key in KEYS}
        assert owners == {str(slot(key)) for key in KEYS}
        counted = [int(node.cli("DBSIZE")) for node in nodes]
        assert all(counted)  # each node has a key, so that the answer needs all of them
        async with adapter(nodes[1].port) as redis:
            assert values(await redis.answer([of(key) for key in KEYS])) == [1000, 2000, 3000, 4000, 5000, 6000]

    async def test_the_adapter_keeps_the_contract(self, nodes: list[Server]) -> None:
        queries = [of("jobs:a"), of("jobs:b"), testing.external("redis_stream_length", "key=gone")]
        async with adapter(nodes[0].port) as redis:
            answers = await testing.check_adapter(redis, queries)
        assert [isinstance(answer, ExternalSample) for answer in answers] == [True, True, False]

    async def test_a_user_with_the_documented_rights_suffices(self, nodes: list[Server]) -> None:
        for node in nodes:
            node.cli("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+type", "+llen", "+cluster|slots", "+asking")
        user, trusted = {"username": "reader", "password": "pw"}, {"trusted_hosts": ["127.0.0.0/8"]}
        async with adapter(nodes[0].port, **user, **trusted) as redis:
            assert values(await redis.answer([of("jobs:a"), of("jobs:b")])) == [1000, 2000]
        async with adapter(*(node.port for node in nodes), **user) as redis:
            assert values(await redis.answer([of("jobs:a"), of("jobs:b")])) == [1000, 2000]
        async with adapter(nodes[0].port, **user) as redis:
            answers = await redis.answer([of("jobs:a"), of("jobs:b")])
        [refused] = [answer.message for answer in answers if isinstance(answer, AdapterError)]
        assert "gets no credentials" in refused
        async with adapter(nodes[0].port, username="reader", password="wrong") as redis:
            with pytest.raises(AdapterError, match="WRONGPASS"):
                await redis.answer([of("jobs:a")])

    async def test_a_slot_that_moves_is_followed(self, nodes: list[Server]) -> None:
        """ASK while a slot is on its way, for keys that arrived already; MOVED afterwards."""
        number, key = str(slot("jobs:c")), "jobs:c"
        names = [node.cli("CLUSTER", "MYID") for node in nodes]
        counts = [node.cli("CLUSTER", "COUNTKEYSINSLOT", number) for node in nodes]
        source = counts.index("1")
        target = (source + 1) % 3
        async with adapter(nodes[0].port) as redis:
            before = await redis.answer([of(key)])
            nodes[target].cli("CLUSTER", "SETSLOT", number, "IMPORTING", names[source])
            nodes[source].cli("CLUSTER", "SETSLOT", number, "MIGRATING", names[target])
            nodes[source].cli("MIGRATE", "127.0.0.1", str(nodes[target].port), key, "0", "5000")
            during = await redis.answer([of(key), of("jobs:a")])
            for node in (nodes[target], nodes[source], nodes[3 - source - target]):
                node.cli("CLUSTER", "SETSLOT", number, "NODE", names[target])
            moved = await redis.answer([of(key), of("jobs:a")])
            after = await redis.answer([of(key), of("jobs:a")])
        assert values(before) == [3000]
        assert values(during) == values(moved) == values(after) == [3000, 1000]

    async def test_a_node_that_hangs_takes_only_its_own_keys(
        self, nodes: list[Server], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(clients, "NODE_SECONDS", 5.0)
        async with adapter(nodes[0].port) as redis:
            await redis.answer([of("jobs:a")])
            nodes[2].pause()
            try:
                answers = values(await redis.answer([of(key) for key in KEYS]))
            finally:
                nodes[2].resume()
            healed = values(await redis.answer([of(key) for key in KEYS]))
        failed = [answer for answer in answers if isinstance(answer, AdapterError)]
        assert 0 < len(failed) < len(KEYS)
        assert {answer.message for answer in failed} == {f"Redis 127.0.0.1:{nodes[2].port} did not answer within 5s"}
        assert [value for value in answers if value not in failed] == [
            value for value, answer in zip(healed, answers, strict=True) if answer not in failed
        ]
        assert healed == [1000, 2000, 3000, 4000, 5000, 6000]

    async def test_another_configured_node_is_asked_if_one_is_down(self, nodes: list[Server]) -> None:
        (down,) = ports.free(1)
        async with adapter(down, nodes[0].port) as redis:
            assert values(await redis.answer([of("jobs:a")])) == [1000]
        async with adapter(down) as redis:
            with pytest.raises(AdapterError, match="refused the connection"):
                await redis.answer([of("jobs:a")])


@pytest.mark.parametrize(
    ("key", "number"),
    [
        # The check value of the specification (0x31C3), and its rules for braces.
        ("123456789", 12739),
        ("{123456789}.following", 12739),
        ("foo{123456789}{zap}", 12739),
        ("foo{{123456789}}zap", slot("{123456789")),
        ("foo{}{bar}", 8363),
    ],
)
def test_slots_follow_the_specification(key: str, number: int) -> None:
    assert slot(key) == number


@asynccontextmanager
async def scripted(*replies: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that replies to CLUSTER SLOTS, TYPE and LLEN, by its last reply to the rest of them; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, EOFError), contextlib.closing(writer):
            async for command in commands(reader):
                kind = (b"CLUSTER", b"TYPE", b"LLEN").index(command.split()[0])
                writer.write(replies[min(kind, len(replies) - 1)].replace(b"PORT", b"%d" % port))
                if len(replies) == 1:
                    break

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield port


ALL = b"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$0\r\n\r\n:PORT\r\n$1\r\nx\r\n"
"""All slots are at the node that was asked, whose host is not named."""


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"-ERR This instance has cluster support disabled\r\n", "cluster support disabled"),
        (b"*0\r\n", "knows no slots"),
        (b"+OK\r\n", "knows no slots"),
        (b"*1\r\n*3\r\n:0\r\n:1000000000000\r\n*2\r\n$1\r\nh\r\n:1\r\n", "something other than slots"),
        (b"*1\r\n*3\r\n:-1\r\n:5\r\n*2\r\n$1\r\nh\r\n:1\r\n", "something other than slots"),
        (b"*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\n?\r\n:1\r\n", "something other than slots"),
        (b"*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\nh\r\n:65536\r\n", "something other than slots"),
        (b"*1\r\n*2\r\n:0\r\n:5\r\n", "something other than slots"),
        (b"*2\r\n" + b"*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\nh\r\n:1\r\n" * 2, "names slots several times"),
        (b"*1000000000\r\n", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n", "did not answer in RESP2"),
    ],
)
async def test_slots_that_are_none_are_refused(reply: bytes, error: str) -> None:
    """A reply of 60 bytes may claim any number of slots, of which redis-py would store each."""
    async with scripted(reply) as port, adapter(port) as redis:
        with pytest.raises(AdapterError, match=error):
            await redis.answer([of("jobs:a")])


async def test_redirections_without_end_are_an_error() -> None:
    moved = b"-MOVED 1 127.0.0.1:PORT\r\n"
    async with scripted(ALL, moved) as port, adapter(port) as redis:
        (answer,) = await redis.answer([of("jobs:a")])
    assert isinstance(answer, AdapterError)
    assert "redirected too often" in answer.message


@pytest.mark.parametrize("target", [b"a b:1", b"h:65536", b"h", b"?:1", b":1"])
async def test_a_redirection_to_no_address_is_an_error_of_its_key(target: bytes) -> None:
    async with scripted(ALL, b"-MOVED 1 %b\r\n" % target) as port, adapter(port) as redis:
        (answer,) = await redis.answer([of("jobs:a")])
    assert isinstance(answer, AdapterError)
    assert f"{port}" in answer.message or "names an address that is none" in answer.message


async def test_a_slot_without_a_node_is_an_error_of_its_key_alone() -> None:
    served = slot("jobs:a")
    some = b"*1\r\n*3\r\n:%d\r\n:%d\r\n*2\r\n$0\r\n\r\n:PORT\r\n" % (served, served)
    async with scripted(some, b"+list\r\n", b":5\r\n") as port, adapter(port) as redis:
        found, none = await redis.answer([of("jobs:a"), of("jobs:b")])
    assert values([found]) == [5000]
    assert isinstance(none, AdapterError)
    assert "no node serves the key" in none.message


async def test_tls_of_all_nodes(tmp_path: Path) -> None:
    authority, ca = trustme.CA(), str(tmp_path / "ca.pem")
    authority.cert_pem.write_to_path(ca)
    expired = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    authority.issue_cert("127.0.0.1", not_after=past).configure_cert(expired)
    async with scripted(ALL, b"+list\r\n", b":5\r\n", tls=http_stub.server_tls(authority)) as port:
        async with adapter(port, tls=True, ca=ca) as redis:
            assert values(await redis.answer([of("jobs:a")])) == [5000]
        async with adapter(port, tls=True) as redis:
            with pytest.raises(AdapterError, match="not trusted"):
                await redis.answer([of("jobs:a")])
    async with scripted(ALL, tls=expired) as port, adapter(port, tls=True, ca=ca) as redis:
        with pytest.raises(AdapterError, match="expired"):
            await redis.answer([of("jobs:a")])


async def test_a_node_that_hangs_until_the_call_ends_is_asked_last() -> None:
    """One that had only the time that a failed node left is asked first in the next call."""
    heard: asyncio.Queue[int] = asyncio.Queue()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await reader.read(1)
            heard.put_nowait(writer.get_extra_info("sockname")[1])
            await reader.read()

    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(60):
        nodes = [await stack.enter_async_context(await asyncio.start_server(hang, "127.0.0.1", 0)) for _ in range(2)]
        order = [node.sockets[0].getsockname()[1] for node in nodes]
        made = await stack.enter_async_context(adapter(*ports.free(1), *order))
        for port in [order[0], *order]:
            call = asyncio.ensure_future(made.answer([testing.external("redis_list_length", "key=a")]))
            assert await heard.get() == port
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
