"""The adapter `seasonal` against a real Prometheus with weeks of samples, and against one with faults."""

import asyncio
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
import trustme
from aiohttp import web
from support import http_stub
from support import prometheus_lab as lab
from support.http_stub import Stub

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample, HPAIdentity, Query
from hpad.lab.servers import ports
from hpad.lab.servers.prometheus import PrometheusServer
from hpad_adapters.prometheus.seasonal import OWN_RECORDS, Metric, Seasonal

SECRET = "s3cr3t-t0k3n"
NOON = datetime(2026, 3, 31, 10, tzinfo=UTC)
"""A Tuesday; in Berlin, where summer time began two days before, it is 12:00."""
BERLIN = ZoneInfo("Europe/Berlin")
WEEKS = (50, 20, 30, 40)
"""What was wanted one, two, three and four weeks before NOON, in UTC."""
FLOOR = {"query": "sum(wanted)", "ahead": "0s"}


class ClockAt(lab.FrozenClock):
    def __init__(self, moment: datetime = NOON) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment


def weeks_of_samples() -> str:
    """Returns samples around the same time of four weeks."""
    lines: list[str] = []

    def hour(name: str, labels: str, middle: datetime, value: int, first: int = -30, last: int = 30) -> None:
        start = int(middle.timestamp())
        lines.extend(f"{name}{{{labels}}} {value} {start + 60 * minute}" for minute in range(first, last + 1))

    for back, value in reversed(list(enumerate(WEEKS, start=1))):
        hour("wanted", "", NOON - timedelta(weeks=back), value)
    by_name: dict[str, list[str]] = {"wanted": lines}
    for name, backs in (("half", (3, 1)), ("ends", (1,))):
        lines = by_name[name] = []
        for back in backs:
            hour(name, "", NOON - timedelta(weeks=back), WEEKS[back - 1], last=-20 if name == "ends" else 30)
    lines = by_name["peak"] = []
    week = NOON - timedelta(weeks=1)
    hour("peak", "", week, 2, last=7)
    hour("peak", "", week, 90, first=8, last=12)
    hour("peak", "", week, 2, first=13)
    lines = by_name["local"] = []
    # One week before, Berlin had winter time: 12:00 there was 11:00 UTC.
    hour("local", "", NOON - timedelta(weeks=1), 7, last=20)
    hour("local", "", NOON - timedelta(weeks=1) + timedelta(hours=1), 70, last=20)
    lines = by_name["several"] = []
    for shard in "ab":
        hour("several", f'shard="{shard}"', week, 3)
    lines = by_name["hpad_hpa_metric_proposal"] = []
    for metric, value in (("cpu", 4), ("depth{queue=orders}", 9), ("floor", 60), ("floor{}", 61)):
        hour("hpad_hpa_metric_proposal", f'namespace="shop",hpa_name="web",metric="{metric}"', week, value)
    hour("hpad_hpa_metric_proposal", 'namespace="shop",hpa_name="other",metric="cpu"', week, 99)
    texts = [line for name, own in by_name.items() for line in (f"# TYPE {name} gauge", *own)]
    return "\n".join([*texts, "# EOF", ""])


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    yield from lab.serve(weeks_of_samples())


def settings_of(url: str, metrics: dict[str, Any], **options: Any) -> Any:
    return msgspec.convert({"url": url, "metrics": metrics, "query_timeout": "60s", **options}, Seasonal.Settings)


def query(name: str = "floor", hpa: str = "web") -> Query:
    return msgspec.structs.replace(
        testing.external(name, namespace="shop"), hpa=HPAIdentity(name=hpa, target_kind="Deployment", target_name=hpa)
    )


async def ask(url: str, metric: dict[str, Any], at: datetime = NOON, **options: Any) -> Answer:
    async with testing.context("floors", clock=ClockAt(at)) as context:
        [answer] = await Seasonal(settings_of(url, {"floor": metric}, **options), context).answer([query()])
        return answer


async def value(url: str, metric: dict[str, Any], **options: Any) -> float:
    answer = await ask(url, metric, **options)
    assert isinstance(answer, ExternalSample), answer
    assert answer.timestamp == NOON
    return sum(answer.values) / 1000


