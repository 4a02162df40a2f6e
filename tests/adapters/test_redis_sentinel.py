"""The master behind a real Redis Sentinel, with a real failover."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.redis_lab import Server, commands, masters, needs_redis, started

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample
from hpad.lab.servers import ports
from hpad_adapters.redis import Redis
from hpad_adapters.redis_servers import clients

PASSWORD, SENTINEL_PASSWORD = "s3cr3t", "s3nt1nel"
JOBS = testing.external("redis_list_length", "key=jobs")
pytestmark = [needs_redis, pytest.mark.redis, pytest.mark.usefixtures("patient_redis")]


class Watched:
    """A master with a replica, and the sentinel that watches them."""

    def __init__(self, folder: Path) -> None:
        master, replica, sentinel = ports.free(3)
        both = {"requirepass": PASSWORD, "masterauth": PASSWORD, "repl-diskless-sync-delay": 0}
        self.master = Server(folder / "master", master, both)
        self.replica = Server(folder / "replica", replica, {**both, "replicaof": f"127.0.0.1 {master}"})
        # Sentinel looks for replicas every ten seconds, so the replica is there before the sentinel starts.
        self.replica.until("master_link_status:up", "INFO", "replication")
        options = {
            "requirepass": SENTINEL_PASSWORD,
            "sentinel monitor": f"main 127.0.0.1 {master} 1",
            "sentinel auth-pass": f"main {PASSWORD}",
            # A master that stands still on a busy machine is not down.
            "sentinel down-after-milliseconds": "main 600000",
            "sentinel failover-timeout": "main 2000",
        }
        self.sentinel = Server(folder / "sentinel", sentinel, options, sentinel=True)
        self.servers = (self.master, self.replica, self.sentinel)

    def settings(self, **options: Any) -> dict[str, Any]:
        nodes = [f"127.0.0.1:{self.sentinel.port}"]
        return {
            "sentinel": {"master": "main", "nodes": nodes, "password": SENTINEL_PASSWORD, **options},
            "password": PASSWORD,
            "trusted_hosts": ["127.0.0.1"],
        }


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    made = Watched(tmp_path_factory.mktemp("sentinel"))
    with started(*made.servers):
        made.master.cli("RPUSH", "jobs", *"abcdefgh")
        yield made


async def ask(settings: dict[str, Any], *asked: Any) -> list[Answer]:
    async with testing.context("redis") as context:
        try:
            return await Redis(msgspec.convert(settings, Redis.Settings), context).answer(asked)
        except AdapterError as error:
            return [error] * len(asked)


async def until(settings: dict[str, Any], value: int) -> None:
    """Asks until the answer has that value."""
    async with asyncio.timeout(240):
        while True:
            (answer,) = await ask(settings, JOBS)
            if isinstance(answer, ExternalSample) and answer.values == (value,):
                return
            await asyncio.sleep(0.1)


@asynccontextmanager
async def naming(host: bytes, port: int) -> AsyncIterator[str]:
    """Yields the address of a sentinel that takes any login and names this master."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, EOFError), contextlib.closing(writer):
            async for command in commands(reader):
                writer.write(b"+OK\r\n" if command.startswith(b"AUTH") else masters(host, port))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def message(answer: Answer) -> str:
    assert isinstance(answer, AdapterError), answer
    assert answer.blame == "source"
    assert not {PASSWORD, SENTINEL_PASSWORD} & set(answer.message.split())
    return answer.message


async def test_the_sentinel_names_the_master(watched: Watched) -> None:
    gone = testing.external("redis_stream_length", "key=gone")
    found, error = await ask(watched.settings(), JOBS, gone)
    assert isinstance(found, ExternalSample)
    assert found.values == (8000,)
    assert isinstance(error, AdapterError)
    assert 'Redis master "main": there is no stream' in error.message


