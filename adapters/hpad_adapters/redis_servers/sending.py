"""Sends the commands of requests through a client of redis-py, and returns the replies as they are."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from redis import exceptions
from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.sentinel import MasterNotFoundError

from hpad.adapter import AdapterError
from hpad_adapters.redis_servers.connection import Fault, text
from hpad_adapters.redis_servers.requests import Reply, ReplyError, Request, ServerError


@contextlib.asynccontextmanager
async def raw(pool: ConnectionPool) -> AsyncIterator[Redis]:
    """Yields a client that returns replies as they are; closes the pool at the end."""
    client = Redis.from_pool(pool)
    client.response_callbacks.clear()
    try:
        yield client
    finally:
        await client.aclose()


async def sent(name: str, client: Redis | RedisCluster, commands: Sequence[Sequence[str]]) -> list[Any]:
    """Sends the commands at once, and returns replies, ReplyErrors and ServerErrors; raises ServerError."""
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    try:
        replies = await pipeline.execute(raise_on_error=False)
    except MasterNotFoundError:
        raise
    except Fault as fault:
        raise fault.error from None
    except Exception as error:  # noqa: BLE001  # the library raises any kind for a malformed reply
        raise _odd(name, error) from None
    return [_reply(name, each) for each in replies]


def _reply(name: str, reply: Any) -> Any:
    match reply:
        case Fault():
            return reply.error
        case exceptions.ResponseError():
            return ReplyError(text(reply))
        case Exception():
            return _odd(name, reply)
    return reply


def _odd(name: str, error: Exception) -> ServerError:
    if isinstance(error, exceptions.ClusterError):
        return ServerError(f"{name}: the key was redirected too often")
    return ServerError(f"{name} did not answer as Redis does ({type(error).__name__})")


def commands(requests: Sequence[Request]) -> list[Sequence[str]]:
    return [command for request in requests for command in request.commands]


def by_request(requests: Sequence[Request], replies: Sequence[Any]) -> list[list[Reply] | AdapterError]:
    """Returns the replies to each request, or the first error of a server among them."""
    remaining = iter(replies)
    groups = [[next(remaining) for _ in request.commands] for request in requests]
    return [next((each for each in group if isinstance(each, AdapterError)), group) for group in groups]
