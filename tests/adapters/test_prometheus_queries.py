"""Queries of the setting `metrics`, answered by a real Prometheus."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import msgspec
import pytest
import structlog
from support import prometheus_lab as lab

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, ExternalSample, HPAIdentity, ObjectSample, PodSample, Query
from hpad.api.selector import Operator, Requirement, Selector
from hpad.lab.servers.prometheus import PrometheusServer
from hpad_adapters.prometheus import Prometheus

pytestmark = pytest.mark.prometheus
AT = datetime.fromtimestamp(lab.NOW, UTC)


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    yield from lab.serve()


class Client:
    """Queries the real server through an adapter; `requests` holds the method and path of each HTTP request."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.api = lab.PodsApi()
        self.requests: list[str] = []

    async def answers(self, metrics: dict[str, Any], *queries: Query, **options: Any) -> list[Answer]:
        """Returns the answers to `queries` with these `metrics:` of the configuration."""
        settings = msgspec.convert(
            {"url": self._url, "metrics": metrics, "query_timeout": "60s", **options}, Prometheus.Settings
        )
        async with aiohttp.ClientSession(trace_configs=[self._trace()]) as http:
            log = structlog.get_logger()
            context = Context(name="prom", http=http, clock=lab.FrozenClock(), log=log, api=self.api)
            return await Prometheus(settings, context).answer(queries)

    async def answer(self, promql: str, query: Query, **fields: Any) -> Answer:
        """Returns the answer to one query by this PromQL."""
        (answer,) = await self.answers({query.name: {"query": promql, **fields}}, query)
        return answer

    def _trace(self) -> aiohttp.TraceConfig:
        async def note(session: Any, context: Any, parameters: aiohttp.TraceRequestStartParams) -> None:
            self.requests.append(f"{parameters.method} {parameters.url.path}")

        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(note)
        return trace


@pytest.fixture
def prom(server: PrometheusServer) -> Client:
    return Client(server.url)


RATE = 'sum(rate(http_requests_total{namespace="<<.Namespace>>"}[2m])) by (pod)'


async def test_pods_metric_is_of_the_targets_pods_only(prom: Client) -> None:
    answer = await prom.answer(RATE, testing.pods_metric("rps", "app=web", namespace="shop"))
    assert isinstance(answer, PodSample)
    assert {pod: value.value for pod, value in answer.values.items()} == {"web-1": 5000, "web-2": 10000}
    assert {value.timestamp for value in answer.values.values()} == {AT} == {answer.timestamp}
    assert {value.window for value in answer.values.values()} == {timedelta(minutes=1)}


async def test_pods_of_a_namespace_are_listed_and_queried_once(prom: Client) -> None:
    web, cart = (testing.pods_metric("rps", f"app={app}", namespace="shop") for app in ("web", "cart"))
    answers = await prom.answers({"rps": {"query": RATE}}, web, cart, web)
    assert [sorted(answer.values) for answer in answers if isinstance(answer, PodSample)] == [
        ["web-1", "web-2"],
        ["cart-1"],
        ["web-1", "web-2"],
    ]
    assert prom.requests == ["POST /api/v1/query"]
    assert [path for path, _ in prom.api.requests] == ["/api/v1/namespaces/shop/pods"]


async def test_pods_are_selected_by_their_labels_without_an_api_server(prom: Client) -> None:
    prom.api = None  # type: ignore[assignment]  # hpad without an API server
    asked = testing.pods_metric("rps", "pod in (web-1,cart-1),verb!=PUT", namespace="shop")
    query = "sum(rate(http_requests_total{<<.PodMatchers>>}[2m])) by (pod)"
    answer = await prom.answer(query, asked, pod_labels="")
    assert isinstance(answer, PodSample)
    assert {pod: value.value for pod, value in answer.values.items()} == {"web-1": 5000, "cart-1": 100_000}
    (refused,) = await prom.answers({"rps": {"query": RATE}}, asked)
    assert isinstance(refused, AdapterError)
    assert "<<.PodMatchers>>" in refused.message


