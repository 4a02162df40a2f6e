"""Queries of a real PostgreSQL, and of servers that are none."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, ExternalSample, parse_milli
from hpad.api.selector import Operator, Requirement, Selector

pytest.importorskip("asyncpg", reason="needs the extra postgresql")

from support import postgresql_server
from support.postgresql_server import DATABASE, PASSWORD, READER, Server

from hpad_adapters.postgresql import PostgreSQL, connections

WAITING = "SELECT count(*) FROM jobs WHERE queue = $1 AND state = 'new'"
OWN = "FROM pg_stat_activity WHERE application_name = 'hpad'"
ONE = testing.external("depth")
READY = b"Z\x00\x00\x00\x05I"
WELCOME = (
    b"R\x00\x00\x00\x08\x00\x00\x00\x00S\x00\x00\x00\x18server_version\x0016.0\x00"
    b"S\x00\x00\x00\x19client_encoding\x00UTF8\x00" + READY
)
"""What a server says once a client has logged in; it may also say at any time that it is ready."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if postgresql_server.programs() is None:
        pytest.skip(postgresql_server.ABSENT)
    made = Server()
    try:
        made.start()
        yield made
    finally:
        made.stop()


def settings(at: int, query: str = "SELECT 1", **options: Any) -> PostgreSQL.Settings:
    metric = {"query": query, "params": options.pop("params", [])}
    chosen = {
        "host": "127.0.0.1",
        "port": at,
        "database": DATABASE,
        "username": READER,
        "password": PASSWORD,
        "sslmode": "disable",
        "metrics": {"depth": metric},
        "query_timeout": "60s",
        "connect_timeout": "60s",
        **options,
    }
    return msgspec.convert(chosen, PostgreSQL.Settings)


@contextlib.asynccontextmanager
async def opened(at: int, query: str = "SELECT 1", **options: Any) -> AsyncIterator[PostgreSQL]:
    async with testing.context("db") as context:
        adapter = PostgreSQL(settings(at, query, **options), context)
        yield adapter
        await adapter.aclose()


async def ask(at: int, query: str = "SELECT 1", selector: str | None = None, **options: Any) -> Answer:
    """Returns the answer to one query; an error of the whole batch is that of the query."""
    async with opened(at, query, **options) as adapter:
        try:
            (answer,) = await adapter.answer([testing.external("depth", selector)])
        except AdapterError as error:
            answer = error
    if isinstance(answer, AdapterError):
        assert PASSWORD not in answer.message
    return answer


def message(answer: Answer) -> str:
    assert isinstance(answer, AdapterError), answer
    return answer.message


