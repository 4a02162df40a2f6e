"""The whole demo: put up the stage, play both halves, take everything down, report."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpad import settings
from hpad.kube import errors
from hpad.kube.auth.credentials import ConfigError
from hpad.lab.demo import cpu, logs, queue, stage
from hpad.lab.demo.errors import DemoError
from hpad.lab.demo.pace import USUAL, Pace
from hpad.lab.demo.report import Report, Result
from hpad.lab.demo.screen import Screen
from hpad.lab.servers import rabbitmq

HALVES = ("cpu", "queue")
NO_BROKER = (
    "The second half, consumers scaled by the depth of a RabbitMQ queue, was left out: the package rabbitmq-server is "
    "not installed. On Debian: apt-get install rabbitmq-server"
)

FAILURES = (DemoError, OSError, errors.ApiError, ConfigError)
"""What `run` raises where the stage cannot be put up."""


@dataclass(frozen=True)
class Options:
    """`halves` are those to play; `logs` is a folder that keeps what all processes wrote, None for not keeping it."""

    halves: Sequence[str] = HALVES
    seconds: float = USUAL
    logs: Path | None = None


async def run(options: Options, screen: Screen) -> Report:
    """Play; raises one of FAILURES where the stage itself cannot be put up.

    Whatever happens, cancellation included, nothing is left running, and no folder but `options.logs`.
    """
    pace = Pace.of(options.seconds)
    server = await asyncio.to_thread(_server, options)
    skipped = NO_BROKER if "queue" in options.halves and server is None else ""
    results: list[Result] = []
    async with (
        _folder(options.logs) as directory,
        _starting(server) as ready,
        logs.into(directory / "hpad.log"),
        stage.opened(directory, _sources(server)) as on,
    ):
        began = on.clock.monotonic()
        if "cpu" in options.halves:
            results.append(await cpu.show(on, screen, pace))
        if server is not None:
            results.append(await queue.show(on, screen, pace, _url(server), ready))
        return Report(results, on.clock.monotonic() - began, on.requests(), skipped)


def _server(options: Options) -> rabbitmq.RabbitMQServer | None:
    if "queue" not in options.halves or not rabbitmq.RabbitMQServer.installed():
        return None
    return rabbitmq.RabbitMQServer(queues=(rabbitmq.Queue(queue.QUEUE),))


def _url(server: rabbitmq.RabbitMQServer) -> str:
    return f"amqp://{server.admin.name}:{server.admin.password}@127.0.0.1:{server.amqp_port}/"


def _sources(server: rabbitmq.RabbitMQServer | None) -> list[settings.SourceSettings]:
    if server is None:
        return []
    told = {"url": server.management_url, "username": server.admin.name, "password": server.admin.password}
    return [settings.SourceSettings(name="rabbitmq", adapter="rabbitmq", settings=told)]


@contextlib.asynccontextmanager
async def _starting(server: rabbitmq.RabbitMQServer | None) -> AsyncIterator[asyncio.Future[None]]:
    """The broker, on its way up while other things happen; await the result before its first use."""
    if server is None:
        yield asyncio.get_running_loop().create_future()
        return
    start = asyncio.create_task(server.start())
    try:
        yield start
    finally:
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
        await server.stop()


@contextlib.asynccontextmanager
async def _folder(kept: Path | None) -> AsyncIterator[Path]:
    """The folder to keep, made if need be, or a temporary one that goes when the context ends."""
    if kept is not None:
        await asyncio.to_thread(kept.mkdir, parents=True, exist_ok=True)
        yield kept
        return
    made = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="hpad-demo-"))
    try:
        yield made
    finally:
        await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)
