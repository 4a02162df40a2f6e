"""Backlogs in Redis: sizes of lists, streams, sets and hashes, and what a consumer group has not done yet.

Source: Redis, commands TYPE, LLEN, XLEN, XPENDING, XINFO GROUPS, SCARD, ZCARD, HLEN. Redis is one server, the master
that Redis Sentinel watches, or a cluster.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, ExternalSample, Query
from hpad_adapters.redis_servers import RedisRequest, RedisServers, Reply, ReplyError, lacks, servers
from hpad_adapters.selection import attempt, labels, no_metric

LIST, STREAM, PENDING, LAG = "redis_list_length", "redis_stream_length", "redis_stream_pending", "redis_stream_lag"
SET, SORTED_SET, HASH = "redis_set_size", "redis_sorted_set_size", "redis_hash_size"
_TYPES = {
    LIST: "list",
    STREAM: "stream",
    PENDING: "stream",
    LAG: "stream",
    SET: "set",
    SORTED_SET: "zset",
    HASH: "hash",
}
_OF_A_GROUP = frozenset({PENDING, LAG})
_COUNTS: dict[str, tuple[str, ...]] = {
    LIST: ("LLEN",),
    STREAM: ("XLEN",),
    PENDING: ("XPENDING",),
    LAG: ("XINFO GROUPS",),
    SET: ("SCARD",),
    SORTED_SET: ("ZCARD",),
    HASH: ("HLEN",),
}
_MOST = (2**63 - 1) // 1000
"""The largest count whose thousandths fit into 64 bits."""


class RedisSettings(RedisServers, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Redis: one server (url), the master that sentinels watch (sentinel), or a cluster; exactly one of the three.

    url: "redis://host:6379/0", or rediss:// for TLS; the path is the number of the database.
    sentinel: asks Redis Sentinel for the address of the master; cluster: a Redis Cluster.
    username: a user of the server's ACL; password: the password; password_file: a file that holds it, read for each
    batch; password_env: an environment variable that holds it.
    ca, cert, key: PEM files, loaded again when they change; insecure: trust any certificate.
    trusted_hosts: nodes of a cluster, or masters that sentinels name, that get the password without TLS although they
    are not in `nodes`: names, "*.redis.svc", addresses, and networks such as 10.0.0.0/8.
    keys: the key in a metric's selector -> the real key, for keys that label values cannot hold ("jobs:mail").
    only_keys: selectors may name the keys of `keys` only.
    missing_stream: a stream that does not exist is an error, or zero.
    missing_list: a list, set or hash that does not exist is zero, as Redis removes it with its last element; or an
    error, for keys that are never empty.
    """

    keys: dict[str, str] = msgspec.field(default_factory=dict)
    only_keys: bool = False
    missing_stream: Literal["error", "zero"] = "error"
    missing_list: Literal["error", "zero"] = "zero"


