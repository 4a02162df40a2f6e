"""The decision history of a daemon: it survives a restart beside the state, and no damage to it reaches the state."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
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


async def until(world: World, condition: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """Waits until the entries fulfil a condition, and returns them."""
    async with asyncio.timeout(world.patience):
        while not condition(entries := await history(world)):
            await world.periods(1)
    return entries


def counts(entries: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Returns the current and the desired counts, in their order; a turn without a metric may have changed none."""
    pairs = [(entry["current"], entry["desired"]) for entry in entries]
    return [pair for pair in dict.fromkeys(pairs) if pair != (2, 2)]


async def test_the_history_survives_a_restart_and_its_file_may_be_damaged(world: World, tmp_path: Path) -> None:
    file = tmp_path / "history-decisions.db"
    store = settings.StoreSettings(kind="sqlite", path=tmp_path / "history.db")
    world.workload("Deployment", "web", 2)
    world.load("web", 100)  # twice the metric target
    world.hpa("web", maxReplicas=4)
    daemon = await world.hpad(store=store, listen=LISTEN)
    await until(world, lambda entries: len(counts(entries)) > 1)
    await daemon.stop()
    stopped = datetime.now(UTC)
    assert file.stat().st_mode & 0o077 == 0
    size = file.stat().st_size
    assert size > 4096

    daemon = await world.hpad(store=store, listen=LISTEN)
    entries = await until(
        world, lambda entries: bool(entries) and datetime.fromisoformat(entries[-1]["began"]) > stopped
    )
    assert counts(entries) == [(2, 4), (4, 4)]
    assert all(entry["trace"]["time"] == entry["began"] for entry in entries)
    series = await world.exposed("hpad_decision_history_unsaved 0.0")
    assert 'hpad_decision_history_bytes{where="disk"}' in series
    state = daemon.components.store.get(WEB)
    assert state.history.scale_ups
    await daemon.stop()

    file.write_bytes(b"garbage" * 1000)
    daemon = await world.hpad(store=store, listen=LISTEN)
    entries = await until(world, bool)
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
    entries = await until(world, lambda entries: len(counts(entries)) > 1)
    assert counts(entries) == [(2, 4), (4, 4)]
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
