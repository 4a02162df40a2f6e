"""Discovery of series: only where the rule does not name a series, and cached."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web
from support.http_stub import SetClock, serving

from hpad import testing
from hpad.adapter import AdapterError, ApiReader, ExternalSample, PodSample
from hpad_adapters.prometheus import Prometheus

SHOP = {"seriesQuery": '{shop!=""}', "name": {"matches": "^shop_(.*)_(total|sum)$", "as": "${1}_$2"}}
PLAIN = {"seriesQuery": '{__name__=~"^plain_.*"}', "name": {"matches": "^plain_(.*)$"}}
ANY = {"seriesQuery": '{any!=""}'}
RULES = {"externalRules": [rule | {"resources": {"namespaced": False}} for rule in (SHOP, PLAIN)]}


class Series:
    """A server that has the series `names` and answers 1 to every query.

    A rule whose `seriesQuery` contains `without` has no series, as null. `lookups` holds the selectors of the requests
    for names, `queries` the PromQL.
    """

    def __init__(self) -> None:
        self.names: list[str] | None = []
        self.without: str | None = None
        self.lookups: list[str] = []
        self.queries: list[str] = []
        self.url = ""

    async def answer(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/api/v1/label/__name__/values":
            self.lookups.append(request.query["match[]"])
            assert float(request.query["start"]) < float(request.query["end"])
            none = self.without is not None and self.without in request.query["match[]"]
            return web.json_response({"status": "success", "data": None if none else self.names})
        self.queries.append(str((await request.post())["query"]))
        result = [{"metric": {}, "value": [1.0, "1"]}]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})


@pytest.fixture
async def series() -> AsyncIterator[Series]:
    series = Series()
    async with serving(series.answer) as series.url:
        yield series


async def test_a_rule_without_series_leaves_the_metrics_of_other_rules_alone(series: Series) -> None:
    """The last rule counts, but has no series: the answer for its names is null."""
    series.names, series.without = ["shop_sales_total"], "any"
    rules = [{**rule, "resources": {"namespaced": False}} for rule in (SHOP, ANY)]
    async with testing.context("prom") as context:
        settings = Prometheus.Settings(url=series.url, query_timeout="60s", rules={"externalRules": rules})
        found, missing = await Prometheus(settings, context).answer(
            [testing.external("sales_total"), testing.external("no_series")]
        )
    assert isinstance(found, ExternalSample), found
    assert isinstance(missing, AdapterError)
    assert "nothing answers" in missing.message


async def test_a_rule_that_names_its_series_needs_no_lookup(series: Series) -> None:
    rule = PLAIN | {"seriesQuery": '{__name__="plain_lag"}', "resources": {"namespaced": False}}
    async with testing.context("prom") as context:
        adapter = Prometheus(
            Prometheus.Settings(url=series.url, query_timeout="60s", rules={"externalRules": [rule]}), context
        )
        (answer,) = await adapter.answer([testing.external("lag")])
    assert isinstance(answer, ExternalSample)
    assert series.queries == ["sum(plain_lag{}) by ()"]
    assert series.lookups == []


async def test_a_lookup_is_cached_for_the_discovery_ttl(series: Series) -> None:
    series.names = ["shop_orders_total"]
    clock = SetClock()
    async with testing.context("prom", clock=clock) as context:
        adapter = Prometheus(
            Prometheus.Settings(url=series.url, query_timeout="60s", rules=RULES, discovery_ttl="5m"), context
        )
        for clock.seconds in (0.0, 15.0, 299.0):
            (answer,) = await adapter.answer([testing.external("orders_total")])
            assert isinstance(answer, ExternalSample)
        assert series.queries == ["sum(shop_orders_total{}) by ()"] * 3
        lookups = ['{__name__=~"^plain_.*"}', '{shop!=""}']
        assert series.lookups == lookups
        clock.seconds = 301.0
        await adapter.answer([testing.external("orders_total")])
        assert series.lookups == lookups * 2


async def test_an_absent_series_is_looked_up_again_after_30_seconds(series: Series) -> None:
    clock = SetClock()
    async with testing.context("prom", clock=clock) as context:
        rules = {"externalRules": [SHOP | {"resources": {"namespaced": False}}]}
        adapter = Prometheus(Prometheus.Settings(url=series.url, query_timeout="60s", rules=rules), context)
        for clock.seconds, lookups in ((0.0, 1), (15.0, 1), (31.0, 2)):
            (answer,) = await adapter.answer([testing.external("orders_total")])
            assert isinstance(answer, AdapterError)
            assert len(series.lookups) == lookups
        clock.seconds, series.names = 62.0, ["shop_orders_total"]
        (answer,) = await adapter.answer([testing.external("orders_total")])
        assert isinstance(answer, ExternalSample)


async def test_of_two_rules_for_one_name_the_one_with_a_series_answers(series: Series) -> None:
    series.names = ["lag"]
    rules = {"externalRules": [rule | {"resources": {"namespaced": False}} for rule in (PLAIN, ANY)]}
    async with testing.context("prom") as context:
        adapter = Prometheus(Prometheus.Settings(url=series.url, query_timeout="60s", rules=rules), context)
        (answer,) = await adapter.answer([testing.external("lag")])
    assert isinstance(answer, ExternalSample)
    assert series.queries == ["sum(lag{}) by ()"]


class Paged:
    """An API server that lists pods page by page; `params` holds the parameters of each request."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.params: list[dict[str, str]] = []

    async def get(self, path: str, params: Any = None) -> bytes:
        self.params.append(dict(params))
        answer = self.answers[params.get("continue", "")]
        if isinstance(answer, AdapterError):
            raise answer
        return msgspec.json.encode(answer)


