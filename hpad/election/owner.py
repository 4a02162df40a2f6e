"""Which HPAs belong to this process: the right to write, and the election that grants it."""

import asyncio
import socket
from collections.abc import Callable, Collection
from typing import Protocol

import msgspec
import structlog

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.election import leader, members, shards
from hpad.election import lease as lease_module
from hpad.election.leader import Replica
from hpad.engine import annotations
from hpad.kube import client, events
from hpad.settings.model import Election
from hpad.telemetry import Telemetry

_FLUSH_SECONDS = 2.0
Current = Callable[[Key], HorizontalPodAutoscaler | None]
"""Returns the HPA as cached at this moment, None if it was deleted. Called before each write."""


class NotOwned(client.NotAllowed):
    """A write was refused: the HPA does not belong to this process."""


class Edited(client.NotAllowed):
    """A write was refused because the HPA was replaced or edited after its decision."""


class Owner(Protocol):
    """Decides which HPAs belong to this process. Called before each reconcile and each write, so it must be fast."""

    def owns(self, key: Key) -> bool:
        """Returns whether this process may act on the HPA at this moment."""
        ...


class Everything:
    """The owner of all HPAs, for a single process without election."""

    def owns(self, key: Key) -> bool:
        return True


EVERYTHING = Everything()


def remaining(owner: Owner) -> float | None:
    """Returns the seconds until the right to write ends without another renewal; None without election."""
    return owner.remaining if isinstance(owner, leader.Participant) else None


def require(owner: Owner, key: Key) -> float | None:
    """Returns `remaining`; raises NotOwned unless the HPA or pod belongs to this process at this moment."""
    if not owner.owns(key):
        raise NotOwned(str(key))
    return remaining(owner)


class Permit(msgspec.Struct, frozen=True, gc=False):
    """The right to write a decision for `hpa`. Without `current` the HPA cannot change."""

    owner: Owner
    key: Key
    hpa: HorizontalPodAutoscaler
    current: Current | None = None

    def require(self) -> float | None:
        """Raises NotOwned unless the HPA belongs to this process, and Edited if it has changed since the decision.

        Returns `remaining`.
        """
        left = self.require_owned()
        if self.current is not None:
            found = self.current(self.key)
            if found is not self.hpa and not decides_alike(self.hpa, found):
                raise Edited(str(self.key))
        return left

    def require_owned(self) -> float | None:
        """Does the same for a write that an edit of the HPA does not prevent, as that of an event."""
        return require(self.owner, self.key)

    @property
    def is_same(self) -> bool:
        """Whether the HPA still exists under its uid, edited or not."""
        found = self.hpa if self.current is None else self.current(self.key)
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


class Handoff(Protocol):
    """Called when the HPAs of this process change; `controller.handoff` implements it."""

    def changed(self) -> None:
        """Called when this process owns other HPAs than before."""
        ...

    async def hand_off(self) -> None:
        """Completes before another process may act on the HPAs that this one lost."""
        ...


def alone(keys: Collection[Key]) -> tuple[Replica, ...]:
    """Returns the only process, as `Coordinator.replicas` does."""
    return (Replica(socket.gethostname(), "single", len(keys)),)


