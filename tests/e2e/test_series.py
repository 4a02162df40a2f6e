"""The series of decisions, as a Prometheus scrapes them from a running hpad."""

import asyncio
from typing import Any

import aiohttp
from prometheus_client import parser

Found = dict[tuple[str, ...], float]
CPU = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
UNKNOWN = {"metric": {"name": "unknown"}, "target": {"type": "AverageValue", "averageValue": "4"}}


async def scraped(daemon: Any) -> Found:
    """The samples of decisions: by their name without `hpad_hpa_`, and by their labels without the namespace."""
    async with aiohttp.ClientSession(trust_env=False) as session, session.get(f"{daemon.server.url}/metrics") as answer:
        text = await answer.text()
    found: Found = {}
    for family in parser.text_string_to_metric_families(text):
        for name, labels, value, *_ in family.samples:
            short = name.removeprefix("hpad_hpa_")
            if short != name and short not in ("held_back", "at_max_seconds_total"):
                assert labels.pop("namespace") == "default"
                found[short, *labels.values()] = value
    return found


async def test_each_metric_its_proposal_and_what_holds_the_count(world: Any) -> None:
    """Four pods use twice their target: eight replicas are wanted, five allowed. The other metric has no source."""
    world.workload("Deployment", "web", 4)
    world.load("web", 100)
    metrics = [{"type": "Resource", "resource": CPU}, {"type": "External", "external": UNKNOWN}]
    world.hpa("web", metrics=metrics, minReplicas=2, maxReplicas=5)
    world.hpa("gone")
    daemon = await world.hpad(listen=("127.0.0.1", 0))
    await world.until(lambda: world.replicas("deployments", "web") == 5)
    found: Found = {}
    async with asyncio.timeout(world.patience):
        while found.get(("current_replicas", "web")) != 5 or ("recommendation", "web") not in found:
            await world.periods(1)
            found = await scraped(daemon)
    assert found.pop(("metric_value", "web", "cpu")) == 1
    assert found.pop(("metric_proposal", "web", "cpu")) == found.pop(("recommendation", "web")) > 5
    assert {name[:1] + name[2:]: value for name, value in found.items() if name[1] == "web"} == {
        ("min_replicas",): 2,
        ("max_replicas",): 5,
        ("current_replicas",): 5,
        ("decision",): 5,
        ("held_by", "maximum"): 1,
        ("metric_target", "cpu"): 0.5,
        ("metric_target", "unknown"): 4,
    }
    assert found["held_by", "gone", "target_unreadable"] == 1
    world.cluster.delete("horizontalpodautoscalers", "gone")
    async with asyncio.timeout(world.patience):
        while any(name[1] == "gone" for name in found):
            await world.periods(1)
            found = await scraped(daemon)
