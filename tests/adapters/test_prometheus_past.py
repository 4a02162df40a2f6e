"""The PromQL of a metric's past: evaluated now, it gives the value that the adapter answers; on a real Prometheus."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support import prometheus_lab as lab

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample, ObjectSample, PastPromQL, PodSample, Query
from hpad.lab.servers.prometheus import PrometheusServer
from hpad_adapters.prometheus import Prometheus

pytestmark = pytest.mark.prometheus
WINDOW = timedelta(minutes=2)
DEPTH = 'queue_depth{namespace="<<.Namespace>>",<<.LabelMatchers>>}'
INGRESS = {"query": 'ingress_requests{ingress="<<.Object>>"}'}


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    up = [f'up{{job="x"}} 1 {lab.NOW - age}' for age in range(600, -1, -15)]
    body = lab.history().removesuffix("# EOF\n")
    yield from lab.serve("\n".join([f"{body}# TYPE up gauge", *up, "# EOF", ""]))


async def both(server: PrometheusServer, query: Query, **options: Any) -> tuple[Answer, PastPromQL]:
    settings = msgspec.convert({"url": server.url, "query_timeout": "60s", **options}, Prometheus.Settings)
    async with testing.context("prom", api=lab.PodsApi(), clock=lab.FrozenClock()) as context:
        adapter = Prometheus(settings, context)
        (answer,) = await adapter.answer([query])
        return answer, await adapter.past(query, WINDOW)


async def total(server: PrometheusServer, expression: str, at: int = lab.NOW) -> float | None:
    """Returns the sum of the series; None if there are none."""
    found = await lab.evaluated(server, expression, at)
    return sum(found) if found else None


def external(selector: str) -> Query:
    return msgspec.structs.replace(testing.external("m", selector), namespace="shop")


@pytest.mark.parametrize(
    ("metric", "selector"),
    [
        ({"query": DEPTH}, "queue=orders"),
        ({"query": DEPTH}, "queue=sharded"),
        ({"query": f"sum({DEPTH}) by (<<.GroupBy>>)"}, "queue in (orders,mails)"),
        ({"query": DEPTH, "empty": "zero"}, "queue=absent"),
        ({"query": DEPTH, "empty": "zero"}, "queue=orders"),
        ({"query": "windowed{<<.LabelMatchers>>}", "window": {"fetch": "5m", "last": "1m"}}, "pod=web-1"),
        ({"query": "windowed{<<.LabelMatchers>>}", "window": {"last": "1m", "reduce": "max"}}, "pod=web-1"),
        ({"query": "windowed{<<.LabelMatchers>>}", "window": {"last": "1m", "reduce": "newest"}}, "pod=web-1"),
        ({"query": f"sum({DEPTH})", "window": {"last": "1m", "step": "15s", "reduce": "min"}}, "queue=orders"),
    ],
)
async def test_of_an_external_metric(server: PrometheusServer, metric: dict[str, Any], selector: str) -> None:
    answer, past = await both(server, external(selector), metrics={"m": metric})
    assert isinstance(answer, ExternalSample), answer
    found = await total(server, past.values)
    # A window of hpad ends at the newest sample, and that of PromQL now, up to a sample later.
    assert found == pytest.approx(sum(answer.values) / 1000, abs=1.1 if "window" in metric else 1e-3)
    assert (past.published, past.acked, past.problem) == ("", "", "")


async def test_a_zero_for_no_series_is_a_gap_while_the_server_scraped_nothing(server: PrometheusServer) -> None:
    _, past = await both(server, external("queue=absent"), metrics={"m": {"query": DEPTH, "empty": "zero"}})
    assert await total(server, past.values) == 0
    assert await total(server, past.values, lab.NOW - 3600) is None


@pytest.mark.parametrize("reduce", ["max", "min", "avg", "sum"])
async def test_of_an_object(server: PrometheusServer, reduce: str) -> None:
    several = {"query": 'label_replace(ingress_requests, "x", "<<.Object>>", "", "")', "reduce": reduce}
    for metric, name in ((INGRESS, "main.route"), (several, "any")):
        query = testing.object_metric("m", "Ingress", name, api_version="networking.k8s.io/v1")
        answer, past = await both(server, query, metrics={"m": metric})
        assert isinstance(answer, ObjectSample), answer
        assert await total(server, past.values) == pytest.approx(answer.value / 1000)


async def test_of_an_object_that_only_the_answer_tells(server: PrometheusServer) -> None:
    query = testing.object_metric("m", "Ingress", "main.route", api_version="networking.k8s.io/v1")
    with pytest.raises(AdapterError, match='"m": only the labels of the answer tell the object'):
        await both(server, query, metrics={"m": {"query": "ingress_requests", "object": "ingress"}})


@pytest.mark.parametrize(
    "metric",
    [
        {"query": "sum(rate(http_requests_total{<<.PodMatchers>>}[2m])) by (pod)"},
        {"query": "rate(http_requests_total{<<.PodMatchers>>}[2m])", "reduce": "max"},
    ],
)
async def test_of_pods_it_is_their_mean(server: PrometheusServer, metric: dict[str, Any]) -> None:
    query = msgspec.structs.replace(testing.pods_metric("m", "verb=GET"), namespace="shop")
    answer, past = await both(server, query, metrics={"m": {**metric, "pod_labels": ""}})
    assert isinstance(answer, PodSample), answer
    mean = sum(value.value for value in answer.values.values()) / len(answer.values) / 1000
    assert len(answer.values) > 1
    assert await total(server, past.values) == pytest.approx(mean)


async def test_pods_by_their_names_of_today_are_refused(server: PrometheusServer) -> None:
    query = msgspec.structs.replace(testing.pods_metric("m", "app=web"), namespace="shop")
    with pytest.raises(AdapterError, match="the pods of the past are not known"):
        await both(server, query, metrics={"m": {"query": "sum(http_requests_total) by (pod)"}})
