"""Members of a shard group on a server in memory, with faults of networks and clocks that follow from a seed."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from support import lease_candidates
from support.lease_candidates import CONFLICT, OddClock, Switched

from hpad.api.metadata import Key
from hpad.election import lease, members, shards
from hpad.kube import errors
from hpad.settings.model import Election
from hpad.telemetry import Telemetry

KEYS = tuple(Key("default", f"app-{number}") for number in range(12))
ELECTION = Election(enabled=True, shards=True)
GONE = errors.ApiError(404, "NotFound", "leases.coordination.k8s.io not found")


class Server:
    """An API server that has Leases and nothing else. `touched` is called after each request that it answered."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self.version = 0
        self.requests: Counter[str] = Counter()
        self.touched: Callable[[], None] = lambda: None

    def answer(self, method: str, path: str, params: Mapping[str, str], body: bytes | None) -> bytes:
        name = path.partition("/leases")[2].strip("/")
        self.requests["LIST" if method == "GET" and not name else method] += 1
        try:
            return json.dumps(self._answer(method, name, params, json.loads(body or b"{}"))).encode()
        finally:
            self.touched()

    def _answer(self, method: str, name: str, params: Mapping[str, str], sent: dict[str, Any]) -> dict[str, Any]:
        if method == "GET" and not name:
            label, _, value = params["labelSelector"].partition("=")
            return {
                "items": [
                    each for each in self.leases.values() if each["metadata"].get("labels", {}).get(label) == value
                ]
            }
        if method == "POST":
            if sent["metadata"]["name"] in self.leases:
                raise errors.ApiError(409, "AlreadyExists", "it already exists")
            return self.commit(sent)
        if name not in self.leases:
            raise GONE
        precondition = sent.get("preconditions") or sent.get("metadata")
        if (
            precondition is not None
            and precondition["resourceVersion"] != self.leases[name]["metadata"]["resourceVersion"]
        ):
            raise CONFLICT
        if method == "DELETE":
            return self.leases.pop(name)
        return self.commit(sent) if method == "PUT" else self.leases[name]

    def commit(self, sent: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        known = {"resourceVersion": str(self.version), "uid": sent["metadata"].get("uid", f"uid-{self.version}")}
        made = {**sent, "metadata": {**sent["metadata"], **known}}
        self.leases[made["metadata"]["name"]] = made
        return made

    @property
    def member_sets(self) -> dict[str, set[str]]:
        """The published member sets, by the name of the Lease."""
        notes = {name: each["metadata"].get("annotations", {}) for name, each in self.leases.items()}
        return {
            name: set(found[members.MEMBER_SET].split()) for name, found in notes.items() if members.MEMBER_SET in found
        }


class Network(lease_candidates.Network):
    """Has fewer faults, but later arrivals, than the network of candidates."""

    fails, late_below, hangs, breaks = 0.04, 0.08, 0.10, 0.98
    latency, latest = 0.002, 30.0


class ShardMember(Switched):
    """A member of the group: each start is a new process, with a Lease of its own."""

    def __init__(
        self,
        name: str,
        server: Server,
        *,
        election: Election = ELECTION,
        clock: OddClock | None = None,
        dice: random.Random | None = None,
        keys: Iterable[Key] = KEYS,
    ) -> None:
        self.name = name
        self.keys = tuple(keys)
        self.lives = 0
        self.clock = clock or OddClock()
        self.server = server
        self.network = Network(server, self.clock, dice)
        self.telemetry = Telemetry()
        self.shards: shards.Shards
        self.changes = 0
        self._election = election
        self._roll = dice.random if dice is not None else lambda: 0.5

    @property
    def owned(self) -> set[Key]:
        return {key for key in self.keys if self.running and self.shards.owns(key)}

    def start(self) -> "ShardMember":
        api: Any = self.network
        self.lives += 1
        self.members = members.Members(api, self._election, identity=f"{self.name}-{self.lives}")
        common = lease.Elector(api, self._election, identity=shards.identity(self._election))
        self.shards = shards.Shards(self.members, common, self._election, self.telemetry, self.clock, dice=self._roll)
        self.shards.subscribe(self._note)
        self._running = asyncio.create_task(self.shards.run())
        return self

    def kill(self) -> None:
        """Ends the process without a release of its Lease."""
        before, self.network.cut = self.network.cut, True
        self.end()
        self._running = None
        self.network = Network(self.server, self.clock, self.network.dice)
        self.network.cut = before

    def _note(self) -> None:
        self.changes += 1


def claimed_twice(shard_members: Iterable[ShardMember]) -> list[Key]:
    """Returns the keys that several members own at this moment."""
    counts = Counter(key for shard_member in shard_members for key in shard_member.owned)
    return [key for key, count in counts.items() if count > 1]
