"""The TARGETS cell compared with recorded tables, and samples from the lists of the metrics APIs."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hpad.api import metrics
from hpad.api.autoscaler import targets
from hpad.api.hpa import from_builtins
from hpad.api.metadata import ObjectMeta
from hpad.api.metrics import ContainerMetrics, DescribedObject, ExternalMetricValue, MetricValue, PodMetrics
from hpad.api.sample import AdapterError, ExternalSample, ObjectSample, PodValue

WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def rows(table: Any) -> dict[str, str]:
    return {row["cells"][0]: row["cells"][2] for row in table["body"]["rows"]}


def test_targets_are_formatted_as_recorded(recordings: Path) -> None:
    folder = recordings / "scenario"
    table = rows(json.loads((folder / "hpa_list_table.json").read_text()))
    compared = 0
    for name, cell in table.items():
        path = folder / f"hpa_{name}.json"
        if path.exists():
            hpa = from_builtins(json.loads(path.read_text())["body"])
            assert targets(hpa) == cell, name
            compared += 1
    assert compared > 10


def test_further_targets_are_counted() -> None:
    metric = {
        "type": "Pods",
        "pods": {"metric": {"name": "p"}, "target": {"type": "AverageValue", "averageValue": "1"}},
    }
    hpa = from_builtins({"spec": {"metrics": [metric] * 3}})
    assert targets(hpa) == "<unknown>/1, <unknown>/1 + 1 more..."
    assert targets(from_builtins({"spec": {}})) == "<none>"


def usage(pod: str, *containers: dict[str, str] | None, window: str = "30s") -> PodMetrics:
    named = tuple(ContainerMetrics(f"c{index}", dict(each) if each else None) for index, each in enumerate(containers))
    return PodMetrics(ObjectMeta(name=pod), WHEN, window, named)


def test_the_usage_of_a_pod_is_the_sum_of_its_containers() -> None:
    items = [usage("a", {"cpu": "100m"}, {"cpu": "1500000n"}, window="1m0s")]
    sample = metrics.pod_sample(items, "cpu")
    assert sample.values == {"a": PodValue(102, WHEN, timedelta(seconds=60))}


def test_a_pod_with_an_unreported_container_is_missing() -> None:
    items = [usage("a", {"cpu": "1"}, {"memory": "1"}), usage("b", {"cpu": "1"}, None), usage("c")]
    assert metrics.pod_sample(items, "cpu").values == {}
    assert set(metrics.pod_sample(items, "cpu", "c0").values) == {"a", "b"}


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: metrics.pod_sample([], "cpu"), "no metrics returned from resource metrics API"),
        (lambda: metrics.pod_sample(None, "cpu"), "no metrics returned from resource metrics API"),
        (lambda: metrics.custom_pod_sample([]), "no metrics returned from custom metrics API"),
        (lambda: metrics.external_sample([]), "no metrics returned from external metrics API"),
        (
            lambda: metrics.object_sample([MetricValue(), MetricValue()]),
            "unable to fetch metrics from custom metrics API: "
            "the custom metrics API server returned 2 results when we asked for exactly one",
        ),
        (lambda: metrics.pod_sample([usage("a", {"cpu": "x"})], "cpu"), "cpu of pod a is 'x', which is not a quantity"),
        (lambda: metrics.pod_sample([usage("a", {"cpu": "1"}, window="soon")], "cpu"), "the window of pod a: 'soon'"),
        (
            lambda: metrics.pod_sample([usage("a", {"cpu": "9e15"}, {"cpu": "9e15"})], "cpu"),
            "cpu of pod a does not fit into 64 bits of thousandths",
        ),
        (
            lambda: metrics.external_sample([ExternalMetricValue("q", WHEN, "9223372036854775807")]),
            "the external metric q, '9223372036854775807', does not fit into 64 bits of thousandths",
        ),
    ],
)
def test_missing_is_never_zero(read: Any, message: str) -> None:
    with pytest.raises(AdapterError) as caught:
        read()
    assert caught.value.message.startswith(message)
    assert (caught.value.lasting, caught.value.alive) == (True, True), "the API works, and would answer the same again"


def test_custom_and_external_values() -> None:
    described = DescribedObject("a")
    sample = metrics.custom_pod_sample([MetricValue(described, WHEN, None, "2"), MetricValue(described, WHEN, 5, 3)])
    assert sample.values == {"a": PodValue(3000, WHEN, timedelta(seconds=5))}
    assert metrics.object_sample([MetricValue(described, WHEN, None, "1500m")]) == ObjectSample(1500, WHEN)
    series = [ExternalMetricValue("q", WHEN, "1"), ExternalMetricValue("q", WHEN, "-2")]
    assert metrics.external_sample(series) == ExternalSample((1000, -2000), WHEN)
    series.insert(0, ExternalMetricValue("q", WHEN + timedelta(hours=1), "4"))
    assert metrics.external_sample(series) == ExternalSample((4000, 1000, -2000), WHEN)
