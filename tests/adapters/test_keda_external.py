"""A real gRPC server as KEDA's external scaler."""

import asyncio
import contextlib
import datetime
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from support import raw_http2

from hpad import testing
from hpad.adapter import Adapter, AdapterError, Answer, ExternalSample, HPAIdentity, Query
from hpad.lab.servers import ports
from hpad_adapters.keda_external import KedaExternal, adapter, messages

pytest.importorskip("grpclib", reason="needs the extra keda-external")
from grpclib import const, server
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError

STORMS = testing.external("storms")
HPA = HPAIdentity(name="web", target_kind="Deployment", target_name="web")


class Bytes(CodecBase):
    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return data


def packed(name: str, whole: int = 0, exact: float = 0.0) -> bytes:
    """A response with one MetricValue or MetricSpec: 1 the name, 2 an int64, 3 a double."""
    number = whole % (1 << 64)
    varint = bytearray()
    while number > 0x7F:
        varint.append(number & 0x7F | 0x80)
        number >>= 7
    varint.append(number)
    inner = b"\x0a" + bytes([len(name)]) + name.encode() + b"\x10" + bytes(varint) + b"\x19" + struct.pack("<d", exact)
    return b"\x0a" + bytes([len(inner)]) + inner


class Scaler:
    """The service: `answers` has a response, or an exception, of each method; `asked` the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes | Exception] = {
            "GetMetricSpec": packed("storm-count", 5),
            "GetMetrics": packed("storm-count", exact=12.5),
            "IsActive": b"\x08\x01",
        }
        self.asked: list[tuple[str, bytes]] = []

    def __mapping__(self) -> Mapping[str, const.Handler]:
        return {f"/{messages.SERVICE}/{name}": self._handler(name) for name in self.answers}

    def _handler(self, name: str) -> const.Handler:
        async def handle(stream: Any) -> None:
            request = await stream.recv_message()
            self.asked.append((name, request))
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            await stream.send_message(answer)

        return const.Handler(handle, const.Cardinality.UNARY_UNARY, bytes, bytes)


@asynccontextmanager
async def serving(scaler: Scaler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Yields the address."""
    made = server.Server([scaler], codec=Bytes())
    (port,) = ports.free(1)
    await made.start("127.0.0.1", port, ssl=tls)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        made.close()
        await made.wait_closed()


async def ask(address: str, *asked: Query, storms: dict[str, Any] | None = None, **options: Any) -> list[Answer]:
    settings = {"address": address, "metrics": {"storms": storms or {}}, **options}
    async with testing.context("weather") as context:
        adapter = KedaExternal(msgspec.convert(settings, KedaExternal.Settings), context)
        try:
            return await adapter.answer([msgspec.structs.replace(query, hpa=HPA) for query in asked or (STORMS,)])
        except AdapterError as error:
            return [error] * len(asked or (STORMS,))


def message(answer: Answer) -> str:
    assert isinstance(answer, AdapterError), answer
    return answer.message


def value(answer: Answer) -> Any:
    return answer.values if isinstance(answer, ExternalSample) else answer


async def test_the_value_of_the_only_metric() -> None:
    scaler = Scaler()
    async with serving(scaler) as address:
        (answer,) = await ask(address, storms={"metadata": {"city": "Rome"}})
    assert value(answer) == (12_500,)
    reference = messages.scaled_object("web", "default", {"scalerAddress": address, "city": "Rome"})
    assert scaler.asked == [
        ("GetMetricSpec", reference),
        ("GetMetrics", messages.metrics_request(reference, "storm-count")),
        ("IsActive", reference),
    ]


def test_requests_are_encoded_as_protocol_buffers_say() -> None:
    reference = messages.scaled_object("a", "b", {"k": "v", "long": "x" * 130})
    # Tags 1, 2 and 3 with wire type 2 are 0x0a, 0x12 and 0x1a; 139 and 130 take two bytes, the lower seven bits first.
    entry = b"\x0a\x04long\x12\x82\x01" + b"x" * 130
    assert reference == b"\x0a\x01a\x12\x01b" + b"\x1a\x06\x0a\x01k\x12\x01v" + b"\x1a\x8b\x01" + entry
    assert messages.metrics_request(b"ref", "m") == b"\x0a\x03ref\x12\x01m"


