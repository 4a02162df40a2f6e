"""How long somebody else's coroutine holds the event loop at a stretch.

Between two of its pauses nobody else is served. What it does in tasks or threads of its own is not seen here.
"""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Stepped(Generic[T]):
    """Awaits a coroutine; `longest` is then the time of its longest step, by the clock `now` in seconds."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], now: Callable[[], float]) -> None:
        self._coroutine = coroutine
        self._now = now
        self.longest = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        thrown: BaseException | None = None
        while True:
            began = self._now()
            try:
                awaited = self._coroutine.send(None) if thrown is None else self._coroutine.throw(thrown)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                self.longest = max(self.longest, self._now() - began)
            thrown = None
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001  # a cancellation, most likely: it is the coroutine's to see
                thrown = error
