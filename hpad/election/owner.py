"""Whether this process may act: the right to write, and the election that grants it."""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.election import lease
from hpad.election.leader import KnownReplica, Leader
from hpad.engine import annotations
from hpad.kube import client, events
from hpad.settings.model import Election
from hpad.telemetry import Telemetry

_FLUSH_SECONDS = 2.0
Current = Callable[[Key], HorizontalPodAutoscaler | None]
"""Returns the HPA as cached at this moment, None if it was deleted. Called before each write."""


class NotLeading(client.NotAllowed):
    """A write was refused: this process does not lead, or not any more."""


class Edited(client.NotAllowed):
    """A write was refused because the HPA was replaced or edited after its decision."""


class Authority(Protocol):
    """Tells whether this process may act. Asked before each reconcile and each write, so it must be fast."""

    @property
    def leading(self) -> bool:
        """Whether this process may act on HPAs at this moment."""
        ...

    @property
    def remaining(self) -> float | None:
        """The seconds until the right to write ends without another renewal; None without election."""
        ...


class Alone:
    """The owner of a single process without election."""

    leading = True
    remaining = None


ALONE = Alone()


def require(owner: Authority) -> float | None:
    """Returns `remaining`; raises NotLeading unless this process leads at this moment."""
    if not owner.leading:
        raise NotLeading
    return owner.remaining


class Permit(msgspec.Struct, frozen=True, gc=False):
    """The right to write a decision for `hpa`."""

    owner: Authority
    key: Key
    hpa: HorizontalPodAutoscaler
    current: Current

    def require(self) -> float | None:
        """Raises NotLeading unless this process leads, and Edited if the HPA has changed since the decision.

        Returns `remaining`.
        """
        left = require(self.owner)
        found = self.current(self.key)
        if found is not self.hpa and not decides_alike(self.hpa, found):
            raise Edited(str(self.key))
        return left

    def require_leading(self) -> float | None:
        """Does the same for a write that an edit of the HPA does not prevent, as that of an event."""
        return require(self.owner)

    @property
    def is_same(self) -> bool:
        """Whether the HPA still exists under its uid, edited or not."""
        found = self.current(self.key)
        return found is not None and found.metadata.uid == self.hpa.metadata.uid


def decides_alike(one: HorizontalPodAutoscaler, other: HorizontalPodAutoscaler | None) -> bool:
    """Returns whether a decision for one HPA holds for the other: uid, spec, labels and annotations of hpad are equal.

    The resourceVersion does not count, since each status write changes it. The generation does not count either, since
    HPAs do not have it in all versions of Kubernetes.
    """
    return (
        other is not None
        and one.metadata.uid == other.metadata.uid
        and (one.spec is other.spec or one.spec == other.spec)
        and one.metadata.labels == other.metadata.labels
        and (one.metadata.annotations is other.metadata.annotations or _annotations(one) == _annotations(other))
    )


def _annotations(hpa: HorizontalPodAutoscaler) -> list[str | None]:
    """Returns the annotations that affect a decision; other tools write others."""
    return [(hpa.metadata.annotations or {}).get(name) for name in annotations.ANNOTATIONS]


def alone() -> tuple[KnownReplica, ...]:
    """Returns the only process, as `Leader.replicas` does."""
    return (KnownReplica(socket.gethostname(), "single"),)


class Coordinator:
    """Takes part in the election, as a leader or a standby.

    `api` is a client of its own, so that no reconcile delays a renewal; `run` closes it. `identity` is the unique name
    of this process.
    """

    def __init__(
        self, api: client.Client, election: Election, telemetry: Telemetry, clock: Clock, *, identity: str
    ) -> None:
        self._api = api
        self._events = events.EventRecorder(api, component=election.name)
        self._elector = lease.Elector(api, election, identity=identity, recorder=self._events)
        self.owner = Leader(self._elector, election, telemetry, clock)

    def describe(self, hpas: int) -> str:
        """Returns a sentence for people, such as "Scaling by 300 HPAs"."""
        if self.owner.leading:
            return f"Scaling by {hpas} HPA{'' if hpas == 1 else 's'}"
        if self._elector.held_by_other():
            return "Standing by: another leads"
        # No process may be acting at all.
        return f"Standing by: no holder of the Lease {self._elector.key} is known"

    async def run(self, controller_started: asyncio.Event) -> None:
        """Takes part once the controller is running: a process that cannot work would only block the others."""
        async with self._api, asyncio.TaskGroup() as group:
            writing = group.create_task(self._events.run(), name="election events")
            try:
                await controller_started.wait()
                await self.owner.run()
            finally:
                await self._events.flush(_FLUSH_SECONDS)
                writing.cancel()
