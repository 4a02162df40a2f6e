"""What the workers of a Celery application say about themselves: the tasks that each holds, and how many it has begun.

Source: the remote control of Celery (celery/worker/control.py: active, reserved, scheduled, stats), and
celery/worker/request.py: Request.info.
"""

import asyncio
import contextlib
import threading
import urllib.parse
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec

from hpad.adapter import AdapterError, Context, or_error
from hpad.adapter_http import TlsOptions, read_secrets
from hpad_adapters import extras
from hpad_adapters.celery.settings import RedisBroker, Settings
from hpad_adapters.redis_servers import AnyRedis, servers
from hpad_adapters.selection import or_raise
from hpad_adapters.servers import Servers

SHARED = 1.0
"""Seconds for which what the workers say serves further queries."""
_CLOSING = 0.5
"""Seconds that an asking may take beyond its timeout, to look for mailboxes and to close the connection."""
SILENT_SECONDS = 60.0
"""For how long the last word of a worker tells what it does and can do."""
_REMEMBERED = 3600.0
"""Seconds after which a worker that listens to the broker and never answers is forgotten."""
_MOST_KNOWN = 10_000
_NAMED = 3

Answered = TypeVar("Answered")


class HeldTask(msgspec.Struct, frozen=True, gc=False):
    """A task that a worker holds.

    `exchange` and `routing_key` lead to its queue: without an exchange the routing key is the name of the queue.
    `acknowledged`: the broker counts it no more, although it is not finished.
    """

    exchange: str
    routing_key: str
    name: str
    acknowledged: bool = False


class WorkerReport(msgspec.Struct, frozen=True):
    """The answers of one worker.

    `name` is such as "worker@POD". It works on `active` tasks; `reserved` ones wait in it for their turn, and `later`
    ones for their time (`eta`, `countdown`). `finished` is the number of tasks that it has begun since its start, of
    all names (stats: total). `concurrency` is how many tasks it works on at once. `started` is when it started, in
    seconds since the epoch, None where it does not say it. `queues` are those that it takes tasks from. `solo`: its
    pool says nothing while it works. `may_repeat`: a task is so long that it may run twice if the worker is ended.
    """

    name: str
    active: tuple[HeldTask, ...] = ()
    reserved: tuple[HeldTask, ...] = ()
    later: tuple[HeldTask, ...] = ()
    finished: int = 0
    concurrency: int = 0
    started: float | None = None
    queues: tuple[str, ...] = ()
    solo: bool = False
    may_repeat: bool = False