@pytest.mark.parametrize(("container", "expected"), [(None, 700), ("app", 200)])
async def test_resource_is_the_sum_of_containers_and_container_resource_one_of_them(
    prom: Client, container: str | None, expected: int
) -> None:
    query = "sum(rate(container_cpu_usage_seconds_total{namespace='<<.Namespace>>'}[2m])) by (pod, container)"
    asked = (
        testing.resource("cpu", "app=web", namespace="shop")
        if container is None
        else testing.container_resource("cpu", container, "app=web", namespace="shop")
    )
    answer = await prom.answer(query, asked, span="2m")
    assert isinstance(answer, PodSample)
    assert {pod: value.value for pod, value in answer.values.items()} == {"web-1": expected, "web-2": 400}
    assert answer.values["web-1"].window == timedelta(minutes=2)


async def test_a_pod_without_the_container_is_left_out(prom: Client) -> None:
    query = "sum(rate(container_cpu_usage_seconds_total[2m])) by (pod, container)"
    answer = await prom.answer(query, testing.container_resource("cpu", "sidecar", "app=web", namespace="shop"))
    assert isinstance(answer, PodSample)
    assert {pod: value.value for pod, value in answer.values.items()} == {"web-1": 500}


DEPTH = "sum(queue_depth{<<.LabelMatchers>>}) by (<<.GroupBy>>)"


async def test_external_metrics_share_a_request(prom: Client) -> None:
    selectors = ("queue=orders", "queue=mails", "queue=nowhere", "queue=zero")
    answers = await prom.answers(
        {"depth": {"query": DEPTH}},
        *(testing.external("depth", text, namespace=name) for text in selectors for name in ("shop", "blog")),
    )
    values = [answer.values if isinstance(answer, ExternalSample) else None for answer in answers[::2]]
    assert values == [(80_000,), (7000,), None, (0,)]
    assert answers[::2] == answers[1::2]
    assert prom.requests == ["POST /api/v1/query"]


@pytest.mark.parametrize("query", ["topk(1, queue_depth{<<.LabelMatchers>>})", "SUM(queue_depth{<<.LabelMatchers>>})"])
async def test_a_query_that_mixes_series_is_sent_alone(prom: Client, query: str) -> None:
    asked = [testing.external("depth", f"queue={queue}") for queue in ("orders", "mails")]
    answers = await prom.answers({"depth": {"query": query}}, *asked)
    assert [answer.values for answer in answers if isinstance(answer, ExternalSample)] == [(80_000,), (7000,)]
    assert len(prom.requests) == 2


async def test_external_keeps_the_values_of_all_series(prom: Client) -> None:
    answer = await prom.answer("queue_depth{<<.LabelMatchers>>}", testing.external("depth", "queue=sharded"))
    assert isinstance(answer, ExternalSample)
    assert sorted(answer.values) == [3000, 4500]


@pytest.mark.parametrize("queue", ["nan", "inf", "old", "nowhere"])
async def test_a_value_that_is_not_a_number_is_missing(prom: Client, queue: str) -> None:
    asked = testing.external("depth", f"queue={queue}")
    missing = await prom.answer("queue_depth{<<.LabelMatchers>>}", asked)
    assert isinstance(missing, AdapterError)
    assert f'queue="{queue}"' in missing.message
    zero = await prom.answer("queue_depth{<<.LabelMatchers>>}", asked, empty="zero")
    assert zero == ExternalSample((0,), AT)


@pytest.mark.parametrize("odd", ["nan", "inf"])
async def test_a_sum_with_a_value_that_is_not_a_number_is_an_error(prom: Client, odd: str) -> None:
    asked, query = testing.external("depth"), f'queue_depth{{queue=~"orders|{odd}"}}'
    missing = await prom.answer(query, asked)
    assert isinstance(missing, AdapterError)
    assert "1 of 2 series" in missing.message
    assert missing.blame == "spec"
    of_object = testing.object_metric("depth", "Ingress", "main")
    assert isinstance(await prom.answer(query, of_object, reduce="sum"), AdapterError)
    assert await prom.answer(query, asked, empty="zero") == ExternalSample((80_000,), AT)


async def test_a_pod_with_a_value_that_is_not_a_number_has_no_value(prom: Client) -> None:
    query = (
        'label_replace(container_cpu_usage_seconds_total{namespace="<<.Namespace>>"} '
        '/ (container_cpu_usage_seconds_total{container="app"} > 0 or container_cpu_usage_seconds_total * 0), '
        '"unit", "core", "", "")'
    )
    asked = testing.pods_metric("share", "app=web", namespace="shop")
    answer = await prom.answer(query, asked, reduce="sum")
    assert isinstance(answer, PodSample), answer
    assert {pod: value.value for pod, value in answer.values.items()} == {"web-2": 1000}