class Redis:
    """Lengths of lists, streams, sets and hashes in Redis, and pending entries and lag of stream groups.

    The selector names the key: `key=…`, and `group=…` for pending entries and lag. A batch is one connection to each
    server and one round trip.
    """

    serves = frozenset({EXTERNAL})
    metrics = tuple(_TYPES)
    parameters = ("key", "group")
    Settings = RedisSettings

    @staticmethod
    def lacks(settings: RedisSettings) -> str:
        """Returns the package that is missing; "" if none is."""
        return lacks()

    def __init__(self, settings: RedisSettings, context: Context) -> None:
        self._settings = settings
        self._clock = context.clock
        self._servers = servers(settings)
        self._where = self._servers.name

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a sample or an error per query; raises AdapterError if no server answers."""
        planned = [attempt(self._request, query) for query in queries]
        requests = [each for each in planned if isinstance(each, RedisRequest)]
        replies = iter(await self._servers.ask(requests) if requests else ())
        return [
            each if isinstance(each, AdapterError) else self._answer(query, next(replies))
            for query, each in zip(queries, planned, strict=True)
        ]

    async def aclose(self) -> None:
        """Does nothing: a connection ends with its batch."""

    def _request(self, query: Query) -> RedisRequest:
        """Returns the two commands of a query: TYPE, and the one that returns the count; raises AdapterError."""
        if query.name not in _TYPES:
            raise no_metric(query, _TYPES)
        by_label = labels(query, ("key", "group") if query.name in _OF_A_GROUP else ("key",))
        name = by_label["key"]
        if self._settings.only_keys and name not in self._settings.keys:
            raise AdapterError(f'the key "{name}" is not one of the keys that the configuration allows', "spec")
        key = self._settings.keys.get(name, name)
        group = (by_label["group"],) if query.name == PENDING else ()
        return RedisRequest(key, (("TYPE", key), (*_COUNTS[query.name], key, *group)))

    def _answer(self, query: Query, replies: list[Reply] | AdapterError) -> Answer:
        if isinstance(replies, AdapterError):
            return replies
        kind, count = replies
        wanted = _TYPES[query.name]
        for reply in (kind, count):
            # The count of a key of another type is an error reply too, but less clear than the check of the type below.
            if isinstance(reply, ReplyError) and (reply is kind or kind == wanted):
                return AdapterError(f'{self._where}: "{query.name}" of "{query.selector}": {reply}')
        if kind == "none":
            return self._absent(query, wanted)
        if not isinstance(kind, str):
            return AdapterError(f'{self._where}: the reply to TYPE of "{query.selector}" is not a type')
        if kind != wanted:
            return AdapterError(f'{self._where}: the key of "{query.selector}" is a {kind}, not a {wanted}', "spec")
        return self._counted(query, count)

    def _absent(self, query: Query, wanted: str) -> Answer:
        """Returns the answer for a key that does not exist."""
        settings = self._settings
        kind, choice = ("stream", settings.missing_stream) if wanted == "stream" else ("key", settings.missing_list)
        if choice == "zero":
            return ExternalSample((0,), self._clock.now())
        return AdapterError(f'{self._where}: there is no {kind} for "{query.selector}"', "spec")

    def _counted(self, query: Query, count: Reply) -> Answer:
        """Returns the sample of a count, which XPENDING and XINFO hold in an array."""
        if query.name == LAG:
            found = _lag(query, count)
            if isinstance(found, AdapterError):
                return AdapterError(f"{self._where}: {found.message}", found.blame)
            count = found
        elif query.name == PENDING and isinstance(count, list) and count:
            count = count[0]
        if not isinstance(count, int):
            return AdapterError(f'{self._where}: the reply for "{query.name}" is not a number')
        if not 0 <= count <= _MOST:
            return AdapterError(f'{self._where}: the reply for "{query.name}" is {count}, which is not a count')
        return ExternalSample((count * 1000,), self._clock.now())


def _lag(query: Query, reply: Reply) -> Reply | AdapterError:
    """Returns the field `lag` of a group; an error for an absent group, and where Redis does not know the lag."""
    assert query.selector is not None
    name = next(term.values[0] for term in query.selector.requirements if term.key == "group")
    groups = [_fields(each) for each in reply] if isinstance(reply, list) else []
    group = next((each for each in groups if each.get("name") == name), None)
    if group is None:
        return AdapterError(f'there is no consumer group for "{query.selector}"', "spec")
    if "lag" not in group:
        return AdapterError("it does not report the lag of a group, which Redis does from version 7.0 on")
    if group["lag"] is None:
        return AdapterError(
            f'the lag for "{query.selector}" is unknown to Redis, as after entries in the middle of the stream were'
            " deleted (XINFO GROUPS)"
        )
    return group["lag"]


def _fields(group: Reply) -> dict[str, Reply]:
    """Returns the fields of an array of names and values in turn."""
    if not isinstance(group, list):
        return {}
    return {name: value for name, value in zip(group[::2], group[1::2], strict=False) if isinstance(name, str)}
