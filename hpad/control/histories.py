"""Where histories are kept, as the settings say."""

import asyncio
from collections.abc import Callable

import structlog

from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.kube import client
from hpad.settings import Settings
from hpad.store import configmaps, memory, persistent, sqlite
from hpad.telemetry import Telemetry


async def check(told: Settings) -> None:
    """Raise memory.StoreError where the settings name a place in which nothing can be kept."""
    if told.store.kind == "sqlite" and told.store.path is not None and not told.dry_run:
        await asyncio.to_thread(sqlite.check, told.store.path)


def build(
    told: Settings, home: str, api: client.Client, telemetry: Telemetry, clock: Clock, keeps: Callable[[Key], bool]
) -> memory.Store:
    """The store; a `lasting.Lasting` is to be run. `home` is the namespace that hpad counts as its own; `keeps` says
    whose histories are ours to save."""
    if told.store.kind == "memory" or told.dry_run:
        if not told.store.chosen and not told.dry_run:
            log = structlog.get_logger("hpad.app")
            log.info("histories will not survive a restart: name a file with --store sqlite:FILE")
        return memory.InMemory()
    if told.store.kind == "sqlite" and told.store.path is not None:
        shelf: persistent.Shelf = sqlite.Sqlite(told.store.path, clock)
    else:
        shelf = configmaps.ConfigMaps(api, place(told, home), told.store.name, keeps)
    return persistent.Lasting(shelf, clock, telemetry, pace(told), keeps)


def place(told: Settings, home: str) -> str:
    """The namespace of the ConfigMaps; `home` is the one that hpad counts as its own: that of its pod, or, outside of
    one, of the kubeconfig's context."""
    return told.store.namespace or (told.election.namespace if told.election.enabled else home)


def pace(told: Settings) -> persistent.Pace:
    """How often is saved: a file costs little, an object of the cluster one write a period."""
    period = told.sync_period.total_seconds()
    if told.store.kind == "sqlite":
        return persistent.Pace(tick=min(0.25, period / 8), rest=min(1.0, period / 4))
    return persistent.Pace(tick=min(1.0, period / 8), rest=period)
