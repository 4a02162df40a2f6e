"""Who keeps calls waiting in vain. A call has one answer for all who are in it, so one metric that hangs takes the
answers of all others with it; it must not do so again and again.

Whoever was in calls that nothing came of in time, again and again, goes apart from the others from then on, in ever
smaller company, until something comes or it was alone with it. What one call serves anyway (a group) is one. Where
there are many of them the source itself is slow, and more calls would make it slower: they go in a few.
"""

import math
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from hpad.adapter import Answer, Query
from hpad.sources import call

MOST: Final = 1 << 14
"""Of so many is it known; of more, those that were late last."""
TIMES: Final = 5
"""So many calls in a row: once or twice may be the source's fault, or the network's."""
_FEW: Final = 32
_SPLIT: Final = 8
_ANY: Final = sys.maxsize
_ALONE: Final = 0


class Laggards:
    """The queries of one source that were late; `group` says what shares a call anyway, None for what is on its own.

    Of what nobody asks for `patience` seconds nothing is known any more: its HPA is gone, and must not count as one of
    many.
    """

    def __init__(self, group: Callable[[Query], Hashable | None], patience: float = math.inf) -> None:
        self._group = group
        self._patience = patience
        self._late: dict[Hashable, int] = {}
        """In how many calls in a row."""
        self._company: dict[Hashable, int] = {}
        """How many of those that were late may go together; _ALONE for those that were so by themselves."""
        self._apart: set[Hashable] = set()
        """The laggards."""
        self._asked: dict[Hashable, float] = {}
        """When those that were late were last asked for, or found to be so."""
        self._swept = 0.0

    def __contains__(self, query: Query) -> bool:
        return bool(self._apart) and self._key(query) in self._apart

    def __len__(self) -> int:
        return len(self._apart)

    def asked(self, query: Query, now: float) -> None:
        """An HPA asks, at `now` of a monotonic clock."""
        if not self._late:
            return
        key = self._key(query)
        if key in self._late:
            self._asked[key] = now
        if now - self._swept >= self._patience:
            self._swept = now
            for late in list(self._late):
                if self._asked.setdefault(late, now) < now - self._patience:
                    self._forget(late)

    def suspected(self, query: Query) -> bool:
        """Whether it was late in company only, so that another may have been the reason, and it is soon found out."""
        return 0 < len(self._late) <= _FEW and self._company.get(self._key(query), _ALONE) != _ALONE

    def next(self, waiting: Iterable[Query]) -> Sequence[Query]:
        """Who of those who wait (one at least) goes next: all who are no laggards; else, of those who are, as many as
        may go together, who were late alone at last."""
        if not self._apart:
            return list(waiting)
        keys = {query: self._key(query) for query in waiting}
        prompt = [query for query, key in keys.items() if key not in self._apart]
        if prompt:
            return prompt
        laggards = sorted(dict.fromkeys(keys.values()), key=lambda key: -self._company[key])
        most = self._company[laggards[0]]
        if len(self) > _FEW:
            going = laggards[: max(most, len(self) // _SPLIT)]
        else:
            going = [key for key in laggards if self._company[key] == most][: max(most, 1)]
        chosen = set(going)
        return [query for query, key in keys.items() if key in chosen]

    def learn(self, queries: Sequence[Query], given: Sequence[Answer]) -> None:
        """A call with these queries has ended."""
        late = {self._key(query) for query, answer in zip(queries, given, strict=True) if isinstance(answer, call.Late)}
        if not late and not self._late:
            return
        keys = dict.fromkeys(map(self._key, queries))
        company = max(len(keys) // _SPLIT, 1) if len(keys) > 1 else _ALONE
        for key in keys:
            times = self._late.pop(key, 0) + 1
            if key not in late:
                self._forget(key)
                continue
            self._late[key], self._company[key] = times, company
            if times >= TIMES:
                self._apart.add(key)
        for _ in range(len(self._late) - MOST):
            self._forget(next(iter(self._late)))

    def _forget(self, key: Hashable) -> None:
        for held in (self._late, self._company, self._asked):
            held.pop(key, None)
        self._apart.discard(key)

    def _key(self, query: Query) -> Hashable:
        group = self._group(query)
        return query if group is None else (group,)
