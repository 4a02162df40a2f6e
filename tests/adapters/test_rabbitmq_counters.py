"""Rates from counters: per queue or per channel, over restarts of nodes, closed channels and nodes that join."""

import pytest

from hpad_adapters.exposition import ExposedSample
from hpad_adapters.rabbitmq.counters import FEWEST_POINTS, Histories, counters
from hpad_adapters.rabbitmq.plugin import PREFIX, NodeMetrics
from hpad_adapters.rabbitmq.queues import RabbitmqQueue

ORDERS = ("/", "orders")
SPAN = 60.0
OF_4 = frozenset({f"{PREFIX}queue_messages_acked_total"})


def by_queue(node: str, published: float, acked: float) -> NodeMetrics:
    """A node of RabbitMQ 4: as many messages are delivered as acknowledged, half of them by basic.get."""
    labels = {"vhost": "/", "queue": "orders"}
    series = {
        "queue_exchange_messages_published_total": [ExposedSample({**labels, "exchange": "x"}, published)],
        "queue_messages_delivered_ack_total": [ExposedSample(labels, acked / 2)],
        "queue_get_total": [ExposedSample(labels, acked / 2)],
        "queue_messages_acked_total": [ExposedSample(labels, acked), ExposedSample({**labels, "vhost": "other"}, 9.0)],
    }
    return NodeMetrics(node, {f"{PREFIX}{name}": samples for name, samples in series.items()}, OF_4)


def by_channel(node: str, **acked: float) -> NodeMetrics:
    """A node of RabbitMQ 3: acknowledged messages by channel, which are the published ones as well."""
    of = {"queue_vhost": "/", "queue": "orders", "exchange_vhost": "/", "exchange": ""}
    published = [ExposedSample({"channel": name, **of}, count) for name, count in acked.items()]
    own = [ExposedSample({"channel": name, "vhost": "/", "queue": "orders"}, count) for name, count in acked.items()]
    series = {"queue_messages_published_total": published, "channel_messages_acked_total": own}
    return NodeMetrics(node, {f"{PREFIX}{name}": samples for name, samples in series.items()}, frozenset())


def measured(reads: list[tuple[float, list[NodeMetrics]]], *, samples: bool = False) -> RabbitmqQueue:
    histories = Histories(SPAN, 10)
    for number, (at, nodes) in enumerate(reads):
        histories.add(at, orders(10 * number, number), counters(nodes, [ORDERS])[ORDERS])
    return histories.measured(orders(), samples=samples)


def orders(messages: int = 0, unacknowledged: int = 0, name: str = "orders") -> RabbitmqQueue:
    return RabbitmqQueue(name, "/", messages=messages, messages_unacknowledged=unacknowledged)


def rates(found: RabbitmqQueue) -> tuple[float | None, ...]:
    of = found.message_stats
    assert of is not None
    return tuple(each and each.avg_rate for each in (of.publish_details, of.deliver_get_details, of.ack_details))


def test_adds_up_the_counters_of_all_nodes() -> None:
    found = measured(
        [(0.0, [by_queue("a", 100, 50), by_queue("b", 7, 0)]), (10.0, [by_queue("a", 130, 60), by_queue("b", 17, 5)])]
    )
    assert rates(found) == (4.0, 1.5, 1.5)
    assert found.messages_details is not None
    assert (found.messages_details.avg_rate, found.lacking) == (1.0, "")


def test_a_counter_that_fell_counts_from_zero() -> None:
    assert rates(measured([(0.0, [by_queue("a", 100, 50)]), (10.0, [by_queue("a", 20, 0)])])) == (2.0, 0.0, 0.0)


def test_channels_that_open_and_close() -> None:
    reads = [by_channel("a", old=1000, ends=70), by_channel("a", old=1010, ends=80), by_channel("a", old=1020, new=10)]
    found = measured([(5.0 * number, [read]) for number, read in enumerate(reads)])
    assert rates(found) == (4.0, 0.0, 4.0)


def test_what_a_node_counted_before_it_was_read_is_no_rate() -> None:
    reads = [(0.0, [by_queue("a", 0, 0)]), (5.0, [by_queue("a", 0, 0), by_queue("b", 900, 0)])]
    found = measured([*reads, (10.0, [by_queue("a", 0, 0), by_queue("b", 920, 0)])])
    assert rates(found) == (2.0, 0.0, 0.0)


def test_a_node_that_is_away_for_a_read_goes_on_from_its_counters() -> None:
    both = [by_queue("a", 0, 0), by_queue("b", 900, 0)]
    found = measured([(0.0, both), (5.0, both[:1]), (10.0, [by_queue("a", 0, 0), by_queue("b", 920, 0)])])
    assert rates(found) == (2.0, 0.0, 0.0)


@pytest.mark.parametrize("seconds", [0.0, 5.0])
def test_a_rate_needs_ten_seconds(seconds: float) -> None:
    found = measured([(0.0, [by_queue("a", 0, 0)]), (seconds, [by_queue("a", 99, 99)])], samples=True)
    assert rates(found) == (None, None, None)
    assert found.lacking == f"hpad has read its counters for {seconds:.0f}s, and a rate needs 10s at least"
    assert found.message_stats is not None
    published = found.message_stats.publish_details
    assert published is not None
    assert published.samples is not None
    assert len(published.samples) == (1 if seconds < 4 else 2)


def test_a_rate_covers_its_window_and_samples_more_if_reads_are_far_apart() -> None:
    reads = [(15.0 * number, [by_queue("a", number**2, 0)]) for number in range(FEWEST_POINTS + 5)]
    found = measured(reads, samples=True)
    assert rates(found)[0] == pytest.approx((17**2 - 13**2) / SPAN)
    assert found.message_stats is not None
    published = found.message_stats.publish_details
    assert published is not None
    assert published.samples is not None
    assert len(published.samples) == FEWEST_POINTS
    assert found.messages_unacknowledged_details is not None
    lengths = found.messages_unacknowledged_details.samples
    assert lengths is not None
    assert [point.timestamp for point in lengths] == [point.timestamp for point in published.samples]
    assert [point.sample for point in lengths] == list(range(5, 18))


def test_a_short_window_has_rates_though_no_two_points_are_exactly_so_far_apart() -> None:
    histories = Histories(10.0, 10)
    for number in range(200):
        at = 1.3 * number
        histories.add(at, orders(), counters([by_queue("a", 10 * at, 0)], [ORDERS])[ORDERS])
        found = histories.measured(orders(), samples=True)
        assert rates(found)[0] == (None if found.lacking else pytest.approx(10.0))
        assert bool(found.lacking) == (at < 10.4)
        assert found.messages_unacknowledged_details is not None
        assert len(found.messages_unacknowledged_details.samples or ()) <= FEWEST_POINTS


def test_reads_further_apart_than_the_window_still_give_a_rate() -> None:
    assert rates(measured([(0.0, [by_queue("a", 0, 0)]), (120.0, [by_queue("a", 240, 0)])]))[0] == 2.0


def test_forgets_the_queue_that_was_read_longest_ago() -> None:
    histories = Histories(SPAN, 1)
    for at, queue in ((0.0, "a"), (10.0, "b"), (20.0, "a")):
        histories.add(at, orders(name=queue), counters([by_queue("n", 0, 0)], [("/", queue)])[("/", queue)])
    assert "for 0s" in histories.measured(orders(name="a"), samples=False).lacking
