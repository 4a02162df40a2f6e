"""Recent answers of a source, kept so that several HPAs share a call, and the queries that are expected soon.

Reconciles are spread over the period, while one call may serve all HPAs of a namespace. Where an adapter groups its
queries, a call for one query also asks for those of its group that are expected before the answer is stale. A sample
keeps its own timestamp; its age in the cache counts from the begin of the call.
"""

from collections.abc import Hashable, Iterator

from hpad.adapter import Answer, Query

_FORGOTTEN_PERIODS = 3.0
_IN_TIME = 0.9
"""Part of the freshness after which no query is expected: an HPA that comes a little late would find a stale answer."""


class AnswerCache:
    """Answers by query. `fresh` and `period` are in seconds; times are those of a monotonic clock."""

    def __init__(self, fresh: float, period: float) -> None:
        self._fresh = fresh
        self._period = period
        self._answers: dict[Query, tuple[float, Answer]] = {}
        self._groups: dict[Hashable, dict[Query, float]] = {}
        self._swept = 0.0

    def get(self, query: Query, now: float) -> Answer | None:
        """Returns the answer, if there is one that is fresh."""
        began, answer = self._answers.get(query, (0.0, None))
        return answer if self.is_fresh(began, now) else None

    def put(self, query: Query, answer: Answer, began: float) -> None:
        """Keeps an answer of a call that began at `began`."""
        if self._fresh:
            self._answers[query] = (began, answer)

    def is_fresh(self, began: float, now: float) -> bool:
        """Whether the answer of a call that began at `began` may be used now."""
        return bool(self._fresh) and now - began <= self._fresh

    def asked(self, query: Query, group: Hashable | None, now: float) -> None:
        """Notes that an HPA asked, and so will ask again in a period; `group` shares its calls (None: nothing does)."""
        if group is not None:
            self._groups.setdefault(group, {})[query] = now
        self._sweep(now)

    def expected(self, group: Hashable, now: float) -> Iterator[Query]:
        """Yields the queries of a group that have no answer and are expected while one of now is still fresh."""
        horizon = now + self._fresh * _IN_TIME - self._period
        for query, last in self._groups.get(group, {}).items():
            if last <= horizon and last > now - _FORGOTTEN_PERIODS * self._period and self.get(query, now) is None:
                yield query

    def _sweep(self, now: float) -> None:
        """Drops, once a period, stale answers and queries that were not asked for three periods."""
        if now - self._swept < self._period:
            return
        self._swept = now
        cutoff = now - _FORGOTTEN_PERIODS * self._period
        self._answers = {query: kept for query, kept in self._answers.items() if self.is_fresh(kept[0], now)}
        for group, members in list(self._groups.items()):
            recent = {query: last for query, last in members.items() if last > cutoff}
            self._groups[group] = recent
            if not recent:
                del self._groups[group]