@pytest.mark.parametrize("timeout", ["61.5s", "1m0.5s", "60900ms", "60s"])
async def test_every_query_timeout_has_a_form_that_prometheus_accepts(prom: Client, timeout: str) -> None:
    (answer,) = await prom.answers({"one": {"query": "vector(1)"}}, testing.external("one"), query_timeout=timeout)
    assert answer == ExternalSample((1000,), AT)


async def test_quotes_in_comments_are_ignored(prom: Client) -> None:
    query = """sum(queue_depth{  # that's all
        namespace="<<.Namespace>>", queue="<<index .Labels "queue">>"  # isn't it
    })"""
    answer = await prom.answer(query, testing.external("depth", "queue=orders", namespace="shop"))
    assert answer == ExternalSample((80_000,), AT)


async def test_pods_without_a_value_are_absent_or_zero(prom: Client) -> None:
    asked = testing.pods_metric("rps", "app in (web,idle)", namespace="shop")
    answer = await prom.answer(RATE, asked)
    assert isinstance(answer, PodSample)
    assert sorted(answer.values) == ["web-1", "web-2"]
    answer = await prom.answer(RATE, asked, empty="zero")
    assert isinstance(answer, PodSample)
    assert answer.values["idle-1"].value == 0


@pytest.mark.parametrize("query", [RATE.replace(" by (pod)", ""), RATE.replace("by (pod)", "by (namespace)")])
async def test_a_query_that_drops_the_pod_is_told_so(prom: Client, query: str) -> None:
    refused = await prom.answer(query, testing.pods_metric("rps", "app=web", namespace="shop"))
    assert isinstance(refused, AdapterError)
    assert refused.message.endswith('finds only series without the label "pod": keep it, as sum by (pod) does')


@pytest.mark.parametrize(
    ("reduce", "expected"), [("sum", 2_009_000), ("max", 2_000_000), ("min", 9000), ("avg", 1_004_500)]
)
async def test_several_values_for_one_object_are_reduced(prom: Client, reduce: str, expected: int) -> None:
    asked = testing.object_metric("hits", "Ingress", "main.route", api_version="networking.k8s.io/v1")
    answer = await prom.answer('ingress_requests{ingress=~".+"}', asked, reduce=reduce)
    assert answer == ObjectSample(expected, AT)


async def test_several_values_for_one_object_are_refused_by_default(prom: Client) -> None:
    asked = testing.object_metric("hits", "Ingress", "main.route", api_version="networking.k8s.io/v1")
    refused = await prom.answer("ingress_requests", asked)
    assert isinstance(refused, AdapterError)
    assert "2 values" in refused.message


async def test_an_objects_name_matches_itself_alone(prom: Client) -> None:
    """The dot of "main.route" would match "mainXroute" in a regular expression."""
    asked = testing.object_metric("hits", "Ingress", "main.route", api_version="networking.k8s.io/v1", namespace="shop")
    for query in (
        'ingress_requests{ingress=~"<<.Object>>"}',
        "ingress_requests{ingress='<<.Object>>',namespace=`<<.Namespace>>`}",
    ):
        assert await prom.answer(query, asked) == ObjectSample(2_000_000, AT)
    by_label = await prom.answer("ingress_requests{<<.LabelMatchers>>}", asked, object="ingress")
    assert by_label == ObjectSample(2_000_000, AT)


@pytest.mark.parametrize(
    "query",
    [
        "queue_depth{<<.LabelMatchers>>}",
        'queue_depth{queue="<<index .Labels "queue">>"}',
        "queue_depth{queue='<<.Labels.queue>>'}",
        'queue_depth{queue=~"<<index .Labels `queue`>>"}',
    ],
)
async def test_a_label_value_cannot_become_promql(prom: Client, query: str) -> None:
    """The value has characters that Kubernetes forbids in labels: escaping does not rely on another check."""
    odd = Selector((Requirement("queue", Operator.EQUALS, (lab.ODD,)),))
    answer = await prom.answer(query, msgspec.structs.replace(testing.external("depth"), selector=odd))
    assert answer == ExternalSample((42_000,), AT)


