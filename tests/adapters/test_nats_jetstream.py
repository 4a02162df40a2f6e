"""Consumers and streams of real NATS servers, one by itself and a cluster of three."""

import asyncio
import json
import socket
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from aiohttp import web
from support import nats_servers
from support.http_stub import Stub, server_tls, serving

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, ExternalSample
from hpad_adapters.nats_jetstream import NatsJetStream

NAMES = ("a", "b", "c", "d", "e")
LAG, PENDING, ACK, MESSAGES = (
    "nats_consumer_lag",
    "nats_consumer_pending",
    "nats_consumer_ack_pending",
    "nats_stream_messages",
)
needs_nats = pytest.mark.skipif(nats_servers.PROGRAM is None, reason=nats_servers.ABSENT)


def started(folder: Path, count: int, *consumers: str) -> nats_servers.Servers:
    servers = nats_servers.Servers(folder, count)
    try:
        servers.wait()
        asyncio.run(servers.fill(count, consumers))
    except BaseException:
        servers.stop()
        raise
    return servers


@pytest.fixture(scope="module")
def solo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nats_servers.Servers]:
    servers = started(tmp_path_factory.mktemp("nats"), 1, "mailer")
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nats_servers.Servers]:
    servers = started(tmp_path_factory.mktemp("nats"), 3, *NAMES)
    yield servers
    servers.stop()


async def ask(context: Context, url: Any, *queries: Any, **options: Any) -> list[Answer]:
    settings = {"url": url, "account": "SHOP", "request_timeout": "60s", **options}
    return await NatsJetStream(msgspec.convert(settings, NatsJetStream.Settings), context).answer(queries)


def values(answers: list[Answer]) -> list[Any]:
    return [answer.values if isinstance(answer, ExternalSample) else answer for answer in answers]


def leader(cluster: nats_servers.Servers, consumer: str) -> int:
    """Returns the number of the server that leads a consumer, by what the first one says."""
    with urllib.request.urlopen(f"{cluster.url()}/jsz?acc=SHOP&consumers=1") as answer:
        (account,) = json.load(answer)["account_details"]
    (stream,) = account["stream_detail"]
    (found,) = (each["cluster"]["leader"] for each in stream["consumer_detail"] if each["name"] == consumer)
    return int(found[1:])


@needs_nats
@pytest.mark.nats
class TestServer:
    async def test_the_numbers_of_a_consumer_and_a_stream(self, solo: nats_servers.Servers, context: Context) -> None:
        selector = "stream=orders,consumer=mailer"
        answers = await ask(
            context,
            solo.url(),
            *(testing.external(name, selector) for name in (LAG, PENDING, ACK)),
            testing.external(MESSAGES, "stream=orders"),
            testing.external(LAG, f"{selector},account=SHOP"),
            account="OTHER",
        )
        assert values(answers[4:]) == [(6000,)]
        assert all(isinstance(answer, AdapterError) for answer in answers[:4])
        answers = await ask(
            context,
            solo.url(),
            *(testing.external(name, selector) for name in (LAG, PENDING, ACK)),
            testing.external(MESSAGES, "stream=orders"),
        )
        assert values(answers) == [(6000,), (4000,), (2000,), (7000,)]

    async def test_metrics_of_the_configuration_and_of_autoscalers(
        self, solo: nats_servers.Servers, context: Context
    ) -> None:
        metrics = {
            "orders": {"stream": "orders", "consumer": "mailer", "account": "SHOP"},
            "stored": {"stream": "orders", "value": "messages"},
        }
        own = testing.own_query(NatsJetStream.QuerySchema(stream="orders", consumer="mailer", value="ack_pending"))
        answers = await ask(context, solo.url(), *map(testing.external, metrics), own, metrics=metrics)
        assert values(answers) == [(6000,), (7000,), (2000,)]

    @pytest.mark.parametrize(
        ("selector", "account", "error"),
        [
            ("stream=orders,consumer=gone", "SHOP", 'stream "orders" has no consumer "gone"'),
            ("stream=gone,consumer=mailer", "SHOP", 'account "SHOP" has no stream "gone"'),
            ("stream=orders,consumer=mailer", "OTHER", 'account "OTHER" has no stream "orders"'),
            ("stream=orders,consumer=mailer", "GONE", 'there is no account "GONE"'),
        ],
    )
    async def test_what_does_not_exist_is_an_error(
        self, solo: nats_servers.Servers, context: Context, selector: str, account: str, error: str
    ) -> None:
        (answer,) = await ask(context, solo.url(), testing.external(LAG, selector), account=account)
        assert isinstance(answer, AdapterError)
        assert error in answer.message
        assert answer.blame == "spec"

    async def test_the_adapter_keeps_the_contract(self, solo: nats_servers.Servers, context: Context) -> None:
        settings = {"url": solo.url(), "account": "SHOP", "request_timeout": "60s"}
        adapter = NatsJetStream(msgspec.convert(settings, NatsJetStream.Settings), context)
        queries = [
            testing.external(LAG, "stream=orders,consumer=mailer"),
            testing.external(MESSAGES, "stream=orders"),
            testing.external(LAG, "stream=orders"),
            testing.external(LAG, "stream=orders,consumer=mailer,account=OTHER"),
            testing.external("nats_lag", "stream=orders,consumer=mailer"),
        ]
        answers = await testing.check_adapter(adapter, queries)
        assert [isinstance(answer, ExternalSample) for answer in answers] == [True, True, False, False, False]

    async def test_a_server_without_jetstream(self, context: Context, tmp_path: Path) -> None:
        servers = nats_servers.Servers(tmp_path, 1, more="max_payload: 1024")
        try:
            servers.wait()
            (answer,) = await ask(context, servers.url(), testing.external(MESSAGES, "stream=orders"))
        finally:
            servers.stop()
        assert isinstance(answer, AdapterError)
        assert answer.message == "JetStream is not enabled on NATS server n1"


