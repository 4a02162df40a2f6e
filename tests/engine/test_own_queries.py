"""Queries that an Autoscaler brings along: which metrics they answer, and what is wrong with them."""

import gc
import weakref
from typing import Any

import msgspec
import pytest
from support.engine import Workload, external, pods_metric, series

from hpad.api.autoscaler import LONGEST_QUERY, MOST_QUERIES, written_parameters
from hpad.api.hpa import OwnQuery, from_builtins
from hpad.api.sample import QueryDefinition
from hpad.engine.spec import CompiledMetric, compiled_spec

ORDERS = {"name": "orders", "source": "prom", "parameters": {"query": "sum(x)", "empty": "zero"}}


def compiled(queries: list[dict[str, Any]], *metrics: dict[str, Any]) -> tuple[CompiledMetric, ...]:
    spec = {"metrics": list(metrics), "hpad.io/queries": queries}
    return compiled_spec(from_builtins({"metadata": {"name": "web"}, "spec": spec})).metrics


def test_a_query_answers_the_external_metrics_of_its_name() -> None:
    own, other, of_pods = compiled(
        [ORDERS],
        external("orders", averageValue="10"),
        external("jobs", averageValue="10"),
        pods_metric("orders", "10"),
    )
    assert own.query.definition is not None
    assert (own.query.definition.source, own.query.definition.text) == ("prom", '{"empty":"zero","query":"sum(x)"}')
    assert other.query.definition is of_pods.query.definition is None


def test_definitions_are_equal_by_source_and_parameters() -> None:
    turned = {**ORDERS, "name": "mail", "parameters": {"empty": "zero", "query": "sum(x)"}}
    elsewhere = {**ORDERS, "name": "jobs", "source": "other"}
    found = compiled(
        [ORDERS, turned, elsewhere], *(external(name, averageValue="1") for name in ("orders", "mail", "jobs"))
    )
    orders, mail, jobs = (metric.query.definition for metric in found)
    assert orders == mail
    assert hash(orders) == hash(mail)
    assert orders != jobs


@pytest.mark.parametrize(
    ("queries", "error"),
    [
        ([ORDERS, ORDERS], "there are 2 queries of this name; each needs a name of its own"),
        ([*({"name": f"q{i}"} for i in range(MOST_QUERIES)), ORDERS], "is query 21 of the Autoscaler, which may"),
        ([{"name": "orders"}], "source: is missing: the name of a metric source in the configuration of hpad"),
        ([{**ORDERS, "parameters": {"query": "x" * LONGEST_QUERY}}], "parameters: have 8,204 characters as JSON; hpad"),
    ],
)  # fmt: skip
def test_a_wrong_query_is_the_error_of_its_metric_alone(queries: list[dict[str, Any]], error: str) -> None:
    wrong, good = compiled(queries, external("orders", averageValue="1"), external("jobs", averageValue="1"))
    assert (wrong.error or "").startswith(f"spec.queries[orders]: {error}")
    assert good.error is None


def test_an_explanation_shows_the_query() -> None:
    work = Workload(external("orders", averageValue="10"), replicas=1)
    own = OwnQuery("orders", "prom", {"query": "sum(x)"})
    work.hpa = msgspec.structs.replace(work.hpa, spec=msgspec.structs.replace(work.hpa.spec, queries=(own,)))
    work.reconcile(series(30))
    facts = [(fact.label, fact.text) for fact in work.trace.metrics[0].facts]
    assert facts[:2] == [("Metric", "external metric orders"), ("Query", "{query: 'sum(x)'}")]


def test_parameters_that_are_nested_too_deeply_are_shown_as_they_are() -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    assert written_parameters(QueryDefinition("prom", deep)) == deep


def test_a_definition_goes_with_its_autoscaler() -> None:
    (metric,) = compiled([ORDERS], external("orders", averageValue="1"))
    assert metric.query.definition is not None
    left = weakref.ref(metric.query.definition)
    del metric
    gc.collect()
    assert left() is None
