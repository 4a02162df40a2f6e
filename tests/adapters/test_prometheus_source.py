"""Prometheus among other sources: it answers the metrics of its queries and rules, and resources only by a route."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hpad import clock as clocks
from hpad import settings, testing
from hpad.adapter import AdapterError
from hpad.sources.manager import Gatherer
from hpad.sources.plugins import Contexts
from hpad_adapters.prometheus import Prometheus

RULES = {"rules": [{"seriesQuery": "x"}], "resourceRules": {"cpu": {"containerQuery": "sum(x)"}}}
PODS, EXTERNAL, CPU = (
    testing.pods_metric("rps", "app=web"),
    testing.external("depth"),
    testing.resource("cpu", "app=web"),
)
URL = "http://127.0.0.1:9"


async def answering_sources(options: dict[str, Any], *match: settings.Match) -> list[str]:
    """Returns the sources that a Pods metric, an External metric and CPU are read from, with one source "prom"."""
    source = settings.SourceSettings(name="prom", adapter="prometheus", settings=options, match=match)
    asked: list[str] = []
    made = Gatherer(
        [source], contexts=Contexts(clocks.SystemClock()), observer=lambda name, seconds, error: asked.append(name)
    )
    await made.start()
    try:
        for query in (PODS, EXTERNAL, CPU):
            (answer,) = await made.gather([query], deadline=5)
            assert isinstance(answer, AdapterError)
    finally:
        await made.aclose()
    return asked


@pytest.mark.parametrize(
    ("options", "pods", "external", "cpu"),
    [
        ({"metrics": {"rps": {"query": "x"}}}, "prom", "external-metrics", "metrics-server"),
        ({"metrics": {"depth": {"query": "x", "types": ["External"]}}}, "custom-metrics", "prom", "metrics-server"),
        ({"metrics": {"rps": {"query": "x"}, "cpu": {"query": "y"}}}, "prom", "external-metrics", "prom"),
        ({"rules": RULES}, "prom", "prom", "metrics-server"),
        ({"rules_file": "empty.yaml"}, "prom", "prom", "metrics-server"),
        ({}, "custom-metrics", "external-metrics", "metrics-server"),
        ({"url": "nonsense", "rules": RULES}, "custom-metrics", "external-metrics", "metrics-server"),
    ],
)
async def test_metrics_with_queries_or_rules_need_no_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], pods: str, external: str, cpu: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.yaml").touch()
    assert await answering_sources({"url": URL, **options}) == [pods, external, cpu]


async def test_a_match_routes_cpu_to_prometheus() -> None:
    match = settings.Match(types=("Resource",))
    assert await answering_sources({"url": URL, "rules": RULES}, match) == [
        "custom-metrics",
        "external-metrics",
        "prom",
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [("sum(queue_depth{<<.LabelMatchers>>}) by (<<.GroupBy>>)", False), ('x{a="<<.Namespace>>"}', False)]
    + [(f'x{{a="<<.{each}>>"}}', True) for each in ("HPA", "Target", "TargetKind", "HPALabels.team")],
)
async def test_only_queries_that_use_the_hpa_are_personal(query: str, expected: bool) -> None:
    settings = msgspec.convert({"url": URL, "metrics": {"depth": {"query": query}}}, Prometheus.Settings)
    async with testing.context("prom") as context:
        made = Prometheus(settings, context)
        assert [made.personal(testing.external(name)) for name in ("depth", "other")] == [expected, False]
