"""Where histories survive."""

import asyncio
import os
from pathlib import Path

from hpad.cli.checkup.finding import ERROR, NOTE, OK, Finding
from hpad.daemon import assembly
from hpad.settings import Settings


async def check(told: Settings, home: str | None) -> list[Finding]:
    """One finding. `home` is the namespace that hpad counts as its own; None where no cluster is known."""
    store = told.store
    if told.dry_run:
        return [Finding("store", OK, "a dry run keeps its histories in memory")]
    if store.kind == "sqlite" and store.path is not None:
        return [await asyncio.to_thread(_file, store.path)]
    if store.kind == "memory":
        says = "histories end with the process: a restart begins its stabilization windows anew"
        return [Finding("store", NOTE, says, "name a file, or the cluster, with --store")]
    place = "the cluster" if home is None else f"namespace {assembly.place(told, home)}"
    return [Finding("store", OK, f"histories are kept in ConfigMaps {store.name}-* of {place} (see rights)")]


def _file(path: Path) -> Finding:
    probe = path if path.exists() else path.parent
    if not path.parent.is_dir():
        return Finding("store", ERROR, f"{path}: there is no folder {path.parent}", "create it, owned by hpad's user")
    if not os.access(probe, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK):
        return Finding("store", ERROR, f"{probe}: may not be written by this user", "give it to hpad's user (chown)")
    return Finding("store", OK, f"histories are kept in {path}")