async def test_scenario_24_the_minute_that_ends_at_the_newest_of_five_minutes(prom: Client) -> None:
    """Scenario 24.

    Samples every 15 s, the newest 100, then 99, 98, 97; the one a minute before the newest is outside.
    """
    asked = testing.pods_metric("windowed", "app=web", namespace="shop")
    answer = await prom.answer('windowed{namespace="<<.Namespace>>"}', asked, window={})
    assert isinstance(answer, PodSample)
    value = answer.values["web-1"]
    assert value.value == (100 + 99 + 98 + 97) * 1000 // 4
    assert value.timestamp == datetime.fromtimestamp(lab.NEWEST_OF_WINDOWED, UTC)
    assert value.window == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ({"last": "30s", "reduce": "sum"}, 199_000),
        ({"reduce": "min"}, 97_000),
        ({"reduce": "max"}, 100_000),
        ({"reduce": "newest"}, 100_000),
        ({"fetch": "1m", "last": "1m", "reduce": "newest"}, 100_000),
    ],
)
async def test_windows(prom: Client, window: dict[str, str], expected: int) -> None:
    answer = await prom.answer("windowed", testing.external("windowed"), window=window)
    assert isinstance(answer, ExternalSample)
    assert answer.values == (expected,)


async def test_a_window_over_any_expression_is_a_subquery(prom: Client) -> None:
    window = {"fetch": "2m", "last": "1m", "step": "15s"}
    answer = await prom.answer(
        DEPTH.replace("<<.GroupBy>>", ""), testing.external("depth", "queue=orders"), window=window
    )
    assert isinstance(answer, ExternalSample)
    assert answer.values == (80_000,)


async def test_a_scalar_is_a_value(prom: Client) -> None:
    answer = await prom.answer('scalar(queue_depth{queue="orders"}) / 2', testing.external("half"))
    assert answer == ExternalSample((40_000,), AT)


async def test_get_and_parameters_of_the_url(prom: Client) -> None:
    asked = testing.external("depth", "queue=orders")
    (answer,) = await prom.answers({"depth": {"query": DEPTH}}, asked, method="GET", params={"dedup": "true"})
    assert answer == ExternalSample((80_000,), AT)
    assert prom.requests == ["GET /api/v1/query"]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("sum by", "answers 400"),
        ("queue_depth / on(namespace) queue_depth", "answers 422"),
        ('"text"', "not a number"),
    ],
)
async def test_an_invalid_query_blames_the_spec(prom: Client, query: str, text: str) -> None:
    answer = await prom.answer(query, testing.external("depth"))
    assert isinstance(answer, AdapterError)
    assert (text in answer.message, answer.blame) == (True, "spec")


async def test_a_selector_without_a_needed_value_is_an_error(prom: Client) -> None:
    answer = await prom.answer('queue_depth{queue="<<.Labels.queue>>"}', testing.external("depth", "shard=a"))
    assert isinstance(answer, AdapterError)
    assert "needs a selector with queue=…" in answer.message


async def test_the_adapter_keeps_the_contract(prom: Client, server: PrometheusServer) -> None:
    metrics = {"rps": {"query": RATE}, "depth": {"query": DEPTH}, "bad": {"query": "sum by"}}
    metrics["hits"] = {"query": "max(ingress_requests)"}
    metrics["cpu"] = {"query": RATE}
    settings = msgspec.convert({"url": server.url, "metrics": metrics, "query_timeout": "60s"}, Prometheus.Settings)
    queries = [
        testing.pods_metric("rps", "app=web", namespace="shop"),
        testing.pods_metric("rps", "app=cart", namespace="shop"),
        testing.resource("cpu", "app=web", namespace="blog"),
        testing.external("depth", "queue=orders"),
        testing.external("depth", "queue=nowhere"),
        testing.external("bad"),
        testing.external("unknown"),
        testing.object_metric("hits", "Service", "web"),
    ]
    async with testing.context("prom", api=prom.api, clock=lab.FrozenClock()) as context:
        answers = await testing.check_adapter(Prometheus(settings, context), queries)
    failed = [query.name for query, answer in zip(queries, answers, strict=True) if isinstance(answer, AdapterError)]
    assert failed == ["depth", "bad", "unknown"]


def query_of(name: str, target: str = "web", **labels: str) -> Query:
    """Returns a query for the External metric `depth` by the HPA `name`."""
    pairs = tuple(sorted(labels.items()))
    identity = HPAIdentity(name=name, target_kind="Deployment", target_name=target, labels=pairs)
    return msgspec.structs.replace(testing.external("depth", namespace="shop"), hpa=identity)


