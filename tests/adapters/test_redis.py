"""Lists and streams of a real Redis."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from support.redis_lab import encoded

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample
from hpad.lab.servers import ports
from hpad_adapters.redis import Redis

PROGRAM = shutil.which("redis-server")
needs_redis = pytest.mark.skipif(
    PROGRAM is None, reason="redis-server is missing: install Debian's package redis-server"
)
PASSWORD = "s3cr3t"


class Server:
    """A redis-server of these tests: `port` for plain text, `tls_port` for TLS."""

    def __init__(self, folder: Path) -> None:
        assert PROGRAM is not None
        self.port, self.tls_port = ports.free(2)
        self.ca = folder / "ca.pem"
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca)
        issued = authority.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
        issued.private_key_pem.write_to_path(folder / "key.pem")
        options = {
            "bind": "127.0.0.1",
            "port": self.port,
            "tls-port": self.tls_port,
            "tls-ca-cert-file": self.ca,
            "tls-cert-file": folder / "cert.pem",
            "tls-key-file": folder / "key.pem",
            "tls-auth-clients": "no",
            "requirepass": PASSWORD,
            "dir": folder,
            "save": "''",
        }
        (folder / "redis.conf").write_text("".join(f"{name} {value}\n" for name, value in options.items()))
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen([PROGRAM, folder / "redis.conf"], stdout=log, stderr=log)

    def fill(self) -> None:
        """Waits for the server and writes the data of the tests."""
        deadline = time.monotonic() + 120
        while True:
            try:
                self._send()
                return
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def stop(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _send(self) -> None:
        commands: list[tuple[str, ...]] = [("AUTH", PASSWORD)]
        commands += [("RPUSH", "jobs", f"job {number}") for number in range(80)]
        commands += [("RPUSH", "jobs:mail", "one"), ("SET", "text", "x")]
        commands += [("SADD", "waiting", "a", "b"), ("ZADD", "unacked", "1", "a", "2", "b", "3", "c")]
        commands += [("HSET", "tasks", "a", "1")]
        commands += [("XADD", "orders", "*", "number", str(number)) for number in range(7)]
        commands += [("XGROUP", "CREATE", "orders", "shop", "0")]
        commands += [("XREADGROUP", "GROUP", "shop", "me", "COUNT", "3", "STREAMS", "orders", ">")]
        commands += [("XGROUP", "CREATE", "orders", "idle", "0")]
        # Redis cannot count the entries after the third one once the fourth one is deleted.
        commands += [("XADD", "holes", f"{number}-0", "number", "0") for number in range(1, 7)]
        commands += [("XDEL", "holes", "4-0"), ("XGROUP", "CREATE", "holes", "late", "2-0")]
        # The group got the first of five entries and the last one, before which the others were trimmed.
        commands += [("XADD", "trimmed", f"{number}-0", "number", "0") for number in range(1, 6)]
        commands += [("XGROUP", "CREATE", "trimmed", "late", "0"), ("XGROUP", "CREATE", "trimmed", "idle", "0")]
        read = ("XREADGROUP", "GROUP", "late", "me", "COUNT", "1", "STREAMS", "trimmed", ">")
        commands += [read, ("XTRIM", "trimmed", "MAXLEN", "1"), read]
        commands += [("SELECT", "1"), ("RPUSH", "jobs", "elsewhere")]
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(b"".join(map(encoded, (*commands, ("QUIT",)))))
            received = b""
            while chunk := connection.recv(1 << 16):
                received += chunk
        assert b"\r\n-" not in b"\r\n" + received


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("redis"))
    made.fill()
    yield made
    made.stop()


async def ask(url: str, *asked: Any, **options: Any) -> list[Answer]:
    """Returns the answers; an error of the whole batch is that of each query."""
    settings = msgspec.convert({"url": url, "password": PASSWORD, **options}, Redis.Settings)
    async with testing.context("redis") as context:
        try:
            return await Redis(settings, context).answer(asked)
        except AdapterError as error:
            return [error] * len(asked)


def message(answer: Answer) -> str:
    assert isinstance(answer, AdapterError)
    assert PASSWORD not in answer.message
    return answer.message


def values(answers: list[Answer]) -> list[tuple[int, ...] | None]:
    return [answer.values if isinstance(answer, ExternalSample) else None for answer in answers]


@needs_redis
@pytest.mark.redis
class TestServer:
    async def test_lengths_and_pending_entries(self, server: Server) -> None:
        answers = await ask(
            f"redis://127.0.0.1:{server.port}",
            testing.external("redis_list_length", "key=jobs"),
            testing.external("redis_stream_length", "key=orders"),
            testing.external("redis_stream_pending", "key=orders,group=shop"),
            testing.external("redis_stream_pending", "key=orders,group=idle"),
            testing.external("redis_list_length", "key=gone"),
        )
        assert values(answers) == [(80_000,), (7000,), (3000,), (0,), (0,)]

    async def test_sets_and_hashes(self, server: Server) -> None:
        answers = await ask(
            f"redis://127.0.0.1:{server.port}",
            testing.external("redis_set_size", "key=waiting"),
            testing.external("redis_sorted_set_size", "key=unacked"),
            testing.external("redis_hash_size", "key=tasks"),
            testing.external("redis_hash_size", "key=gone"),
            testing.external("redis_hash_size", "key=jobs"),
        )
        assert values(answers) == [(2000,), (3000,), (1000,), (0,), None]

    async def test_the_lag_of_a_group(self, server: Server) -> None:
        """Entries that no consumer of the group was given yet: 3 of 7 were, of `idle` none."""
        answers = await ask(
            f"redis://127.0.0.1:{server.port}",
            testing.external("redis_stream_lag", "key=orders,group=shop"),
            testing.external("redis_stream_lag", "key=orders,group=idle"),
            testing.external("redis_stream_lag", "key=orders,group=nobody"),
            testing.external("redis_stream_lag", "key=holes,group=late"),
        )
        assert values(answers) == [(4000,), (7000,), None, None]
        assert "there is no consumer group" in message(answers[2])
        assert "is unknown to Redis" in message(answers[3])
        assert "take redis_stream_length" in message(answers[3])
        assert all(isinstance(answer, AdapterError) and answer.alive for answer in answers[2:])

    async def test_the_lag_is_never_more_than_the_entries(self, server: Server) -> None:
        """Redis 7 says 3 of a stream with one entry that the group has got."""
        answers = await ask(
            f"redis://127.0.0.1:{server.port}",
            testing.external("redis_stream_lag", "key=trimmed,group=late"),
            testing.external("redis_stream_lag", "key=trimmed,group=idle"),
            testing.external("redis_stream_pending", "key=trimmed,group=late"),
        )
        assert values(answers)[0] in [(1000,), (0,)]  # 0 in later versions
        assert values(answers)[1:] == [(1000,), (2000,)]

    async def test_all_entries_may_wait_for_a_group_that_does_not_exist(self, server: Server) -> None:
        """As at zero replicas, when the first consumer makes the group."""
        answers = await ask(
            f"redis://127.0.0.1:{server.port}",
            testing.external("redis_stream_lag", "key=orders,group=nobody"),
            testing.external("redis_stream_pending", "key=orders,group=nobody"),
            testing.external("redis_stream_lag", "key=orders,group=shop"),
            testing.external("redis_stream_pending", "key=orders,group=shop"),
            testing.external("redis_stream_lag", "key=gone,group=nobody"),
            missing_group="all",
        )
        assert values(answers) == [(7000,), (0,), (4000,), (3000,), None]

    async def test_databases(self, server: Server) -> None:
        answers = await ask(f"redis://127.0.0.1:{server.port}/1", testing.external("redis_list_length", "key=jobs"))
        assert values(answers) == [(1000,)]

    async def test_keys_that_labels_cannot_hold(self, server: Server) -> None:
        asked = [testing.external("redis_list_length", f"key={key}") for key in ("mail", "jobs")]
        url = f"redis://127.0.0.1:{server.port}"
        answers = await ask(url, *asked, keys={"mail": "jobs:mail"})
        assert values(answers) == [(1000,), (80_000,)]
        answers = await ask(url, *asked, keys={"mail": "jobs:mail"}, only_keys=True)
        assert values(answers) == [(1000,), None]

    async def test_each_fault_has_its_own_error(self, server: Server) -> None:
        gone, group, text, stream = await ask(
            f"redis://127.0.0.1:{server.port}",
            testing.external("redis_stream_length", "key=gone"),
            testing.external("redis_stream_pending", "key=orders,group=nobody"),
            testing.external("redis_list_length", "key=text"),
            testing.external("redis_list_length", "key=orders"),
        )
        assert "there is no stream" in message(gone)
        assert "there is no consumer group" in message(group)
        assert message(text).endswith("is a string, not a list")
        assert message(stream).endswith("is a stream, not a list: take redis_stream_length")

    async def test_missing_stream_zero_makes_it_zero(self, server: Server) -> None:
        asked = testing.external("redis_stream_pending", "key=gone,group=shop")
        answers = await ask(f"redis://127.0.0.1:{server.port}", asked, missing_stream="zero")
        assert values(answers) == [(0,)]

    @pytest.mark.parametrize("kind", ["list_length", "set_size", "sorted_set_size", "hash_size"])
    async def test_missing_list_error_makes_it_an_error(self, server: Server, kind: str) -> None:
        asked, url = testing.external(f"redis_{kind}", "key=gone"), f"redis://127.0.0.1:{server.port}"
        assert values(await ask(url, asked)) == [(0,)]
        (error,) = await ask(url, asked, missing_list="error")
        assert "there is no key for" in message(error)

    async def test_passwords(self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        url, asked = f"redis://127.0.0.1:{server.port}", testing.external("redis_list_length", "key=jobs")
        (tmp_path / "password").write_text(f"{PASSWORD}\n")
        monkeypatch.setenv("REDIS_PASSWORD", PASSWORD)
        for good in ({"password_file": str(tmp_path / "password")}, {"password_env": "REDIS_PASSWORD"}):
            assert values(await ask(url, asked, **{"password": "", **good})) == [(80_000,)]
        assert values(await ask(url, asked, username="default")) == [(80_000,)]
        (wrong,) = await ask(url, asked, password="wrong")
        assert "WRONGPASS" in message(wrong)
        (none,) = await ask(url, asked, password="")
        assert "NOAUTH" in message(none)
        (absent,) = await ask(url, asked, password="", password_file=str(tmp_path / "gone"))
        assert str(tmp_path / "gone") in message(absent)
        (unset,) = await ask(url, asked, password="", password_env="UNSET_HERE")
        assert "UNSET_HERE" in message(unset)

    async def test_tls(self, server: Server) -> None:
        url, asked = f"rediss://127.0.0.1:{server.tls_port}", testing.external("redis_list_length", "key=jobs")
        assert values(await ask(url, asked, ca=str(server.ca))) == [(80_000,)]
        assert values(await ask(url, asked, insecure=True)) == [(80_000,)]
        (untrusted,) = await ask(url, asked)
        assert "not trusted" in message(untrusted)

    async def test_the_adapter_keeps_the_contract(self, server: Server) -> None:
        settings = Redis.Settings(url=f"redis://127.0.0.1:{server.port}", password=PASSWORD)
        queries = [
            testing.external("redis_list_length", "key=jobs"),
            testing.external("redis_stream_length", "key=orders"),
            testing.external("redis_stream_pending", "key=orders,group=shop"),
            testing.external("redis_stream_length", "key=gone"),
            testing.external("redis_list_length"),
            testing.external("unknown", "key=jobs"),
        ]
        async with testing.context("redis") as context:
            answers = await testing.check_adapter(Redis(settings, context), queries)
        assert [isinstance(answer, ExternalSample) for answer in answers] == [True] * 3 + [False] * 3


@pytest.mark.parametrize(
    ("name", "selector"),
    [
        ("redis_list_length", None),
        ("redis_list_length", "key in (a,b)"),
        ("redis_list_length", "key=a,group=b"),
        ("redis_stream_pending", "key=a"),
        ("redis_list_length", "key="),
        ("redis_stream_pending", "key=a,group="),
        ("redis_set_length", "key=a"),
        ("redis_stream_lag", "key=a"),
    ],
)
async def test_an_invalid_query_needs_no_server(name: str, selector: str | None) -> None:
    (answer,) = await ask("redis://127.0.0.1:1", testing.external(name, selector))
    assert isinstance(answer, AdapterError)
    assert answer.blame == "spec"


async def test_a_refused_connection_is_an_error() -> None:
    (answer,) = await ask(f"redis://127.0.0.1:{ports.free(1)[0]}", testing.external("redis_list_length", "key=a"))
    assert "refused the connection" in message(answer)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"url": "redis://:s3cr3t@h"}, "contains credentials"),
        ({"url": "http://h"}, "is not of the form"),
        ({"url": "REDISS://h"}, "is not of the form"),
        ({"url": " rediss://h"}, "is not of the form"),
        ({"url": "redis://h/x"}, "not the number of a database"),
        ({"url": "redis://:s3cr3t@h:port"}, "its port is not a number"),
        ({"url": "redis://h?db=2"}, "url: ends in a query or fragment: leave that out"),
        ({"url": f"rediss://h/1?password={PASSWORD}&ssl_cert_reqs=none"}, "url: ends in a query or fragment"),
        ({"url": "redis://h/0#1"}, "url: ends in a query or fragment"),
        ({"url": "redis://h:0"}, "is not of the form"),
        ({"url": "redis://h", "password": "a", "password_env": "b"}, "give one of"),
        ({"url": "redis://h", "ca": "ca.pem"}, "ca: has an effect with rediss:// or tls: true only"),
        ({"sentinel": {"master": "m", "nodes": ["h"]}, "insecure": True}, "insecure: has an effect with rediss://"),
        ({"url": "redis://h", "username": "hpad"}, 'password: is missing for user "hpad"'),
        ({"sentinel": {"master": "m", "nodes": ["h"], "username": "u"}}, 'password: is missing for user "u"'),
        ({"url": "redis://h", "key": "key.pem"}, "there is a key, but no cert for it"),
        ({}, "url: give one of url .* sentinel and cluster"),
        ({"url": "redis://h", "cluster": {"nodes": ["h"]}}, "cluster: give one of url"),
        ({"cluster": {"nodes": []}}, "nodes: is empty"),
        ({"cluster": {"nodes": ["redis://h:1"]}}, "nodes: 'redis://h:1' is not of the form"),
        ({"cluster": {"nodes": ["h:70000"]}}, "is not of the form"),
        ({"cluster": {"nodes": [f"u:{PASSWORD}@h:1"]}}, "nodes: contains credentials: write them as settings"),
        ({"sentinel": {"master": "", "nodes": ["h:0"]}}, "(?s)master: is empty.*nodes: 'h:0' is not of the form"),
        ({"sentinel": {"master": "m", "nodes": ["h"], "database": -1}}, "database: -1 is not"),
        ({"sentinel": {"master": "m", "nodes": ["h"], "password": "a", "password_env": "b"}}, "give one of"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=error) as refused:
        msgspec.convert(settings, Redis.Settings)
    assert PASSWORD not in str(refused.value)
