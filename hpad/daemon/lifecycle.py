"""What a daemon consists of: parts that are started in order and stopped in reverse, some of them tasks."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, NamedTuple

import structlog

from hpad.clock import Clock

_LEAST_SECONDS = 0.2


class Component(NamedTuple):
    """Something that is started and, in reverse order, stopped; and why it has its place."""

    name: str
    why: str
    start: Callable[[], Awaitable[object]]
    stop: Callable[[], Awaitable[object]]


class Components:
    """Those that have been started, in order."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started: list[Component] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failed = asyncio.Event()
        self._log = structlog.get_logger("hpad.daemon.app")

    def __bool__(self) -> bool:
        return bool(self._started)

    async def start(self, components: Iterable[Component]) -> None:
        """Start one after the other. Raises what one of them raises; it counts as started, too."""
        for part in components:
            self._started.append(part)
            await part.start()

    async def stop(self, seconds: float) -> None:
        """Stop everything in reverse order, within so many seconds.

        What takes longer is left as it is: the process is about to end, and a part that hangs must not keep the others.
        """
        deadline = self._clock.monotonic() + seconds
        while self._started:
            part = self._started.pop()
            left = deadline - self._clock.monotonic()
            try:
                async with asyncio.timeout(max(left, _LEAST_SECONDS)):
                    await part.stop()
            except TimeoutError:
                self._log.error("did not stop in time", part=part.name)
            except Exception as error:  # noqa: BLE001  # the others are to be stopped all the same
                self._log.error("did not stop cleanly", part=part.name, error=f"{type(error).__name__}: {error}")

    async def wait(self, stop: asyncio.Event) -> None:
        """Wait until `stop` is set. Raises what a background task raised, should one ever fail."""
        watched = [asyncio.create_task(event.wait()) for event in (stop, self._failed)]
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in watched:
                task.cancel()
        for running in self._tasks.values():
            if running.done():
                running.result()

    def background(
        self,
        name: str,
        why: str,
        main: Callable[[], Coroutine[Any, Any, None]],
        *,
        before_end: Callable[[], Awaitable[object]] | None = None,
        after_end: Callable[[], Awaitable[object]] | None = None,
    ) -> Component:
        """A part that runs as a task; stopping it does `before_end`, cancels it, and does `after_end`."""

        async def start() -> None:
            self._tasks[name] = asyncio.create_task(main(), name=name)
            self._tasks[name].add_done_callback(self._ended)

        async def stop() -> None:
            if before_end is not None:
                await before_end()
            task = self._tasks.pop(name, None)
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            if after_end is not None:
                await after_end()

        return Component(name, why, start, stop)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            raised = task.exception()
            named = f"{type(raised).__name__}: {raised}"
            self._log.error("bug: a part of hpad failed", part=task.get_name(), error=named)
            self._failed.set()


async def nothing() -> None:
    """Neither to be started nor to be stopped."""
