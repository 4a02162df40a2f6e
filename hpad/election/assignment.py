"""Which HPAs a member of a shard group owns, given the members that it sees.

Rendezvous hashing gives each HPA to one member: every member gets a number per HPA, and the highest number wins. When a
member joins or leaves, no HPA moves between two other members. The hash is part of the protocol between members
(`shards.identity`): members with another hash are another group. What is hashed is the HPA, or only its namespace
(`UNITS`): then all HPAs of a namespace belong to one member.

Each member publishes its member set: the members that it saw alive, and itself. A member owns an HPA when it is first
for it among all members that it sees or has published, and every other member has acknowledged that. A member
acknowledges by listing this member in its own set, or by a set in which it is not first for the HPA itself.

Why two members A and B never own the same HPA at the same time. Both have completed a round (publish, then list all
Leases). Let A's write be the earlier one at the API server. So B listed after A's write and saw A's Lease of that
round or a newer one. B counts it for `lease_duration` from then, and A's leadership lease ends `renew_deadline` after
the moment before A's write, which is earlier. The clocks of both need only run at the same rate. So B chose among a
set that contains A, and B is first in it. B also read A's member set:

- If the set contains B: A is first only within the union of what it sees and what it published, and that union contains
  B. B comes before A there, so A does not own the HPA.
- If A is not first for the HPA in that set, A is not first in the larger union either.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hpad.api.metadata import Key
from hpad.settings.model import SHARD_BY_HPA, SHARD_BY_NAMESPACE

MemberSet = frozenset[str]
_MOST_CACHED: Final = 1 << 16
"""Answers that an Assignment caches; HPAs that were deleted would fill it without a limit."""


def _namespace(key: Key) -> Key:
    return Key(key.namespace, "")


UNITS: Final[Mapping[str, Callable[[Key], Key]]] = {SHARD_BY_HPA: lambda key: key, SHARD_BY_NAMESPACE: _namespace}
"""By setting: what belongs to one member as a whole, by the key of an HPA in it. Key("shop", "") is a namespace."""


def first(key: Key, members: Iterable[str]) -> str:
    """Returns the member that the HPA or the namespace belongs to. Raises ValueError for an empty set."""
    return max(members, key=lambda member: (weight(key, member), member))


def weight(key: Key, member: str) -> int:
    """Returns the number of 64 bits that the member has for the HPA."""
    return int.from_bytes(hashlib.blake2b(f"{member}\0{key}".encode(), digest_size=8).digest(), "big")


class Assignment:
    """The HPAs of the member `me`, which published `published` and then saw `others` alive with their member sets.

    A member set of None is not known; such a member blocks every HPA. `shard_by` is a key of UNITS.
    """

    def __init__(
        self,
        me: str,
        others: Mapping[str, MemberSet | None],
        published: MemberSet,
        *,
        shard_by: str = SHARD_BY_HPA,
    ) -> None:
        self.members: MemberSet = frozenset({me, *others})
        self._me = me
        self._candidates = self.members | published
        self._unaware = sorted((name, theirs) for name, theirs in others.items() if theirs is None or me not in theirs)
        self._unit = UNITS[shard_by]
        self._cache: dict[Key, bool] = {}
        self.inputs = (me, self._candidates, self._unaware)
        """Assignments with equal inputs own the same HPAs, whichever exist."""

    @property
    def acknowledged_by_all(self) -> bool:
        """Whether all members list this one, so that waiting adds no further HPAs."""
        return not self._unaware

    def owns(self, key: Key) -> bool:
        known = self._cache.get(key)
        if known is None:
            if len(self._cache) >= _MOST_CACHED:
                self._cache.clear()
            unit = self._unit(key)
            known = self._cache[key] = self._is_owned(unit) if unit == key else self.owns(unit)
        return known

    def expects(self, namespace: str) -> bool:
        """Returns whether the namespace belongs to this member, as soon as the others have acknowledged that."""
        return first(Key(namespace, ""), self._candidates) == self._me

    def _is_owned(self, key: Key) -> bool:
        if first(key, self._candidates) != self._me:
            return False
        return all(theirs is not None and first(key, theirs | {name}) != name for name, theirs in self._unaware)
