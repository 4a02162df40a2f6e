"""How the workers of a Celery application are reached: the broker, its credentials, and TLS."""

import urllib.parse
from typing import Any, Literal

import msgspec

from hpad.adapter_http import TlsOptions, read_secrets
from hpad_adapters.celery.settings import RedisBroker, Settings
from hpad_adapters.redis_servers import AnyRedis, servers

_PORTS = {"amqp": 5672, "amqps": 5671}


class WorkersLink(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the broker. `name` begins errors; `exchange` is that of the remote control, without ".pidbox".

    `virtual_host` is a vhost, or the number of a database; `options` are those of kombu's transport for Redis.
    """

    kind: Literal["amqp", "redis"]
    name: str
    node: str
    host: str
    port: int
    virtual_host: str
    username: str
    password: str
    tls: TlsOptions | None
    exchange: str
    options: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"WorkersLink(name={self.name!r}, …)"


class WorkersLinks:
    """The brokers that the settings name for the asking of workers, of which the first one that answers is used."""

    def __init__(self, settings: Settings) -> None:
        assert settings.workers is not None
        self._settings = settings
        self._own = settings.workers
        self._redis: AnyRedis | None = None if settings.redis is None else servers(settings.redis)
        self._nodes = list(self._own.nodes)

    async def links(self) -> list[WorkersLink]:
        """Returns the brokers in the order in which they are to be tried. Raises AdapterError."""
        broker = self._settings.redis
        if broker is not None:
            return [await self._to_redis(broker)]
        username, secret = self._settings.workers_login
        password = (await read_secrets({"password": secret}))["password"]
        return [self._to_rabbitmq(node, username, password) for node in self._nodes]

    def prefer(self, link: WorkersLink) -> None:
        """Tries this broker first from now on."""
        self._nodes.sort(key=lambda node: node != link.node)

    def _to_rabbitmq(self, node: str, username: str, password: str) -> WorkersLink:
        url = urllib.parse.urlsplit(node)
        assert self._settings.rabbitmq is not None
        return WorkersLink(
            kind="amqp",
            name=f"rabbitmq at {node}",
            node=node,
            host=url.hostname or "",
            port=url.port or _PORTS[url.scheme],
            virtual_host=self._own.vhost or self._settings.rabbitmq.vhost,
            username=username,
            password=password,
            tls=TlsOptions.of(self._own) if url.scheme == "amqps" else None,
            exchange=self._own.exchange,
        )

    async def _to_redis(self, broker: RedisBroker) -> WorkersLink:
        """Finds the master by the sentinels, if there are any, as the adapter redis does."""
        assert self._redis is not None
        at = await self._redis.located()
        url = urllib.parse.urlsplit(broker.url)
        chosen = broker.sentinel
        database = url.path.strip("/") or "0" if chosen is None else str(chosen.database)
        return WorkersLink(
            kind="redis",
            name=self._redis.name,
            node=str(at),
            host=at.host,
            port=at.port,
            virtual_host=database,
            username=broker.username,
            password=(await read_secrets({"password": broker.secret}))["password"],
            tls=broker.tls_options if (url.scheme == "rediss" if chosen is None else chosen.tls) else None,
            exchange=self._own.exchange,
            options={
                "global_keyprefix": broker.global_keyprefix,
                "sep": broker.sep,
                "priority_steps": sorted(broker.priority_steps),
                "fanout_prefix": self._own.fanout_prefix,
            },
        )