@pytest.mark.postgresql
class TestQueries:
    async def test_the_bound_of_bytes_is_one_of_each_question(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connections, "MAX_BYTES", 1 << 14)
        async with opened(server.port, connections=1) as adapter:
            for _ in range(20):
                (answer,) = await adapter.answer([ONE])
                assert isinstance(answer, ExternalSample), answer

    @pytest.mark.parametrize(
        ("query", "number"),
        [
            ("SELECT count(*) FROM jobs WHERE state = 'new'", "9"),
            ("SELECT sum(weight) FROM jobs WHERE queue = 'mail'", "14"),
            ("SELECT 0.25::float8", "250m"),
            ("SELECT 30.000000000000004::float8", "30"),
            ("SELECT 2.0004::numeric", "2001m"),
            ("SELECT -3::smallint", "-3"),
            ("WITH open AS (SELECT * FROM jobs WHERE state = 'new') SELECT count(*) FROM open; ", "9"),
            ("SELECT count(*) FROM jobs WHERE queue = 'gone'", "0"),
        ],
    )
    async def test_one_number_is_the_value(self, server: Server, query: str, number: str) -> None:
        answer = await ask(server.port, query)
        assert isinstance(answer, ExternalSample), answer
        assert answer.values == (parse_milli(number),)

    @pytest.mark.parametrize(
        ("query", "error"),
        [
            ("SELECT sum(weight) FROM jobs WHERE queue = 'gone'", "the query returns NULL"),
            ("SELECT priority FROM jobs WHERE queue = 'gone'", "the query returns no row"),
            ("SELECT priority FROM jobs", "the query returns more than one row"),
            ("SELECT 1, 2", "returns 2 columns instead of one"),
            ("SELECT 'many'", "a value of type text instead of a number"),
            ("SELECT true", "a value of type bool instead of a number"),
            ("SELECT 'NaN'::float8", "not finite"),
            ("SELECT 'Infinity'::numeric", "not finite"),
            ("SELECT 1e300::float8", "too large"),
            ("SELECT 10::numeric ^ 1000", "too large"),
            ("SELECT count(*) FROM jobs WHERE queue = $1", "has 1 parameters, but params names 0"),
            ("SELECT 1; SELECT 2", "cannot insert multiple commands"),
            ("SELEC 1", "syntax error"),
            ("SELECT n FROM gone", 'relation "gone" does not exist'),
            ("SELECT count(*) FROM secrets", "permission denied for table secrets"),
            ("SELECT 1 / 0", "division by zero"),
        ],
    )
    async def test_anything_else_is_an_error(self, server: Server, query: str, error: str) -> None:
        answer = await ask(server.port, query)
        assert error in message(answer)
        assert answer.message.startswith('metric "depth": ')
        assert isinstance(answer, AdapterError)
        assert (answer.blame, answer.alive) == ("source", True)

    @pytest.mark.parametrize(
        "query",
        [
            "SELECT nextval('counted')",
            "WITH gone AS (DELETE FROM jobs RETURNING 1) SELECT count(*) FROM gone",
            "DELETE FROM jobs RETURNING 1",
        ],
    )
    async def test_no_query_can_write(self, server: Server, query: str) -> None:
        await server.execute(f"GRANT DELETE ON jobs TO {READER}")
        answer = await ask(server.port, query)
        assert "read-only transaction" in message(answer)
        assert await server.value("SELECT count(*) FROM jobs") == 11
        assert await server.value("SELECT is_called FROM counted") is False

    async def test_the_server_ends_a_slow_query_and_the_others_are_answered(self, server: Server) -> None:
        metrics = {
            "slow": {"query": "SELECT 1 FROM pg_sleep(3600)"},
            "locked": {"query": "SELECT count(*) FROM jobs, pg_sleep(3600)"},
            "fine": {"query": "SELECT 5"},
        }
        async with opened(server.port, metrics=metrics, query_timeout="5s", connections=3) as adapter:
            slow, locked, fine = await adapter.answer([testing.external(name) for name in metrics])
            again = await adapter.answer([testing.external("fine")])
        assert message(slow) == 'metric "slow": the query has no answer within 5s'
        assert message(locked) == 'metric "locked": the query has no answer within 5s'
        assert isinstance(fine, ExternalSample)
        assert isinstance(again[0], ExternalSample)

    async def test_a_query_ends_before_the_call_that_others_share(self, server: Server) -> None:
        async with testing.context("db") as context:
            brief = msgspec.structs.replace(context, timeout=5.0)
            adapter = PostgreSQL(settings(server.port, "SELECT 1 FROM pg_sleep(3600)"), brief)
            (slow,) = await adapter.answer([ONE])
            await adapter.aclose()
        assert message(slow) == 'metric "depth": the query has no answer within 4.5s'

    async def test_a_cancelled_call_leaves_no_connection_behind(self, server: Server) -> None:
        async with opened(server.port, "SELECT 1 FROM pg_sleep(3600)") as adapter:
            call = asyncio.ensure_future(adapter.answer([ONE]))
            busy = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(3600)' AND state = 'active'"
            await until(lambda: server.value(busy))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await adapter.aclose()
            # The server notices a closed connection only when its query ends, which query_timeout limits.
            await server.value(f"SELECT count(pg_terminate_backend(pid)) {OWN}")
            await until(lambda: server.value(f"SELECT count(*) = 0 {OWN}"))

    async def test_connections_are_kept_and_limited(self, server: Server) -> None:
        metrics = {f"m{number}": {"query": f"SELECT {number}"} for number in range(12)}
        async with opened(server.port, metrics=metrics, connections=3) as adapter:
            for _ in range(2):
                answers = await adapter.answer([testing.external(name) for name in metrics])
                assert all(isinstance(answer, ExternalSample) for answer in answers)
            found = await server.value(f"SELECT count(*) {OWN}")
            assert 1 <= found <= 3
        await until(lambda: server.value(f"SELECT count(*) = 0 {OWN}"))

    async def test_a_connection_that_the_server_closed_is_replaced(self, server: Server) -> None:
        async with opened(server.port) as adapter:
            for _ in range(2):
                assert isinstance((await adapter.answer([ONE]))[0], ExternalSample)
                await server.execute(f"SELECT pg_terminate_backend(pid, 60000) {OWN}")
            # The first call may still meet the closed connection; an adapter makes one attempt.
            with contextlib.suppress(AdapterError):
                await adapter.answer([ONE])
            assert isinstance((await adapter.answer([ONE]))[0], ExternalSample)

    async def test_the_adapter_keeps_the_contract(self, server: Server) -> None:
        metrics = {
            "fine": {"query": "SELECT 5"},
            "waiting": {"query": WAITING, "params": ["queue"]},
            "broken": {"query": "SELECT 1 / 0"},
        }
        queries = [
            testing.external("fine"),
            testing.external("waiting", "queue=mail"),
            testing.external("waiting"),
            testing.external("broken"),
            testing.external("unknown"),
        ]
        async with testing.context("db") as context:
            adapter = PostgreSQL(settings(server.port, metrics=metrics), context)
            answers = await testing.check_adapter(adapter, queries)
        assert [isinstance(answer, ExternalSample) for answer in answers] == [True, True, False, False, False]


