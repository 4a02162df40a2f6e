"""Lag of consumer groups, read from the mock cluster of librdkafka: three brokers in C on real sockets."""

from typing import Any

import msgspec
import pytest

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample, Query
from hpad_adapters.kafka import Kafka, adapter

confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka")
pytest.importorskip("aiokafka", reason="needs the extra kafka")

SHOP = testing.external("kafka_lag", "group=shop,topic=orders")
PATIENT = {"request_timeout": "60s"}
"""With the default, a pause of three seconds of a busy machine is an error of the broker."""
_QUIET = {"log_level": 0}


class MockCluster:
    """Topic "orders" has 10, 20, 30 and no messages; "shop" has read 4, 20, 0 and none of them."""

    def __init__(self) -> None:
        self._owner = confluent_kafka.Producer({"test.mock.num.brokers": 3, **_QUIET})
        brokers = self._owner.list_topics(timeout=60).brokers.values()
        self.servers = [f"{each.host}:{each.port}" for each in brokers]
        for partition, count in enumerate((10, 20, 30)):
            for _ in range(count):
                self._owner.produce("orders", b"x", partition=partition)
        assert self._owner.flush(60) == 0
        self.commit("shop", 4, 20, 0, 0)
        self.commit("new", 4, 20)

    def commit(self, group: str, *offsets: int) -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": ",".join(self.servers), "group.id": group, **_QUIET})
        places = [confluent_kafka.TopicPartition("orders", number, offset) for number, offset in enumerate(offsets)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()


@pytest.fixture(scope="module")
def cluster() -> MockCluster:
    return MockCluster()


async def ask(cluster: MockCluster, *asked: Query, **options: Any) -> list[Answer]:
    settings = msgspec.convert({"bootstrap_servers": cluster.servers, **PATIENT, **options}, Kafka.Settings)
    async with testing.context("kafka") as context:
        return await Kafka(settings, context).answer(asked)


async def one(cluster: MockCluster, group: str = "shop", **metric: Any) -> Any:
    """Returns the value, or the message, of a metric with these fields."""
    fields = {"group": group, "topics": ["orders"], **metric}
    (answer,) = await ask(cluster, testing.external("mine"), metrics={"mine": fields})
    return answer.values[0] if isinstance(answer, ExternalSample) else message(answer)


def message(answer: Answer) -> str:
    assert isinstance(answer, AdapterError), answer
    return answer.message


async def test_the_lag_of_all_partitions(cluster: MockCluster) -> None:
    (answer,) = await ask(cluster, SHOP)
    assert isinstance(answer, ExternalSample)
    assert answer.values == (36_000,)


async def test_chosen_partitions(cluster: MockCluster) -> None:
    assert await one(cluster, partition_limitation="0") == 6000
    assert await one(cluster, partition_limitation="1-2, 3") == 30_000
    assert "has none of these partitions" in await one(cluster, partition_limitation="7")


async def test_partitions_without_a_committed_offset(cluster: MockCluster) -> None:
    """Group "new" has committed for partitions 0 and 1 alone: 30 messages of partition 2 are unread, of 3 none."""
    error = await one(cluster, "new")
    assert 'group "new" has no committed offset for partition 2 of topic "orders": set offset_reset_policy' in error
    assert await one(cluster, "new", offset_reset_policy="earliest") == 36_000
    assert await one(cluster, "new", offset_reset_policy="latest") == 8000
    for policy in ("earliest", "latest"):
        only = {"offset_reset_policy": policy, "scale_to_zero_on_invalid_offset": True}
        assert await one(cluster, "new", **only) == 6000
    by_source = {"offset_reset_policy": "latest", "metrics": {"mine": {"offset_reset_policy": "earliest"}}}
    asked = [testing.external(name, "group=new,topic=orders") for name in ("kafka_lag", "mine")]
    answers = await ask(cluster, *asked, **by_source)
    assert [each.values for each in answers if isinstance(each, ExternalSample)] == [(8000,), (36_000,)]


async def test_no_more_consumers_than_partitions(cluster: MockCluster) -> None:
    """With a target of 5 per consumer, a lag of 36 would need 8 consumers, for 4 partitions, 2 of them with a lag."""
    assert await one(cluster, lag_threshold=5) == 20_000
    assert await one(cluster, lag_threshold=5, limit_to_partitions_with_lag=True) == 10_000
    assert await one(cluster, lag_threshold=5, allow_idle_consumers=True) == 36_000
    assert await one(cluster, lag_threshold=50) == 36_000


async def test_a_lag_that_stands_still_does_not_count(cluster: MockCluster) -> None:
    metric = {"group": "stuck", "topics": ["orders"], "exclude_persistent_lag_after": "1ms"}
    metric["partition_limitation"] = "0,1"
    options = {"bootstrap_servers": cluster.servers, "metrics": {"mine": metric}, **PATIENT}
    settings = msgspec.convert(options, Kafka.Settings)
    async with testing.context("kafka") as context:
        adapter = Kafka(settings, context)

        async def value() -> tuple[int, ...]:
            (answer,) = await adapter.answer([testing.external("mine")])
            await context.clock.sleep(0.002)
            assert isinstance(answer, ExternalSample), answer
            return answer.values

        cluster.commit("stuck", 4, 5)
        assert await value() == (21_000,)
        cluster.commit("stuck", 4, 8)
        assert await value() == (12_000,)  # partition 0 stands still at 4, partition 1 has moved
        assert await value() == (1000,)  # both stand still: the target is kept from zero
        cluster.commit("stuck", 10, 20)
        assert await value() == (0,)


async def test_the_adapter_keeps_the_contract(cluster: MockCluster) -> None:
    settings = msgspec.convert({"bootstrap_servers": cluster.servers, **PATIENT}, Kafka.Settings)
    queries = [
        SHOP,
        testing.external("kafka_lag", "group=new,topic=orders"),
        testing.external("kafka_lag", "group=shop,topic=gone"),
        testing.external("kafka_lag", "topic=orders"),
        testing.external("other", "group=shop"),
    ]
    async with testing.context("kafka") as context:
        answers = await testing.check_adapter(Kafka(settings, context), queries)
    assert [isinstance(answer, ExternalSample) for answer in answers] == [True, False, False, False, False]
    gone, no_group, unknown = answers[2:]
    assert 'topic "gone": UNKNOWN_TOPIC_OR_PARTITION' in message(gone)
    assert "needs a selector with group=…, and may have topic=…" in message(no_group)
    assert 'there is no metric "other"' in message(unknown)


async def test_a_topic_that_does_not_exist_is_not_created(cluster: MockCluster) -> None:
    for _ in range(2):
        (answer,) = await ask(cluster, testing.external("kafka_lag", "group=shop,topic=absent"))
        assert "UNKNOWN_TOPIC_OR_PARTITION" in message(answer)


def test_the_memory_of_standing_offsets_is_bounded() -> None:
    persistent = adapter.PersistentLags(limit=2)
    assert [persistent.age("g", ("t", number), 5, 10.0) for number in range(3)] == [0, 0, 0]
    assert persistent.age("g", ("t", 2), 5, 12.0) == 2
    assert persistent.age("g", ("t", 2), 6, 13.0) == 0
    assert persistent.age("g", ("t", 0), 5, 14.0) == 0  # forgotten


def test_messages_that_retention_has_deleted_do_not_count() -> None:
    wanted = adapter.WantedLag("g")
    assert adapter.lag_of(wanted, ("t", 0), adapter.Offsets(committed=2, first=8, end=10)) == 2
    with pytest.raises(AdapterError, match="was the topic created anew"):
        adapter.lag_of(wanted, ("t", 0), adapter.Offsets(committed=11, first=0, end=10))


async def test_an_autoscaler_brings_a_metric_along(cluster: MockCluster) -> None:
    metric = Kafka.QuerySchema(group="shop", topics=["orders"], partition_limitation="0")
    (answer,) = await ask(cluster, testing.own_query(metric))
    assert isinstance(answer, ExternalSample)
    assert answer.values == (6000,)
    with pytest.raises(ValueError, match="partition_limitation: names more than 10000 partitions"):
        Kafka.QuerySchema(group="shop", partition_limitation="0-9999,10000")