@pytest.mark.parametrize(
    "query",
    [
        'queue_depth{queue="<<.HPA>>"}',
        'queue_depth{queue=~"<<.Target>>",namespace="<<.Namespace>>"}',
        'queue_depth{queue="<<.HPALabels.team>>"}',
        "queue_depth{queue='<<index .HPALabels \"team\">>'} and on() vector(1)",
        'label_replace(queue_depth{queue="<<.HPA>>"}, "kind", "<<.TargetKind>>", "", "")',
    ],
)
async def test_a_query_may_use_the_hpa(prom: Client, query: str) -> None:
    orders, mails = query_of("orders", "orders", team="orders"), query_of("mails", "mails", team="mails")
    assert await prom.answers({"depth": {"query": query}}, orders, mails) == [
        ExternalSample((80_000,), AT),
        ExternalSample((7_000,), AT),
    ]


@pytest.mark.parametrize("quoted", ['="<<.HPALabels.team>>"', '=~"<<.HPALabels.team>>"', "='<<.HPALabels.team>>'"])
async def test_a_label_of_the_hpa_cannot_become_promql(prom: Client, quoted: str) -> None:
    answer = await prom.answer(f"queue_depth{{queue{quoted}}}", query_of("web", team=lab.ODD))
    assert answer == ExternalSample((42_000,), AT)


async def test_hpas_with_equal_promql_share_a_request(prom: Client) -> None:
    query = 'queue_depth{queue="<<.HPALabels.team>>"}'
    queries = [query_of(f"web-{n}", f"web-{n}", team="orders", nr=str(n)) for n in range(3)]
    assert await prom.answers({"depth": {"query": query}}, *queries) == [ExternalSample((80_000,), AT)] * 3
    assert len(prom.requests) == 1


async def test_a_label_that_the_hpa_lacks_is_named(prom: Client) -> None:
    answer = await prom.answer('queue_depth{queue="<<.HPALabels.team>>"}', query_of("web", tier="front"))
    assert isinstance(answer, AdapterError)
    assert answer.blame == "spec"
    assert answer.message == 'the query for "depth" takes the label "team" of the HPA, which HPA "web" does not have'


async def test_a_query_that_uses_the_hpa_needs_one(prom: Client) -> None:
    answer = await prom.answer('queue_depth{queue="<<.HPA>>"}', testing.external("depth"))
    assert answer == AdapterError('the query for "depth" uses .HPA: it needs an HPA', "spec")


async def test_a_template_with_all_labels_of_the_hpa_is_refused(prom: Client) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"<<\.HPALabels>> names no label"):
        await prom.answer('queue_depth{queue="<<.HPALabels>>"}', query_of("web"))


def own(query: str, selector: str | None = None, namespace: str = "shop", **fields: Any) -> Query:
    """Returns a query that an Autoscaler brings along."""
    return testing.own_query(Prometheus.QuerySchema(query, **fields), selector, namespace=namespace)


async def test_an_autoscaler_brings_promql_along(prom: Client) -> None:
    web = HPAIdentity(name="web", target_kind="Deployment", target_name="web", labels=(("queue", "mails"),))
    depth, empty = 'sum(queue_depth{queue="orders"})', 'sum(queue_depth{queue="none"})'
    of_hpa = msgspec.structs.replace(own('sum(queue_depth{queue="<<index .HPALabels "queue">>"})'), hpa=web)
    answers = await prom.answers(
        {},
        *(own(depth), own(depth, namespace="blog"), own(empty, empty="zero"), own(empty), of_hpa),
        *(own("sum(queue_depth{<<.LabelMatchers>>})", f"queue={name}") for name in ("orders", "mails")),
    )
    values = [answer.values if isinstance(answer, ExternalSample) else answer.message for answer in answers]
    missing = 'no values for External metric "own query": the query of spec.queries finds no series, or none with a'
    assert values[:3] + values[4:] == [(80_000,), (80_000,), (0,), (7000,), (80_000,), (7000,)]
    assert values[3].startswith(missing)
    assert len(prom.requests) == 6  # equal PromQL is asked for once, also for two namespaces


async def test_an_autoscaler_gets_no_long_answer(prom: Client) -> None:
    (answer,) = await prom.answers({}, own('queue_depth{queue="orders"}[1m:1ms]'))
    assert isinstance(answer, AdapterError)
    assert answer.message.endswith("answers more than max_bytes (1048576)")
