"""A folder of manifests: is it there, and are they good?"""

import asyncio

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.cli.checkup.finding import ERROR, OK, WARNING, Finding, counted
from hpad.clock import Clock
from hpad.manifests import folder
from hpad.settings import Settings


async def check(told: Settings, clock: Clock) -> tuple[list[Finding], list[HorizontalPodAutoscaler]]:
    """A finding for each problem, or one that says that there is none; and the HPAs that are good."""
    if told.manifests is None:
        return [], []
    try:
        await asyncio.to_thread(folder.check, told.manifests, may_come=False)
    except folder.FolderError as error:
        return [Finding("manifests", ERROR, str(error), "correct --manifests, or make the folder")], []
    read = folder.Folder(told.manifests, clock, scale_to_zero=told.tunables.gates.HPAScaleToZero)
    await read.refresh()
    if read.trouble is not None:
        return [Finding("manifests", ERROR, read.trouble, "let hpad's user read it")], []
    found = [
        Finding("manifests", WARNING, str(problem), "correct it there; the daemon takes up the change")
        for problems in read.errors.values()
        for problem in problems
    ]
    found.append(Finding("manifests", OK, f"{counted(len(read))} in {told.manifests}"))
    return found, list(read.values())
