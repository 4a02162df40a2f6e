"""Opens Redis as settings name it, by redis-py, which comes with the extra `hpad[redis]`."""

from typing import Any

from hpad_adapters import extras
from hpad_adapters.redis_servers.requests import AnyRedis
from hpad_adapters.redis_servers.settings import RedisServers


def servers(settings: RedisServers) -> AnyRedis:
    """Returns Redis as the settings name it; raises AdapterError where redis-py is missing."""
    clients: Any = extras.load("hpad_adapters.redis_servers.clients", "redis")
    made: AnyRedis = clients.made(settings)
    return made


def lacks() -> str:
    """Returns the message of a missing redis-py, "" if it is installed."""
    return extras.lacks("redis", "redis")
