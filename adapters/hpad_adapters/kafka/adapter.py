"""The adapter `kafka`: how many messages the consumers of a group have not read yet."""

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, ExternalSample, Query, Sample, or_error
from hpad.adapter_http import Http, Tls, read_secrets
from hpad_adapters import extras
from hpad_adapters.credentials import Trust
from hpad_adapters.kafka.settings import KafkaSettings, Metric, Partition, Policy
from hpad_adapters.selection import attempt, labels, no_metric
from hpad_adapters.servers import Servers

LAG = "kafka_lag"
_FROM_SELECTOR = Metric()
NO_OFFSET = -1
"""The committed offset of a partition without one."""


class Offsets(NamedTuple):
    """The offsets of one partition: committed by the group (NO_OFFSET without one), its first and its end."""

    committed: int
    first: int
    end: int


class WantedLag(NamedTuple):
    """What one query asks for, and what counts; without topics all that the group has committed an offset for.

    `numbers` are the partitions (None: all), `threshold` is that of a limit (0: no limit).
    """

    group: str
    topics: tuple[str, ...] = ()
    numbers: frozenset[int] | None = None
    policy: Policy = "error"
    zero_on_invalid: bool = False
    threshold: float = 0
    only_with_lag: bool = False
    persistent_seconds: float = 0


