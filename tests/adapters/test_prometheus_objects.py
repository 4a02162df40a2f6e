"""Metrics of objects: which row of an answer is the object's, and whose namespace it is; on a real Prometheus."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from support import prometheus_lab as lab

from hpad import testing
from hpad.adapter import AdapterError, Answer, ObjectSample, PodSample, Query
from hpad.lab.servers.prometheus import PrometheusServer
from hpad_adapters.prometheus import Prometheus

pytestmark = pytest.mark.prometheus

SERIES = {
    'istio_requests{service="web",namespace="default",reporter="destination"}': 200,
    'ingress_rps{namespace="default",ingress="main"}': 42,
    'ingress_rps{namespace="default",ingress="other"}': 7,
    'ingress_rps{namespace="secret",ingress="main"}': 1000,
    'kafka_lag{namespace="default"}': 3,
    'kafka_lag{namespace="kafka"}': 900,
    'node_load{node="n1",namespace="monitoring"}': 5,
    'pod_load{namespace="shop",pod="web-1"}': 1,
    'pod_load{namespace="blog",pod="web-1"}': 70,
}


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    lines = [f"{series} {value} {lab.NOW}" for series, value in SERIES.items()]
    yield from lab.serve("\n".join([*lines, "# EOF", ""]))


def rule(series: str, query: str, labels: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Returns a rule for metric "m"."""
    kinds = {"namespace": "namespace", "service": "service", "node": "node", "pod": "pod"}
    overrides = {label: {"resource": kind} for label, kind in kinds.items()}
    ingress = {"ingress": {"group": "networking.k8s.io", "resource": "ingress"}}
    resources = labels or {"overrides": overrides | ingress}
    return {"seriesQuery": series, "resources": resources | more, "name": {"as": "m"}, "metricsQuery": query}


async def answers(server: PrometheusServer, *queries: Query, **options: Any) -> list[Answer]:
    settings = msgspec.convert({"url": server.url, "query_timeout": "60s", **options}, Prometheus.Settings)
    async with testing.context("prom", api=lab.PodsApi(), clock=lab.FrozenClock()) as context:
        return await Prometheus(settings, context).answer(queries)


async def by_rule(server: PrometheusServer, made: dict[str, Any], query: Query, **options: Any) -> Answer:
    return (await answers(server, query, rules={"rules": [made]}, **options))[0]


def ingress(name: str, selector: str | None = None) -> Query:
    return testing.object_metric("m", "Ingress", name, selector, api_version="networking.k8s.io/v1")


M, G, S = "<<.LabelMatchers>>", "<<.GroupBy>>", "<<.Series>>"


@pytest.mark.parametrize(
    "query",
    [
        f"sum by ({G}) ({S}{{{M}}}) or vector(0)",
        f"sum({S}{{{M}}} or vector(0)) by ({G})",
        f"sum({S}) by (ingress, namespace) or vector(0)",
        f"sum({S}) by (namespace, ingress)",
        "sum(ingress_rps{namespace='default'}) by (ingress)",
        f"sum({S}{{{M}}})",
        f'label_replace({S}{{{M}}}, "ingress", "", "", "")',
        f"{S}",
    ],
)
async def test_the_row_that_names_the_object_counts(server: PrometheusServer, query: str) -> None:
    for name, value in (("main", 42_000), ("other", 7000)):
        found = await by_rule(server, rule("ingress_rps", query), ingress(name))
        assert isinstance(found, ObjectSample), found
        assert found.value == value


async def test_a_row_without_the_label_counts_if_there_is_no_other(server: PrometheusServer) -> None:
    made = rule("istio_requests", f'sum({S}{{reporter="destination",{M}}} or vector(0)) by ({G})')
    (web, idle) = [await by_rule(server, made, testing.object_metric("m", "Service", name)) for name in ("web", "idle")]
    assert isinstance(web, ObjectSample)
    assert web.value == 200_000
    assert isinstance(idle, ObjectSample)
    assert idle.value == 0