@needs_nats
@pytest.mark.nats
class TestCluster:
    async def test_each_consumer_has_the_numbers_of_its_leader(
        self, cluster: nats_servers.Servers, context: Context
    ) -> None:
        queries = [testing.external(LAG, f"stream=orders,consumer={name}") for name in NAMES]
        queries.append(testing.external(MESSAGES, "stream=orders"))
        answers = await ask(context, [cluster.url(number) for number in (1, 2, 3)], *queries)
        assert values(answers) == [(6000,)] * len(NAMES) + [(7000,)]

    async def test_without_the_leader_there_is_no_number(self, cluster: nats_servers.Servers, context: Context) -> None:
        first = leader(cluster, "a")
        query = testing.external(LAG, "stream=orders,consumer=a")
        others = [cluster.url(number) for number in (1, 2, 3) if number != first]
        (answer,) = await ask(context, others, query)
        assert isinstance(answer, AdapterError)
        assert answer.message.startswith(f'NATS server n{first}, the leader of consumer "a" of stream "orders"')
        assert "none of the servers of url" in answer.message
        assert values(await ask(context, cluster.url(first), query)) == [(6000,)]

    async def test_a_server_that_is_down_matters_if_it_is_the_leader(
        self, cluster: nats_servers.Servers, context: Context
    ) -> None:
        query = testing.external(LAG, "stream=orders,consumer=a")
        all_and_one_down = [*(cluster.url(number) for number in (1, 2, 3)), "http://127.0.0.1:1"]
        assert values(await ask(context, all_and_one_down, query)) == [(6000,)]
        first = leader(cluster, "a")
        without = ["http://127.0.0.1:1" if number == first else cluster.url(number) for number in (1, 2, 3)]
        (answer,) = await ask(context, without, query)
        assert isinstance(answer, AdapterError)
        assert answer.message.endswith("did not answer: NATS http://127.0.0.1:1 refused the connection")

    async def test_a_name_with_several_addresses_stands_for_all_servers(
        self, cluster: nats_servers.Servers, context: Context, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = socket.getaddrinfo

        def resolve(host: Any, port: Any, *more: Any, **options: Any) -> Any:
            if host != "nats-headless.test":
                return before(host, port, *more, **options)
            found = [(socket.AF_INET, f"127.0.0.{number}") for number in (1, 2, 3)]
            return [(family, socket.SOCK_STREAM, 6, "", (each, port)) for family, each in [*found, *found]] + [
                (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0))
            ]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        queries = [testing.external(LAG, f"stream=orders,consumer={name}") for name in NAMES]
        answers = await ask(context, f"http://nats-headless.test:{cluster.http_port}", *queries)
        assert values(answers) == [(6000,)] * len(NAMES)


QUERY = testing.external(LAG, "stream=orders,consumer=mailer")
FINE = {"name": "mailer", "num_pending": 4, "num_ack_pending": 2}


def jsz(**consumer: Any) -> dict[str, Any]:
    stream = {"name": "orders", "state": {"messages": 7}, "consumer_detail": [{**FINE, **consumer}]}
    return {"server_id": "N1", "account_details": [{"name": "SHOP", "id": "A1", "stream_detail": [stream]}]}


