"""Nobody who may create HPAs, Deployments and pods holds up the other HPAs, or fills the memory.

The daemon runs in the loop of the test, beside an API server in a process of its own.
"""

import asyncio
import contextlib
import gc
import json
import os
import sys
import time
import urllib.error
import urllib.request
from asyncio import Handle
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support import environment, hostile
from support.hostile import Objects

from hpad import settings
from hpad.api.metadata import Key
from hpad.daemon.app import App
from hpad.engine import annotations
from hpad.settings import SourceSettings

AT_LAST = 600.0
TOGETHER = max(1, 8 // environment.EFFORT)
"""Cases that exist at the same time; with `HPAD_EFFORT=8` each is alone, so that a pause is known to be its own."""
LONGEST = 0.1
"""Seconds of CPU time in which the loop may do nothing else."""
MEMORY = 250
"""MiB by which all cases together may make the process grow: their objects are 50 MB of JSON, and most of them stay."""
PATHS = {
    "Deployment": "/apis/apps/v1/namespaces/evil/deployments",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/evil/horizontalpodautoscalers",
    "Pod": "/api/v1/namespaces/evil/pods",
}


class Pauses:
    """Measures how long callbacks of the loop run, in CPU time of the thread: other processes do not count."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.what = ""

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        run, loop_thread = Handle._run, time.thread_time  # type: ignore[attr-defined]
        test = asyncio.current_task()

        def measure(handle: Any) -> None:
            began = loop_thread()
            run(handle)
            took = loop_thread() - began
            if took > self.longest and getattr(handle._callback, "__self__", None) is not test:
                self.longest, self.what = took, repr(handle)[:300]

        Handle._run = measure  # type: ignore[attr-defined]
        gc.disable()  # a collection takes as long as the process of the test is large
        try:
            yield
        finally:
            gc.enable()
            Handle._run = run  # type: ignore[attr-defined]

    def take(self) -> tuple[float, str]:
        """Returns the longest pause since the last call, and its callback."""
        found, self.longest, self.what = (self.longest, self.what), 0.0, ""
        return found


async def shown(daemon: App, case: Objects) -> None:
    """Asks for what people look at: the series, the list of the page, the HPA with its last decision, its history."""
    await daemon.telemetry.exposition()
    assert daemon.server is not None
    one = f"/api/v1/hpas/evil/{case.hpa['metadata']['name']}"
    for path in ("/api/v1/hpas", one, f"{one}/history?traces=true", f"{one}/decision"):
        await asyncio.to_thread(request, daemon.server.url, "GET", path)


@contextlib.asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Path]:
    """Starts the embedded cluster as a process; yields the path of its kubeconfig."""
    path = folder / "kubeconfig"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hpad", "cluster", "--pretend", "--kubeconfig", str(path)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(AT_LAST):
            while not path.exists():  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.05)
        yield path
    finally:
        process.kill()
        await process.wait()


def request(server: str, method: str, path: str, body: Any = None) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    try:
        with opener.open(urllib.request.Request(server + path, data, headers, method=method), timeout=AT_LAST) as found:
            return json.load(found)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{method} {path}: {error.read(1000)!r}") from None


def create(server: str, case: Objects) -> None:
    for each in (case.deployment, *case.pods, case.hpa):
        request(server, "POST", PATHS[each["kind"]], each)


def delete(server: str, case: Objects) -> None:
    for each in (case.hpa, case.deployment, *case.pods):
        request(server, "DELETE", f"{PATHS[each['kind']]}/{each['metadata']['name']}")


def resident() -> float:
    """Returns the MiB that the process has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def turns(daemon: App, case: Objects, count: int) -> None:
    """Waits for decisions about an HPA."""
    key, seen = Key("evil", case.hpa["metadata"]["name"]), set()
    async with asyncio.timeout(AT_LAST):
        while len(seen) < count:
            done = daemon.components.decisions.last(key)
            if done is not None:
                seen.add(done.view.now)
            await asyncio.sleep(0.02)


@pytest.mark.filterwarnings("ignore:Sending a large body")  # whether it blocks the loop is measured here
async def test_no_object_holds_up_the_loop_or_fills_the_memory(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.yaml"
    numbers.write_text("depth: 15\n" + "".join(f"m{number}-{'n' * 200}: 15\n" for number in range(100)))
    source = SourceSettings(name="mine", adapter="static", settings={"file": str(numbers)})
    pauses, found = Pauses(), dict[tuple[str, ...], tuple[float, str]]()
    async with cluster(tmp_path) as kubeconfig:
        server = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        chosen = settings.Settings(
            kubeconfig=kubeconfig, sync_period=timedelta(seconds=2), listen=("127.0.0.1", 0), sources=(source,)
        )
        async with App(chosen) as daemon:
            await daemon.ready()
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "evil"}}
            await asyncio.to_thread(request, server, "POST", "/api/v1/namespaces", namespace)
            good = Objects("good")
            await asyncio.to_thread(create, server, good)
            await turns(daemon, good, 2)
            before = resident()
            with pauses.measured():
                for names in hostile.batches(TOGETHER):
                    cases = [hostile.case(name) for name in names]
                    pauses.take()
                    for case in cases:
                        await asyncio.to_thread(create, server, case)
                    await asyncio.gather(*(turns(daemon, case, 2) for case in (*cases, good)))
                    for case in cases:
                        await shown(daemon, case)
                    found[names] = pauses.take()
                    print(f"{names}: {found[names][0] * 1e3:.1f} ms, {resident() - before:.0f} MiB", flush=True)
                    for case in cases:
                        await asyncio.to_thread(delete, server, case)
            grown = resident() - before
        case = hostile.case("labels of pods")
        await asyncio.to_thread(create, server, case)
        with pauses.measured():  # a restart reads all at once
            pauses.take()
            async with App(chosen) as daemon:
                await daemon.ready()
                await turns(daemon, case, 1)
            found["restart",] = pauses.take()
            print(f"restart: {found['restart',][0] * 1e3:.1f} ms {found['restart',][1]}", flush=True)
    assert {name: pause for name, pause in found.items() if pause[0] > LONGEST} == {}
    assert grown < MEMORY


def test_there_is_a_case_for_each_annotation() -> None:
    assert set(annotations.ANNOTATIONS) == hostile.ANNOTATIONS