async def failure(url: str, metric: dict[str, Any], **options: Any) -> AdapterError:
    answer = await ask(url, metric, **options)
    assert isinstance(answer, AdapterError), answer
    assert SECRET not in answer.message
    return answer


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (FLOOR, 35),
        (FLOOR | {"weeks": 3}, 30),
        (FLOOR | {"weeks": 1}, 50),
        (FLOOR | {"combine": "max"}, 50),
        (FLOOR | {"combine": "mean"}, 35),
        (FLOOR | {"weeks": 1, "cap": 12.5}, 12.5),
        (FLOOR | {"weeks": 8}, 35),
        (FLOOR | {"query": "half", "min_weeks": 2}, 40),
        (FLOOR | {"query": "sum(wanted) / 8", "weeks": 1}, 6.25),
    ],
)
async def test_the_value_is_that_of_the_same_time_of_the_last_weeks(
    server: PrometheusServer, metric: dict[str, Any], expected: float
) -> None:
    """Weeks without samples (5 to 8, and every other one of `half`) are left out."""
    assert await value(server.url, metric) == expected


@pytest.mark.parametrize(("ahead", "expected"), [("0s", 2), ("5m", 2), ("10m", 90), ("15m", 90)])
async def test_a_peak_counts_from_the_lead_time_before_it(server: PrometheusServer, ahead: str, expected: int) -> None:
    """The peak of the last week begins eight minutes from now, and lasts for five."""
    assert await value(server.url, {"query": "peak", "ahead": ahead}) == expected


async def test_a_peak_counts_until_its_end(server: PrometheusServer) -> None:
    for minutes, expected in ((11, 90), (20, 2)):
        answer = await ask(server.url, {"query": "peak", "ahead": "5m"}, NOON + timedelta(minutes=minutes))
        assert isinstance(answer, ExternalSample)
        assert answer.values == (expected * 1000,)


async def test_the_same_time_is_that_of_the_clocks_of_the_time_zone(server: PrometheusServer) -> None:
    assert NOON.astimezone(BERLIN).hour == 12
    local = {"query": "local", "weeks": 1, "ahead": "0s"}
    assert await value(server.url, local) == 7
    assert await value(server.url, local, timezone="Europe/Berlin") == 70


async def test_own_records_are_the_proposals_of_the_other_metrics(server: PrometheusServer) -> None:
    """The floor's own proposal is left out: a floor of a floor would never fall."""
    assert Metric().query == OWN_RECORDS
    assert await value(server.url, {"ahead": "0s"}) == 9
    async with testing.context("floors", clock=ClockAt()) as context:
        adapter = Seasonal(settings_of(server.url, {"floor": {"ahead": "0s"}}), context)
        assert adapter.personal(query())
        nameless = msgspec.structs.replace(query(), hpa=None)
        answers = await adapter.answer([query(), query(hpa="other"), nameless])
    assert [each.values if isinstance(each, ExternalSample) else each.blame for each in answers] == [
        (9000,),
        (99000,),
        "spec",
    ]


async def test_all_weeks_missing_is_an_error_and_never_zero(server: PrometheusServer) -> None:
    for metric, found in ((FLOOR | {"query": "no_such_series"}, 0), (FLOOR | {"query": "half", "min_weeks": 3}, 2)):
        error = await failure(server.url, metric)
        assert f"has a value in {found} of the last 4 weeks" in error.message
    # No sample within the five minutes that Prometheus looks back.
    assert "in 0 of the last 4 weeks" in (await failure(server.url, FLOOR | {"query": "ends"})).message
    # A value that is no number is no value.
    assert "in 0 of the last 4 weeks" in (await failure(server.url, FLOOR | {"query": "wanted * (0 / 0)"})).message


async def test_a_query_with_several_values_or_errors_blames_the_spec(server: PrometheusServer) -> None:
    several = await failure(server.url, FLOOR | {"query": "several"})
    assert (several.blame, "has 2 values" in several.message) == ("spec", True)
    wrong = await failure(server.url, FLOOR | {"query": "sum(wanted) by"})
    assert (wrong.blame, "400" in wrong.message) == ("spec", True)


async def test_the_contract(server: PrometheusServer) -> None:
    metrics = {"floor": FLOOR, "own": {}, "none": FLOOR | {"query": "no_such_series"}}
    queries = [query("floor"), query("own"), query("none"), query("unknown"), testing.external("floor", "a=b")]
    async with testing.context("floors", clock=ClockAt()) as context:
        answers = await testing.check_adapter(Seasonal(settings_of(server.url, metrics), context), queries)
    assert [isinstance(each, ExternalSample) for each in answers] == [True, True, False, False, False]
    messages = [each.message for each in answers if isinstance(each, AdapterError)]
    assert 'there is no metric "unknown"' in messages[1]
    assert "takes no selector" in messages[2]