async def test_labels_of_the_selector_and_secrets_become_metadata(tmp_path: Path) -> None:
    scaler = Scaler()
    (tmp_path / "token").write_text("s3cr3t\n")
    storms = {
        "metadata": {"token": {"file": str(tmp_path / "token")}},
        "params": ["city"],
        "metric": "m",
        "name": "x",
        "namespace": "shop",
        "inactive": "value",
    }
    async with serving(scaler) as address:
        found, missing = await ask(address, testing.external("storms", "city=Rome"), STORMS, storms=storms)
        (absent,) = await ask(address, storms={"metadata": {"token": {"file": str(tmp_path / "gone")}}})
    assert value(found) == (12_500,)
    metadata = {"scalerAddress": address, "token": "s3cr3t", "city": "Rome"}
    reference = messages.scaled_object("x", "shop", metadata)
    assert scaler.asked == [("GetMetrics", messages.metrics_request(reference, "m"))]
    assert "needs a selector with city=…" in message(missing)
    assert f"token: {tmp_path}/gone cannot be read" in message(absent)


async def test_an_inactive_scaler_means_zero_unless_the_value_is_wanted() -> None:
    scaler = Scaler()
    scaler.answers["IsActive"] = b""
    async with serving(scaler) as address:
        (zero,) = await ask(address)
        (as_it_is,) = await ask(address, storms={"inactive": "value"})
    assert value(zero) == (0,)
    assert value(as_it_is) == (12_500,)


@pytest.mark.parametrize(
    ("answer", "values"),
    [
        (packed("a", 7, 0.0), (7000,)),
        (packed("a", 7, 2.25), (2250,)),
        (packed("a", -3, 0.0), (-3000,)),
        (packed("a", 1, 0.0) + packed("b", 2, 0.0), (1000, 2000)),
        (b"\x0a\x00", (0,)),  # a value whose fields all have their default
        (b"\x12\x02ab\x1d1234\x2112345678" + packed("a", 1, 0.0), (1000,)),  # fields of later versions
    ],
)
async def test_values_are_chosen_as_in_keda(answer: bytes, values: tuple[int, ...]) -> None:
    scaler = Scaler()
    scaler.answers["GetMetrics"] = answer
    async with serving(scaler) as address:
        (found,) = await ask(address)
    assert value(found) == values


