"""Metrics of tests, which answer by a coroutine."""

from collections.abc import Sequence
from typing import Any


class Later:
    """Queries whose answers an async function returns; it is called once they are waited for."""

    done = False

    def __init__(self, gather: Any, queries: Sequence[Any], how: dict[str, Any]) -> None:
        self._gather = gather
        self._queries = queries
        self._how = how
        self._answers: list[Any] = []

    async def wait(self) -> None:
        self._answers = await self._gather(self._queries, **self._how)

    def answers(self) -> list[Any]:
        return self._answers


class Gathering:
    """Metrics with a method `gather`."""

    gather: Any

    def announce(self, queries: Sequence[Any], identity: Any) -> None:
        """Each call answers what was asked, and no more."""

    def ask(self, queries: Sequence[Any], *, period: float | None = None, **how: Any) -> Later:
        """Asks the queries; answers are never used again, whatever the `period` of the HPA is."""
        return Later(self.gather, queries, how)
