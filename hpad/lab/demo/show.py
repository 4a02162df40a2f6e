"""Runs the demo: starts cluster, broker and hpad, runs both halves, stops everything, and reports."""

import asyncio
import contextlib
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from hpad import settings
from hpad.kube import errors
from hpad.kube.auth.credentials import ConfigError
from hpad.lab.demo import DemoError, cpu, queue, stage, workers
from hpad.lab.demo.report import Report, Result
from hpad.lab.demo.screen import Screen
from hpad.lab.demo.timing import DEFAULT, Timing
from hpad.lab.servers import rabbitmq

HALVES = ("cpu", "queue")
NO_BROKER = (
    "The second half, consumers scaled by the depth of a RabbitMQ queue, was left out: the package rabbitmq-server is "
    "not installed. On Debian: apt-get install rabbitmq-server"
)

FAILURES = (DemoError, OSError, errors.ApiError, ConfigError)
"""The errors of `run`, when cluster, broker or hpad cannot start."""


@dataclass(frozen=True)
class Options:
    """`halves` to run, total `seconds`, and the folder that keeps the `logs` of all processes, None to drop them.

    `workers` of the second half: one of `workers.KINDS`.
    """

    halves: Sequence[str] = HALVES
    seconds: float = DEFAULT
    logs: Path | None = None
    workers: str = workers.PLAIN


async def run(options: Options, screen: Screen) -> Report:
    """Runs the demo; raises one of FAILURES when cluster, broker or hpad cannot start.

    Always, also when cancelled, stops all processes and removes all folders except `options.logs`.
    """
    timing = Timing.of(options.seconds)
    server = await asyncio.to_thread(_server, options)
    skipped = NO_BROKER if "queue" in options.halves and server is None else ""
    results: list[Result] = []
    async with (
        _folder(options.logs) as directory,
        _starting(server) as ready,
        _logs_to(directory / "hpad.log"),
        stage.opened(directory, _sources(server)) as on,
    ):
        started = on.clock.monotonic()
        if "cpu" in options.halves:
            results.append(await cpu.show(on, screen, timing))
        if server is not None:
            consumed = queue.Queue(_url(server), ready, options.workers)
            results.append(await queue.show(on, screen, timing, consumed))
        return Report(results, on.clock.monotonic() - started, on.requests(), skipped)


def _server(options: Options) -> rabbitmq.RabbitMQServer | None:
    if "queue" not in options.halves or not rabbitmq.RabbitMQServer.installed():
        return None
    return rabbitmq.RabbitMQServer(queues=(rabbitmq.Queue(queue.QUEUE),))


def _url(server: rabbitmq.RabbitMQServer) -> str:
    return f"amqp://{server.admin.name}:{server.admin.password}@127.0.0.1:{server.amqp_port}/"


def _sources(server: rabbitmq.RabbitMQServer | None) -> list[settings.SourceSettings]:
    if server is None:
        return []
    options = {"url": server.management_url, "username": server.admin.name, "password": server.admin.password}
    return [settings.SourceSettings(name="rabbitmq", adapter="rabbitmq", settings=options)]


@contextlib.asynccontextmanager
async def _starting(server: rabbitmq.RabbitMQServer | None) -> AsyncIterator[asyncio.Future[None]]:
    """Starts the broker in the background, since that takes seconds; await the result before its first use."""
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
    """Creates the folder `kept`, or a temporary one that is removed with the context."""
    if kept is not None:
        await asyncio.to_thread(kept.mkdir, parents=True, exist_ok=True)
        yield kept
        return
    made = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="hpad-demo-"))
    try:
        yield made
    finally:
        await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)


@contextlib.asynccontextmanager
async def _logs_to(path: Path) -> AsyncIterator[None]:
    """Sends all log lines to a file while the context is open, since the terminal shows the table."""
    stream = await asyncio.to_thread(path.open, "a", encoding="utf-8")
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    previous, root.handlers = root.handlers, [handler]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.WriteLoggerFactory(stream),
    )
    try:
        yield
    finally:
        structlog.reset_defaults()
        root.handlers = previous
        await asyncio.to_thread(stream.close)
