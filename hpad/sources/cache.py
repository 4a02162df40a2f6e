"""Answers that are kept for a moment, so that many HPAs share a call; and who is likely to ask soon.

Reconciles are spread over the period, while one list serves all HPAs of a namespace. So a source that says how its
queries are grouped is asked, along with one of them, for those of the group that come up before the answer is stale.
A sample keeps its own timestamp; its age on the shelf counts from the moment the call for it began.
"""

from collections.abc import Hashable, Iterator

from hpad.adapter import Answer, Query

_FORGOTTEN_PERIODS = 3.0
_IN_TIME = 0.9
"""The part of its freshness after which an answer is not read ahead for anybody: who comes late would not get it."""


class Shelf:
    """Answers by query. `fresh` and `period` are seconds; times are those of a monotonic clock."""

    def __init__(self, fresh: float, period: float) -> None:
        self._fresh = fresh
        self._period = period
        self._answers: dict[Query, tuple[float, Answer]] = {}
        self._groups: dict[Hashable, dict[Query, float]] = {}
        self._swept = 0.0

    def get(self, query: Query, now: float) -> Answer | None:
        """The answer, if it is fresh enough."""
        held = self._answers.get(query)
        return held[1] if held is not None and self.is_fresh(held[0], now) else None

    def put(self, query: Query, answer: Answer, began: float) -> None:
        """Keep an answer to a call that began then."""
        if self._fresh:
            self._answers[query] = (began, answer)

    def is_fresh(self, began: float, now: float) -> bool:
        """Whether what was asked then may be taken for an answer now."""
        return bool(self._fresh) and now - began <= self._fresh

    def asked(self, query: Query, group: Hashable | None, now: float) -> None:
        """An HPA has asked: it will again in a period, and its answer is best read along with its group's, if any."""
        if group is not None:
            self._groups.setdefault(group, {})[query] = now
        self._sweep(now)

    def mates(self, group: Hashable, now: float) -> Iterator[Query]:
        """Queries of the group that will be asked while an answer of now is still fresh, and have none."""
        horizon = now + self._fresh * _IN_TIME - self._period
        for query, last in self._groups.get(group, {}).items():
            if last <= horizon and last > now - _FORGOTTEN_PERIODS * self._period and self.get(query, now) is None:
                yield query

    def _sweep(self, now: float) -> None:
        """Once a period, let go of what nobody asks any more."""
        if now - self._swept < self._period:
            return
        self._swept = now
        cutoff = now - _FORGOTTEN_PERIODS * self._period
        self._answers = {query: held for query, held in self._answers.items() if self.is_fresh(held[0], now)}
        for group, members in list(self._groups.items()):
            kept = {query: last for query, last in members.items() if last > cutoff}
            self._groups[group] = kept
            if not kept:
                del self._groups[group]