class Said(msgspec.Struct, frozen=True):
    """What the workers said at the time `at`: the `reports` of all that answered.

    `silent` are the names of workers that answered before, listen to the broker and answer no more: solo pools at work,
    and workers that hang. `earlier` are their last reports. `faults` say which answers could not be read.
    """

    at: datetime
    reports: tuple[WorkerReport, ...] = ()
    silent: tuple[str, ...] = ()
    earlier: tuple[WorkerReport, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """A remark for people about workers that do not answer, cannot be read or may repeat tasks; "" without any."""
        repeating = [report.name for report in self.reports if report.may_repeat]
        silent = [silence(self.silent)] if self.silent else []
        return "; ".join([*silent, *self.faults[:1], *([repetition(repeating)] if repeating else [])])


def silence(names: Sequence[str]) -> str:
    """Returns the clause that these workers do not answer."""
    return f"{listed(names)} {'do' if len(names) > 1 else 'does'} not answer"


def repetition(names: Sequence[str]) -> str:
    """Returns the clause that long tasks of these workers may run twice, and what to set."""
    ends = "send no heartbeats while they shut down" if len(names) > 1 else "sends no heartbeats while it shuts down"
    return f"{listed(names)} {ends}, so that a long task may run twice: set broker_heartbeat = 0 in Celery"


def listed(names: Sequence[str]) -> str:
    """Returns the names of some workers, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{'workers' if len(names) > 1 else 'worker'} {', '.join(names[:_NAMED])}{more}"


class WorkersMemory:
    """The last report of each worker, and when it came (seconds of a monotonic clock)."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, WorkerReport]] = {}

    @property
    def names(self) -> frozenset[str]:
        """The workers that are expected to answer."""
        return frozenset(self._known)

    def silent(
        self, reports: Sequence[WorkerReport], now: float, *, gone: Collection[str] = (), none: bool = False
    ) -> tuple[WorkerReport, ...]:
        """Adds the reports, and returns the last ones of the workers that do not answer, by name.

        `gone` workers listen no more, and are forgotten. Where `none` listens, the broker may have been restarted, and
        they have not connected again: they work on, so they are silent for SILENT_SECONDS.
        """
        longest, ended = (SILENT_SECONDS, frozenset[str]()) if none else (_REMEMBERED, frozenset(gone))
        before = {name: each for name, each in self._known.items() if name not in ended and now - each[0] < longest}
        fresh = {report.name: (now, report) for report in reports[:_MOST_KNOWN]}
        self._known = {**dict(list(before.items())[: _MOST_KNOWN - len(fresh)]), **fresh}
        return tuple(self._known[name][1] for name in sorted(self._known.keys() - fresh.keys()))


# How the workers are reached: the broker, its credentials, and TLS.

_PORTS = {"amqp": 5672, "amqps": 5671}


class WorkersLink(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the broker. `name` begins errors; `exchange` is that of the remote control, without ".pidbox".

    `virtual_host` is a vhost, or the number of a database; `options` are those of kombu's transport for Redis.
    """

    kind: Literal["amqp", "redis"]
    name: str
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
    """Makes the links to the broker that the settings name for the asking of workers: Redis, or nodes of RabbitMQ."""

    def __init__(self, settings: Settings) -> None:
        assert settings.workers is not None
        self._settings = settings
        self._own = settings.workers
        self._redis: AnyRedis | None = None if settings.redis is None else servers(settings.redis)
        self._nodes = Servers(settings.workers.nodes)

    async def ask(self, asked: Callable[[WorkersLink], Awaitable[Answered]]) -> Answered:
        """Returns the answer over Redis, or over the first node of RabbitMQ that gives one. Raises AdapterError."""
        if self._settings.redis is not None:
            return await asked(await self._to_redis(self._settings.redis))

        async def over_rabbitmq(node: str) -> Answered:
            return await asked(await self._to_rabbitmq(node))

        return await self._nodes.ask(over_rabbitmq, AdapterError, _none_answered)

    async def _to_rabbitmq(self, node: str) -> WorkersLink:
        username, secret = self._settings.workers_login
        password = (await read_secrets({"password": secret}))["password"]
        url = urllib.parse.urlsplit(node)
        assert self._settings.rabbitmq is not None
        return WorkersLink(
            kind="amqp",
            name=f"rabbitmq at {node}",
            host=url.hostname or "",
            port=url.port or _PORTS[url.scheme],
            virtual_host=self._own.vhost or self._settings.rabbitmq.vhost,
            username=username,
            password=password,
            tls=self._own.tls_options if url.scheme == "amqps" else None,
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


def _none_answered(faults: Sequence[AdapterError]) -> AdapterError:
    text = "; ".join(dict.fromkeys(each.message for each in faults))
    return AdapterError(text, alive=all(each.alive for each in faults))


class CeleryWorkers:
    """Asks the workers over the broker, once for all queries of the same time.

    kombu blocks, so that a thread asks: at most one for each source. Raises AdapterError where kombu is missing.
    """

    def __init__(self, settings: Settings, context: Context) -> None:
        assert settings.workers is not None
        extras.require("kombu", "celery")
        self._library: Any = None
        self._over_redis = settings.redis is not None
        self._links = WorkersLinks(settings)
        self._seconds = settings.workers.seconds
        self._context = context
        self._clock = context.clock
        self._lock = asyncio.Lock()
        self._last: tuple[float, Said | AdapterError] | None = None
        self._memory = WorkersMemory()
        self._ended: asyncio.Future[None] | None = None
        self._stopped = threading.Event()

    async def read(self, oldest: float = SHARED) -> Said:
        """Returns what the workers say, or said at most `oldest` seconds ago. Raises AdapterError.

        No worker at all is an empty answer; workers of which none answers are an error.
        """
        async with self._lock:
            now = self._clock.monotonic()
            if self._last is None or now - self._last[0] > oldest:
                self._last = now, await or_error(self._asked)
            return or_raise(self._last[1])

    async def aclose(self) -> None:
        """Stops an asking, and waits a moment for its thread."""
        self._stopped.set()
        if self._ended is not None:
            await asyncio.wait([self._ended], timeout=_CLOSING)

    async def _asked(self) -> Said:
        """Asks by the first broker that can be used. Raises AdapterError."""
        if self._library is None:  # its import takes longer than an asking may
            self._library = await asyncio.to_thread(loaded, over_redis=self._over_redis)
        link, at, heard = await self._links.ask(self._heard_by)
        return self._said(link, at, heard)

    async def _heard_by(self, link: WorkersLink) -> tuple[WorkersLink, datetime, Any]:
        at = self._clock.now()
        return link, at, await self._heard(link)

    async def _heard(self, link: WorkersLink) -> Any:
        """Returns the answers; raises AdapterError, also after the deadline."""
        if self._ended is not None:
            await asyncio.wait([self._ended], timeout=self._seconds)
            if not self._ended.done():
                raise AdapterError(f"{link.name} hangs: an earlier asking of the workers has not ended")
        asking = self._library.Asking(link, self._seconds, self._memory.names, self._context, self._stopped.is_set)
        heard, self._ended = in_thread(asking.heard)
        try:
            async with asyncio.timeout(self._seconds + _CLOSING):
                return await heard
        except TimeoutError:
            raise AdapterError(f"{link.name} did not answer within {self._seconds:g}s") from None

    def _said(self, link: WorkersLink, at: datetime, heard: Any) -> Said:
        """Remembers the workers that answered. Raises AdapterError if none of those that listen does."""
        reports: tuple[WorkerReport, ...] = heard.gathered.reports(at.timestamp())
        faults = heard.gathered.faults
        gone = {*heard.gone, *faults}
        earlier = self._memory.silent(reports, self._clock.monotonic(), gone=gone, none=heard.none)
        silent = tuple(report.name for report in earlier)
        if not reports and not heard.none:
            why = next(iter(faults.values()), silence(silent) if silent else "solo pools do not while busy")
            raise AdapterError(f"{link.name}: no Celery worker answered within {self._seconds:g}s: {why}", alive=True)
        return Said(at, reports, silent, earlier, tuple(faults.values()))


def loaded(*, over_redis: bool) -> Any:
    """Returns the module that asks, with its transport. Blocks; raises AdapterError."""
    if over_redis:
        extras.load("hpad_adapters.celery.kombu_redis", "redis")
    return extras.load("hpad_adapters.celery.asking", "celery")


def in_thread(heard: Callable[[], AbstractContextManager[Any]]) -> tuple[asyncio.Future[Any], asyncio.Future[None]]:
    """Runs a context manager in a thread of its own. Returns what it yields, and the end of the thread.

    The thread is no part of a pool: one that hangs keeps no other from running, and the process from ending.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Any] = loop.create_future()
    ended: asyncio.Future[None] = loop.create_future()

    def post(action: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(action, *arguments)

    def settle(action: Callable[..., object], value: object) -> None:
        if not found.done():
            action(value)

    def run() -> None:
        try:
            with heard() as value:
                post(settle, found.set_result, value)
        except Exception as error:  # noqa: BLE001  # of the thread, raised where it is awaited
            post(settle, found.set_exception, error)
        finally:
            post(ended.set_result, None)

    threading.Thread(target=run, name="hpad-celery", daemon=True).start()
    return found, ended
