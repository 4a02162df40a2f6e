"""Redis Cluster: sends each command to the node of its key, and follows redirections.

Source: Redis, "Redis cluster specification" (hash slots, MOVED and ASK), command CLUSTER SLOTS. The map of slots is
read when it is first needed, and again after a redirection or a failed node.
"""

import asyncio
import binascii
import bisect
import re
from collections.abc import Sequence
from typing import NamedTuple

from hpad.adapter import AdapterError, or_error
from hpad_adapters.redis_servers.connection import Access, Command, Request, Session
from hpad_adapters.redis_servers.replies import Reply, ReplyError
from hpad_adapters.redis_servers.settings import REDIS_PORT, Address, address, named
from hpad_adapters.redis_servers.settings import Cluster as ClusterSettings

SLOTS = 16384
NODE_SECONDS = 2.0
"""How long one node may take: keys of other nodes are answered in the same batch."""
_MOST_AT_ONCE = 16
_REDIRECTIONS = 3
_REDIRECTION = re.compile(r"(MOVED|ASK) [0-9]{1,5} (.*):([0-9]{1,5})\Z")


def slot(key: str) -> int:
    """Returns the hash slot of a key: the CRC-16/XMODEM of the key, or of the part within its first braces."""
    data = key.encode()
    _, opened, rest = data.partition(b"{")
    tag, closed, _ = rest.partition(b"}")
    return binascii.crc_hqx(tag if opened and closed and tag else data, 0) % SLOTS


class Place(NamedTuple):
    """The node that a request goes to; `asking` follows an ASK redirection."""

    at: Address
    asking: bool = False


class Topology(NamedTuple):
    """The masters of slots: `ranges` has first slot, last slot and address, in ascending order."""

    ranges: list[tuple[int, int, Address]]

    def place(self, key: str) -> Place | None:
        """Returns the master of a key's slot, None if no node serves it."""
        wanted = slot(key)
        index = bisect.bisect_right(self.ranges, wanted, key=_first) - 1
        _, last, at = self.ranges[index]
        return Place(at) if index >= 0 and wanted <= last else None


def _first(each: tuple[int, int, Address]) -> int:
    return each[0]


class RedisCluster:
    """A cluster: one connection per batch and node, and one answer of several nodes."""

    def __init__(self, settings: ClusterSettings, access: Access) -> None:
        self._nodes = [address(node, REDIS_PORT) for node in settings.nodes]
        self._access = access
        self.name = f"Redis Cluster {self._nodes[0]}"
        self._topology: Topology | None = None

    async def ask(self, requests: Sequence[Request]) -> list[list[Reply] | AdapterError]:
        """Returns the replies to each request, an error for keys of a node that fails; raises AdapterError."""
        topology = self._topology or await self._read_topology()
        session = await self._access.session()
        answers: list[list[Reply] | AdapterError] = [AdapterError(f"{self.name}: no node serves the key")] * len(
            requests
        )
        places = {
            index: place for index, request in enumerate(requests) if (place := topology.place(request.key)) is not None
        }
        if len(places) < len(requests):
            self._topology = None
        for _ in range(_REDIRECTIONS + 1):
            found = await self._round(session, requests, places)
            answers = [found.get(index, answer) for index, answer in enumerate(answers)]
            places = {
                index: target
                for index, place in places.items()
                if (target := self._redirected(place, found[index])) is not None
            }
            if not places:
                return answers
        return [
            AdapterError(f"{self.name}: the key was redirected more than {_REDIRECTIONS} times")
            if index in places
            else answer
            for index, answer in enumerate(answers)
        ]

    async def _round(
        self, session: Session, requests: Sequence[Request], places: dict[int, Place]
    ) -> dict[int, list[Reply] | AdapterError]:
        """Sends each request to its place, all nodes at once, and returns the replies by the index of the request."""
        by_place: dict[Place, list[int]] = {}
        for index, place in places.items():
            by_place.setdefault(place, []).append(index)
        limit = asyncio.Semaphore(_MOST_AT_ONCE)

        async def send(place: Place, indices: list[int]) -> list[list[Reply]] | AdapterError:
            async with limit:
                return await or_error(_sent(session, place, [requests[index] for index in indices]))

        async with asyncio.TaskGroup() as group:
            tasks = [(group.create_task(send(*each)), each[1]) for each in by_place.items()]
        answers: dict[int, list[Reply] | AdapterError] = {}
        for task, indices in tasks:
            found = task.result()
            each = [found] * len(indices) if isinstance(found, AdapterError) else found
            answers |= zip(indices, each, strict=True)
        return answers

    def _redirected(self, place: Place, answer: list[Reply] | AdapterError) -> Place | None:
        """Returns where a request must go instead. A node that moved, failed or is down makes the map of slots old."""
        if isinstance(answer, AdapterError):
            self._topology = None
            return None
        for reply in answer:
            if isinstance(reply, ReplyError) and (found := _REDIRECTION.match(str(reply))):
                kind, host, port = found.groups()
                if kind == "MOVED":
                    self._topology = None
                if (at := named(host or place.at.host, port)) is not None:
                    return Place(at, asking=kind == "ASK")
        return None

    async def _read_topology(self) -> Topology:
        """Reads the map of slots from the first node that answers, asked first from then on; raises AdapterError."""
        session = await self._access.session()
        errors = []
        for node in tuple(self._nodes):
            try:
                (reply,) = await session.exchange_within(NODE_SECONDS, node, (("CLUSTER", "SLOTS"),))
                self._topology = _topology(f"{self._access.kind} {node}", node, reply)
                for *_, at in self._topology.ranges:
                    self._access.trust.note(*at)
            except AdapterError as error:
                errors.append(error.message)
                continue
            self._nodes.remove(node)
            self._nodes.insert(0, node)
            return self._topology
        raise AdapterError("; ".join(errors))


async def _sent(session: Session, place: Place, requests: Sequence[Request]) -> list[list[Reply]]:
    commands: list[Command] = []
    for command in (command for request in requests for command in request.commands):
        commands += [("ASKING",), command] if place.asking else [command]
    replies = iter(await session.exchange_within(NODE_SECONDS, place.at, commands))
    answers: list[list[Reply]] = []
    for request in requests:
        group = [next(replies) for _ in range(len(request.commands) * (1 + place.asking))]
        answers.append(group[1::2] if place.asking else group)
    return answers


def _topology(where: str, asked: Address, reply: Reply) -> Topology:
    """Returns the masters of CLUSTER SLOTS. A host that is not named is the one that was asked."""
    if isinstance(reply, ReplyError):
        raise AdapterError(f"{where} refuses: {reply}")
    if not isinstance(reply, list) or not reply:
        raise AdapterError(f"{where} knows no slots of a cluster")
    ranges = []
    for each in reply:
        match each:
            case [int(first), int(last), [str() | None as host, int(port), *_], *_] if (
                0 <= first <= last < SLOTS and (at := named(host or asked.host, port)) is not None
            ):
                ranges.append((first, last, at))
            case _:
                raise AdapterError(f"{where} answered to CLUSTER SLOTS with something other than slots and nodes")
    return Topology(sorted(ranges))
