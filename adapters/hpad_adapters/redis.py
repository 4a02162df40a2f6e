"""Backlogs in Redis: sizes of lists, streams, sets and hashes, and what a consumer group has not done yet.

Source: Redis, commands TYPE, LLEN, XLEN, XINFO GROUPS, SCARD, ZCARD, HLEN. Redis is one server, the master that Redis
Sentinel watches, or a cluster.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, ExternalSample, Query
from hpad_adapters.redis_servers import RedisRequest, Reply, ReplyError, lacks, servers
from hpad_adapters.redis_servers.settings import RedisServers
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
_OF_A_GROUP = {PENDING: "pending", LAG: "lag"}
"""Metric -> the field of a group in the reply to XINFO GROUPS."""
_COUNTS = {LIST: "LLEN", STREAM: "XLEN", SET: "SCARD", SORTED_SET: "ZCARD", HASH: "HLEN"}
_COUNTS |= dict.fromkeys(_OF_A_GROUP, "XINFO GROUPS")
_OF_TYPE = {kind: name for name, kind in _TYPES.items() if name not in _OF_A_GROUP}
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
    missing_group: a group that does not exist is an error; or all entries of the stream wait for it (all), which is
    needed with minReplicas: 0 if the first consumer makes the group.
    missing_list: a list, set or hash that does not exist is zero, as Redis removes it with its last element; or an
    error, for keys that are never empty.
    """

    keys: dict[str, str] = msgspec.field(default_factory=dict)
    only_keys: bool = False
    missing_stream: Literal["error", "zero"] = "error"
    missing_group: Literal["error", "all"] = "error"
    missing_list: Literal["error", "zero"] = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.only_keys and not self.keys:
            raise ValueError("only_keys: allows no key; write keys, or leave it out")


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
        """Returns the commands of a query: TYPE, and those that return counts; raises AdapterError."""
        if query.name not in _TYPES:
            raise no_metric(query, _TYPES)
        by_label = labels(query, ("key", "group") if query.name in _OF_A_GROUP else ("key",))
        name = by_label["key"]
        if self._settings.only_keys and name not in self._settings.keys:
            raise AdapterError(f'the key "{name}" is not one of the keys that the configuration allows', "spec")
        key = self._settings.keys.get(name, name)
        counts = [_COUNTS[query.name]]
        if query.name == LAG:
            counts.append(_COUNTS[STREAM])
        return RedisRequest(key, (("TYPE", key), *((command, key) for command in counts)))

    def _answer(self, query: Query, replies: list[Reply] | AdapterError) -> Answer:
        if isinstance(replies, AdapterError):
            return replies
        kind, *counts = replies
        wanted = _TYPES[query.name]
        for reply in replies:
            # The count of a key of another type is an error reply too, but less clear than the check of the type below.
            if isinstance(reply, ReplyError) and (reply is kind or kind == wanted):
                return self._error(f'"{query.name}" of "{query.selector}": {reply}')
        if kind == "none":
            return self._absent(query, wanted)
        if not isinstance(kind, str):
            return AdapterError(f'{self._where}: the reply to TYPE of "{query.selector}" is not a type')
        if kind != wanted:
            instead = f": take {_OF_TYPE[kind]}" if kind in _OF_TYPE else ""
            return self._error(f'the key of "{query.selector}" is a {kind}, not a {wanted}{instead}', "spec")
        return self._counted(query, counts)

    def _absent(self, query: Query, wanted: str) -> Answer:
        """Returns the answer for a key that does not exist."""
        settings = self._settings
        kind, choice = ("stream", settings.missing_stream) if wanted == "stream" else ("key", settings.missing_list)
        if choice == "zero":
            return ExternalSample((0,), self._clock.now())
        return self._error(f'there is no {kind} for "{query.selector}"', "spec")

    def _counted(self, query: Query, counts: Sequence[Reply]) -> Answer:
        """Returns the sample of a count, which XINFO GROUPS has among the fields of a group."""
        count: Reply | AdapterError = counts[0]
        if query.name in _OF_A_GROUP and isinstance(count, list):
            count = self._of_group(query, count, counts[1:])
        if isinstance(count, AdapterError):
            return count
        if not isinstance(count, int):
            return AdapterError(f'{self._where}: the reply for "{query.name}" is not a number')
        if not 0 <= count <= _MOST:
            return AdapterError(f'{self._where}: the reply for "{query.name}" is {count}, which is not a count')
        return ExternalSample((count * 1000,), self._clock.now())

    def _of_group(self, query: Query, groups: Sequence[Reply], length: Sequence[Reply]) -> Reply | AdapterError:
        """Returns the field of a group. `length`: of the stream, for its lag."""
        group = _group(query, groups)
        if group is None and self._settings.missing_group == "error":
            return self._error(f'there is no consumer group for "{query.selector}" (missing_group)', "spec")
        if group is None:
            return length[0] if length else 0
        count = group.get(_OF_A_GROUP[query.name])
        if count is None:
            return self._error(_unknown(query, group))
        # Redis 7 goes on counting entries that were trimmed or deleted before the group got them (redis/redis#13337).
        return min([count, *(each for each in length if isinstance(each, int))]) if isinstance(count, int) else count

    def _error(self, text: str, blame: str = "source") -> AdapterError:
        """Returns why one metric has no value: the server works."""
        return AdapterError(f"{self._where}: {text}", blame, alive=True)


def _group(query: Query, reply: Sequence[Reply]) -> dict[str, Reply] | None:
    """Returns the fields of the group of a query, None for an absent one."""
    assert query.selector is not None
    name = next(term.values[0] for term in query.selector.requirements if term.key == "group")
    return next((each for each in map(_fields, reply) if each.get("name") == name), None)


def _unknown(query: Query, group: Mapping[str, Reply]) -> str:
    """Returns why Redis does not report a field of a group."""
    if _OF_A_GROUP[query.name] not in group:
        return "it does not report the lag of a group, which Redis does from version 7.0 on"
    return (
        f'the lag for "{query.selector}" is unknown to Redis, as after entries in the middle of the stream were '
        f"deleted (XINFO GROUPS): where workers delete what they have done, take {STREAM}"
    )


def _fields(group: Reply) -> dict[str, Reply]:
    """Returns the fields of an array of names and values in turn."""
    if not isinstance(group, list):
        return {}
    return {name: value for name, value in zip(group[::2], group[1::2], strict=False) if isinstance(name, str)}