@pytest.mark.postgresql
class TestParameters:
    @pytest.mark.parametrize(
        ("query", "params", "selector", "number"),
        [
            (WAITING, ["queue"], "queue=mail", "8"),
            (WAITING, ["queue"], "queue=web", "1"),
            (f"{WAITING} AND priority = $2", ["queue", "p:integer"], "p=1,queue=mail", "4"),
            ("SELECT count(*) FROM jobs WHERE weight > $1", ["w:number"], "w=1.2", "8"),
            ("SELECT $1::float8 * 2", ["w:number"], "w=0.5", "1"),
            ("SELECT count(*) FROM jobs WHERE (state = 'new') = $1", ["new:boolean"], "new=false", "2"),
        ],
    )
    async def test_labels_are_bound_in_their_types(
        self, server: Server, query: str, params: list[str], selector: str, number: str
    ) -> None:
        answer = await ask(server.port, query, selector, params=params)
        assert isinstance(answer, ExternalSample), answer
        assert answer.values == (parse_milli(number),)

    async def test_a_value_is_never_part_of_the_query(self, server: Server) -> None:
        """Label values cannot hold quotes; a selector of another API could."""
        odd = "mail' OR '1'='1"
        query = msgspec.structs.replace(ONE, selector=Selector((Requirement("queue", Operator.EQUALS, (odd,)),)))
        async with opened(server.port, WAITING, params=["queue"]) as adapter:
            (answer,) = await adapter.answer([query])
        assert isinstance(answer, ExternalSample)
        assert answer.values == (0,)

    @pytest.mark.parametrize(
        ("params", "selector", "error"),
        [
            (["p:integer"], "p=many", 'p="many" is not of type integer'),
            (["p:integer"], "p=1_000", "is not of type integer"),
            (["p:integer"], f"p={2**63}", "is not of type integer"),
            (["p:number"], "p=NaN", "is not of type number"),
            (["p:boolean"], "p=yes", "is not of type boolean"),
            (["p:integer"], None, "needs a selector with p=…"),
            (["p:integer"], "p=1,q=2", "needs a selector with p=…"),
            (["p:integer"], "p in (1,2)", "needs a selector with p=…"),
            ([], "p=1", "takes no selector"),
        ],
    )
    async def test_unfit_selectors_are_errors_of_the_hpa(
        self, params: list[str], selector: str | None, error: str
    ) -> None:
        answer = await ask(1, "SELECT $1", selector, params=params)
        assert error in message(answer).replace("'", '"')
        assert isinstance(answer, AdapterError)
        assert answer.blame == "spec"

    async def test_the_sql_and_its_parameters_are_explained(self) -> None:
        async with opened(1, f"{WAITING} AND priority = $2", params=["queue", "p:integer"]) as adapter:
            text = await adapter.explain(testing.external("depth", "p=5,queue=mail"))
            assert text == f"{WAITING} AND priority = $2 with $1 = mail, $2 = 5"
            with pytest.raises(AdapterError, match="needs a selector"):
                await adapter.explain(ONE)

    async def test_another_type_than_declared_is_an_error(self, server: Server) -> None:
        answer = await ask(server.port, f"{WAITING} AND priority = $2", "queue=mail,p=1", params=["queue", "p"])
        assert "takes a parameter of another type than declared" in message(answer)


