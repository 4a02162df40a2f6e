"""The metric sources as a whole, which can be exchanged for others while they are asked."""

import asyncio
from collections.abc import Sequence

from hpad.adapter import AdapterError, Answer, Asker, Query
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.engine.fallback_policy import Fallback
from hpad.gather import report
from hpad.gather.fanout import Gatherer


class SourcesRefused(ValueError):
    """Sources that do not work were not taken; the message has a line for each."""


class Sources:
    """Asks the Gatherer of the day; start() and aclose() in one event loop."""

    def __init__(self, gatherer: Gatherer, clock: Clock) -> None:
        self._gatherer = gatherer
        self._clock = clock
        self._retiring: dict[asyncio.Task[None], Gatherer] = {}

    async def start(self) -> None:
        """Load and build the adapters; never fails (see `problems`)."""
        await self._gatherer.start()

    async def aclose(self) -> None:
        """Close the sources, those as well that were exchanged a moment ago."""
        retiring = dict(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        for gatherer in (*retiring.values(), self._gatherer):  # a task that had not begun has closed nothing
            await gatherer.aclose()

    async def exchange(self, new: Gatherer, *, patience: float) -> None:
        """Ask the new one from now on; the old one is closed after `patience` seconds, when nobody waits for it.

        Raises SourcesRefused, and keeps the old one, if a source of the new one does not work for a reason that it has
        not had before. Whatever was opened for a new one that is not taken, is closed.
        """
        try:
            await new.start()
            self._refuse(new)
        except BaseException:
            await new.aclose()
            raise
        old, self._gatherer = self._gatherer, new
        task = asyncio.create_task(self._retire(old, patience), name="old sources")
        self._retiring[task] = old
        task.add_done_callback(self._retiring.pop)

    def _refuse(self, new: Gatherer) -> None:
        before = {(name, error.message) for name, error in self.problems().items()}
        faults = [
            f"{new.origin(name) or 'built in'}: {error.message}"
            for name, error in new.problems().items()
            if (name, error.message) not in before
        ]
        if faults:
            raise SourcesRefused("\n".join(faults))

    async def gather(
        self, hpa: Key, queries: Sequence[Query | AdapterError], *, deadline: float, asker: Asker | None = None
    ) -> list[Answer]:
        """As Gatherer.gather."""
        return await self._gatherer.gather(hpa, queries, deadline=deadline, asker=asker)

    @property
    def kept(self) -> int:
        """As Gatherer.kept."""
        return self._gatherer.kept

    def let_go(self) -> None:
        """As Gatherer.let_go."""
        self._gatherer.let_go()

    def fallback(self, query: Query) -> Fallback | None:
        """As Gatherer.fallback."""
        return self._gatherer.fallback(query)

    def problems(self) -> dict[str, AdapterError]:
        """The sources that could not be built, and why."""
        return self._gatherer.problems()

    def origin(self, name: str) -> str:
        """As Gatherer.origin."""
        return self._gatherer.origin(name)

    def reports(self) -> list[report.Report]:
        """How each source fares."""
        return self._gatherer.reports()

    async def _retire(self, old: Gatherer, patience: float) -> None:
        try:
            await self._clock.sleep(patience)
        finally:
            await old.aclose()
