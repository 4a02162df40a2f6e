"""Members of shards on a server in memory, with networks, clocks and bystanders that misbehave by a seed."""

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from support.lease_candidates import CONFLICT, OddClock, Switched

from hpad.api.metadata import Key
from hpad.election import lease, members, shards
from hpad.kube import errors
from hpad.settings.model import Election
from hpad.telemetry import Telemetry

KEYS = tuple(Key("default", f"app-{number}") for number in range(12))
TOLD = Election(enabled=True, shards=True)
GONE = errors.ApiError(404, "NotFound", "leases.coordination.k8s.io not found")


class Server:
    """An API server that has Leases and nothing else. `touched` is called after each request that it answered."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, Any]] = {}
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

    def _answer(self, method: str, name: str, params: Mapping[str, str], wanted: dict[str, Any]) -> dict[str, Any]:
        if method == "GET" and not name:
            label, _, value = params["labelSelector"].partition("=")
            return {
                "items": [each for each in self.held.values() if each["metadata"].get("labels", {}).get(label) == value]
            }
        if method == "POST":
            if wanted["metadata"]["name"] in self.held:
                raise errors.ApiError(409, "AlreadyExists", "it already exists")
            return self.commit(wanted)
        if name not in self.held:
            raise GONE
        told = wanted.get("preconditions") or wanted.get("metadata")
        if told is not None and told["resourceVersion"] != self.held[name]["metadata"]["resourceVersion"]:
            raise CONFLICT
        if method == "DELETE":
            return self.held.pop(name)
        return self.commit(wanted) if method == "PUT" else self.held[name]

    def commit(self, wanted: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        known = {"resourceVersion": str(self.version), "uid": wanted["metadata"].get("uid", f"uid-{self.version}")}
        made = {**wanted, "metadata": {**wanted["metadata"], **known}}
        self.held[made["metadata"]["name"]] = made
        return made

    @property
    def member_sets(self) -> dict[str, set[str]]:
        """What members have published, by their Leases."""
        notes = {name: each["metadata"].get("annotations", {}) for name, each in self.held.items()}
        return {
            name: set(found[members.MEMBER_SET].split()) for name, found in notes.items() if members.MEMBER_SET in found
        }


class Network:
    """A member's way to the server. While `cut`, nothing arrives and nothing is answered.

    With dice, requests take their time, fail before or after they were carried out, or arrive long after nobody waits
    for them any more.
    """

    def __init__(self, server: Server, clock: OddClock, dice: random.Random | None) -> None:
        self.clock = clock
        self.cut = False
        self.late: set[asyncio.Task[None]] = set()
        self._server = server
        self._dice = dice

    def calm(self) -> None:
        """From now on all goes well; what is on its way arrives when it will."""
        self.cut = False
        self._dice = None

    async def request(
        self, method: str, path: str, *, params: Any = None, body: bytes | None = None, timeout: float | None = None
    ) -> bytes:
        if self.cut:
            await asyncio.get_running_loop().create_future()
        dice = self._dice
        if dice is None:
            await asyncio.sleep(0.002)
            return self._server.answer(method, path, params, body)
        await asyncio.sleep(dice.random() * 0.3)
        fate = dice.random()
        if fate < 0.04:
            raise errors.ApiError(500, "InternalError", "not today")
        if fate < 0.08 and body is not None:
            self._carry_out_later(dice, method, path, params, body)
        if fate < 0.10:
            await asyncio.get_running_loop().create_future()
        answer = self._server.answer(method, path, params, body)
        await asyncio.sleep(dice.random() * (0.3 if fate < 0.95 else 6.0))
        if fate > 0.98 or self.cut:
            raise errors.ApiError(0, "Connection", "the answer broke off")
        return answer

    def _carry_out_later(self, dice: random.Random, method: str, path: str, params: Any, body: bytes) -> None:
        delay = dice.random() * 30

        async def later() -> None:
            await asyncio.sleep(delay)
            with contextlib.suppress(errors.ApiError):
                self._server.answer(method, path, params, body)

        task = asyncio.create_task(later())
        self.late.add(task)
        task.add_done_callback(self.late.discard)


class ShardMember(Switched):
    """A member and its power switch: each start is a new process, with a Lease of its own."""

    def __init__(
        self,
        name: str,
        server: Server,
        *,
        election: Election = TOLD,
        clock: OddClock | None = None,
        dice: random.Random | None = None,
    ) -> None:
        self.name = name
        self.lives = 0
        self.clock = clock or OddClock()
        self.server = server
        self.network = Network(server, self.clock, dice)
        self.telemetry = Telemetry()
        self.shards: shards.Shards
        self.changes = 0
        self._told = election
        self._roll = dice.random if dice is not None else lambda: 0.5

    @property
    def owned(self) -> set[Key]:
        return {key for key in KEYS if self.running and self.shards.owns(key)}

    def start(self) -> "ShardMember":
        api: Any = self.network
        self.lives += 1
        self.members = members.Members(api, self._told, identity=f"{self.name}-{self.lives}")
        common = lease.Elector(api, self._told, identity=shards.IDENTITY)
        self.shards = shards.Shards(self.members, common, self._told, self.telemetry, self.clock, dice=self._roll)
        self.shards.subscribe(self._note)
        self._running = asyncio.create_task(self.shards.run())
        return self

    def kill(self) -> None:
        """Without another word to anybody."""
        before, self.network.cut = self.network.cut, True
        self.end()
        self._running = None
        self.network = Network(self.server, self.clock, self.network._dice)
        self.network.cut = before

    def _note(self) -> None:
        self.changes += 1


def claimed_twice(shard_members: Iterable[ShardMember]) -> list[Key]:
    """The keys that more than one acts on at this moment."""
    counts = Counter(key for shard_member in shard_members for key in shard_member.owned)
    return [key for key, count in counts.items() if count > 1]


def odd(dice: random.Random) -> OddClock:
    """A clock that runs up to 10 % fast or slow, and is hours off."""
    return OddClock(dice.uniform(0.9, 1.1), dice.uniform(0, 1e6), timedelta(hours=dice.uniform(-9, 9)))