def answering(stub: Stub, jsz: Any, varz: Any = None) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        body = jsz if request.path == "/jsz" else varz or {"server_id": "N1", "server_name": "n1"}
        return web.Response(text=body) if isinstance(body, str) else web.json_response(body)

    stub.handler = handler


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("<html>", "something other than the state of JetStream"),
        ({}, "something other than the state of JetStream"),
        (jsz(num_pending=None), "something other than the state of JetStream"),
        (jsz(num_pending=-3), "-1 messages, which is not a count"),
        (jsz(num_pending=2**60), "which is not a count"),
        (jsz(cluster={"name": "c"}), "has no leader at present"),
        (jsz(cluster={"leader": "n9"}), "NATS server n9, the leader of"),
    ],
)
async def test_unusable_answers_are_errors(stub: Stub, context: Context, answer: Any, error: str) -> None:
    answering(stub, answer)
    (found,) = await ask(context, stub.url, QUERY)
    assert isinstance(found, AdapterError)
    assert error in found.message


async def test_an_account_is_found_by_its_id(stub: Stub, context: Context) -> None:
    answering(stub, jsz())
    assert values(await ask(context, stub.url, QUERY, account="A1")) == [(6000,)]
    assert stub.requests[0].query["acc"] == "A1"


async def test_an_account_with_a_jwt_is_found_by_its_name(stub: Stub, context: Context) -> None:
    """Since NATS 2.10.13 `acc` is the id alone; the name of its JWT is found among all accounts."""

    async def handler(request: web.BaseRequest) -> web.Response:
        if request.path == "/varz":
            return web.json_response({"server_id": "N1", "server_name": "n1"})
        asked = request.query["acc"] == "A1" or request.query.get("accounts") == "true"
        return web.json_response(jsz() if asked else {"server_id": "N1"})

    stub.handler = handler
    for account in ("A1", "SHOP"):
        assert values(await ask(context, stub.url, QUERY, account=account)) == [(6000,)]


async def test_an_account_that_may_be_beyond_those_that_a_server_lists_is_not_called_absent(
    stub: Stub, context: Context
) -> None:
    """A server lists 1,024 accounts and says how many there are."""
    answering(stub, jsz() | {"accounts": 1025})
    assert values(await ask(context, stub.url, QUERY)) == [(6000,)]
    (found,) = await ask(context, stub.url, QUERY, account="GONE")
    assert isinstance(found, AdapterError)
    assert found.message == 'NATS server n1 does not list all of its accounts: write the id of account "GONE"'
    assert found.blame == "source"


async def test_an_absent_number_of_a_stream_is_an_error(stub: Stub, context: Context) -> None:
    answering(stub, {"server_id": "N1", "account_details": [{"name": "SHOP", "stream_detail": [{"name": "orders"}]}]})
    (found,) = await ask(context, stub.url, testing.external(MESSAGES, "stream=orders"))
    assert isinstance(found, AdapterError)


async def test_a_service_that_leads_to_several_servers_is_an_error(stub: Stub, context: Context) -> None:
    """One answers /jsz and another /varz: by the name of the latter a follower would be the leader."""
    answering(stub, jsz(cluster={"leader": "n2"}, num_pending=0), {"server_id": "N2", "server_name": "n2"})
    settings = msgspec.convert({"url": stub.url, "account": "SHOP"}, NatsJetStream.Settings)
    adapter = NatsJetStream(settings, context)
    for _ in range(2):
        (found,) = await adapter.answer([QUERY])
        assert isinstance(found, AdapterError)
        assert found.message.endswith(
            "is now one server, now another: name each server of the cluster in url, or its headless Service"
        )


@pytest.mark.parametrize(
    ("selector", "missing"),
    [
        ("stream=gone,consumer=mailer", 'account "SHOP" has no stream "gone"'),
        ("stream=orders,consumer=gone", 'stream "orders" has no consumer "gone"'),
        ("stream=orders,consumer=mailer,account=GONE", 'there is no account "GONE" with JetStream'),
    ],
)
async def test_what_the_other_servers_of_a_cluster_may_have_is_not_called_absent(
    stub: Stub, context: Context, selector: str, missing: str
) -> None:
    answering(stub, jsz() | {"meta_cluster": {"name": "c", "leader": "n1", "cluster_size": 3}})
    (found,) = await ask(context, stub.url, testing.external(LAG, selector))
    assert isinstance(found, AdapterError)
    assert found.message == (
        f"NATS: {missing} on 1 of 3 servers: name each server of the cluster in url, or its headless Service"
    )
    assert found.blame == "source"