async def test_the_adapter_keeps_the_contract(watched: Watched) -> None:
    async with testing.context("redis") as context:
        adapter = Redis(msgspec.convert(watched.settings(), Redis.Settings), context)
        queries = [JOBS, testing.external("redis_stream_length", "key=gone"), testing.external("redis_list_length")]
        answers = await testing.check_adapter(adapter, queries)
    assert [isinstance(answer, ExternalSample) for answer in answers] == [True, False, False]


async def test_each_fault_has_its_own_error(watched: Watched) -> None:
    (unknown,) = await ask(watched.settings(master="other"), JOBS)
    assert "knows no master 'other'" in message(unknown)
    (wrong,) = await ask(watched.settings(password="wrong"), JOBS)
    assert "Redis Sentinel 127.0.0.1" in message(wrong)
    assert "WRONGPASS" in message(wrong)
    (denied,) = await ask({**watched.settings(), "password": "wrong"}, JOBS)
    assert "WRONGPASS" in message(denied)
    assert "Sentinel" not in message(denied)
    (plain,) = await ask(watched.settings(nodes=[f"127.0.0.1:{watched.master.port}"], password=PASSWORD), JOBS)
    assert "refuses: ERR unknown command" in message(plain)


async def test_the_next_sentinel_is_asked_if_one_is_down_or_hangs(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "SENTINEL_SECONDS", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # accepts nothing: the kernel completes connections
        nodes = [
            f"127.0.0.1:{ports.free(1)[0]}",
            f"127.0.0.1:{hanging.getsockname()[1]}",
            f"127.0.0.1:{watched.sentinel.port}",
        ]
        (answer,) = await ask(watched.settings(nodes=nodes), JOBS)
        assert isinstance(answer, ExternalSample)
        (neither,) = await ask(watched.settings(nodes=nodes[:2]), JOBS)
    assert "refused the connection" in message(neither)
    assert "did not answer within 4s" in message(neither)


async def test_a_replica_in_place_of_the_master_is_an_error(watched: Watched) -> None:
    """A sentinel that knows of a failover late names the former master."""
    async with naming(b"127.0.0.1", watched.replica.port) as late:
        (answer,) = await ask(watched.settings(nodes=[late]), JOBS)
    assert "is a slave, not the master: a failover is under way" in message(answer)


@pytest.mark.parametrize("host", [b"", b"a b", b"x" * 300, b"\xff"])
async def test_an_address_that_is_none_is_refused(watched: Watched, host: bytes) -> None:
    async with naming(host, 6379) as odd:
        (answer,) = await ask(watched.settings(nodes=[odd]), JOBS)
    assert "names an address that is none" in message(answer)


async def test_a_user_with_the_documented_rights_suffices(watched: Watched) -> None:
    """With +role the role is verified, without it is not; the sentinel's users are others."""
    watched.master.cli("ACL", "SETUSER", "reader", "on", f">{PASSWORD}", "~*", "+select", "+type", "+llen")
    (unverified,) = await ask({**watched.settings(), "username": "reader"}, JOBS)
    watched.master.cli("ACL", "SETUSER", "reader", "+role")
    (verified,) = await ask({**watched.settings(), "username": "reader"}, JOBS)
    (denied,) = await ask({**watched.settings(username="reader")}, JOBS)
    assert isinstance(unverified, ExternalSample)
    assert isinstance(verified, ExternalSample)
    assert "Redis Sentinel" in message(denied)


async def test_a_failover_is_followed(tmp_path: Path) -> None:
    made = Watched(tmp_path)
    with started(*made.servers):
        made.master.cli("RPUSH", "jobs", *"abcde")
        await until(made.settings(), 5000)
        made.replica.until("5", "LLEN", "jobs")
        made.sentinel.cli("SENTINEL", "SET", "main", "down-after-milliseconds", "500")
        made.master.stop()
        await until(made.settings(), 5000)
        made.replica.cli("RPUSH", "jobs", "f")
        await until(made.settings(), 6000)