async def test_the_promql_of_a_week_can_be_shown(server: PrometheusServer) -> None:
    async with testing.context("floors", clock=ClockAt()) as context:
        adapter = Seasonal(settings_of(server.url, {"floor": {"query": 'max(x{ns="<<.Namespace>>"})'}}), context)
        assert await adapter.explain(query()) == 'max_over_time((max(x{ns="shop"}))[600s:60s])'


EMPTY = {"status": "success", "data": {"resultType": "vector", "result": []}}
HTML = {"body": "<html>", "content_type": "text/html"}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"body": EMPTY}, "has a value in 0 of the last 4 weeks"),
        ({"status": 401, **HTML}, "401, the credentials are missing or wrong"),
        ({"status": 503, "body": {"status": "error", "error": "overloaded"}}, "503"),
        ({"status": 200, **HTML}, "answers text/html, not JSON"),
        (
            {"body": {"status": "success", "data": {"resultType": "vector", "result": [{"value": 1}]}}},
            "something other",
        ),
        ({"body": {"status": "success", "data": EMPTY["data"], "isPartial": True}}, "answers in part only"),
    ],
)
async def test_faults_of_the_server_are_errors_without_secrets(stub: Stub, answer: dict[str, Any], text: str) -> None:
    stub.answers(**answer)
    options = {"bearer_token": SECRET, "params": {"tenant": SECRET}, "headers": {"X-Key": SECRET}}
    assert text in (await failure(stub.url, FLOOR, **options)).message


async def test_one_week_that_cannot_be_read_is_not_a_missing_week(stub: Stub) -> None:
    """A floor from the other weeks could be far too low."""
    one = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "5"]}]}}
    stub.answers(one)
    good = stub.handler
    stub.answers(status=503, body={"status": "error", "error": "overloaded"})
    bad = stub.handler

    async def fails_for_the_second_week(request: web.BaseRequest) -> web.StreamResponse:
        asked = float(stub.forms[-1]["time"])
        return await (bad if asked == (NOON - timedelta(weeks=2)).timestamp() else good)(request)

    stub.handler = fails_for_the_second_week
    assert "503" in (await failure(stub.url, FLOOR)).message


async def test_a_server_that_is_down_or_slow(stub: Stub) -> None:
    (port,) = ports.free(1)
    assert "refused" in (await failure(f"http://127.0.0.1:{port}", FLOOR)).message
    never = asyncio.Event()

    async def waits(request: web.BaseRequest) -> web.StreamResponse:
        await never.wait()
        return web.Response()

    stub.handler = waits
    assert "did not answer within" in (await failure(stub.url, FLOOR, query_timeout="1ms")).message


async def test_an_expired_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    expired = authority.issue_cert("127.0.0.1", not_after=datetime(2020, 1, 1, tzinfo=UTC))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    expired.configure_cert(tls)
    async with http_stub.serving(http_stub.hang_up, tls=tls) as url:
        error = await failure(url, FLOOR, ca=str(tmp_path / "ca.pem"))
    assert "expired" in error.message


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"metrics": {"floor": {"weeks": 0}}}, "weeks"),
        ({"metrics": {"floor": {"weeks": 2, "min_weeks": 3}}}, "min_weeks: 3 is more than weeks, 2"),
        ({"metrics": {"floor": {"ahead": "25h"}}}, "ahead: '25h' is not between 0s and 24h"),
        ({"metrics": {"floor": {"cap": 0}}}, "cap"),
        ({"metrics": {"floor": {}}, "timezone": "Mars/Here"}, "timezone: there is no 'Mars/Here'"),
        ({"metrics": {"floor": {}}, "url": "prometheus:9090"}, "url"),
        ({"metrics": {"floor": {}}, "username": "u"}, 'password: is missing for user "u"'),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=text):
        msgspec.convert({"url": "http://p:9090", **settings}, Seasonal.Settings)


@pytest.mark.parametrize(
    ("query_text", "text"),
    [("max(x", "is never closed"), ("x{a='<<.Pod>>'}", "there is no variable .Pod"), ("", "is empty")],
)
def test_a_wrong_query_is_refused(query_text: str, text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=rf"query: .*{text}"):
        settings_of("http://p:9090", {"floor": {"query": query_text}})