@pytest.mark.postgresql
class TestConnections:
    async def test_passwords_from_a_file(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "password").write_text(f"{PASSWORD}\n")
        file = {"password": "", "password_file": str(tmp_path / "password")}
        assert isinstance(await ask(server.port, **file), ExternalSample)
        (tmp_path / "password").write_text("wrong")
        assert 'password authentication failed for user "reader"' in message(await ask(server.port, **file))
        (tmp_path / "password").unlink()
        assert f"password: {tmp_path}/password cannot be read" in message(await ask(server.port, **file))

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"database": "gone"}, 'database "gone" does not exist'),
            ({"username": "gone"}, 'password authentication failed for user "gone"'),
            ({"password": ""}, "password authentication failed"),
            ({"target_session_attrs": "standby"}, "no server is standby"),
        ],
    )
    async def test_refused_connections(self, server: Server, options: dict[str, Any], error: str) -> None:
        answer = await ask(server.port, **options)
        assert error in message(answer)
        assert isinstance(answer, AdapterError)
        assert not answer.alive

    async def test_a_socket_and_several_hosts(self, server: Server) -> None:
        assert isinstance(await ask(server.port, host=str(server.folder)), ExternalSample)
        hosts = ["127.0.0.3", "127.0.0.1"]
        assert isinstance(await ask(server.port, host=hosts, target_session_attrs="primary"), ExternalSample)
        assert isinstance(await ask(server.port, host=hosts, target_session_attrs="prefer-standby"), ExternalSample)
        assert "no server is standby" in message(await ask(server.port, host=hosts, target_session_attrs="standby"))

    async def test_a_host_that_hangs_is_tried_once_and_then_last(self, server: Server) -> None:
        """Also if hpad ends the call before the host's time is over. Other hosts keep their order."""
        async with hanging("127.0.0.2", server.port) as attempts:
            hosts = {"host": ["127.0.0.2", "127.0.0.3", "127.0.0.1"]}
            async with opened(server.port, **hosts) as adapter:
                call = asyncio.ensure_future(adapter.answer([ONE]))
                await attempts.get()
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                assert isinstance((await adapter.answer([ONE]))[0], ExternalSample)
            assert attempts.empty()
            role = {"target_session_attrs": "prefer-standby", "connect_timeout": "5s"}
            assert isinstance(await ask(server.port, **hosts, **role), ExternalSample)
            assert attempts.qsize() == 1

    async def test_a_host_with_the_time_that_another_one_left_is_tried_first_in_the_next_call(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tried: asyncio.Queue[str] = asyncio.Queue()

        async def connect(host: list[str], **_: object) -> None:
            tried.put_nowait(host[0])
            if host == ["a"]:
                raise TimeoutError
            await asyncio.get_running_loop().create_future()

        monkeypatch.setattr("asyncpg.connect", connect)
        async with opened(1, host=["a", "b", "c"], sslmode="disable") as adapter:
            for hosts in ("ab", "b", "c"):
                call = asyncio.ensure_future(adapter.answer([ONE]))
                assert [await tried.get() for _ in hosts] == list(hosts)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call

    @pytest.mark.parametrize(
        ("host", "mode", "ca", "error"),
        [
            ("localhost", "verify-full", True, None),
            ("127.0.0.1", "verify-full", True, "certificate that is not trusted"),
            ("localhost", "verify-full", False, "certificate that is not trusted"),
            ("127.0.0.1", "verify-ca", True, None),
            ("127.0.0.1", "verify-ca", False, "certificate that is not trusted"),
            ("127.0.0.1", "require", False, None),
            ("127.0.0.1", "require", True, None),
            ("127.0.0.1", "prefer", False, None),
        ],
    )
    async def test_modes_of_tls(self, server: Server, host: str, mode: str, ca: bool, error: str | None) -> None:
        ssl = "SELECT count(*) FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl"
        answer = await ask(server.port, ssl, host=host, sslmode=mode, ca=str(server.ca) if ca else "")
        if error is None:
            assert isinstance(answer, ExternalSample), answer
            assert answer.values == (1000,)
        else:
            assert error in message(answer)

    async def test_require_with_an_authority_verifies_it(self, server: Server, tmp_path: Path) -> None:
        trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
        answer = await ask(server.port, sslmode="require", ca=str(tmp_path / "other.pem"))
        assert "certificate that is not trusted" in message(answer)

    async def test_an_expired_certificate_and_a_server_without_tls(self, server: Server) -> None:
        files = {"host": "localhost", "sslmode": "verify-full", "ca": str(server.ca)}
        expired = server.authority.issue_cert("localhost", not_after=datetime(2020, 1, 1, tzinfo=UTC))
        file = server.folder / "data" / "server.pem"
        good = file.read_bytes()
        try:
            file.write_bytes(expired.private_key_and_cert_chain_pem.bytes())
            await server.execute("SELECT pg_reload_conf()")
            await until(lambda: fails("certificate has expired", server.port, **files))
            await server.execute("ALTER SYSTEM SET ssl = off")
            await server.execute("SELECT pg_reload_conf()")
            await until(lambda: fails("does not offer TLS", server.port, **files))
            assert isinstance(await ask(server.port, sslmode="prefer"), ExternalSample)
        finally:
            file.write_bytes(good)
            await server.execute("ALTER SYSTEM RESET ssl")
            await server.execute("SELECT pg_reload_conf()")
        await until(lambda: fails("", server.port, **files))


@contextlib.asynccontextmanager
async def hanging(host: str, port: int) -> AsyncIterator[asyncio.Queue[bytes]]:
    """Serves a host that never answers; yields the first byte of each connection."""
    attempts: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            attempts.put_nowait(await reader.read(1))
            await reader.read()

    async with await asyncio.start_server(serve, host, port):
        yield attempts


async def fails(error: str, port: int, **options: Any) -> bool:
    """Returns whether a query fails with this error, or with "" whether it is answered."""
    answer = await ask(port, **options)
    return error in answer.message if isinstance(answer, AdapterError) and error else isinstance(answer, ExternalSample)


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    """Waits until the condition holds."""
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110  # a state of another process
            await asyncio.sleep(0.02)


def parameter(name: bytes, value: bytes) -> bytes:
    return framed(b"S", b"%b\0%b\0" % (name, value))


def refusal(text: bytes) -> bytes:
    return framed(b"E", b"SFATAL\0VFATAL\0C28000\0M%b\0\0" % text)


def authentication(kind: int, content: bytes = b"") -> bytes:
    return framed(b"R", kind.to_bytes(4, "big") + content)


def framed(kind: bytes, content: bytes) -> bytes:
    return kind + (4 + len(content)).to_bytes(4, "big") + content


async def answer_with(what: bytes | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends these bytes at the first bytes of a client and closes; with None never answers."""
    with contextlib.closing(writer):
        await reader.read(1)
        if what is None:
            await reader.read()
        else:
            writer.write(what)


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"", "closed the connection"),
        (authentication(0) + parameter(b"server_version", b" " * 20_000) + READY, "is this the port of PostgreSQL?"),
        (authentication(0) + parameter(b"server_version", b"none") + READY, "is this the port of PostgreSQL?"),
        (authentication(0) + parameter(b"server_version", b"9" * 300) + READY, "is this the port of PostgreSQL?"),
        (authentication(0) + parameter(b"client_encoding", b"none") + READY, "is this the port of PostgreSQL?"),
        (b"N\x00\x00\x00\x05\x00" * 20_000, "sent more than fits into an answer"),
        (authentication(7), "asks for a login by GSSAPI, which hpad does not have: allow scram-sha-256"),
        (authentication(10, b"OAUTHBEARER\0\0"), "asks for a login by 'OAUTHBEARER', which hpad does not have"),
        (refusal("Benutzer »x« unbekannt".encode("latin-1")), "answers 'Benutzer �x� unbekannt' ('28000')"),
        (refusal(b"unknown user") + READY + READY, "PostgreSQL 127.0.0.1 (shop): 'unknown user' (28000)"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is this the port of PostgreSQL?"),
        (b"R\x00\x00\x00\x0c\x00\x00\x00\xff" + b"\x00" * 40, "PostgreSQL 127.0.0.1 (shop) "),
        # The greeting of MySQL 8: after two "messages" the number of its thread stands where a length belongs.
        (b"J\x00\x00\x00\x0a8.0.32\x00\xf0\x00\x00\x00salt\x00", "is this the port of PostgreSQL?"),
        (b"R\xff\xff\xff\xf0" + b"x" * 40, "is this the port of PostgreSQL?"),
        (b"R\x7f\xff\xff\xff" + b"x" * 40, "is this the port of PostgreSQL?"),
        ((b"N\x00\x10\x00\x00" + b"x" * ((1 << 20) - 4)) * 5, "is this the port of PostgreSQL?"),
        # In one piece, so that hpad cannot have asked anything between the two.
        (WELCOME + READY, "does not answer as PostgreSQL does"),
        (None, "did not answer within 1s"),
    ],
)
async def test_servers_that_are_no_database(sent: bytes | None, error: str, caplog: pytest.LogCaptureFixture) -> None:
    served = await asyncio.start_server(lambda *streams: answer_with(sent, *streams), "127.0.0.1", 0)
    async with served, asyncio.timeout(60):
        port = served.sockets[0].getsockname()[1]
        answer = await ask(port, connect_timeout="60s" if sent is not None else "1s")
    assert error in message(answer)
    assert isinstance(answer, AdapterError)
    assert not answer.alive
    assert caplog.messages == []  # of asyncio, about exceptions of asyncpg


def test_a_server_that_says_it_is_ready_may_not_send_more() -> None:
    frames = connections.Frames()
    part = b"S\x00\x10\x00\x05p\x00" + b"x" * ((1 << 20) - 2) + b"\x00" + READY
    for _ in range(2):
        frames.renew()
        frames.accept(part * 3)
    with pytest.raises(connections.PostgresqlRefusedError, match="sent more than fits"):
        frames.accept(part)


COLUMN = b"n\0" + b"\0" * 6 + (20).to_bytes(4, "big") + b"\x00\x08\xff\xff\xff\xff\x00\x01"
"""A column n of the type int8 (20), in binary."""
COLUMNS = framed(b"t", b"\x00\x00") + framed(b"T", b"\x00\x01" + COLUMN)
DONE = framed(b"C", b"SELECT 1\0")


def conversation(
    answers: Mapping[bytes, bytes],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Returns a server whose queries return 7, with these answers in place of its own, by the type of the request."""
    own = {
        b"Q": framed(b"C", b"BEGIN\0") + READY[:-1] + b"T",
        b"P": framed(b"1", b""),
        b"D": COLUMNS,
        b"B": framed(b"2", b""),
        b"E": framed(b"D", b"\x00\x01\x00\x00\x00\x08" + (7).to_bytes(8, "big")) + DONE,
        b"S": READY[:-1] + b"T",
    }

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big") - 4)
            writer.write(WELCOME)
            while True:
                kind = await reader.readexactly(1)
                await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big") - 4)
                writer.write({**own, **answers}.get(kind, b""))

    return serve


def scram(iterations: bytes, times: int = 1) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Returns a server that asks for that many iterations of SCRAM (RFC 5802), and sends it in two pieces."""

    async def message(reader: asyncio.StreamReader) -> bytes:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big") - 4)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            await message(reader)
            writer.write(authentication(10, b"SCRAM-SHA-256\0\0"))
            await reader.readexactly(1)
            nonce = (await message(reader)).partition(b"r=")[2]
            first = authentication(11, b"r=%bX,s=c2FsdHNhbHQ=,i=%b" % (nonce, iterations)) * times
            writer.write(first[:-3])
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(first[-3:])
            await reader.read(1)

    return serve


@pytest.mark.parametrize(("iterations", "times"), [(b"100001", 1), (b"50000000", 1), (b"9" * 5000, 1), (b"60000", 2)])
async def test_too_many_iterations_of_scram_are_refused_before_they_are_computed(iterations: bytes, times: int) -> None:
    """Also if the server asks more than once."""
    async with await asyncio.start_server(scram(iterations, times), "127.0.0.1", 0) as served, asyncio.timeout(60):
        answer = await ask(served.sockets[0].getsockname()[1])
    assert " iterations of SCRAM; hpad computes at most 100000" in message(answer)


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({}, ""),
        ({b"D": framed(b"t", b"\x00\x00") + framed(b"T", b"\x00\x02" + COLUMN)}, "does not answer as PostgreSQL does"),
        ({b"E": framed(b"D", b"\x00\x01\x00\x00\x00\x03abc") + DONE}, "does not answer as PostgreSQL does"),
        ({b"E": framed(b"D", b"\x00\x01\xff\xff\xff\xfeabc") + DONE}, "does not answer as PostgreSQL does"),
        ({b"D": framed(b"t", b"\x00\x00") + framed(b"T", COLUMN * 20_000)}, "sent more than fits into an answer"),
    ],
)
async def test_answers_to_a_query_that_are_malformed(answers: dict[bytes, bytes], error: str) -> None:
    async with await asyncio.start_server(conversation(answers), "127.0.0.1", 0) as served, asyncio.timeout(60):
        answer = await ask(served.sockets[0].getsockname()[1])
    if error:
        assert error in message(answer)
        assert isinstance(answer, AdapterError)
        assert (answer.blame, answer.alive) == ("source", False)
    else:
        assert isinstance(answer, ExternalSample)
        assert answer.values == (7000,)


async def test_a_server_that_is_down_or_unknown() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert "refused the connection" in message(await ask(taken.getsockname()[1]))
    assert "does not resolve" in message(await ask(5432, host="db.invalid"))
    assert "host name is not valid" in message(await ask(5432, host="db..invalid"))


async def test_the_extra_is_named_where_it_is_missing(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hpad_adapters.postgresql.connections", raising=False)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(AdapterError, match=r"pip install '\.\[postgresql\]'"):
        PostgreSQL(settings(1), context)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"host": ""}, "host: is empty"),
        ({"host": []}, "host: is empty"),
        ({"host": "postgresql://u:p4ss@h/db"}, "host: is not a host name"),
        ({"host": "h:5433"}, "host: is not a host name: write user, port"),
        ({"host": ["h", "g,h"]}, "host: is not a host name: .* several hosts as a list"),
        ({"host": "h?sslmode=disable"}, "host: is not a host name: .* options as settings of their own"),
        ({"database": ""}, "database: is empty"),
        ({"username": ""}, "username: is empty"),
        ({"port": 0}, ">= 1"),
        ({"sslmode": "allow"}, "allow"),
        ({"ca": "/ca.pem"}, "sslmode: disable does not use"),
        ({"sslmode": "prefer", "ca": "/ca.pem"}, "sslmode: prefer does not use the ca, and trusts any certificate"),
        ({"sslmode": "require", "key": "/k"}, "no cert"),
        ({"password": "p4ss", "password_file": "/f"}, "give one of password"),
        ({"query_timeout": "0s"}, "query_timeout"),
        ({"connections": 17}, "<= 16"),
        ({"metrics": {"m": {"query": " "}}}, "query: .* is not a query"),
        ({"metrics": {"m": {"query": "SELECT 1", "params": ["a:date"]}}}, "params: 'a:date' is not a name"),
        ({"metrics": {"m": {"query": "SELECT 1", "params": [":text"]}}}, "params: ':text' is not a name"),
        ({"metrics": {"m": {"query": "SELECT 1", "params": ["a", "a:integer"]}}}, "params: 'a' is there twice"),
    ],
)
def test_invalid_settings_are_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=error) as refused:
        settings(5432, **{"password": "", **options})
    assert "p4ss" not in str(refused.value)
