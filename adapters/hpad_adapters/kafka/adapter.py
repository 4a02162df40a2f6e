"""The adapter `kafka`: how many messages the consumers of a group have not read yet."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, ExternalSample, Query, Sample, or_error
from hpad.adapter_http import Http, Tls, read_secrets
from hpad_adapters import extras
from hpad_adapters.credentials import Trust
from hpad_adapters.kafka import lag
from hpad_adapters.kafka.settings import KafkaSettings, Metric
from hpad_adapters.selection import attempt, labels, no_metric

LAG = "kafka_lag"
_FROM_SELECTOR = Metric()


class WantedLag(NamedTuple):
    """What one query asks for; without topics all that the group has committed an offset for."""

    group: str
    topics: tuple[str, ...]
    numbers: frozenset[int] | None
    rules: lag.LagRules
    persistent_seconds: float


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
        self._clock = context.clock
        self._servers = settings.servers()
        self._tls = Tls(settings.tls_options) if settings.tls else None
        verified = settings.tls and not settings.insecure
        self._trust = Trust(settings.servers(), settings.trusted_hosts, verified=verified)
        self._http = Http(context, settings.http_options())
        self._persistent = lag.Persistent()

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
        policy = metric.offset_reset_policy or source.offset_reset_policy
        zero = metric.scale_to_zero_on_invalid_offset
        threshold = 0 if metric.allow_idle_consumers else metric.lag_threshold
        return WantedLag(
            metric.group or by_label["group"],
            tuple(metric.topics) or ((by_label["topic"],) if "topic" in by_label else ()),
            metric.partitions(),
            lag.LagRules(
                policy,
                source.scale_to_zero_on_invalid_offset if zero is None else zero,
                threshold,
                metric.limit_to_partitions_with_lag,
            ),
            metric.persistent_seconds,
        )

    async def _read(self, wanted: Sequence[WantedLag]) -> list[Answer]:
        with contextlib.closing(self._client.KafkaCluster(self._servers, await self._login())) as cluster:
            await cluster.bootstrap()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(or_error(self._sample(cluster, each))) for each in wanted]
        return [task.result() for task in tasks]

    async def _login(self) -> Any:
        settings = self._settings
        password = (await read_secrets({"password": settings.secret}))["password"]
        token = await self._http.bearer() if settings.sasl == "OAUTHBEARER" else ""
        tls = await self._tls.context() if self._tls is not None else None
        return self._client.Login(tls, settings.sasl, settings.username, password, token, self._trust)

    async def _sample(self, cluster: Any, wanted: WantedLag) -> Sample:
        # The ends are read after the commits, so that no commit lies beyond them.
        if wanted.topics:
            topics = await cluster.topics(wanted.topics)
            leaders = self._chosen(wanted, topics)
            committed = await cluster.committed(wanted.group, leaders)
        else:
            committed = await cluster.committed(wanted.group, None)
            leaders = self._chosen(wanted, await cluster.topics({topic for topic, _ in committed}), committed)
        ends = await cluster.offsets(leaders, self._client.LATEST)
        firsts = await cluster.offsets(leaders, self._client.EARLIEST)
        lags = {}
        for partition in leaders:
            if partition not in committed or partition not in ends or partition not in firsts:
                raise AdapterError(f'Kafka left out partition {partition[1]} of topic "{partition[0]}"')
            offsets = lag.Offsets(committed[partition], firsts[partition], ends[partition])
            lags[partition] = lag.of_partition(wanted.group, partition, offsets, wanted.rules)
        value = self._without_persistent(wanted, lags, committed) if wanted.persistent_seconds else lags
        total = lag.total(value, wanted.rules)
        # A group whose whole lag is persistent still has work: its target is not to be scaled to zero.
        return ExternalSample((round((total or min(1, sum(lags.values()))) * 1000),), self._clock.now())

    def _chosen(self, wanted: WantedLag, topics: Any, committed: Mapping[lag.Partition, int] | None = None) -> Any:
        """Returns the leaders of the partitions that count; raises AdapterError if there are none."""
        if wanted.topics or committed:
            for fault in topics.faults.values():
                raise fault
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
        self, wanted: WantedLag, lags: Mapping[lag.Partition, int], committed: Mapping[lag.Partition, int]
    ) -> dict[lag.Partition, int]:
        now = self._clock.monotonic()
        ages = {each: self._persistent.age(wanted.group, each, committed[each], now) for each in lags}
        return {
            each: 0 if committed[each] != lag.NONE and ages[each] >= wanted.persistent_seconds else count
            for each, count in lags.items()
        }
