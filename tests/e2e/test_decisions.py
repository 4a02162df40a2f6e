"""The decision history of a daemon: it survives a restart beside the state, and no damage to it reaches the state."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
from e2e.conftest import World

from hpad import settings
from hpad.api.metadata import Key

WEB = Key("default", "web")
LISTEN = ("127.0.0.1", 0)


def files(folder: Path, part: str = "") -> list[str]:
    """Returns the names of the files that contain this text."""
    return sorted(each.name for each in folder.iterdir() if part in each.name)


async def history(world: World, name: str = "web") -> list[dict[str, Any]]:
    """Returns the entries of an HPA, the oldest first, as the API shows them."""
    assert world.daemon.server is not None
    url = f"{world.daemon.server.url}/api/v1/hpas/default/{name}/history?traces=true"
    async with aiohttp.ClientSession(trust_env=False) as session, session.get(url) as answer:
        assert answer.status == 200
        return list(reversed((await answer.json())["items"]))


async def test_the_history_survives_a_restart_and_its_file_may_be_damaged(world: World, tmp_path: Path) -> None:
    file = tmp_path / "history-decisions.db"
    store = settings.StoreSettings(kind="sqlite", path=tmp_path / "history.db")
    world.workload("Deployment", "web", 2)
    world.load("web", 100)  # twice the metric target
    world.hpa("web", maxReplicas=4)
    daemon = await world.hpad(store=store, listen=LISTEN)
    await world.until(lambda: world.replicas("deployments", "web") == 4)
    await world.periods(3)
    await daemon.stop()
    assert file.stat().st_mode & 0o077 == 0
    size = file.stat().st_size
    assert size > 4096

    daemon = await world.hpad(store=store, listen=LISTEN)
    await world.until(lambda: daemon.components.decisions.latest(Key("default", "web")))
    await world.periods(2)
    entries = await history(world)
    assert [(entry["current"], entry["desired"]) for entry in entries[:2]] == [(2, 4), (4, 4)]
    assert entries[-1]["began"] > entries[1]["ended"]
    assert all(entry["trace"]["time"] == entry["began"] for entry in entries)
    series = await world.exposed('hpad_decision_history_bytes{where="disk"}')
    assert "hpad_decision_history_unsaved 0.0" in series
    state = daemon.components.store.get(WEB)
    assert state.history.scale_ups
    await daemon.stop()

    file.write_bytes(b"garbage" * 1000)
    daemon = await world.hpad(store=store, listen=LISTEN)
    await world.until(lambda: daemon.components.decisions.latest(Key("default", "web")))
    entries = await history(world)
    assert entries[0]["action"] == "none"
    assert daemon.components.store.get(WEB).history.scale_ups
    assert world.replicas("deployments", "web") == 4
    await daemon.stop()
    (damaged,) = files(tmp_path, "damaged")
    assert damaged.startswith("history-decisions.db.damaged-")


async def test_without_a_file_or_in_a_dry_run_the_history_is_in_memory(world: World, tmp_path: Path) -> None:
    world.workload("Deployment", "web", 2)
    world.load("web", 100)
    world.hpa("web", maxReplicas=4)
    store = settings.StoreSettings(kind="sqlite", path=tmp_path / "history.db")
    await world.hpad(store=store, listen=LISTEN, dry_run=True)
    await world.until(lambda: world.daemon.components.decisions.usage().memory)
    await world.periods(3)
    entries = await history(world)
    assert [(entry["current"], entry["desired"]) for entry in entries] == [(2, 4), (4, 4)]
    assert files(tmp_path) == []


async def test_a_history_that_is_off_keeps_nothing(world: World, tmp_path: Path) -> None:
    world.workload("Deployment", "web", 2)
    world.load("web", 100)
    world.hpa("web", maxReplicas=4)
    store = settings.StoreSettings(kind="sqlite", path=tmp_path / "history.db")
    await world.hpad(store=store, listen=LISTEN, decision_history=timedelta(0))
    await world.until(lambda: world.replicas("deployments", "web") == 4)
    await world.periods(3)
    assert await history(world) == []
    assert world.daemon.components.decisions.usage() == (0, 0, 0, "")
    assert files(tmp_path, "decisions") == []
