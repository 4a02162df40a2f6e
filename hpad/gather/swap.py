"""The metric sources as a whole, which can be exchanged for others while they are asked."""

import asyncio
from collections.abc import Sequence

from hpad.adapter import AdapterError, Answer, Asker, Query
from hpad.clock import Clock
from hpad.gather import report
from hpad.gather.fanout import Gatherer
from hpad.model.key import Key
from hpad.model.terms import Fallback


class SourcesRefused(ValueError):
    """Sources that do not work were not taken; the message has a line for each."""


class Sources:
    """Asks the Gatherer of the day; start() and aclose() in one event loop."""

    def __init__(self, gatherer: Gatherer, clock: Clock) -> None:
        self._gatherer = gatherer
        self._clock = clock
        self._retiring: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Load and build the adapters; never fails (see `problems`)."""
        await self._gatherer.start()

    async def aclose(self) -> None:
        """Close the sources, those as well that were exchanged a moment ago."""
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        await self._gatherer.aclose()

    async def exchange(self, new: Gatherer, *, patience: float) -> None:
        """Ask the new one from now on; the old one is closed after `patience` seconds, when nobody waits for it.

        Raises SourcesRefused, and keeps the old one, if a source of the new one does not work for a reason that it has
        not had before.
        """
        await new.start()
        before = {(name, error.message) for name, error in self.problems().items()}
        faults = [error.message for name, error in new.problems().items() if (name, error.message) not in before]
        if faults:
            await new.aclose()
            raise SourcesRefused("\n".join(faults))
        old, self._gatherer = self._gatherer, new
        task = asyncio.create_task(self._retire(old, patience), name="old sources")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def gather(
        self, hpa: Key, queries: Sequence[Query | AdapterError], *, deadline: float, asker: Asker | None = None
    ) -> list[Answer]:
        """As Gatherer.gather."""
        return await self._gatherer.gather(hpa, queries, deadline=deadline, asker=asker)

    def fallback(self, query: Query) -> Fallback | None:
        """As Gatherer.fallback."""
        return self._gatherer.fallback(query)

    def problems(self) -> dict[str, AdapterError]:
        """The sources that could not be built, and why."""
        return self._gatherer.problems()

    def reports(self) -> list[report.Report]:
        """How each source fares."""
        return self._gatherer.reports()

    async def _retire(self, old: Gatherer, patience: float) -> None:
        try:
            await self._clock.sleep(patience)
        finally:
            await old.aclose()
