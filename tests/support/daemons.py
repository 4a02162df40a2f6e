"""`hpad run` as a process of its own, on a cluster in this one."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from hpad.lab.cluster import Cluster

_READY_SECONDS = 180.0
_END_SECONDS = 60.0


class Process:
    """A daemon at work; `log` holds what it has said so far, a dictionary a line."""

    def __init__(self, process: asyncio.subprocess.Process, settings: Path) -> None:
        self.settings = settings
        self.log: list[dict[str, Any]] = []
        self._process = process
        self._reading = asyncio.create_task(self._read())

    async def said(self, fits: Callable[[dict[str, Any]], bool], seconds: float = _READY_SECONDS) -> dict[str, Any]:
        """The first line that fits, once it has been said."""
        async with asyncio.timeout(seconds):
            while True:
                for line in self.log:
                    if fits(line):
                        return line
                if self._reading.done():
                    raise AssertionError(f"hpad has ended: {self.log[-5:]}")
                await asyncio.sleep(0.02)

    async def at_work(self) -> str:
        """Where it listens."""
        return str((await self.said(lambda line: line["event"] == "at work"))["url"])

    async def told(self, **settings: Any) -> None:
        """Have it read its settings anew, with these among them."""
        held = json.loads(self.settings.read_text())
        self.settings.write_text(json.dumps({**held, **settings}))
        self._process.send_signal(signal.SIGHUP)

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._reading

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            with contextlib.suppress(ValueError):
                self.log.append(json.loads(line))


@contextlib.asynccontextmanager
async def running(
    cluster: Cluster, folder: Path, command: Iterable[str] = (), **settings: Any
) -> AsyncIterator[Process]:
    """hpad on the cluster with these settings; `command` goes before that of hpad, as `prlimit --as=…` does."""
    await cluster.kubeconfig(folder / "kubeconfig")
    told = {"kubeconfig": str(folder / "kubeconfig"), "listen": "127.0.0.1:0", "log_format": "json", **settings}
    path = folder / "hpad.yaml"
    path.write_text(json.dumps(told))
    process = Process(
        await asyncio.create_subprocess_exec(
            *command,
            *(sys.executable, "-m", "hpad", "run", "--config", str(path)),
            stderr=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("HPAD_")},
            limit=1 << 20,
        ),
        path,
    )
    try:
        yield process
    finally:
        await process.end()


async def fetched(url: str, path: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"{url}{path}") as answer:
        return await answer.text()


async def measured(
    url: str, fits: Callable[[dict[str, float]], bool], seconds: float = _READY_SECONDS
) -> dict[str, float]:
    """The first samples that fit, once they do."""
    async with asyncio.timeout(seconds):
        while not fits(found := await series(url)):  # noqa: ASYNC110  # hpad is the one to say so
            await asyncio.sleep(0.05)
    return found


async def series(url: str) -> dict[str, float]:
    """Samples by name, summed over their labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(await fetched(url, "/metrics")):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found
