"""Which of several members a key belongs to, so that all who know the same members say the same (rendezvous hashing).

Each member draws a number for the key, and the highest wins: where a member comes or goes, no key changes hands
between two others. The numbers are part of what members agree on: other numbers are another protocol.
"""

import hashlib
from collections.abc import Iterable

from hpad.api.metadata import Key


def first(key: Key, members: Iterable[str]) -> str:
    """The member that the key belongs to; raises ValueError where there is none."""
    return max(members, key=lambda member: (weight(key, member), member))


def weight(key: Key, member: str) -> int:
    """What a member draws for a key: 64 bits."""
    return int.from_bytes(hashlib.blake2b(f"{member}\0{key}".encode(), digest_size=8).digest(), "big")