@pytest.mark.parametrize("query", [f"sum({S}) by (ingress, namespace) or vector(0)", f"sum({S}) by (ingress)"])
async def test_rows_of_other_objects_are_not_the_objects(server: PrometheusServer, query: str) -> None:
    made = rule("ingress_rps", query)
    missing = await by_rule(server, made, ingress("absent"))
    assert isinstance(missing, AdapterError)
    assert (missing.blame, 'ingress="absent"' in missing.message) == ("spec", True)
    zero = await by_rule(server, made, ingress("absent"), rules_empty="zero")
    assert isinstance(zero, ObjectSample)
    assert zero.value == 0


async def test_the_label_of_a_configured_query_names_the_object(server: PrometheusServer) -> None:
    queries = {
        "with": {"query": f"sum(ingress_rps{{{M}}}) by (ingress) or vector(0)", "object": "ingress"},
        "all": {"query": "sum(ingress_rps{namespace='<<.Namespace>>'}) by (ingress)", "object": "ingress"},
        "any": {"query": "ingress_rps{namespace='<<.Namespace>>',ingress='<<.Object>>'}"},
        "none": {"query": "ingress_rps", "object": "ingress"},
    }
    asked = [
        testing.object_metric(name, "Ingress", of, api_version="networking.k8s.io/v1")
        for name, of in (("with", "main"), ("all", "main"), ("any", "other"), ("all", "absent"), ("none", "main"))
    ]
    found = await answers(server, *asked, metrics=queries)
    assert [each.value if isinstance(each, ObjectSample) else None for each in found] == [
        1_042_000,
        42_000,
        7000,
        *[None] * 2,
    ]


LAG = rule("kafka_lag", f"sum({S}{{{M}}}) by ({G})")


@pytest.mark.parametrize(("kind", "version"), [("Namespace", "v1"), ("Namespace", ""), ("Namespace", "/v1")])
async def test_a_described_namespace_is_that_of_the_hpa(server: PrometheusServer, kind: str, version: str) -> None:
    """As in Kubernetes, which ignores the name."""
    of_other = testing.object_metric("m", kind, "kafka", api_version=version)
    metrics = {"own": {"query": "sum(kafka_lag{namespace='<<.Object>>'})"}}
    for made in (LAG, rule("kafka_lag", f"sum({S}) by (namespace)"), rule("kafka_lag", f"{S}", namespaced=False)):
        found = await by_rule(server, made, of_other)
        assert isinstance(found, ObjectSample), found
        assert found.value == 3000
    (own,) = await answers(server, msgspec.structs.replace(of_other, name="own"), metrics=metrics)
    assert isinstance(own, ObjectSample)
    assert own.value == 3000


@pytest.mark.parametrize(
    "query",
    [
        testing.object_metric("m", "Namespace", "kafka", api_version="foo/v1"),
        testing.object_metric("m", "namespace", "kafka"),
        testing.object_metric("m", "Namespace", "default", "namespace=kafka"),
        testing.object_metric("m", "Namespace", "default", "namespace in (kafka)"),
        testing.object_metric("m", "Namespace", "default", "namespace in (kafka,x),namespace notin (default)"),
        testing.object_metric("m", "Node", "n1", "namespace=kafka"),
        testing.object_metric("m", "Node", "n1", "namespace in (kafka,default)"),
        testing.object_metric("m", "Node", "n1", "namespace"),
    ],
)
async def test_no_reference_and_no_selector_reaches_another_namespace(server: PrometheusServer, query: Query) -> None:
    for namespaced in (True, False):
        made = rule("kafka_lag", f"sum({S}{{{M}}}) by ({G})", namespaced=namespaced)
        assert isinstance(await by_rule(server, made, query), AdapterError)


async def test_a_node_belongs_to_no_namespace(server: PrometheusServer) -> None:
    found = await by_rule(
        server, rule("node_load", f"sum({S}{{{M}}}) by ({G})"), testing.object_metric("m", "Node", "n1")
    )
    assert isinstance(found, ObjectSample)
    assert found.value == 5000


async def test_pods_of_one_name_in_two_namespaces_are_not_added_up(server: PrometheusServer) -> None:
    """`namespaced: false` is for External metrics."""
    for namespaced in (True, False):
        made = rule("pod_load", f"sum({S}{{{M}}}) by ({G})", namespaced=namespaced)
        sample = await by_rule(server, made, testing.pods_metric("m", "app=web", namespace="shop"))
        assert isinstance(sample, PodSample)
        assert sample.values["web-1"].value == 1000
