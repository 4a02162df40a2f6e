"""Keeps the results of a function for its latest arguments, bounded by the bytes of the arguments.

`functools.lru_cache` counts entries. Where the arguments hold texts whose length a client of the API server chooses, a
few thousand entries may take gigabytes.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_MOST: Final = 1 << 24
_ENTRY: Final = 500
"""What an entry counts beside the bytes of its arguments."""
_MISSING: Final = object()


def bounded_cache(weigh: Callable[P, int], most: int = _MOST) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Returns a decorator for a pure function of hashable, positional arguments.

    `weigh` returns the estimated bytes of arguments and result, `most` is the sum that is kept. Beyond it the results
    that were added first leave. What alone counts more than a sixteenth is not kept. May be called in threads.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        found = _Cache(most)

        @functools.wraps(function)
        def call(*args: P.args, **named: P.kwargs) -> R:
            value = found.results.get(args, _MISSING)
            if value is _MISSING:
                value = function(*args, **named)
                found.add(args, value, _ENTRY + weigh(*args, **named))
            return value  # type: ignore[no-any-return]

        call.cache = found  # type: ignore[attr-defined]
        return call

    return decorate


class _Cache:
    """Results by their arguments, in the order in which they came, and the bytes that they count."""

    def __init__(self, most: int) -> None:
        self.results: dict[Any, Any] = {}
        self.size = 0
        self._sizes: dict[Any, int] = {}
        self._most = most
        self._lock = threading.Lock()

    def add(self, args: Any, value: Any, size: int) -> None:
        if size > self._most >> 4:
            return
        with self._lock:
            if args in self.results:  # another thread was faster
                return
            self.results[args], self._sizes[args] = value, size
            self.size += size
            while self.size > self._most:
                oldest = next(iter(self.results))
                del self.results[oldest]
                self.size -= self._sizes.pop(oldest)
