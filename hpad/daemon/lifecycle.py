"""Starts components in order and stops them in reverse. Some components are background tasks."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, NamedTuple

import structlog

from hpad.clock import Clock
from hpad.daemon.process import run_until

_MIN_SECONDS = 0.2
"""Time to stop for each component, also after the deadline."""


async def _do_nothing() -> None:
    """The default of each step of a component."""


class Component(NamedTuple):
    """A part of the daemon with a start and a stop."""

    name: str
    start: Callable[[], Awaitable[object]] = _do_nothing
    stop: Callable[[], Awaitable[object]] = _do_nothing


class Lifecycle:
    """The components that have been started."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started: list[Component] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failed = asyncio.Event()
        self._log = structlog.get_logger("hpad.daemon.app")

    def __bool__(self) -> bool:
        """Returns whether any component has been started and not stopped."""
        return bool(self._started)

    async def start(self, components: Iterable[Component]) -> None:
        """Starts the components in order. Raises their exceptions."""
        for component in components:
            self._started.append(component)  # before its start: a component that failed halfway must be stopped, too
            await component.start()

    async def stop(self, seconds: float) -> None:
        """Stops all components in reverse order within that many seconds.

        A component that takes longer is abandoned. After the deadline each remaining one gets _MIN_SECONDS.
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
            except Exception as error:  # noqa: BLE001  # a failed stop must not keep the others from stopping
                self._log.error(
                    "did not stop cleanly", component=component.name, error=f"{type(error).__name__}: {error}"
                )

    async def wait(self, stop: asyncio.Event) -> None:
        """Waits until `stop` is set. Raises the exception of a background task that failed."""
        await run_until(stop, self._failed.wait())
        for running in self._tasks.values():
            if running.done():
                running.result()

    def background(
        self,
        name: str,
        main: Callable[[], Coroutine[Any, Any, None]],
        *,
        before_end: Callable[[], Awaitable[object]] = _do_nothing,
        after_end: Callable[[], Awaitable[object]] = _do_nothing,
    ) -> Component:
        """Returns a component that runs as a task. Its stop calls `before_end`, cancels it, and calls `after_end`."""

        async def start() -> None:
            self._tasks[name] = asyncio.create_task(main(), name=name)
            self._tasks[name].add_done_callback(self._ended)

        async def stop() -> None:
            await before_end()
            task = self._tasks.pop(name, None)
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await after_end()

        return Component(name, start, stop)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            raised = task.exception()
            self._log.error(
                "bug: a background task failed", task=task.get_name(), error=f"{type(raised).__name__}: {raised}"
            )
            self._failed.set()
