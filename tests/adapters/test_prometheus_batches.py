"""Queries that one request answers for several metrics give what each gives alone, on a real Prometheus."""

import itertools
import json
import math
import os
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import pytest
from support import prometheus_lab as lab

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, ExternalSample, PodSample, Query
from hpad.lab.servers.prometheus import PrometheusServer
from hpad_adapters.prometheus import Prometheus

pytestmark = pytest.mark.prometheus

TEMPLATES = int(os.environ.get("HPAD_TEMPLATES", "100"))
"""HPAD_TEMPLATES tries more, as `make soak` does."""
QUEUES = ("q1", "q2", "q3", "q4")
NAMESPACES = ("default", "other")
MANY = 201


def samples() -> str:
    """Returns series whose values differ, with gaps: a queue without one of them, one in another namespace only."""
    values = random.Random(7)
    lines = []
    for name, queue, namespace, shard in itertools.product("abc", QUEUES, NAMESPACES, ("0", "1")):
        if (name, queue) == ("b", "q3") or (queue == "q4" and namespace == "default"):
            continue
        pod, le = f"{queue}-{shard}", ("0.5", "+Inf")[int(shard)]
        labels = f'namespace="{namespace}",queue="{queue}",shard="{shard}",pod="{pod}",le="{le}"'
        first, grown = values.randint(-20, 90), values.randint(0, 9)
        lines += [f"{name}{{{labels}}} {first + step * grown} {lab.NOW - 600 + step * 15}" for step in range(41)]
    lines += [f'many{{namespace="default",pod="web-{pod}"}} {pod + 1} {lab.NOW}' for pod in range(MANY + 2)]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    yield from lab.serve(samples())


@pytest.fixture
async def context() -> AsyncIterator[Context]:
    async with testing.context("prom", api=Pods(), clock=lab.FrozenClock()) as made:
        yield made


class Pods:
    """Lists the pods of the namespace "default" for whatever selector: q1-0 and so on, and many of "app=web"."""

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        pods = {f"{queue}-{shard}": {"queue": queue} for queue in QUEUES for shard in "01"}
        pods |= {f"web-{number}": {"app": "web"} for number in range(MANY)}
        items = [{"metadata": {"name": name, "labels": labels}} for name, labels in pods.items()]
        return json.dumps({"items": items, "metadata": {}}).encode()


def rule(name: str, query: str, series: str) -> dict[str, Any]:
    labels = {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}, "queue": {"resource": "queue"}}
    return {"seriesQuery": series, "resources": {"overrides": labels}, "name": {"as": name}, "metricsQuery": query}