class Coordinator:
    """Takes part in the election: as a leader or standby, or as a member of a shard group.

    `api` is a client of its own, so that no reconcile delays a renewal; `run` closes it. `owner` is the Leader or the
    Shards. `identity` is the unique name of this process.
    """

    def __init__(
        self, api: client.Client, election: Election, telemetry: Telemetry, clock: Clock, *, identity: str
    ) -> None:
        self._api = api
        self._election = election
        self._clock = clock
        self._events = events.EventRecorder(api, component=election.name)
        self._log = structlog.get_logger("hpad.election")
        self.owner: leader.Leader | shards.Shards
        if election.shards:
            known = members.Members(api, election, identity=identity, recorder=self._events)
            common = lease_module.Elector(api, election, identity=shards.identity(election))
            self.owner = shards.Shards(known, common, election, telemetry, clock)
        else:
            self._elector = lease_module.Elector(api, election, identity=identity, recorder=self._events)
            self.owner = leader.Leader(self._elector, election, telemetry, clock)

    @property
    def of_namespaces(self) -> shards.Shards | None:
        """This process as a member of a shard group that divides namespaces; None if it takes part in another way."""
        owner = self.owner
        return owner if isinstance(owner, shards.Shards) and owner.whole_namespaces else None

    @property
    def may_save(self) -> Callable[[Key], bool]:
        """The function that returns whether this process may save the state of an HPA."""
        return self.owner.may_save if isinstance(self.owner, shards.Shards) else self.owner.owns

    def cooldown(self, patience: float) -> float:
        """Returns the seconds from the start of an HPA's last turn at one member to its first turn at another.

        A lease duration then lies between the writes of both. `patience` is the time in seconds that a turn may wait
        for metrics. It is 0 for a leader: its Lease has expired or was released after all work.
        """
        if not isinstance(self.owner, shards.Shards):
            return 0.0
        return (self._election.lease_duration + self._election.retry_period).total_seconds() + patience

    @property
    def lease(self) -> float:
        """The seconds between the writes of two members for one HPA; 0 with a leader."""
        return self._election.lease_duration.total_seconds() if isinstance(self.owner, shards.Shards) else 0.0

    def connect(self, handoff: Handoff) -> None:
        """Calls `handoff` when HPAs are reassigned."""
        self.owner.subscribe(handoff.changed)
        if isinstance(self.owner, shards.Shards):
            self.owner.before_handing_off(handoff.hand_off)

    def describe(self, ours: int, total: int) -> str:
        """Returns a sentence for people, such as "Scaling by 103 of 300 HPAs, as one of 3 members"."""
        owner = self.owner
        if not owner.leading:
            return f"Standing by: {self._why()}"
        if isinstance(owner, shards.Shards):
            return f"Scaling by {ours} of {total} HPAs, as one of {owner.size} member{'' if owner.size == 1 else 's'}"
        return f"Scaling by {total} HPA{'' if total == 1 else 's'}"

    @property
    def role(self) -> str:
        """leader, standby or member."""
        if isinstance(self.owner, shards.Shards):
            return "member" if self.owner.leading else "no member now"
        return "leader" if self.owner.leading else "standby"

    def replicas(self, keys: Collection[Key]) -> tuple[Replica, ...]:
        """Returns the known processes, this one first, with their numbers of these HPAs."""
        return self.owner.replicas(keys)

    @property
    def trouble(self) -> str | None:
        """The problem with the Lease, None without one. A Lease that another process holds is no problem."""
        found = self.owner.trouble
        return None if found is None else f"the Lease {self._lease_name} {found}"

    @property
    def holder_known(self) -> bool:
        """Whether it was known at some time which process acts, so that this one can take over."""
        return self.owner.holder_known

    def _why(self) -> str:
        """Returns why this process does not act. With an unknown holder, no process may be acting at all."""
        if isinstance(self.owner, shards.Shards):
            return "not one of the members now"
        if self._elector.held_by_other():
            return "another leads"
        return f"no holder of the Lease {self._lease_name} is known"

    @property
    def _lease_name(self) -> str:
        return f"{self._election.namespace}/{self._election.name}"

    async def run(self, controller_started: asyncio.Event) -> None:
        """Takes part once the controller is running: a process that cannot work would only block the others."""
        async with self._api, asyncio.TaskGroup() as group:
            writing = group.create_task(self._events.run(), name="election events")
            try:
                await controller_started.wait()
                await self.owner.run()
            finally:
                await self._flush()
                writing.cancel()

    async def _flush(self) -> None:
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self._events.flush()
        except TimeoutError:
            self._log.warning("some events were not written")
