"""Redis Cluster by redis-py, which finds the node of each key and follows redirections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from redis import exceptions
from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode

from hpad.adapter import AdapterError, or_error
from hpad_adapters.redis_servers import RedisRequest, Reply, ServerError
from hpad_adapters.redis_servers.connection import COMMON, Fault, Guarded, RedisAccess, by_request, commands, sent, text
from hpad_adapters.redis_servers.settings import RedisAddress, named
from hpad_adapters.servers import Servers

SLOTS = 16384
_MOST_AT_ONCE = 16


class ClusterServers:
    """A cluster: a batch reads the map of slots, and has one connection to each node that it needs."""

    def __init__(self, nodes: Sequence[RedisAddress], access: RedisAccess) -> None:
        self.name = f"Redis Cluster {nodes[0]}"
        self._nodes = Servers(nodes)
        self._access = access

    async def ask(self, requests: Sequence[RedisRequest]) -> list[list[Reply] | AdapterError]:
        """Returns the replies to each request, an error for keys of a node that fails; raises ServerError."""
        async with self._connected() as client:
            by_node: dict[ClusterNode | None, list[int]] = {}
            for index, request in enumerate(requests):
                by_node.setdefault(_node(client, request.key), []).append(index)
            limit = asyncio.Semaphore(_MOST_AT_ONCE)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    (indices, group.create_task(self._of(client, node, [requests[each] for each in indices], limit)))
                    for node, indices in by_node.items()
                ]
            found = {index: each for indices, task in tasks for index, each in zip(indices, task.result(), strict=True)}
        return [found[index] for index in range(len(requests))]

    async def located(self) -> RedisAddress:
        """Raises ServerError."""
        raise ServerError(f"{self.name}: the nodes of a cluster share its keys", lasting=True)

    async def _of(
        self, client: RedisCluster, node: ClusterNode | None, requests: Sequence[RedisRequest], limit: asyncio.Semaphore
    ) -> Sequence[list[Reply] | AdapterError]:
        """Returns the answers to the requests for the keys of one node."""
        if node is None:
            return [ServerError(f"{self.name}: no node serves the key")] * len(requests)
        async with limit:
            replies = await or_error(sent, self.name, client, commands(requests))
        return [replies] * len(requests) if isinstance(replies, AdapterError) else by_request(requests, replies)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[RedisCluster]:
        """Yields a client that has read the map of slots; raises ServerError."""
        client = await self._mapped()
        try:
            yield client
        finally:
            await client.aclose()
            await client.nodes_manager.aclose()
            await client.nodes_manager.aclose("startup_nodes")

    async def _mapped(self) -> RedisCluster:
        """Reads the map of slots from the first node that answers; raises ServerError."""
        return await self._nodes.ask(self._mapped_by, ServerError, _none_answered)

    async def _mapped_by(self, at: RedisAddress) -> RedisCluster:
        faults: list[Fault] = []
        client = self._client(at, faults)
        try:
            await client.initialize()
        except Exception as error:  # noqa: BLE001  # the library raises any kind for a malformed reply
            raise (faults[0].error if faults else self._uncharted(at, error)) from None
        return client

    def _client(self, at: RedisAddress, faults: list[Fault]) -> RedisCluster:
        client = RedisCluster(
            **at._asdict(),
            require_full_coverage=False,
            dynamic_startup_nodes=False,
            reinitialize_steps=0,
            **COMMON,
        )
        client.response_callbacks.clear()
        client.set_response_callback("CLUSTER SLOTS", self._slots)
        client.commands_parser = _FirstArgument()
        # The constructor takes no class of connections. Nodes that are named later are made with these options.
        own = {"access": self._access, "faults": faults}
        client.connection_kwargs |= {"connection_class": Guarded, **own}
        for node in client.nodes_manager.startup_nodes.values():
            node.connection_class = Guarded
            node.connection_kwargs |= own
        return client

    def _slots(self, reply: Any, **options: Any) -> list[Any]:
        """Returns the slots and masters of a reply to CLUSTER SLOTS; raises ValueError.

        redis-py has an entry for each slot, so that a short reply could fill the memory.
        """
        ranges, count = [], 0
        for each in reply if isinstance(reply, list) else ():
            match each:
                case [int(first), int(last), [str() | None as host, int(port), *_], *_] if (
                    0 <= first <= last < SLOTS and (not host or named(host, port))
                ):
                    ranges.append([first, last, [host or "", port]])
                    count += last - first + 1
                case _:
                    raise ValueError("answered to CLUSTER SLOTS with something other than slots and nodes")
        if not ranges or count > SLOTS:
            raise ValueError("knows no slots of a cluster" if not ranges else "names slots several times")
        return ranges

    def _uncharted(self, at: RedisAddress, error: Exception) -> ServerError:
        """Returns the error of a node whose reply is no map of slots; redis-py wraps what it raised."""
        cause = error.__cause__ or error
        if isinstance(cause, ValueError):
            return ServerError(f"{self._access.name(at)} {cause}", lasting=True)
        if isinstance(cause.__context__, exceptions.ResponseError):
            return ServerError(f"{self._access.name(at)} refuses: {text(cause.__context__)}")
        return ServerError(f"{self._access.name(at)} did not answer as Redis does ({type(cause).__name__})")


def _none_answered(errors: list[ServerError]) -> ServerError:
    return ServerError("; ".join(each.message for each in errors), lasting=all(each.lasting for each in errors))


class _FirstArgument:
    """Tells redis-py where the key of a command is. It would ask for COMMAND, which needs a right of its own.

    It is the first argument, but in EVAL, where it follows the script and the number of keys.
    """

    async def initialize(self, node: ClusterNode | None = None) -> None:
        """Does nothing."""

    async def get_keys(self, *command: str) -> Sequence[str]:
        """Returns the key."""
        return command[3:4] if command[0] == "EVAL" else command[1:2]


def _node(client: RedisCluster, key: str) -> ClusterNode | None:
    """Returns the master of a key's slot, None if no node serves it."""
    try:
        return client.get_node_from_key(key)
    except exceptions.SlotNotCoveredError:
        return None