def _page(*names: str, more: str = "") -> dict[str, Any]:
    items = [{"metadata": {"name": name, "labels": {"app": name.partition("-")[0]}}} for name in names]
    return {"items": items, "metadata": {"continue": more}}


async def _pods(series: Series, api: ApiReader, *queries: Any) -> Any:
    query = 'sum(x{namespace="<<.Namespace>>"}) by (pod)'
    settings = msgspec.convert(
        {"url": series.url, "query_timeout": "60s", "metrics": {"x": {"query": query, "empty": "zero"}}},
        Prometheus.Settings,
    )
    async with testing.context("prom", api=api) as context:
        return await Prometheus(settings, context).answer(queries)


async def test_pods_are_listed_page_by_page(series: Series) -> None:
    api = Paged({"": _page("web-1", "cart-1", more="next"), "next": _page("web-2")})
    web_pods, cart_pods = (testing.pods_metric("x", f"app={app}") for app in ("web", "cart"))
    answers = await _pods(series, api, web_pods, cart_pods)
    assert [sorted(answer.values) for answer in answers if isinstance(answer, PodSample)] == [
        ["web-1", "web-2"],
        ["cart-1"],
    ]
    assert api.params == [
        {"limit": "500", "resourceVersion": "0"},
        {"limit": "500", "continue": "next"},
    ]


async def test_one_target_lists_its_own_pods_only(series: Series) -> None:
    api = Paged({"": _page("web-1")})
    await _pods(series, api, testing.pods_metric("x", "app=web"))
    assert api.params == [{"limit": "500", "resourceVersion": "0", "labelSelector": "app=web"}]


@pytest.mark.parametrize(
    ("answer", "blame", "text"),
    [
        (AdapterError("pods is forbidden", "cluster"), "cluster", "pods is forbidden"),
        ([], "cluster", "no PodList"),
        (_page("cart-1"), "spec", "no pods"),
    ],
)
async def test_pods_that_cannot_be_listed_are_an_error(series: Series, answer: Any, blame: str, text: str) -> None:
    (error,) = await _pods(series, Paged({"": answer}), testing.pods_metric("x", "app=web"))
    assert isinstance(error, AdapterError)
    assert (error.blame, text in error.message) == (blame, True)
    assert series.queries == []