async def test_during_an_election_there_is_no_leader_although_a_server_names_one(stub: Stub, context: Context) -> None:
    async def other(request: web.BaseRequest) -> web.Response:
        if request.path == "/varz":
            return web.json_response({"server_id": "N2", "server_name": "n2"})
        return web.json_response(jsz(cluster={"leader": "n1"}) | {"server_id": "N2"})

    answering(stub, jsz(cluster={}))
    async with serving(other) as url:
        (found,) = await ask(context, [stub.url, url], QUERY)
    assert isinstance(found, AdapterError)
    assert found.message == 'NATS: consumer "mailer" of stream "orders" of account "SHOP" has no leader at present'


async def test_the_name_of_a_server_is_read_once(stub: Stub, context: Context) -> None:
    answering(stub, jsz())
    settings = msgspec.convert({"url": stub.url, "account": "SHOP"}, NatsJetStream.Settings)
    adapter = NatsJetStream(settings, context)
    for _ in range(3):
        assert values(await adapter.answer([QUERY])) == [(6000,)]
    assert [request.path for request in stub.requests].count("/varz") == 1


async def test_faults_of_the_connection(stub: Stub, context: Context, tmp_path: Path) -> None:
    async def hang(request: web.BaseRequest) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    stub.handler = hang
    (slow,) = await ask(context, stub.url, QUERY, request_timeout="1s")
    stub.answers(b"", status=503)
    (refused,) = await ask(context, stub.url, QUERY)
    stub.answers(b" " * 2000)
    (large,) = await ask(context, stub.url, QUERY, max_bytes=1000)
    (down,) = await ask(context, "http://127.0.0.1:1", QUERY)
    (nowhere,) = await ask(context, "http://nats.invalid:8222", QUERY)
    (none,) = await ask(context, "http://nats..invalid:8222", QUERY)
    errors = ["did not answer within 1s", "answers 503", "max_bytes", "refused the connection", "does not resolve"]
    for answer, error in zip((slow, refused, large, down, nowhere, none), [*errors, "is not valid"], strict=True):
        assert isinstance(answer, AdapterError)
        assert error in answer.message


async def test_an_expired_certificate(stub: Stub, context: Context, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca")
    tls = server_tls(authority)
    answering(stub, jsz())
    async with serving(stub.handle, tls=tls) as url:
        assert values(await ask(context, url, QUERY, ca=str(tmp_path / "ca"))) == [(6000,)]
    authority.issue_cert("127.0.0.1", not_after=datetime(2020, 1, 1, tzinfo=UTC)).configure_cert(tls)
    async with serving(stub.handle, tls=tls) as url:
        (answer,) = await ask(context, url, QUERY, ca=str(tmp_path / "ca"))
    assert isinstance(answer, AdapterError)
    assert "certificate has expired" in answer.message


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"url": []}, "url: the list is empty"),
        ({"url": "nats://h:4222"}, "url: .*is not of the form"),
        ({"url": "http://u:p4ss@h"}, "url: contains credentials"),
        ({"url": "http://h/?a=b"}, "url: ends in a query"),
        (
            {"metrics": {LAG: {"stream": "s", "consumer": "c"}}},
            "metrics: nats_consumer_lag: is a metric of the adapter",
        ),
        ({"metrics": {"m": {"stream": "s"}}}, "consumer: the value lag needs a consumer"),
        ({"metrics": {"m": {"stream": "s", "consumer": "c", "value": "messages"}}}, "messages has no consumer"),
        ({"metrics": {"m": {"stream": "", "consumer": "c"}}}, "stream: is empty"),
        ({"request_timeout": "0s"}, "request_timeout"),
        ({"key": "/k"}, "no cert"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=error) as refused:
        msgspec.convert({"url": "http://h:8222", **settings}, NatsJetStream.Settings)
    assert "p4ss" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "selector"),
    [
        (LAG, None),
        (LAG, "stream=orders"),
        (LAG, "stream=orders,consumer=c,other=x"),
        (LAG, "stream in (a,b),consumer=c"),
        (MESSAGES, "stream=orders,consumer=c"),
        ("mine", "stream=orders"),
    ],
)
async def test_unfit_selectors_are_refused(stub: Stub, context: Context, name: str, selector: str | None) -> None:
    metrics = {"mine": {"stream": "s", "consumer": "c"}}
    (answer,) = await ask(context, stub.url, testing.external(name, selector), metrics=metrics)
    assert isinstance(answer, AdapterError)
    assert answer.blame == "spec"
    assert stub.requests == []
