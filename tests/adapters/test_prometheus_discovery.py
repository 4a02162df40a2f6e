"""Looking for series: only where names do not tell, and not again and again."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from hpad import testing
from hpad.adapter import AdapterError, ApiReader, Context, ExternalSample, PodSample
from hpad_adapters.prometheus import Prometheus

SHOP = {"seriesQuery": '{shop!=""}', "name": {"matches": "^shop_(.*)_(total|sum)$", "as": "${1}_$2"}}
PLAIN = {"seriesQuery": '{__name__=~"^plain_.*"}', "name": {"matches": "^plain_(.*)$"}}
ANY = {"seriesQuery": '{any!=""}'}
RULES = {"externalRules": [rule | {"resources": {"namespaced": False}} for rule in (SHOP, PLAIN)]}


class Series:
    """A server that knows `names` and answers 1 to everything; `looked` counts how often it was asked for names."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.looked: list[str] = []
        self.queries: list[str] = []
        self.url = ""

    async def values(self, request: web.Request) -> web.Response:
        self.looked.append(request.query["match[]"])
        assert float(request.query["start"]) < float(request.query["end"])
        return web.json_response({"status": "success", "data": self.names})

    async def query(self, request: web.Request) -> web.Response:
        self.queries.append(str((await request.post())["query"]))
        result = [{"metric": {}, "value": [1.0, "1"]}]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})


class Clock:
    """A clock that is set by hand."""

    def __init__(self, context: Context) -> None:
        self.seconds = 0.0
        self.now = context.clock.now
        self.sleep = context.clock.sleep

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
async def series() -> AsyncIterator[Series]:
    made = Series()
    application = web.Application()
    application.router.add_get("/api/v1/label/__name__/values", made.values)
    application.router.add_post("/api/v1/query", made.query)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


async def test_names_that_can_be_read_backwards_take_no_look(series: Series) -> None:
    async with testing.context("prom") as context:
        adapter = Prometheus(
            Prometheus.Settings(url=series.url, rules={"externalRules": RULES["externalRules"][1:]}), context
        )
        (answer,) = await adapter.answer([testing.external("lag")])
    assert isinstance(answer, ExternalSample)
    assert series.queries == ["sum(plain_lag{}) by ()"]
    assert series.looked == []


async def test_a_name_that_cannot_is_looked_for_once_in_a_while(series: Series) -> None:
    series.names = ["shop_orders_total"]
    async with testing.context("prom") as context:
        clock = Clock(context)
        context = msgspec.structs.replace(context, clock=clock)
        adapter = Prometheus(Prometheus.Settings(url=series.url, rules=RULES, discovery_ttl="5m"), context)
        for clock.seconds in (0.0, 15.0, 299.0):
            (answer,) = await adapter.answer([testing.external("orders_total")])
            assert isinstance(answer, ExternalSample)
        assert series.queries == ["sum(shop_orders_total{}) by ()"] * 3
        looks = ['{__name__=~"^plain_.*"}', '{shop!=""}']
        assert series.looked == looks
        clock.seconds = 301.0
        await adapter.answer([testing.external("orders_total")])
        assert series.looked == looks * 2


async def test_what_is_not_there_is_looked_for_again_soon_but_not_at_once(series: Series) -> None:
    async with testing.context("prom") as context:
        clock = Clock(context)
        context = msgspec.structs.replace(context, clock=clock)
        rules = {"externalRules": [SHOP | {"resources": {"namespaced": False}}]}
        adapter = Prometheus(Prometheus.Settings(url=series.url, rules=rules), context)
        for clock.seconds, looks in ((0.0, 1), (15.0, 1), (31.0, 2)):
            (answer,) = await adapter.answer([testing.external("orders_total")])
            assert isinstance(answer, AdapterError)
            assert len(series.looked) == looks
        clock.seconds, series.names = 62.0, ["shop_orders_total"]
        (answer,) = await adapter.answer([testing.external("orders_total")])
        assert isinstance(answer, ExternalSample)


async def test_two_rules_for_one_name_are_told_apart_by_their_series(series: Series) -> None:
    series.names = ["lag"]
    rules = {"externalRules": [rule | {"resources": {"namespaced": False}} for rule in (PLAIN, ANY)]}
    async with testing.context("prom") as context:
        adapter = Prometheus(Prometheus.Settings(url=series.url, rules=rules), context)
        (answer,) = await adapter.answer([testing.external("lag")])
    assert isinstance(answer, ExternalSample)
    assert series.queries == ["sum(lag{}) by ()"]


class Paged:
    """An API server that lists pods three to a page."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[dict[str, str]] = []

    async def get(self, path: str, params: Any = None) -> bytes:
        self.asked.append(dict(params))
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
        {"url": series.url, "metrics": {"x": {"query": query, "empty": "zero"}}}, Prometheus.Settings
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
    assert api.asked == [
        {"limit": "500", "resourceVersion": "0"},
        {"limit": "500", "continue": "next"},
    ]


async def test_one_target_lists_its_own_pods_only(series: Series) -> None:
    api = Paged({"": _page("web-1")})
    await _pods(series, api, testing.pods_metric("x", "app=web"))
    assert api.asked == [{"limit": "500", "resourceVersion": "0", "labelSelector": "app=web"}]


@pytest.mark.parametrize(
    ("answer", "blame", "said"),
    [
        (AdapterError("pods is forbidden", "cluster"), "cluster", "pods is forbidden"),
        ([], "cluster", "no PodList"),
        (_page("cart-1"), "spec", "no pods"),
    ],
)
async def test_pods_that_are_not_known(series: Series, answer: Any, blame: str, said: str) -> None:
    (error,) = await _pods(series, Paged({"": answer}), testing.pods_metric("x", "app=web"))
    assert isinstance(error, AdapterError)
    assert (error.blame, said in error.message) == (blame, True)
    assert series.queries == []
