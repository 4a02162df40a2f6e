"""What adapters that read from Redis share: requests, and the three ways to run Redis.

Redis runs as one server, as a master that Redis Sentinel watches, or as a cluster. `servers` returns the one that the
settings name; its `ask` sends commands of keys and returns their replies. redis-py, the client, comes with the extra
`redis`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from hpad.adapter import AdapterError
from hpad_adapters import extras
from hpad_adapters.redis_servers.settings import RedisAddress, RedisServers

Command = Sequence[str]


class RedisRequest(msgspec.Struct, frozen=True):
    """Commands of one key, which is the first argument of each, and which decides the node of a cluster."""

    key: str
    commands: tuple[Command, ...]


class ReplyError(Exception):
    """An error reply of the server."""


Reply = str | int | list["Reply"] | None | ReplyError


class ServerError(AdapterError):
    """A server that cannot be used. The message names it."""


class AnyRedis(Protocol):
    """Redis in one of its forms; `name` begins error messages."""

    name: str

    async def ask(self, requests: Sequence[RedisRequest]) -> list[list[Reply] | AdapterError]:
        """Returns the replies to the commands of each request, in order.

        An error reply is a ReplyError among the replies. A ServerError answers the requests of a node that failed.
        Raises ServerError if no server answers.
        """
        ...

    async def located(self) -> RedisAddress:
        """Returns the one server that takes writes; raises ServerError, also for a cluster, which has several."""
        ...


def servers(settings: RedisServers) -> AnyRedis:
    """Returns Redis as the settings name it; raises AdapterError where redis-py is missing."""
    clients: Any = extras.load("hpad_adapters.redis_servers.clients", "redis")
    made: AnyRedis = clients.made(settings)
    return made


def lacks() -> str:
    """Returns the message of a missing redis-py, "" if it is installed."""
    return extras.lacks("redis", "redis")
