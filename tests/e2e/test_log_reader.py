"""A log that is not read, or whose reader has ended, does not delay HPAs."""

import asyncio
import contextlib
import fcntl
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from e2e.conftest import AT_LAST
from prometheus_client.parser import text_string_to_metric_families

from hpad.lab.cluster import Cluster
from hpad.lab.servers import ports

HURRY = ("--sync-period=400ms", "--cpu-initialization-period=0s", "--initial-readiness-delay=0s")


def pipe() -> tuple[int, int]:
    """Returns the ends of a full pipe of the smallest size."""
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
    """Runs a daemon that logs a lot, to `stderr`."""
    kubeconfig = await cluster.kubeconfig(folder / "kubeconfig")
    arguments = [f"--kubeconfig={kubeconfig}", "--store=memory", "--log-level=debug", *HURRY, *flags]
    daemon = await asyncio.create_subprocess_exec(sys.executable, "-m", "hpad", "run", *arguments, stderr=stderr)
    try:
        yield daemon
    finally:
        with contextlib.suppress(ProcessLookupError):
            daemon.kill()
        await daemon.wait()


async def test_hpas_are_reconciled_while_the_log_is_not_read(world: Any, tmp_path: Path) -> None:
    """A stop also ends in good order: it drops the lines that are not read."""
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
        async with asyncio.timeout(AT_LAST):
            assert await daemon.wait() == 0
    assert set(os.read(reader, 1 << 16)) == {ord(".")}
    os.close(reader)


async def test_dropped_log_lines_are_counted(world: Any, tmp_path: Path) -> None:
    world.workload("Deployment", "web", 1)
    world.load("web", 100)
    world.hpa("web")
    reader, writer = os.pipe()
    os.close(reader)
    (port,) = ports.free(1)
    async with hpad(world.cluster, tmp_path, writer, f"--listen=127.0.0.1:{port}"):
        os.close(writer)
        await world.until(lambda: world.replicas("deployments", "web") == 10)
        async with asyncio.timeout(AT_LAST):
            while await dropped_lines(f"http://127.0.0.1:{port}") <= 3:  # noqa: ASYNC110  # another process counts
                await asyncio.sleep(0.05)


async def dropped_lines(url: str) -> float:
    """Returns the number of log lines that the daemon has dropped."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == "hpad_log_lines_dropped_total"
        )
