"""`hpad doctor` on HPAs in shadow mode, with the API of a real server of hpad."""

import urllib.parse
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cli.test_doctor import ApiServer, found, server
from support import api_world
from support.api_world import World
from support.engine import Workload, external, series

from hpad.cli.checks import Finding

__all__ = ["server"]  # a fixture
SHADOW = {"hpad.io/mode": "shadow"}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with api_world.opened() as made:
        yield made


def hpa(name: str, **annotations: str) -> dict[str, Any]:
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    metadata = {"name": name, "namespace": "shop", "uid": name, "annotations": annotations}
    return {"metadata": metadata, "spec": {"scaleTargetRef": ref, "maxReplicas": 10}, "status": {}}


def decide(world: World, name: str, targets: list[int], mode: str = "shadow") -> datetime:
    """Decides once a minute on 40 messages, 10 for each replica; returns the time of the first decision."""
    metric = external("orders", averageValue="10")
    work = Workload(metric, replicas=targets[0], annotations={"hpad.io/mode": mode})
    work.now = begin = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    for number, target in enumerate(targets):
        work.replicas = target
        work.reconcile(series(40), after=60 if number else 0)
        world.decided(work, name, "shop")
    return begin


async def shadow(folder: Path, server: ApiServer, world: World, **changes: Any) -> list[Finding]:
    parts = urllib.parse.urlsplit(world.server.url)
    listen = (parts.hostname, parts.port)
    return [each for each in await found(folder, server.url, **{"listen": listen, **changes}) if each.check == "shadow"]


async def test_how_often_when_last_and_why(server: ApiServer, world: World, tmp_path: Path) -> None:
    server.hpas = [hpa("web", **SHADOW), hpa("same", **SHADOW), hpa("active")]
    begin = decide(world, "web", [2, 4, 4, 5, 4])
    decide(world, "same", [4, 4, 4])
    summary, web = await shadow(tmp_path, server, world)
    assert summary.level == "ok"
    assert summary.says == (
        "2 HPAs in shadow mode; in the last 24 hours the counts of hpad and of the target differed in 1"
    )
    assert web.level == "note"
    # 40 messages ask for 4 replicas: too few in the first minute of four, too many in the last.
    first, last = begin + timedelta(minutes=3), begin + timedelta(minutes=4)
    assert web.says.startswith(
        "shop/web: 2 differences: hpad had fewer replicas than the target for 1m (25 %), more for 1m (25 %); "
        f"the last from {first:%Y-%m-%d %H:%M:%SZ} to {last:%Y-%m-%d %H:%M:%SZ}, hpad 4, target 5: scale "
    )
    assert "from 2 to 4" in web.says
    assert web.do == "see every difference: hpad shadow-report"


async def test_without_a_shadow_it_says_nothing(server: ApiServer, world: World, tmp_path: Path) -> None:
    server.hpas = [hpa("web"), hpa("paused", **{"hpad.io/mode": "paused"})]
    assert await shadow(tmp_path, server, world) == []


async def test_in_a_dry_run_all_but_paused_ones_have_a_shadow(server: ApiServer, world: World, tmp_path: Path) -> None:
    server.hpas = [hpa("web"), hpa("paused", **{"hpad.io/mode": "paused"})]
    decide(world, "web", [4, 4, 4])
    [finding] = await shadow(tmp_path, server, world, dry_run=True)
    assert finding.says.startswith("1 HPA in shadow mode; ")
    assert finding.do == ""


async def test_an_hpa_that_hpad_does_not_know(server: ApiServer, world: World, tmp_path: Path) -> None:
    server.hpas = [hpa("new", **SHADOW), hpa("web", **SHADOW)]
    decide(world, "web", [2, 4])
    summary, web, unread = await shadow(tmp_path, server, world)
    assert summary.says.endswith("differed in 1; decisions were found for 1")
    assert web.says.startswith("shop/web: 1 difference: ")
    assert "shop/new: there is no HPA" in unread.says


async def test_no_decision_is_not_no_difference(server: ApiServer, world: World, tmp_path: Path) -> None:
    server.hpas = [hpa("web", **SHADOW)]
    decide(world, "web", [2, 4], mode="active")
    [finding] = await shadow(tmp_path, server, world)
    assert finding.says == "1 HPA in shadow mode; no decision in shadow mode from the last 24 hours was found"


@pytest.mark.parametrize(("listen", "says"), [(("127.0.0.1", 9), "no hpad answers on"), (None, "turn the API off")])
async def test_no_hpad_answers(server: ApiServer, world: World, tmp_path: Path, listen: Any, says: str) -> None:
    server.hpas = [hpa("web", **SHADOW)]
    [finding] = await shadow(tmp_path, server, world, listen=listen)
    assert finding.level == "note"
    assert finding.says.startswith("1 HPA in shadow mode; ")
    assert says in finding.says
