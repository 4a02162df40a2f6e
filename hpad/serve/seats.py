"""Room for connections: a full server closes the one that has been idle for longest, and keeps seats for probes.

So a client that opens connections and sends nothing, or heads that never end, keeps nobody out.
"""

import enum
from typing import Protocol


class Seat(enum.Enum):
    """What a new connection may do."""

    ANY = "any"
    PROBES = "probes"
    NONE = "none"


class Guest(Protocol):
    """An open connection."""

    @property
    def idle_since(self) -> float | None:
        """Since when it has waited for (the rest of) a request, in seconds; None while it has one answered."""
        ...

    def abort(self) -> None:
        """End it at once."""
        ...


class Seats:
    """`most` connections of any kind, and `probes` more while all of those are at work, which are for probes alone."""

    def __init__(self, most: int, probes: int) -> None:
        self._most = most
        self._probes = probes
        self._taken: set[Guest] = set()

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, guest: Guest) -> Seat:
        """A seat for a new connection, that of the longest idle one if there is no other; `leave` gives it back."""
        if len(self._taken) >= self._most:
            self._evict()
        seat = self._free()
        if seat is not Seat.NONE:
            self._taken.add(guest)
        return seat

    def leave(self, guest: Guest) -> None:
        self._taken.discard(guest)

    def _free(self) -> Seat:
        if len(self._taken) < self._most:
            return Seat.ANY
        return Seat.PROBES if len(self._taken) < self._most + self._probes else Seat.NONE

    def _evict(self) -> None:
        idle = [(since, guest) for guest in self._taken if (since := guest.idle_since) is not None]
        if idle:
            _, first = min(idle, key=lambda each: each[0])
            self._taken.discard(first)
            first.abort()
