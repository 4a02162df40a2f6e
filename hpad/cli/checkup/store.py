"""Where histories survive."""

import asyncio
import os
from pathlib import Path

from hpad.cli.checkup.finding import ERROR, NOTE, OK, Finding
from hpad.settings import Settings


async def check(told: Settings) -> list[Finding]:
    """One finding."""
    store = told.store
    if store.kind == "sqlite" and store.path is not None:
        return [await asyncio.to_thread(_file, store.path)]
    if store.kind == "memory":
        says = "histories end with the process: a restart begins its stabilization windows anew"
        return [Finding("store", NOTE, says, "name a file, or the cluster, with --store")]
    return [Finding("store", OK, "histories are kept in ConfigMaps of the cluster (see rights)")]


def _file(path: Path) -> Finding:
    probe = path if path.exists() else path.parent
    if not path.parent.is_dir():
        return Finding("store", ERROR, f"{path}: there is no folder {path.parent}", "create it, owned by hpad's user")
    if not os.access(probe, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK):
        return Finding("store", ERROR, f"{probe}: may not be written by this user", "give it to hpad's user (chown)")
    return Finding("store", OK, f"histories are kept in {path}")
