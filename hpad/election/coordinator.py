"""How this hpad agrees with others on who acts: as one that leads or stands by, or as a member that has a share."""

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.election import leader, members, shards
from hpad.election import lease as lease_module
from hpad.kube import client, events
from hpad.settings.model import Election
from hpad.telemetry import Telemetry

_FLUSH_SECONDS = 2.0


class Handoff(Protocol):
    """What is called when the HPAs of this process change; `controller.handoff` has it."""

    def changed(self) -> None:
        """Called whenever this process owns other HPAs than before."""
        ...

    async def hand_off(self) -> None:
        """Awaited before another process may act on the HPAs that this one lost."""
        ...


class Coordinator:
    """Built over a client of its own, so that no reconcile may keep a renewal waiting; closes that at the end.

    `owner` is a `leader.Leader`, or `shards.Shards` where the election says so; `identity` is our own.
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
            common = lease_module.Elector(api, election, identity=shards.IDENTITY)
            self.owner = shards.Shards(known, common, election, telemetry, clock)
        else:
            self._elector = lease_module.Elector(api, election, identity=identity, recorder=self._events)
            self.owner = leader.Leader(self._elector, election, telemetry, clock)

    @property
    def may_save(self) -> Callable[[Key], bool]:
        """Whose histories are ours to save."""
        return self.owner.may_save if isinstance(self.owner, shards.Shards) else self.owner.owns

    def cooldown(self, patience: float) -> float:
        """Seconds from the beginning of an HPA's last turn at one member to its first at another, so that a lease
        duration lies between what both write; `patience` is what a turn may wait for metrics.

        A leader's successor need not rest: the Lease has expired, or has been given up after all work.
        """
        if not isinstance(self.owner, shards.Shards):
            return 0.0
        return (self._election.lease_duration + self._election.retry_period).total_seconds() + patience

    @property
    def lease(self) -> float:
        """Seconds that have to lie between what two members write for an HPA; 0 where there is only one who may."""
        return self._election.lease_duration.total_seconds() if isinstance(self.owner, shards.Shards) else 0.0

    def connect(self, handoff: Handoff) -> None:
        """Let HPAs change hands in this way."""
        self.owner.subscribe(handoff.changed)
        if isinstance(self.owner, shards.Shards):
            self.owner.before_handing_off(handoff.hand_off)

    def describe(self, ours: int, total: int) -> str:
        """How many HPAs we act on, for people: "Scaling by 103 of 300 HPAs, as one of 3 members"."""
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

    @property
    def trouble(self) -> str | None:
        """Why the Lease can be neither had nor renewed now, None where nothing is wrong: one that is another's is as it
        should be."""
        found = self.owner.status.trouble
        return None if found is None else f"the Lease {self._lease}: {found}"

    @property
    def agreed(self) -> bool:
        """Whether it has been known at some time who acts, so that we can take over."""
        return self.owner.status.agreed

    def _why(self) -> str:
        """Why we do not act; where no other does either, the Lease cannot be had, and nobody scales anything."""
        if isinstance(self.owner, shards.Shards):
            return "not one of the members now"
        return "another leads" if self._elector.is_anothers() else f"nobody is known to hold the Lease {self._lease}"

    @property
    def _lease(self) -> str:
        return f"{self._election.namespace}/{self._election.name}"

    async def run(self, controller_started: asyncio.Event) -> None:
        """Take part from the first heartbeat on: one that cannot work would only be in the way."""
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