class Kafka:
    """The lag of consumer groups of a Kafka cluster; a batch has one connection to each broker that it needs."""

    serves = frozenset({EXTERNAL})
    metrics: tuple[str, ...] = (LAG,)
    parameters = ("group", "topic")
    Settings = KafkaSettings
    QuerySchema = Metric

    @staticmethod
    def lacks(settings: KafkaSettings) -> str:
        """Returns the package that is missing; "" if none is."""
        return extras.lacks("aiokafka", "kafka")

    def __init__(self, settings: KafkaSettings, context: Context) -> None:
        self._client: Any = extras.load("hpad_adapters.kafka.cluster", "kafka")
        self._metrics: Mapping[str, Metric] = {LAG: _FROM_SELECTOR, **settings.metrics}
        self.metrics = tuple(self._metrics)
        self._settings = settings
        self._seconds = context.within(settings.request_seconds)
        self._call_seconds = context.within(math.inf)
        self._clock = context.clock
        self._servers = Servers(settings.servers())
        self._tls = Tls(settings.tls_options) if settings.tls else None
        verified = settings.tls and not settings.insecure
        self._trust = Trust(settings.servers(), settings.trusted_hosts, verified=verified)
        self._http = Http(context, settings.http_options())
        self._persistent = PersistentLags()

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a sample or an error per query; raises AdapterError if no bootstrap server answers."""
        planned = [attempt(self._wanted, query) for query in queries]
        wanted = list(dict.fromkeys(each for each in planned if isinstance(each, WantedLag)))
        found = dict(zip(wanted, await self._read(wanted), strict=True)) if wanted else {}
        return [found[each] if isinstance(each, WantedLag) else each for each in planned]

    def group(self, query: Query) -> str:
        """Returns the same for all queries: the connections of a batch serve them."""
        return LAG

    async def aclose(self) -> None:
        """Does nothing: connections end with their batch."""

    def _wanted(self, query: Query) -> WantedLag:
        """Returns what a query asks for; raises AdapterError."""
        metric: Metric | None = self._metrics.get(query.name) if query.definition is None else query.definition.metric
        if metric is None:
            raise no_metric(query, self._metrics)
        by_label = labels(query, () if metric.group else ("group",), () if metric.topics else ("topic",))
        source = self._settings
        zero = metric.scale_to_zero_on_invalid_offset
        return WantedLag(
            group=metric.group or by_label["group"],
            topics=tuple(metric.topics) or ((by_label["topic"],) if "topic" in by_label else ()),
            numbers=metric.partitions(),
            policy=metric.offset_reset_policy or source.offset_reset_policy,
            zero_on_invalid=source.scale_to_zero_on_invalid_offset if zero is None else zero,
            threshold=0 if metric.allow_idle_consumers else metric.lag_threshold,
            only_with_lag=metric.limit_to_partitions_with_lag,
            persistent_seconds=metric.persistent_seconds,
        )

    async def _read(self, wanted: Sequence[WantedLag]) -> list[Answer]:
        end = asyncio.get_running_loop().time() + self._call_seconds
        made = self._client.KafkaCluster(self._servers, await self._login(), self._seconds, end)
        with contextlib.closing(made) as cluster:
            await cluster.bootstrap()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(or_error(self._sample, cluster, each)) for each in wanted]
        return [task.result() for task in tasks]

    async def _login(self) -> Any:
        settings = self._settings
        password = (await read_secrets({"password": settings.secret}))["password"]
        token = await self._http.bearer() if settings.sasl == "OAUTHBEARER" else ""
        tls = await self._tls.context() if self._tls is not None else None
        names = settings.sasl, settings.username, password, token
        return self._client.Login(tls, *names, self._trust, self._http.discard)

    async def _sample(self, cluster: Any, wanted: WantedLag) -> Sample:
        # The ends are read last, so that no commit and no first offset lies beyond them.
        if wanted.topics:
            topics = await cluster.topics(wanted.topics)
            leaders = self._chosen(wanted, topics)
            committed = await cluster.committed(wanted.group, leaders)
        else:
            committed = await cluster.committed(wanted.group, None)
            leaders = self._chosen(wanted, await cluster.topics({topic for topic, _ in committed}), committed)
        firsts = await cluster.offsets(leaders, self._client.EARLIEST)
        ends = await cluster.offsets(leaders, self._client.LATEST)
        lags = {}
        for partition in leaders:
            if partition not in committed or partition not in ends or partition not in firsts:
                raise AdapterError(f'Kafka left out partition {partition[1]} of topic "{partition[0]}"')
            offsets = Offsets(committed[partition], firsts[partition], ends[partition])
            lags[partition] = lag_of(wanted, partition, offsets)
        value = self._without_persistent(wanted, lags, committed) if wanted.persistent_seconds else lags
        total = total_lag(wanted, value)
        # A group whose whole lag is persistent still has work: its target is not to be scaled to zero.
        return ExternalSample((round((total or min(1, sum(lags.values()))) * 1000),), self._clock.now())

    def _chosen(self, wanted: WantedLag, topics: Any, committed: Mapping[Partition, int] | None = None) -> Any:
        """Returns the leaders of the partitions that count; raises AdapterError if there are none."""
        if (wanted.topics or committed) and topics.fault is not None:
            raise topics.fault
        leaders = {
            partition: leader
            for partition, leader in topics.leaders.items()
            if (wanted.numbers is None or partition[1] in wanted.numbers)
            and (committed is None or partition in committed)
        }
        if not leaders:
            named = ", ".join(wanted.topics)
            what = f'topic "{named}" has none of these partitions' if named else "it has no committed offset"
            raise AdapterError(f'group "{wanted.group}": {what}', "spec")
        return leaders

    def _without_persistent(
        self, wanted: WantedLag, lags: Mapping[Partition, int], committed: Mapping[Partition, int]
    ) -> dict[Partition, int]:
        now = self._clock.monotonic()
        ages = {each: self._persistent.age(wanted.group, each, committed[each], now) for each in lags}
        return {
            each: 0 if committed[each] != NO_OFFSET and ages[each] >= wanted.persistent_seconds else count
            for each, count in lags.items()
        }


# The lag from offsets. Source: KEDA 2.21, "Apache Kafka" and kafka_scaler.go, for what counts without a committed
# offset and for the limits.


def lag_of(wanted: WantedLag, partition: Partition, offsets: Offsets) -> int:
    """Returns the messages of a partition that count; raises AdapterError."""
    group, (topic, number) = wanted.group, partition
    if offsets.committed == NO_OFFSET:
        if wanted.policy == "error":
            raise AdapterError(
                f'group "{group}" has no committed offset for partition {number} of topic "{topic}": set'
                " offset_reset_policy to earliest or latest if that is expected",
                "spec",
            )
        unread = offsets.end - offsets.first if wanted.policy == "earliest" else 1
        return 0 if wanted.zero_on_invalid else unread
    if offsets.committed > offsets.end:
        # Without the end, which moves on: a text that changes would cost a status write in each period.
        raise AdapterError(
            f'group "{group}" has committed offset {offsets.committed} for partition {number} of topic "{topic}", which'
            " is beyond its end: was the topic created anew?"
        )
    return offsets.end - max(offsets.committed, offsets.first)


def total_lag(wanted: WantedLag, lags: Mapping[Partition, int]) -> float:
    """Returns the sum, at most the threshold for each partition that counts for the limit."""
    summed = sum(lags.values())
    if not wanted.threshold:
        return summed
    consumers = sum(1 for lag in lags.values() if lag > 0) if wanted.only_with_lag else len(lags)
    return min(summed, consumers * wanted.threshold)


class PersistentLags:
    """Remembers since when committed offsets stand still, of at most `limit` partitions."""

    def __init__(self, limit: int = 1 << 16) -> None:
        self._limit = limit
        self._seen: dict[tuple[str, Partition], tuple[int, float]] = {}

    def age(self, group: str, partition: Partition, committed: int, now: float) -> float:
        """Returns for how many seconds the offset has stood still. What was asked for longest ago is forgotten."""
        key = (group, partition)
        offset, since = self._seen.pop(key, (committed, now))
        if offset != committed:
            since = now
        while len(self._seen) >= self._limit:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = (committed, since)
        return now - since
