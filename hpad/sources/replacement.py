"""Replaces the metric sources of a running daemon on a reload: changed ones, while the others go on."""

import asyncio
from collections.abc import Sequence

from hpad.adapter import AdapterError, HPAIdentity, Query
from hpad.clock import Clock
from hpad.engine.fallback_policy import Fallback
from hpad.files import Stamps, stamps
from hpad.sources import plugins
from hpad.sources.limits import SourceReport
from hpad.sources.manager import Asked, Gatherer
from hpad.sources.redact import Redactor


class SourcesRejected(ValueError):
    """A reload is rejected because of sources that do not work; the message has a line for each.

    `files` are those that the rejected sources have read: one of them may be the cause.
    """

    def __init__(self, problems: Sequence[str], kept: Stamps) -> None:
        super().__init__("\n".join(problems))
        self.files = kept


class Sources:
    """The Gatherer in use, `current`, which a reload replaces. Call start() and aclose() in the same event loop."""

    def __init__(self, gatherer: Gatherer, clock: Clock) -> None:
        self.current = gatherer
        self._clock = clock
        self._retiring: dict[asyncio.Task[None], Gatherer] = {}

    async def start(self) -> None:
        """Imports and builds the adapters; never fails (see `Gatherer.problems`)."""
        await self.current.start()

    async def aclose(self) -> None:
        """Closes the sources, including those that were replaced a moment ago."""
        retiring = dict(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        for gatherer in (*retiring.values(), self.current):  # a task that never ran has closed nothing
            await gatherer.aclose()

    def source_of(self, query: Query) -> str:
        """Returns the name of the source that answers the query now; "" if there is none."""
        try:
            return self.current.source_of(query)
        except AdapterError:
            return ""

    async def outdated(self) -> bool:
        """Returns whether a file that a source has read is another one now."""
        kept = self.current.kept_files()
        return bool(kept) and await asyncio.to_thread(stamps, kept) != kept

    async def replace(self, new: Gatherer, *, patience: float) -> None:
        """Starts `new` and uses it from now on. Unchanged sources go on with their connections and answers.

        The others are closed after `patience` seconds, when no HPA waits for them.

        Raises SourcesRejected, closes what `new` has opened and keeps the old one, if a source of `new` does not work
        for a reason that the old one did not have, or has errors that `hpad check` finds.
        """
        try:
            await new.start(self.current)
            await self._check(new)
        except BaseException:  # also a cancellation: the adapters of `new` hold connections
            new.release(self.current)
            await new.aclose()
            raise
        old, self.current = self.current, new
        old.release(new)
        task = asyncio.create_task(self._retire(old, patience), name="old sources")
        self._retiring[task] = old
        task.add_done_callback(self._retiring.pop)

    async def _check(self, new: Gatherer) -> None:
        before = {(name, error.message) for name, error in self.current.problems().items()}
        problems = [
            f"{new.origin(name) or 'built in'}: {error.message}"
            for name, error in new.problems().items()
            if (name, error.message) not in before
        ]
        for source in new.changed(self.current):
            wrong = await asyncio.to_thread(plugins.check_settings, source)
            redactor = Redactor(source.settings)
            problems += [f'{source.origin}: source "{source.name}": {redactor(problem.text)}' for problem in wrong]
        if problems:
            raise SourcesRejected(problems, new.kept_files())

    def ask(
        self,
        queries: Sequence[Query | AdapterError],
        *,
        deadline: float,
        identity: HPAIdentity | None = None,
        period: float | None = None,
    ) -> Asked:
        """Calls Gatherer.ask of the current sources."""
        return self.current.ask(queries, deadline=deadline, identity=identity, period=period)

    def announce(self, queries: Sequence[Query | AdapterError], identity: HPAIdentity) -> None:
        """Calls Gatherer.announce of the current sources."""
        self.current.announce(queries, identity)

    def fallback(self, query: Query) -> Fallback | None:
        """Calls Gatherer.fallback of the current sources."""
        return self.current.fallback(query)

    def reports(self) -> list[SourceReport]:
        """Calls Gatherer.reports of the current sources."""
        return self.current.reports()

    async def _retire(self, old: Gatherer, patience: float) -> None:
        try:
            await self._clock.sleep(patience)
        finally:
            await old.aclose()
