"""Logins, TLS and faults of Kafka, with a broker whose answers a test sets."""

import asyncio
import contextlib
import datetime
import socket
import ssl
import struct
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from aiohttp import web
from support import http_stub, kafka_broker
from support.kafka_broker import PASSWORD, TOKEN, USER, Broker, serving

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample
from hpad.lab.servers import ports
from hpad_adapters.kafka import Kafka
from hpad_adapters.kafka.settings import KafkaSettings

LAG = testing.external("kafka_lag", "group=shop,topic=orders")
PATIENT = {"request_timeout": "60s"}
"""With the default, a pause of three seconds of a busy machine is an error of the broker."""


async def ask(*servers: str, query: Any = LAG, **options: Any) -> Answer:
    settings = msgspec.convert({"bootstrap_servers": list(servers), **PATIENT, **options}, Kafka.Settings)
    async with testing.context("kafka") as context:
        try:
            (answer,) = await Kafka(settings, context).answer([query])
        except AdapterError as error:
            return error
    return answer


def values(answer: Answer) -> Any:
    return answer.values if isinstance(answer, ExternalSample) else answer


def message(answer: Answer) -> str:
    assert isinstance(answer, AdapterError), answer
    assert not {PASSWORD, TOKEN, "wrong"} & set(answer.message.split())
    return answer.message


async def test_a_refused_token_is_replaced(stub: http_stub.Stub) -> None:
    tokens = iter(("old", TOKEN))

    async def grant(request: web.BaseRequest) -> web.Response:
        return web.json_response({"access_token": next(tokens), "expires_in": 3600})

    stub.handler = grant
    oauth2 = {"token_url": f"{stub.url}/token", "client_id": "me", "client_secret": "x"}
    async with serving(Broker("OAUTHBEARER")) as address, testing.context("kafka") as context:
        options = {"bootstrap_servers": [address], "sasl": "OAUTHBEARER", "oauth2": oauth2, **PATIENT}
        adapter = Kafka(msgspec.convert(options, Kafka.Settings), context)
        with pytest.raises(AdapterError, match="refuses the login"):
            await adapter.answer([LAG])
        for _ in range(2):
            assert [values(each) for each in await adapter.answer([LAG])] == [(6000,)]
    assert len(stub.requests) == 2


async def test_all_topics_of_a_group() -> None:
    broker = Broker()
    async with serving(broker) as address:
        assert values(await ask(address, query=testing.external("kafka_lag", "group=shop"))) == (6000,)
        broker.answers[kafka_broker.COMMITTED] = (0, [], 0)
        nothing = await ask(address, query=testing.external("kafka_lag", "group=shop"))
    assert 'group "shop": it has no committed offset' in message(nothing)
    fetched = [each for each in broker.asked if isinstance(each, kafka_broker.COMMITTED)]
    assert fetched[0].topics is None


async def test_a_broker_that_hangs_is_passed_over() -> None:
    """The others answer for it: the next bootstrap server, and a group whose coordinator is another broker."""
    broker, other = Broker(), testing.external("kafka_lag", "group=other,topic=orders")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        hanging = silent.getsockname()[1]

        def coordinator(request: Any) -> Any:
            found = Broker.default(broker, request)
            asked = isinstance(request, kafka_broker.COORDINATOR) and request.coordinator_key == "other"
            return (*found[:-1], hanging) if asked else found

        broker.default = coordinator  # type: ignore[method-assign]
        async with serving(broker) as address, testing.context("kafka") as context:
            options = {"bootstrap_servers": [f"127.0.0.1:{hanging}", address], "request_timeout": "5s"}
            adapter = Kafka(msgspec.convert(options, Kafka.Settings), context)
            found, refused = await adapter.answer([LAG, other])
    assert values(found) == (6000,)
    assert message(refused) == f"Kafka broker 127.0.0.1:{hanging} did not answer within 5s"


