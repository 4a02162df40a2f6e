"""Nobody reads the daemon's log, or whoever did has gone: HPAs do not wait for that."""

import asyncio
import contextlib
import fcntl
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from support import daemons

from hpad.lab.cluster import Cluster
from hpad.lab.servers import ports

HURRY = ("--sync-period=400ms", "--cpu-initialization-period=0s", "--initial-readiness-delay=0s")


def pipe() -> tuple[int, int]:
    """A full one, as small as there are."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"." * 4096)
    os.set_blocking(writer, True)
    return reader, writer


@contextlib.asynccontextmanager
async def hpad(cluster: Cluster, folder: Path, stderr: int, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """One that says a lot, on a standard error of its own."""
    kubeconfig = await cluster.kubeconfig(folder / "kubeconfig")
    told = [f"--kubeconfig={kubeconfig}", "--store=memory", "--log-level=debug", *HURRY, *flags]
    daemon = await asyncio.create_subprocess_exec(sys.executable, "-m", "hpad", "run", *told, stderr=stderr)
    try:
        yield daemon
    finally:
        with contextlib.suppress(ProcessLookupError):
            daemon.kill()
        await daemon.wait()


async def test_hpas_are_reconciled_while_nobody_reads_the_log(world: Any, tmp_path: Path) -> None:
    """And an orderly stop ends, too: the lines that nobody takes are given up."""
    world.workload("Deployment", "web", 1)
    world.load("web", 100)
    world.hpa("web")
    reader, writer = pipe()
    async with hpad(world.cluster, tmp_path, writer, "--listen=none") as daemon:
        os.close(writer)
        await world.until(lambda: world.replicas("deployments", "web") == 10)
        world.load("web", 5)
        await world.until(lambda: world.replicas("deployments", "web") == 1)
        daemon.terminate()
        async with asyncio.timeout(60):
            assert await daemon.wait() == 0
    assert set(os.read(reader, 1 << 16)) == {ord(".")}
    os.close(reader)


async def test_lines_that_cannot_be_written_are_counted(world: Any, tmp_path: Path) -> None:
    world.workload("Deployment", "web", 1)
    world.load("web", 100)
    world.hpa("web")
    reader, writer = os.pipe()
    os.close(reader)
    (port,) = ports.free(1)
    async with hpad(world.cluster, tmp_path, writer, f"--listen=127.0.0.1:{port}"):
        os.close(writer)
        await world.until(lambda: world.replicas("deployments", "web") == 10)
        await daemons.measured(f"http://127.0.0.1:{port}", lambda now: now["hpad_log_lines_dropped_total"] > 3)
