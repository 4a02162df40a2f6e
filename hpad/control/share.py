"""Which HPAs are a member's own, by what it saw of the others at one moment."""

from collections.abc import Mapping

from hpad.api.metadata import Key
from hpad.model import rendezvous

Roster = frozenset[str]
_MOST = 1 << 16


class Share:
    """What `me` may act on, having published `roster` and then seen the `others` that are alive with their rosters.

    An HPA is ours if we are first for it among all whom we see or have in our roster, and each other member has
    acknowledged that: it has us in its roster, or its roster does not make it the first for the HPA anyway. With a
    roster that cannot be read (None) nothing is ours. `control.shards` says why that is safe.
    """

    def __init__(self, me: str, others: Mapping[str, Roster | None], roster: Roster) -> None:
        self.members: Roster = frozenset({me, *others})
        self._me = me
        self._others = dict(others)
        self._candidates = self.members | roster
        self._unaware = [(name, theirs) for name, theirs in others.items() if theirs is None or me not in theirs]
        self._known: dict[Key, bool] = {}

    def __eq__(self, other: object) -> bool:
        """Whether both give the same answers."""
        return isinstance(other, Share) and self._grounds == other._grounds

    def __hash__(self) -> int:
        return hash((self._me, self._candidates))

    @property
    def settled(self) -> bool:
        """Whether all the others know of us, so that nothing will become ours by just waiting."""
        return not self._unaware

    def owns(self, key: Key) -> bool:
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST:  # of HPAs that came and went
                self._known.clear()
            known = self._known[key] = self._is_ours(key)
        return known

    @property
    def _grounds(self) -> tuple[object, ...]:
        return self._me, self._candidates, sorted(self._unaware, key=lambda each: each[0])

    def _is_ours(self, key: Key) -> bool:
        if rendezvous.first(key, self._candidates) != self._me:
            return False
        return all(
            theirs is not None and rendezvous.first(key, theirs | {name}) != name for name, theirs in self._unaware
        )