async def test_a_broker_that_hangs_until_the_call_ends_is_asked_last() -> None:
    """One that had only the time that a failed broker left is asked first in the next call."""
    attempts: asyncio.Queue[bytes] = asyncio.Queue()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            attempts.put_nowait(await reader.read(1))
            await reader.read()

    async with (
        await asyncio.start_server(hang, "127.0.0.1", 0) as silent,
        serving(Broker()) as address,
        testing.context("kafka") as context,
        asyncio.timeout(60),
    ):
        servers = [f"127.0.0.1:{port}" for port in (*ports.free(1), silent.sockets[0].getsockname()[1])]
        options = {"bootstrap_servers": [*servers, address], "request_timeout": "90s"}
        adapter = Kafka(msgspec.convert(options, Kafka.Settings), context)
        for _ in range(2):
            call = asyncio.ensure_future(adapter.answer([LAG]))
            await attempts.get()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert values(*await adapter.answer([LAG])) == (6000,)
        assert attempts.empty()


async def test_a_long_response_is_decoded_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short one is not, which would cost more than it takes."""
    kind, threads = kafka_broker.METADATA.RESPONSE_TYPE, []
    decode = kind.decode

    def recorded(content: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return decode(content)

    monkeypatch.setattr(kind, "decode", recorded)
    broker = Broker()
    async with serving(broker) as address:
        assert values(await ask(address)) == (6000,)
        short = broker.default(kafka_broker.METADATA(topics=["orders"]))
        broker.answers[kafka_broker.METADATA] = (*short[:-1], [*short[-1], *[(0, "other", False, [])] * 5_000])
        assert values(await ask(address)) == (6000,)
    assert threads == [True, False]


async def test_messages_that_retention_removes_meanwhile_give_no_lag_below_zero() -> None:
    """The log moves on from request to request: 3 to 10, then 12 to 15."""
    broker = Broker()
    logs = iter([(3, 10), (12, 15)])

    def moving(request: Any) -> Any:
        if not isinstance(request, kafka_broker.OFFSETS):
            return Broker.default(broker, request)
        log = next(logs)
        return ([(topic, [(n, 0, -1, log[0 if at == -2 else 1]) for n, at in each]) for topic, each in request.topics],)

    broker.default = moving  # type: ignore[method-assign]
    async with serving(broker) as address:
        broker.answers[kafka_broker.COMMITTED] = (0, [("orders", [(0, 9, "", 0), (1, 9, "", 0)])], 0)
        assert values(await ask(address)) == (12_000,)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_user_with_a_password(mechanism: str, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    user = {"sasl": mechanism, "username": USER}
    async with serving(Broker(mechanism)) as address:
        assert values(await ask(address, **user, password_file=str(tmp_path / "password"))) == (6000,)
        wrong = await ask(address, **user, password="wrong")
        absent = await ask(address, **user, password_file=str(tmp_path / "gone"))
        none = await ask(address, sasl="OAUTHBEARER", token_file=str(tmp_path / "password"))
    assert f"Kafka broker {address} refuses the login" in message(wrong)
    assert "Invalid username or password" in message(wrong)
    assert "gone cannot be read" in message(absent)
    assert "refuses the login" in message(none)
    assert mechanism in message(none)


async def test_a_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    async with serving(Broker("OAUTHBEARER")) as address:
        assert values(await ask(address, sasl="OAUTHBEARER", token_file=str(token))) == (6000,)
        token.write_text("wrong")
        assert "refuses the login" in message(await ask(address, sasl="OAUTHBEARER", token_file=str(token)))


async def test_a_token_of_an_identity_provider() -> None:
    stub = http_stub.Stub()
    stub.answers({"access_token": TOKEN})
    async with serving(Broker("OAUTHBEARER")) as address, http_stub.serving(stub.handle) as url:
        oauth2 = {"token_url": f"{url}/token", "client_id": "me", "client_secret": "x"}
        answer = await ask(address, sasl="OAUTHBEARER", oauth2=oauth2)
    assert [form["grant_type"] for form in stub.forms] == ["client_credentials"]
    assert values(answer) == (6000,)


async def test_iterations_that_would_take_a_thread_for_minutes_are_refused() -> None:
    broker = Broker("SCRAM-SHA-256")
    broker.iterations = 10**9
    async with serving(broker) as address:
        answer = await ask(address, sasl="SCRAM-SHA-256", username=USER, password=PASSWORD)
    assert "asks for 1000000000 iterations" in message(answer)


def server_tls(authority: trustme.CA, **options: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", **options).configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_tls_with_a_client_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca, client = str(tmp_path / "ca.pem"), str(tmp_path / "client.pem")
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("hpad").private_key_and_cert_chain_pem.write_to_path(client)
    async with serving(Broker("PLAIN"), server_tls(authority)) as address:
        user = {"sasl": "PLAIN", "username": USER, "password": PASSWORD}
        assert values(await ask(address, tls=True, ca=ca, cert=client, **user)) == (6000,)
        untrusted = await ask(address, tls=True, cert=client, **user)
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    async with serving(Broker(), server_tls(authority, not_after=past)) as address:
        expired = await ask(address, tls=True, ca=ca, cert=client)
    assert "not trusted" in message(untrusted)
    assert "expired" in message(expired)


async def test_the_next_bootstrap_server_is_asked_if_one_is_down() -> None:
    down = f"127.0.0.1:{ports.free(1)[0]}"
    async with serving(Broker()) as address:
        assert values(await ask(down, address)) == (6000,)
    assert "refused the connection" in message(await ask(down))


PARTITION = [(0, 0, 1, [1], [1])]
NOT_COORDINATOR, NOT_AUTHORIZED, NOT_LEADER, DENIED_TOPIC = 16, 30, 6, 29


@pytest.mark.parametrize(
    ("request_class", "answer", "error"),
    [
        ("METADATA", (0, [(1, "127.0.0.1", 1, None)], "c", 1, [(DENIED_TOPIC, "orders", False, [])]), "AUTHORIZATION"),
        ("METADATA", (0, [], "c", 1, [(0, "orders", False, PARTITION)]), "has no leader"),
        ("METADATA", (0, [], "c", 1, []), "has none of these partitions"),
        ("METADATA", (0, [], "c", 1, None), "has none of these partitions"),
        ("COORDINATOR", (0, 15, None, -1, "", -1), "the coordinator of group"),
        ("COMMITTED", (0, [], NOT_COORDINATOR), 'group "shop"'),
        ("COMMITTED", (0, [], NOT_AUTHORIZED), "AUTHORIZATION"),
        ("COMMITTED", (0, [("orders", [(0, 4, "", 3), (1, 1, "", 0)])], 0), 'group "shop" of topic "orders"'),
        ("COMMITTED", (0, [("orders", [(0, 4, "", 0)])], 0), "left out partition 1"),
        ("COMMITTED", (0, None, 0), "left out partition 0"),
        (
            "COMMITTED",
            (0, [("orders", [(0, -1, "", 0), (1, 20, "", 0)])], 0),
            "has no committed offset for partition 0",
        ),
        ("OFFSETS", ([("orders", [(0, NOT_LEADER, -1, -1), (1, 0, -1, 5)])],), "partition 0"),
        ("OFFSETS", ([("orders", [(0, 0, -1, 9)])],), "left out partition 1"),
        ("OFFSETS", ([("orders", [(0, 0, -1, 3), (1, 0, -1, 20)])],), "beyond its end: was the topic created anew?"),
        ("VERSIONS", (0, [(3, 90, 99)]), "did not answer as Kafka does"),
        ("VERSIONS", (0, [(3, 5, 1)]), "did not answer as Kafka does"),
    ],
)
async def test_each_fault_has_its_own_error(request_class: str, answer: Any, error: str) -> None:
    broker = Broker()
    broker.answers[getattr(kafka_broker, request_class)] = answer
    async with serving(broker) as address:
        found = await ask(address)
    assert error in message(found)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "sent more than 1 MiB, too much for an answer, or is not Kafka"),
        (struct.pack(">i", 2**31 - 1), "sent more than 1 MiB"),
        (struct.pack(">i", -5), "sent more than 1 MiB"),
        (struct.pack(">i", 4) + b"abcd", "did not answer as Kafka does"),
        (struct.pack(">i", 8) + struct.pack(">ii", 1, 2**31 - 1), "did not answer as Kafka does"),
        (b"", "broke off"),
    ],
)
@pytest.mark.parametrize("request_class", ["VERSIONS", "METADATA"])
async def test_a_response_that_is_none(reply: bytes, error: str, request_class: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await reader.read(4096)
            writer.write(reply)

    if request_class == "VERSIONS" or not reply:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            found = await ask(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    else:
        broker = Broker()
        broker.answers[kafka_broker.METADATA] = reply
        async with serving(broker) as address:
            found = await ask(address)
    assert error in message(found)


async def test_more_brokers_than_a_cluster_has() -> None:
    """Each leader would be a connection."""
    broker = Broker()
    async with serving(broker) as address:
        brokers = [(number, f"127.1.{number >> 8}.{number & 255}", broker.port, None) for number in range(1, 400)]
        partitions = [(0, number, number, [number], [number]) for number in range(1, 400)]
        broker.answers[kafka_broker.METADATA] = (0, brokers, "c", 1, [(0, "orders", False, partitions)])
        found = await ask(address)
    assert "names more than 256 brokers" in message(found)


async def test_memory_is_bounded() -> None:
    broker = Broker()
    broker.answers[kafka_broker.METADATA] = struct.pack(">i", 2**30) + b"x" * (8 << 20)
    async with serving(broker) as address:
        tracemalloc.start()
        try:
            found = await ask(address)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert "sent more than 1 MiB" in message(found)
    assert peak < 32 << 20


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"bootstrap_servers": []}, "bootstrap_servers: is empty"),
        ({"bootstrap_servers": ["kafka://h:1"]}, "bootstrap_servers: 'kafka://h:1' is not of the form"),
        ({"bootstrap_servers": ["h:1?acks=all"]}, "bootstrap_servers: 'h:1' is not of the form"),
        ({"bootstrap_servers": [f"u:{PASSWORD}@h:1"]}, "bootstrap_servers: contains credentials: write them"),
        ({"sasl": "PLAIN"}, "sasl: PLAIN needs username and one of"),
        ({"sasl": "OAUTHBEARER"}, "needs one of token_file and oauth2"),
        ({"username": "u"}, "username: has an effect with sasl only"),
        ({"token_file": "/t"}, "with sasl: OAUTHBEARER only"),
        ({"ca": "/ca.pem"}, "ca: has an effect with tls: true only"),
        ({"key_password": PASSWORD}, "key_password: has an effect with tls: true only"),
        ({"request_timeout": "0s"}, "request_timeout: '0s' is not a duration above zero"),
        ({"password": "s3cr3t", "password_env": "B"}, "give one of"),
        ({"metrics": {"m": {"partition_limitation": "1-"}}}, "partition_limitation: '1-' is not of the form"),
        ({"metrics": {"m": {"partition_limitation": "0-999999999"}}}, "partition_limitation"),
        ({"metrics": {"m": {"partition_limitation": "0", "topics": ["a", "b"]}}}, "needs a single topic"),
        ({"metrics": {"m": {"exclude_persistent_lag_after": "x"}}}, "exclude_persistent_lag_after"),
        ({"metrics": {"m": {"limit_to_partitions_with_lag": True}}}, "needs the lag_threshold"),
        (
            {"metrics": {"m": {"limit_to_partitions_with_lag": True, "allow_idle_consumers": True}}},
            "excludes allow_idle_consumers",
        ),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=error) as refused:
        msgspec.convert({"bootstrap_servers": ["h"], **settings}, KafkaSettings)
    assert PASSWORD not in str(refused.value)
