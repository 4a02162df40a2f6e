"""Delivers new decisions to listeners, such as clients of the event stream. A listener that does not read is ended."""

import asyncio
from collections import deque
from types import TracebackType
from typing import Final, Self

from hpad.api.metadata import Key

MOST_WAITING: Final = 1024
"""The number of decisions that a listener may leave unread; with one more its subscription ends."""


class Subscription:
    """The HPAs that were decided otherwise since the call of `Listeners.subscribe`: `async for key in subscription`.

    The iteration ends after `close`, and as soon as the listener has left `MOST_WAITING` decisions unread (`lagged`).
    As a context manager it closes itself.
    """

    def __init__(self, listeners: "Listeners") -> None:
        self.lagged = False
        self._listeners = listeners
        self._waiting: deque[Key] = deque()
        self._changed = asyncio.Event()
        self._is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Key:
        """Waits for the next decision. Raises StopAsyncIteration once the subscription has ended."""
        while self._is_open and not self._waiting:
            self._changed.clear()
            await self._changed.wait()
        if not self._is_open:
            raise StopAsyncIteration
        return self._waiting.popleft()

    def close(self) -> None:
        """Ends the subscription. Unread decisions are dropped."""
        self._is_open = False
        self._waiting.clear()
        self._listeners.discard(self)
        self._changed.set()

    def put(self, key: Key) -> None:
        """Adds a decision. Ends the subscription if too many are unread."""
        if len(self._waiting) >= MOST_WAITING:
            self.lagged = True
            self.close()
            return
        self._waiting.append(key)
        self._changed.set()


class Listeners:
    """All open subscriptions."""

    def __init__(self) -> None:
        self._open: set[Subscription] = set()

    def __len__(self) -> int:
        return len(self._open)

    def subscribe(self) -> Subscription:
        """Returns a subscription to the decisions from now on."""
        subscription = Subscription(self)
        self._open.add(subscription)
        return subscription

    def discard(self, subscription: Subscription) -> None:
        self._open.discard(subscription)

    def tell(self, key: Key) -> None:
        """Delivers a decision to all listeners. Never waits."""
        for subscription in tuple(self._open):
            subscription.put(key)

    def close(self) -> None:
        """Ends all subscriptions."""
        for subscription in tuple(self._open):
            subscription.close()