@pytest.mark.parametrize(
    ("method", "answer", "error"),
    [
        ("GetMetrics", b"", 'has no value for metric "storm-count"'),
        ("GetMetrics", packed("a", 1, float("nan")), "not a number of 64 bits"),
        ("GetMetrics", packed("a", 1, float("inf")), "not a number of 64 bits"),
        ("GetMetrics", packed("a", 1, 1e300), "not a number of 64 bits"),
        ("GetMetrics", b"\x0a\xff\xff\xff\xff\x0f", "cut off, in answer to GetMetrics"),
        ("GetMetrics", b"\xff" * 12, "cut off"),
        ("GetMetrics", b"\x0b", "not in the encoding of Protocol Buffers"),
        ("GetMetrics", b"\x0a\x03\x0a\x01\xff", "not UTF-8"),
        ("GetMetrics", b"\x10\x00" * 10_000, "answered to GetMetrics with more than 16 KiB"),
        ("GetMetrics", b"x" * (5 << 20), "sent more than 4 MiB, too much for an answer"),
        (
            "GetMetrics",
            GRPCError(const.Status.NOT_FOUND, "no city"),
            "answered to GetMetrics with NOT_FOUND: no city",
        ),
        ("IsActive", GRPCError(const.Status.UNIMPLEMENTED), "answered to IsActive with UNIMPLEMENTED"),
        ("GetMetricSpec", b"", "offers not one metric but these: none; write `metric`"),
        ("GetMetricSpec", packed("b") + packed("a"), "but these: a, b; write `metric`"),
    ],
)
async def test_each_fault_has_its_own_error(method: str, answer: bytes | Exception, error: str) -> None:
    scaler = Scaler()
    scaler.answers[method] = answer
    async with serving(scaler) as address:
        (found,) = await ask(address)
    assert message(found).startswith(f"external scaler {address} ")
    assert error in message(found)


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 100])
async def test_a_server_other_than_a_scaler_is_an_error(reply: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await reader.read(4096)
            writer.write(reply)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as other:
        (answer,) = await ask(f"127.0.0.1:{other.sockets[0].getsockname()[1]}")
    assert "broke off the connection" in message(answer)


@pytest.mark.parametrize("frame", [raw_http2.settings(), raw_http2.frame(6, 0, 0, b"12345678")], ids=["set", "ping"])
async def test_frames_without_end_are_refused(frame: bytes) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            await reader.read(4096)
            writer.write(raw_http2.settings() + frame * 20_000)
            await reader.read()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as other:
        answers = await ask(f"127.0.0.1:{other.sockets[0].getsockname()[1]}", STORMS, STORMS, STORMS)
    assert {message(answer).partition(" sent ")[2] for answer in answers} == {"more frames than an answer needs"}
    assert connections == 1


class Waiting(Scaler):
    """Never answers about a reference with `slow` in it. `met` has whether each request is such a one."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = b"slow"
        self.met: asyncio.Queue[bool] = asyncio.Queue()

    def _handler(self, name: str) -> const.Handler:
        plain = super()._handler(name)

        async def handle(stream: Any) -> None:
            request = await stream.recv_message()
            self.met.put_nowait(self.slow in request)
            if self.slow in request:
                await asyncio.Event().wait()
            await stream.send_message(self.answers[name])

        return plain._replace(func=handle)


async def test_a_metric_without_an_answer_fails_alone() -> None:
    """All queries to a scaler share a call."""
    metrics = {"slow": {"metadata": {"city": "slow"}, "name": "a"}, "storms": {"name": "b"}}
    async with serving(Waiting()) as address:
        options = {"metrics": metrics, "request_timeout": "4s"}
        slow, found = await ask(address, testing.external("slow"), STORMS, **options)
    assert value(found) == (12_500,)
    assert message(slow) == f'external scaler {address} did not answer within 4s about "slow"'
    assert isinstance(slow, AdapterError)
    assert slow.late


async def test_a_metric_that_had_no_turn_is_not_late() -> None:
    """It may be asked with the others again."""
    late = {f"late-{number}": {"metadata": {"city": "slow"}, "name": "a"} for number in range(16)}
    queries = [testing.external(name) for name in (*late, "storms")]
    async with serving(Waiting()) as address:
        answers = await ask(address, *queries, metrics={**late, "storms": {"name": "b"}}, request_timeout="4s")
    assert [isinstance(answer, AdapterError) and answer.late for answer in answers] == [True] * 16 + [False]
    assert "did not answer within 4s" in message(answers[-1])


async def test_many_metrics_without_an_answer_come_after_the_others() -> None:
    """As many as may wait at a time; and a metric that has waited for them in vain does not count as one of them."""
    scaler = Waiting()
    late = {f"late-{number}": {"metadata": {"city": "slow"}, "name": "a"} for number in range(16)}
    queries = [testing.external(name) for name in (*late, "storms")]
    async with serving(scaler) as address, testing.context("weather") as context, asyncio.timeout(60):
        options = {"address": address, "request_timeout": "90s", "metrics": {**late, "storms": {"name": "b"}}}
        adapter = KedaExternal(msgspec.convert(options, KedaExternal.Settings), context)
        for asked in (16, 3 + 16):  # three calls are one answer
            call = asyncio.ensure_future(adapter.answer(queries))
            met = [await scaler.met.get() for _ in range(asked)]
            assert met.count(False) == asked - 16
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call


async def test_of_metrics_that_were_late_the_one_whose_turn_is_longest_ago_comes_first() -> None:
    """Those that still hang would otherwise take all turns from one that has an answer again."""
    scaler = Waiting()
    cities = {"mended": "slow", **{f"late-{number}": "slow-still" for number in range(16)}}
    metrics = {name: {"metadata": {"city": city}, "name": "a"} for name, city in cities.items()}
    mended, *late = (testing.external(name) for name in metrics)
    async with serving(scaler) as address, testing.context("weather") as context, asyncio.timeout(60):
        options = {"address": address, "request_timeout": "90s", "metrics": metrics}
        adapter = KedaExternal(msgspec.convert(options, KedaExternal.Settings), context)
        for slow, queries in (b"slow", [mended, *late[:15]]), (b"slow", late[15:]), (b"slow-still", [*late, mended]):
            scaler.slow = slow
            call = asyncio.ensure_future(adapter.answer(queries))
            met = [await scaler.met.get() for _ in queries[:16]]
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
    assert not all(met)


async def test_metrics_that_were_late_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "_MOST_LATE", 3)
    scaler = Waiting()
    metrics = {f"late-{number}": {"metadata": {"city": "slow"}, "name": "a"} for number in range(9)}
    async with serving(scaler) as address, testing.context("weather") as context, asyncio.timeout(60):
        options = {"address": address, "request_timeout": "90s", "metrics": metrics}
        made = KedaExternal(msgspec.convert(options, KedaExternal.Settings), context)
        call = asyncio.ensure_future(made.answer([testing.external(name) for name in metrics]))
        for _ in metrics:
            await scaler.met.get()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert len(made._late) == 3


async def test_a_server_that_is_down_is_an_error() -> None:
    (answer,) = await ask(f"127.0.0.1:{ports.free(1)[0]}")
    assert "refused the connection" in message(answer)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_tls(authority: trustme.CA, **options: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", **options).configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    return context


async def test_tls_with_a_client_certificate(authority: trustme.CA, tmp_path: Path) -> None:
    ca, client = str(tmp_path / "ca.pem"), str(tmp_path / "client.pem")
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("hpad").private_key_and_cert_chain_pem.write_to_path(client)
    async with serving(Scaler(), server_tls(authority)) as address:
        (found,) = await ask(address, tls=True, ca=ca, cert=client)
        (untrusted,) = await ask(address, tls=True, cert=client)
        (insecure,) = await ask(address, tls=True, insecure=True, cert=client)
        (anonymous,) = await ask(address, tls=True, ca=ca)
        (other_name,) = await ask(address, tls=True, ca=ca, cert=client, server_name="scaler.example.com")
        (no_file,) = await ask(address, tls=True, ca=str(tmp_path / "gone"))
    async with serving(Scaler()) as address:
        (plain,) = await ask(address, tls=True, ca=ca)
    assert "does not speak TLS: is this a port without TLS?" in message(plain)
    assert value(found) == value(insecure) == (12_500,)
    assert "not trusted" in message(untrusted)
    assert isinstance(anonymous, AdapterError)
    assert "not trusted" in message(other_name)
    assert "gone cannot be used" in message(no_file)


async def test_an_expired_certificate_is_an_error(authority: trustme.CA, tmp_path: Path, past: Any) -> None:
    ca = str(tmp_path / "ca.pem")
    authority.cert_pem.write_to_path(ca)
    async with serving(Scaler(), server_tls(authority, not_after=past)) as address:
        (answer,) = await ask(address, tls=True, ca=ca)
    assert "expired" in message(answer)


@pytest.fixture
def past() -> Any:
    return datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


async def test_the_adapter_keeps_the_contract() -> None:
    settings = {"metrics": {"storms": {"name": "x"}, "by_city": {"name": "x", "params": ["city"]}}}
    queries = [STORMS, testing.external("by_city", "city=Rome"), testing.external("by_city"), testing.external("none")]
    async with serving(Scaler()) as address, testing.context("weather") as context:
        made = msgspec.convert({"address": address, **settings}, KedaExternal.Settings)
        adapter: Adapter = KedaExternal(made, context)
        answers = await testing.check_adapter(adapter, queries)
    assert [isinstance(answer, ExternalSample) for answer in answers] == [True, True, False, False]
    assert "there is no metric" in message(answers[3])


async def test_the_name_of_the_hpa_makes_a_query_personal() -> None:
    async with testing.context("weather") as context:
        settings = {"address": "h:1", "metrics": {"storms": {}, "named": {"name": "x"}}}
        adapter = KedaExternal(msgspec.convert(settings, KedaExternal.Settings), context)
    assert [adapter.personal(testing.external(name)) for name in ("storms", "named", "other")] == [True, False, False]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"address": "scaler"}, "address: 'scaler' is not of the form"),
        ({"address": "http://scaler:1"}, "is not of the form"),
        ({"address": "scaler:0"}, "is not of the form"),
        ({"address": "scaler:1", "request_timeout": "0s"}, "request_timeout: '0s' is not a duration above zero"),
        ({"address": "scaler:1?wait=1"}, "is not of the form"),
        ({"address": "u:s3cr3t@scaler:1"}, "address: contains credentials: write them as settings"),
        ({"address": "h:1", "ca": "/ca.pem"}, "ca: has an effect with tls: true only"),
        ({"address": "h:1", "server_name": "scaler"}, "server_name: has an effect with tls: true only"),
        ({"address": "h:1", "tls": True, "key": "/key.pem"}, "key: there is a key, but no cert"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=error):
        msgspec.convert({"metrics": {"depth": {}}, **settings}, KedaExternal.Settings)


def test_kedas_resolver_prefix_is_accepted() -> None:
    made = msgspec.convert({"metrics": {"depth": {}}, "address": "dns:///scaler.shop:9090"}, KedaExternal.Settings)
    assert made.address == "dns:///scaler.shop:9090"
