"""Starts components in order and stops them in reverse. Some components are background tasks."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, NamedTuple

import structlog

from hpad.clock import Clock

_MIN_SECONDS = 0.2
"""Time to stop for each component, also after the deadline."""


async def nothing() -> None:
    """For components that need no start or no stop."""


class Component(NamedTuple):
    """Something that is started and stopped."""

    name: str
    start: Callable[[], Awaitable[object]] = nothing
    stop: Callable[[], Awaitable[object]] = nothing


class Lifecycle:
    """The components that have been started."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started: list[Component] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failed = asyncio.Event()
        self._log = structlog.get_logger("hpad.daemon.app")

    def __bool__(self) -> bool:
        return bool(self._started)

    async def start(self, components: Iterable[Component]) -> None:
        """Starts the components in order. Raises their exceptions; a component that failed still gets stopped."""
        for component in components:
            self._started.append(component)
            await component.start()

    async def stop(self, seconds: float) -> None:
        """Stops all components in reverse order, in at most that many seconds.

        A component that takes longer is abandoned, so that it cannot keep the others from stopping.
        """
        deadline = self._clock.monotonic() + seconds
        while self._started:
            component = self._started.pop()
            remaining = deadline - self._clock.monotonic()
            try:
                async with asyncio.timeout(max(remaining, _MIN_SECONDS)):
                    await component.stop()
            except TimeoutError:
                self._log.error("did not stop in time", component=component.name)
            except Exception as error:  # noqa: BLE001  # the other components must stop, too
                self._log.error(
                    "did not stop cleanly", component=component.name, error=f"{type(error).__name__}: {error}"
                )

    async def wait(self, stop: asyncio.Event) -> None:
        """Waits until `stop` is set. Raises the exception of a background task that failed."""
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
        main: Callable[[], Coroutine[Any, Any, None]],
        *,
        before_end: Callable[[], Awaitable[object]] | None = None,
        after_end: Callable[[], Awaitable[object]] | None = None,
    ) -> Component:
        """Returns a component that runs as a task. Its stop calls `before_end`, cancels it, and calls `after_end`."""

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

        return Component(name, start, stop)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            raised = task.exception()
            self._log.error(
                "bug: a background task failed", task=task.get_name(), error=f"{type(raised).__name__}: {raised}"
            )
            self._failed.set()
