"""An unchanged configuration of prometheus-adapter, with a real Prometheus."""

import itertools
import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from support import prometheus_lab as lab

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample, ObjectSample, PodSample, Query
from hpad.lab.servers.prometheus import PrometheusServer
from hpad_adapters.prometheus import Prometheus, configuration

pytestmark = pytest.mark.prometheus

CONFIGURATION = r"""
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources:
    overrides:
      namespace: {resource: "namespace"}
      pod: {resource: "pod"}
  name:
    matches: "^(.*)_total"
    as: "${1}_per_second"
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'
- seriesQuery: '{__name__=~"^container_.*",container!="POD",namespace!="",pod!=""}'
  seriesFilters:
  - isNot: "^container_.*_seconds_total$"
  resources:
    template: "<<.Resource>>"
  name: {matches: "^container_(.*)$"}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>,container!="POD"}) by (<<.GroupBy>>)'
- seriesQuery: 'ingress_requests{namespace!=""}'
  resources:
    overrides:
      namespace: {resource: namespace}
      ingress: {group: networking.k8s.io, resource: ingresses}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: '{__name__="queue_depth",namespace!=""}'
  name: {as: "namespace_backlog"}
  resources:
    overrides: {namespace: {resource: namespace}}
  metricsQuery: 'sum(queue_depth{<<.LabelMatchers>>,queue=~"orders|mails"}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: '{__name__="queue_depth",queue!=""}'
  resources:
    overrides: {namespace: {resource: "namespace"}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)
- seriesQuery: '{__name__="queue_depth",queue!=""}'
  name: {as: "queue_depth_everywhere"}
  resources:
    namespaced: false
  metricsQuery: 'sum(<<.Series>>{queue="<<index .LabelValuesByName "queue">>"})'
- seriesQuery: '{__name__="ingress_requests",ingress!=""}'
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (ingress)
resourceRules:
  cpu:
    containerQuery: |
      sum by (<<.GroupBy>>) (
        rate(container_cpu_usage_seconds_total{<<.LabelMatchers>>,container!="",pod!=""}[2m])
      )
    nodeQuery: sum(node_cpu{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    resources:
      overrides:
        node: {resource: node}
        namespace: {resource: namespace}
        pod: {resource: pod}
    containerLabel: container
  memory:
    containerQuery: sum(container_memory_working_set_bytes{<<.LabelMatchers>>,container!=""}) by (<<.GroupBy>>)
    resources:
      template: <<.Resource>>
    containerLabel: container
  window: 2m
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    yield from lab.serve()


class Rules:
    """An adapter with the configuration."""

    def __init__(self, adapter: Prometheus) -> None:
        self.adapter = adapter

    async def answer(self, query: Query) -> Answer:
        return (await self.adapter.answer([query]))[0]

    async def pods(self, query: Query) -> dict[str, int]:
        answer = await self.answer(query)
        assert isinstance(answer, PodSample), answer
        return {pod: value.value for pod, value in answer.values.items()}


@pytest.fixture
async def rules(server: PrometheusServer, tmp_path: Path) -> AsyncIterator[Rules]:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIGURATION)
    async with testing.context("prom", api=lab.PodsApi(), clock=lab.FrozenClock()) as context:
        yield Rules(Prometheus(Prometheus.Settings(url=server.url, query_timeout="60s", rules_file=str(file)), context))


async def test_requests_per_second_of_each_pod(rules: Rules) -> None:
    web = testing.pods_metric("http_requests_per_second", "app=web", namespace="shop")
    assert await rules.pods(web) == {"web-1": 5000, "web-2": 10_000}
    assert await rules.pods(msgspec.structs.replace(web, namespace="blog")) == {"web-9": 1000}
    put = testing.pods_metric("http_requests_per_second", "app=web", "verb=PUT", namespace="shop")
    assert isinstance(await rules.answer(put), AdapterError)
    get = testing.pods_metric("http_requests_per_second", "app=web", "verb in (GET,PUT)", namespace="shop")
    assert await rules.pods(get) == {"web-1": 5000, "web-2": 10_000}


async def test_series_filters_exclude_series_from_a_rule(rules: Rules) -> None:
    memory = testing.pods_metric("memory_working_set_bytes", "app=web", namespace="shop")
    assert await rules.pods(memory) == {"web-1": 1000 << 20, "web-2": 3000 << 20}
    filtered = testing.pods_metric("cpu_usage_seconds_total", "app=web", namespace="shop")
    assert isinstance(await rules.answer(filtered), AdapterError)


async def test_metric_of_an_object(rules: Rules) -> None:
    asked = testing.object_metric(
        "ingress_requests", "Ingress", "main.route", api_version="networking.k8s.io/v1", namespace="shop"
    )
    answer = await rules.answer(asked)
    assert isinstance(answer, ObjectSample)
    assert answer.value == 2_000_000


async def test_metric_of_a_namespace(rules: Rules) -> None:
    answer = await rules.answer(testing.object_metric("namespace_backlog", "Namespace", "shop", namespace="shop"))
    assert isinstance(answer, ObjectSample)
    assert answer.value == 87_000


async def test_external_metric_of_the_hpas_namespace(rules: Rules) -> None:
    answer = await rules.answer(testing.external("queue_depth", "queue=orders", namespace="shop"))
    assert isinstance(answer, ExternalSample)
    assert answer.values == (80_000,)
    assert isinstance(
        await rules.answer(testing.external("queue_depth", "queue=orders", namespace="blog")), AdapterError
    )


async def test_a_selector_cannot_reach_into_another_namespace(rules: Rules) -> None:
    answer = await rules.answer(testing.external("queue_depth", "queue=orders,namespace=shop", namespace="blog"))
    assert isinstance(answer, AdapterError)
    assert (answer.blame, 'namespace="shop"' in answer.message) == ("spec", True)
    answer = await rules.answer(testing.external("queue_depth", "queue=orders,namespace=shop", namespace="shop"))
    assert isinstance(answer, ExternalSample)


async def test_external_metric_of_any_namespace(rules: Rules) -> None:
    answer = await rules.answer(testing.external("queue_depth_everywhere", "queue=orders", namespace="blog"))
    assert isinstance(answer, ExternalSample)
    assert answer.values == (80_000,)


async def test_a_rule_without_resources_uses_labels_of_the_same_name(rules: Rules) -> None:
    answer = await rules.answer(testing.external("ingress_requests", "ingress=mainXroute", namespace="shop"))
    assert isinstance(answer, ExternalSample)
    assert answer.values == (9000,)


async def test_resource_metrics(rules: Rules) -> None:
    cpu = testing.resource("cpu", "app=web", namespace="shop")
    assert await rules.pods(cpu) == {"web-1": 700, "web-2": 400}
    assert await rules.pods(testing.container_resource("cpu", "app", "app=web", namespace="shop")) == {
        "web-1": 200,
        "web-2": 400,
    }
    memory = testing.resource("memory", "app=web", namespace="shop")
    assert await rules.pods(memory) == {"web-1": 1000 << 20, "web-2": 3000 << 20}
    answer = await rules.answer(cpu)
    assert isinstance(answer, PodSample)
    assert {value.window.total_seconds() for value in answer.values.values()} == {120.0}


async def test_a_metric_that_no_rule_makes_is_named(rules: Rules) -> None:
    answer = await rules.answer(testing.pods_metric("nothing", "app=web", namespace="shop"))
    assert isinstance(answer, AdapterError)
    assert (answer.blame, '"nothing"' in answer.message) == ("spec", True)


@pytest.mark.parametrize("last", ["pod", "ingress"])
async def test_of_rules_for_one_name_the_rule_for_that_kind_answers(server: PrometheusServer, last: str):
    made = {
        "pod": "sum(rate(http_requests_total{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
        "ingress": "sum(ingress_requests{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    }
    rules = [
        {
            "seriesQuery": f'{{__name__="{"http_requests_total" if kind == "pod" else "ingress_requests"}"}}',
            "resources": {"overrides": {"namespace": {"resource": "namespace"}, kind: {"resource": kind}}},
            "name": {"as": "requests"},
            "metricsQuery": query,
        }
        for kind, query in sorted(made.items(), reverse=last == "ingress")
    ]
    async with testing.context("prom", api=lab.PodsApi(), clock=lab.FrozenClock()) as context:
        adapter = Prometheus(Prometheus.Settings(url=server.url, query_timeout="60s", rules={"rules": rules}), context)
        of_pods = testing.pods_metric("requests", "app=cart", namespace="shop")
        of_ingress = testing.object_metric("requests", "Ingress", "main.route", namespace="shop")
        pods, ingress = await adapter.answer([of_pods, of_ingress])
    assert isinstance(pods, PodSample), pods
    assert ingress.value == 2_000_000, ingress


async def test_of_rules_for_one_name_and_kind_the_last_counts(server: PrometheusServer) -> None:
    """As in prometheus-adapter, where a later rule replaces an earlier one of the same name."""
    rules = [
        {"seriesQuery": "queue_depth", "resources": {"namespaced": False}, "name": {"as": "it"}, "metricsQuery": query}
        for query in ("vector(1)", "vector(2)")
    ]
    async with testing.context("prom", clock=lab.FrozenClock()) as context:
        adapter = Prometheus(
            Prometheus.Settings(url=server.url, query_timeout="60s", rules={"externalRules": rules}), context
        )
        (answer,) = await adapter.answer([testing.external("it")])
    assert answer.values == (2000,)


async def test_a_resource_leaves_out_the_usage_of_ignored_containers(rules: Rules) -> None:
    whole, sidecar, rest = await rules.adapter.answer(
        [
            testing.resource("cpu", "app=web", namespace="shop"),
            testing.container_resource("cpu", "sidecar", "app=web", namespace="shop"),
            testing.resource("cpu", "app=web", namespace="shop", ignored_containers=["sidecar"]),
        ]
    )
    assert all(value.value > 0 for value in sidecar.values.values())
    assert {name: value.value for name, value in rest.values.items()} == {
        name: value.value - (sidecar.values[name].value if name in sidecar.values else 0)
        for name, value in whole.values.items()
    }


async def test_the_adapter_keeps_the_contract(rules: Rules) -> None:
    queries = [
        testing.pods_metric("http_requests_per_second", "app=web", namespace="shop"),
        testing.pods_metric("http_requests_per_second", "app=cart", namespace="shop"),
        testing.resource("cpu", "app=web", namespace="shop"),
        testing.container_resource("cpu", "sidecar", "app=web", namespace="shop"),
        testing.resource("cpu", "app=web", namespace="shop", ignored_containers=["sidecar"]),
        testing.object_metric("namespace_backlog", "Namespace", "shop", namespace="shop"),
        testing.external("queue_depth", "queue=orders", namespace="shop"),
        testing.external("queue_depth", "queue=mails", namespace="shop"),
        testing.external("nothing"),
    ]
    answers = await testing.check_adapter(rules.adapter, queries)
    assert [type(answer) for answer in answers] == [
        *[PodSample] * 5,
        ObjectSample,
        *[ExternalSample] * 2,
        AdapterError,
    ]


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"rules": [{"seriesQuery": "x", "metricsQuery": "sum(<<.Serie>>)"}]}, "there is no variable .Serie"),
        ({"rules": [{"seriesQuery": "x", "metricsQuery": "<<printf .Series>>"}]}, "<<printf .Series>>"),
        ({"rules": [{"seriesQuery": "x", "name": {"matches": "("}}]}, "rules[0]"),
        ({"rules": [{"seriesQuery": "x", "name": {"matches": "(a)(b)"}}]}, "several groups"),
        ({"rules": [{"seriesQuery": "x", "name": {"matches": "^[[:alpha:]]+$"}}]}, "Python has no [:alpha:]"),
        ({"externalRules": [{"seriesQuery": "x", "seriesFilters": [{}]}]}, "externalRules[0]"),
        ({"resourceRules": {"window": "soon"}}, "resourceRules"),
        ({"rule": []}, "rule"),
    ],
)
async def test_an_invalid_rule_is_named(section: dict[str, Any], text: str) -> None:
    async with testing.context("prom") as context:
        with pytest.raises(AdapterError) as refused:
            Prometheus(Prometheus.Settings(url="http://127.0.0.1:9", rules=section), context)
    assert text in refused.value.message
    assert refused.value.blame == "spec"


async def test_an_unreadable_rules_file_is_the_error_of_each_query(tmp_path: Path) -> None:
    queries = [testing.external("depth"), testing.external("other")]
    for content in (None, "rules: [", yaml.safe_dump({"rules": "none"})):
        file = tmp_path / "config.yaml"
        if content is not None:
            file.write_text(content)
        async with testing.context("prom") as context:
            adapter = Prometheus(Prometheus.Settings(url="http://127.0.0.1:9", rules_file=str(file)), context)
            with pytest.raises(AdapterError, match=re.escape(str(file))):
                await adapter.answer(queries)


def test_null_fields_are_absent_ones_as_for_prometheus_adapter(tmp_path: Path) -> None:
    rule = {"seriesQuery": "up", "metricsQuery": "<<.Series>>", "resources": {"template": "kube_<<.Resource>>"}}
    empty = {**rule, "name": None, "seriesFilters": None, "resources": {**rule["resources"], "overrides": None}}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"rules": [empty], "externalRules": None, "resourceRules": None}))
    url = "http://127.0.0.1:9"
    read = [
        configuration.read(Prometheus.Settings(url=url, **given))
        for given in (
            {"rules": {"rules": [rule]}},
            {"rules": yaml.safe_load(file.read_text())},
            {"rules_file": str(file)},
        )
    ]
    assert read[1:] == read[:1] * 2


BILLION = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in itertools.pairwise("abcdefghi")
)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("rules: &rules\n- *rules\n", "an anchor whose value contains itself"),
        (BILLION, "its aliases stand for far more than was written"),
        ("rules: []\nexternalRules: []\nrules:\n- seriesQuery: up\n", 'line 3: .*duplicate field "rules"'),
        ("rules: []\n---\nrules: []\n", "line 3: another document; one is read"),
        ("#" * (4 << 20) + "\n", "cannot be read: it is larger than 4 MiB"),
        ("rules: [\xff]", "cannot be read: it is not UTF-8 text"),
        (None, "cannot be read: not a file"),
    ],
    ids=["itself", "aliases", "field", "documents", "size", "bytes", "pipe"],
)
def test_a_rules_file_that_prometheus_adapter_refuses_or_that_is_too_large_is_refused(
    tmp_path: Path, content: str | None, fault: str
) -> None:
    file = tmp_path / "config.yaml"
    if content is None:
        os.mkfifo(file)
    else:
        file.write_text(content, encoding="latin-1")
    with pytest.raises(AdapterError, match=f"rules_file: {re.escape(str(file))}: .*{fault}"):
        configuration.read(Prometheus.Settings(url="http://127.0.0.1:9", rules_file=str(file)))


@pytest.mark.parametrize(
    ("content", "fault"),
    [("s3cret", "is not a mapping"), ("users: [{user: {value: s3cret}}]", "users: unknown field; there are rules, .*")],
)
def test_nothing_of_another_file_is_in_the_error(tmp_path: Path, content: str, fault: str) -> None:
    """The path may lead to a file with a secret."""
    file = tmp_path / "rules.yaml"
    file.write_text(content)
    with pytest.raises(AdapterError, match=f"{re.escape(str(file))}: {fault}") as caught:
        configuration.read(Prometheus.Settings(url="http://127.0.0.1:9", rules_file=str(file)))
    assert "s3cret" not in caught.value.message
