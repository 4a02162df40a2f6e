"""`hpad explain` beside a daemon on the embedded cluster: what a user reads."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

from e2e.conftest import World
from support.commands import called_beside

from hpad import settings
from hpad.api.metadata import Key

LISTEN = {"listen": ("127.0.0.1", 0), "sync_period": timedelta(seconds=1.5)}
"""A period in which a reconcile ends on a busy machine."""
HELD = {"scaleDown": {"stabilizationWindowSeconds": 3600}}


async def explained(world: World, *arguments: str) -> list[str]:
    """Returns the lines of `hpad explain web`, with single spaces."""
    assert world.daemon.server is not None
    status, printed, errors = await called_beside("explain", "web", "--address", world.daemon.server.url, *arguments)
    assert status == 0, errors
    return [" ".join(line.split()) for line in printed.splitlines()]


async def until_explained(world: World, *words: str) -> list[str]:
    """Waits for a decision whose explanation contains these texts, and returns its lines."""
    await world.until(lambda: world.daemon.components.decisions.last(Key("default", "web")))
    async with asyncio.timeout(world.patience):
        while True:
            lines = await explained(world)
            if all(any(each in line for line in lines) for each in words):
                return lines
            await asyncio.sleep(0.2)


def queue(average: str = "10", name: str = "depth") -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": average}
    return {"type": "External", "external": {"metric": {"name": name}, "target": target}}


def length(folder: Path, text: str) -> tuple[settings.SourceSettings, ...]:
    """Returns a source that reads the length of the queue `depth` from a file, which gets this text."""
    (folder / "depth").write_text(text)
    return (settings.SourceSettings(name="broker", adapter="static", settings={"file": str(folder / "depth")}),)


async def test_php_apache_is_held_at_its_policy(world: World) -> None:
    """Scenario 28."""
    world.workload("Deployment", "web", 1)
    world.load("web", 305)
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 1800}]}}
    world.hpa("web", behavior=behavior)
    await world.hpad(**LISTEN)
    await world.until(lambda: world.replicas("deployments", "web") == 3)
    policy = "2 pods in 30m: from 1 to 3; 2 added, the first of them counts until "
    lines = await until_explained(world, policy, "Pods: 3 ready")
    assert lines[:2] == ["HPA: default/web", "Target: Deployment/web, 3 replicas, min 1, max 10"]
    for wanted in (
        "cpu wants 19",
        "Metric: Resource cpu, from metrics-server",
        "Usage: 305% of the requests, 305m per pod; target 50%",
        "Ratio: 6.1; outside the tolerance (0.9 to 1.1)",
        "Wants: 19, rounded up from 6.1 x 3 pods = 18.3",
        "Pods: 3 ready",
        "POD GROUP VALUE REQUEST USED",
        "metrics want 19 by cpu",
        "after windows 19 (scale-up 0s, scale-down 5m)",
        "after policies 3 scaleUp allows at most 3",
        "written - nothing to write",
    ):
        assert wanted in lines
    [step] = [line for line in lines if line.startswith("- 3 -> 5 once the scaleUp policies allow it at ")]
    assert re.search(r"Z \(in \S+\), if cpu still wants 19$", step)


async def test_a_queue_names_its_source(world: World, tmp_path: Path) -> None:
    """Scenario 28."""
    world.workload("Deployment", "web", 2)
    world.hpa("web", metrics=[queue()])
    await world.hpad(sources=length(tmp_path, "depth: 40\n"), **LISTEN)
    await world.until(lambda: world.replicas("deployments", "web") == 4)
    lines = await until_explained(world, "Usage: 10 per replica (40 over 4 replicas); target 10 per replica")
    assert "Metric: external metric depth, from broker" in lines
    assert "- grows once depth is above 44 (11 per replica; now 40)" in lines
    past = await explained(world, "--last", "10")
    assert past[0] == "TIME REPLICAS RECONCILES FOR DECISION"
    assert any("2 -> 4 1 - scale web from 2 to 4" in line for line in past)


async def test_a_missing_request_names_the_pod(world: World) -> None:
    """Scenario 28."""
    world.workload("Deployment", "web", 1, cpu=None)
    world.load("web", 80)
    world.hpa("web")
    await world.hpad(**LISTEN)
    lines = await until_explained(world, "cannot decide: cpu fails: missing request for cpu in container app of")
    assert any(re.fullmatch(r"web-\S+ ready \d+m? it has no cpu request", line) for line in lines)
    assert "metrics want - cpu fails: the count stays" in lines


async def test_of_two_metrics_with_one_failing_the_other_decides(world: World, tmp_path: Path) -> None:
    """Scenario 28."""
    world.workload("Deployment", "web", 2)
    world.hpa("web", metrics=[queue(), queue(name="absent")])
    await world.hpad(sources=length(tmp_path, "depth: 40\n"), **LISTEN)
    lines = await until_explained(world, "metrics want 4 by depth; absent fails")
    assert "absent fails" in lines
    assert "- cannot shrink while absent cannot be read" in lines


async def test_a_held_scale_down_says_until_when(world: World, tmp_path: Path) -> None:
    """Scenario 28."""
    world.workload("Deployment", "web", 5)
    world.hpa("web", metrics=[queue()], behavior=HELD)
    await world.hpad(sources=length(tmp_path, "depth: 20\n"), **LISTEN)
    lines = await until_explained(world, "; the scale-down window (1h) holds it until ")
    [step] = [line for line in lines if line.startswith("- 5 -> 2 once the scale-down window frees at ")]
    assert re.search(r"Z \(in \S+\), if depth still wants 2$", step)


async def test_a_fallback_names_its_policy_and_the_error(world: World, tmp_path: Path) -> None:
    """Scenario 28."""
    world.workload("Deployment", "web", 2)
    made = world.hpa("web", metrics=[queue()])
    made["metadata"]["annotations"] = {"hpad.io/fallback": "replicas:4 after 0s"}
    world.cluster.apply({key: made[key] for key in ("apiVersion", "kind", "metadata", "spec")})
    await world.hpad(sources=length(tmp_path, "{"), **LISTEN)
    await world.until(lambda: world.replicas("deployments", "web") == 4)
    lines = await until_explained(world, "depth fails, and counts as 4 replicas")
    assert any(
        line.startswith("Fallback: replicas:4 after 0s: falls back to 4 replicas, failing for ") for line in lines
    )
    assert "- cannot shrink while the fallback of depth is in force" in lines