class Templates:
    """Random queries of a rule: what batches well, and what does not."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def one(self, depth: int) -> str:
        """Returns a vector."""
        if depth == 0:
            return self._selector()
        forms = self._aggregated, self._combined, self._called, self._with_a_number, self._mixed
        return self._random.choices(forms, (8, 6, 4, 6, 3))[0](self.one(depth - 1), depth)

    def _aggregated(self, inner: str, depth: int) -> str:
        plain = f"{self._pick('sum', 'max', 'MIN', 'avg', 'count', 'stddev')}({inner}) {self._by()}"
        picked = f"{self._pick('topk', 'bottomk', 'quantile')}(1, {inner}) {self._by()}"
        return self._pick(*[plain] * 8, picked)

    def _combined(self, inner: str, depth: int) -> str:
        operator = self._pick("+", "-", "*", "/", "%", "^", ">", "<= bool", "and", "unless", "or", "and on(queue)")
        other = self.one(depth - 1)
        return self._pick(f"({inner}) {operator} ({other})", f"{inner} {operator} {other}")

    def _called(self, inner: str, depth: int) -> str:
        function = self._pick("abs", "-", "ceil", "sqrt", "timestamp", "absent", "sgn")
        limit = self._pick("50", f"scalar({self._selector()})")
        return self._pick(
            f"{function}({inner})",
            f"{self._pick('max', 'sum', 'avg')}_over_time(({inner})[1m:15s])",
            f"clamp_max(histogram_quantile(0.9, {inner}), {limit})",
        )

    def _with_a_number(self, inner: str, depth: int) -> str:
        total = f"{self._pick('sum', 'max')}({self._pick(*'abc')}) {self._by()}"
        return self._pick(
            f"{inner} {self._pick(*'*/+-%')} 1000",
            f"1e3 / {inner}",
            f"({inner}) > bool 9",
            f"{inner} {self._pick(*'*/-')} 1000 {self._pick(*'+-/')} {total}",
        )

    def _mixed(self, inner: str, depth: int) -> str:
        replaced = f'label_replace({inner}, "{self._pick("queue", "shard")}", "x$1", "queue", "(.*)")'
        return self._pick(f"({inner}) / scalar(sum({self._selector()}))", f"({inner}) or vector(0)", replaced)

    def _pick(self, *forms: str) -> str:
        return self._random.choice(forms)

    def _selector(self) -> str:
        braces, named = "{<<.LabelMatchers>>}", '{queue=~"<<index .LabelValuesByName "queue">>"}'
        braces = self._pick(*[braces] * 9, '{<<.LabelMatchers>>,shard="0"}', "", '{queue="q1"}', named)
        selector = self._pick("<<.Series>>", "a", "b", "c") + braces
        return self._pick(
            selector, selector, f"rate({selector}[2m])", f"delta({selector}[1m])", f"{selector} offset 1m"
        )

    def _by(self) -> str:
        labels = self._pick(*["<<.GroupBy>>"] * 8, "queue", "queue, namespace", "le, <<.GroupBy>>", "shard", "pod")
        return self._pick(*[f"by ({labels})"] * 12, "", "without (shard)")


def seen(answer: Answer) -> object:
    """Returns what an HPA sees; any error is a missing value."""
    if isinstance(answer, AdapterError):
        return None
    return sorted(answer.values) if isinstance(answer, ExternalSample) else answer


class Asked:
    """An adapter with one rule, and the PromQL that it sends."""

    def __init__(self, url: str, context: Context, query: str, series: str = "a") -> None:
        rules = {section: [rule("m", query, series)] for section in ("externalRules", "rules")}
        self._adapter = Prometheus(Prometheus.Settings(url=url, query_timeout="60s", rules=rules), context)
        self.sent: list[str] = []
        ask = self._adapter._connection.query

        async def noted(expression: str, at: float, **more: bool) -> Any:
            self.sent.append(expression)
            return await ask(expression, at, **more)

        self._adapter._connection.query = noted  # type: ignore[method-assign]

    async def together(self, queries: Sequence[Query]) -> list[object]:
        return list(map(seen, await self._adapter.answer(queries)))

    async def apart(self, queries: Sequence[Query]) -> list[object]:
        return list(map(seen, [(await self._adapter.answer([query]))[0] for query in queries]))


EXTERNAL = [
    testing.external("m", f"queue={queue}", namespace=namespace)
    for queue, namespace in (("q1", "default"), ("q2", "default"), ("q3", "default"), ("q1", "other"))
]
PODS = [testing.pods_metric("m", f"queue in ({queues})") for queues in ("q1", "q2", "q2,q3")]
OBJECTS = [testing.object_metric("m", "Queue", queue) for queue in ("q1", "q2", "q3")]


@pytest.mark.parametrize("queries", [EXTERNAL, PODS, OBJECTS], ids=["External", "Pods", "Object"])
async def test_random_queries_give_the_same_alone_and_beside_others(
    server: PrometheusServer, context: Context, queries: list[Query]
) -> None:
    shared = 0
    for seed in range(TEMPLATES):
        template = Templates(seed).one(1 + seed % 3)
        asked = Asked(server.url, context, template)
        together = await asked.together(queries)
        if len(asked.sent) < len(queries):
            shared += any(together)
            assert together == await asked.apart(queries), template
    assert shared > TEMPLATES // 12, "too few of the queries were asked by one request"


@pytest.mark.parametrize(
    "query",
    [
        "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) * 1000 / sum(b) by (<<.GroupBy>>)",
        "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) > 1000 or sum(b) by (<<.GroupBy>>)",
        "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) / (2 * sum(b{queue!=''}) by (<<.GroupBy>>))",
    ],
)
async def test_a_total_of_other_series_stays_a_total(server: PrometheusServer, context: Context, query: str) -> None:
    asked = Asked(server.url, context, query)
    assert await asked.together(EXTERNAL[:2]) == await asked.apart(EXTERNAL[:2])
    assert len(asked.sent) == 4


@pytest.mark.parametrize(
    "query",
    [
        "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
        'sum by (<<.GroupBy>>) (<<.Series>>{shard!="9",<<.LabelMatchers>>}) * 1000 # "by" the way',
        "1e3 * sum(a{<<.LabelMatchers>>}) by (<<.GroupBy>>) / sum(b{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        "histogram_quantile(0.9, sum(rate(a{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>, le))",
        "max_over_time(sum(a{<<.LabelMatchers>>}) by (<<.GroupBy>>)[2m:30s])",
        "avg(a{<<.LabelMatchers>>} > 3) by (<<.GroupBy>>) or sum(c{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    ],
)
async def test_an_ordinary_query_is_asked_once_for_all(server: PrometheusServer, context: Context, query: str) -> None:
    for queries in (EXTERNAL, PODS, OBJECTS):
        asked = Asked(server.url, context, query)
        await asked.together(queries)
        assert len(asked.sent) == 1, queries[0].type


WEB = testing.pods_metric("m", "app=web")
SHARE = "1000 * sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) / scalar(sum(<<.Series>>{<<.LabelMatchers>>}))"


async def test_a_share_is_of_the_targets_own_pods_however_many(server: PrometheusServer, context: Context) -> None:
    """Two pods of another target have series in the namespace."""
    asked = Asked(server.url, context, SHARE, "many")
    (sample,) = await asked.together([WEB])
    assert isinstance(sample, PodSample)
    assert sample.values["web-0"].value == math.ceil(1000 * 1000 / (MANY * (MANY + 1) / 2))
    assert 'pod=~"' in asked.sent[0]


async def test_many_pods_are_all_pods_where_their_series_stay_apart(server: PrometheusServer, context: Context) -> None:
    asked = Asked(server.url, context, "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)", "many")
    (sample,) = await asked.together([WEB])
    assert isinstance(sample, PodSample)
    assert {name: value.value for name, value in sample.values.items()} == {
        f"web-{number}": (number + 1) * 1000 for number in range(MANY)
    }
    assert asked.sent == ['sum(many{namespace="default",pod!=""}) by (pod)']
