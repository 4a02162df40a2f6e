"""Prometheus as a source among others: it takes what it has queries for, and nobody's CPU unasked."""

from typing import Any

import msgspec
import pytest

from hpad import clock as clocks
from hpad import settings, testing
from hpad.adapter import AdapterError
from hpad.api.metadata import Key
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


async def asked_of(given: dict[str, Any], *match: settings.Match) -> list[str]:
    """Which source a Pods metric, an External one and CPU are asked of, where "prom" is the one that is configured."""
    source = settings.SourceSettings(name="prom", adapter="prometheus", settings=given, match=match)
    asked: list[str] = []
    made = Gatherer(
        [source], contexts=Contexts(clocks.SystemClock()), observer=lambda name, seconds, error: asked.append(name)
    )
    await made.start()
    try:
        for query in (PODS, EXTERNAL, CPU):
            (answer,) = await made.gather(Key("default", "web"), [query], deadline=5)
            assert isinstance(answer, AdapterError)
    finally:
        await made.aclose()
    return asked


@pytest.mark.parametrize(
    ("given", "pods", "external", "cpu"),
    [
        ({"metrics": {"rps": {"query": "x"}}}, "prom", "external-metrics", "metrics-server"),
        ({"metrics": {"depth": {"query": "x", "types": ["External"]}}}, "custom-metrics", "prom", "metrics-server"),
        ({"metrics": {"rps": {"query": "x"}, "cpu": {"query": "y"}}}, "prom", "external-metrics", "prom"),
        ({"rules": RULES}, "prom", "prom", "metrics-server"),
        ({"rules_file": "/absent"}, "prom", "prom", "metrics-server"),
        ({}, "custom-metrics", "external-metrics", "metrics-server"),
        ({"url": "nonsense", "rules": RULES}, "custom-metrics", "external-metrics", "metrics-server"),
    ],
)
async def test_takes_what_it_has_queries_for(given: dict[str, Any], pods: str, external: str, cpu: str) -> None:
    assert await asked_of({"url": URL, **given}) == [pods, external, cpu]


async def test_takes_cpu_where_it_is_told_to() -> None:
    told = settings.Match(types=("Resource",))
    assert await asked_of({"url": URL, "rules": RULES}, told) == ["custom-metrics", "external-metrics", "prom"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [("sum(queue_depth{<<.LabelMatchers>>}) by (<<.GroupBy>>)", False), ('x{a="<<.Namespace>>"}', False)]
    + [(f'x{{a="<<.{each}>>"}}', True) for each in ("HPA", "Target", "TargetKind", "HPALabels.team")],
)
async def test_only_queries_made_of_the_hpa_are_personal(query: str, expected: bool) -> None:
    settings = msgspec.convert({"url": URL, "metrics": {"depth": {"query": query}}}, Prometheus.Settings)
    async with testing.context("prom") as context:
        made = Prometheus(settings, context)
        assert [made.personal(testing.external(name)) for name in ("depth", "other")] == [expected, False]
