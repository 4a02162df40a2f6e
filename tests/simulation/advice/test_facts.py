"""Facts of painted pasts; the expected figures are counted by hand from the columns."""

import dataclasses
import itertools
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.advice_pasts import BEGIN, DAY, DAYS, HOUR, MINUTE, bursts, daily, lived, noisy, painted, spec
from support.engine import container, external, object_metric, pods_metric, resource

from hpad.engine.view import Tunables
from hpad.simulation.advice import facts
from hpad.simulation.advice.assessment import Facts
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.record import record_of
from hpad.simulation.backlog import Rates
from hpad.simulation.history import REPLICAS, LoadHistory

CPU = resource("cpu", averageUtilization=50)
MEMORY = resource("memory", averageUtilization=80)
QUEUE = external("queue_messages", averageValue="10")
LAG = external("lag", value="100")


def known(past: HpaPast, **tunables: Any) -> Facts:
    return facts.facts_of(past, record_of(past, Tunables(**tunables)))


def test_each_count_holds_until_the_next_time() -> None:
    found = known(painted(spec(CPU, low=2, high=4), [2, 2, 3, 4, 4, 2]))
    assert found.seconds == 5 * MINUTE
    assert found.replica_seconds == (2 + 2 + 3 + 4 + 4) * MINUTE
    assert (found.lowest, found.highest) == (2, 4)
    assert (found.at_maximum, found.longest_at_maximum, found.at_minimum) == (2 * MINUTE, 2 * MINUTE, 2 * MINUTE)
    assert found.rescales == 3


def test_a_gap_is_no_time() -> None:
    found = known(painted(spec(CPU, high=4), [4, 4, None, None, 4, 4, 4, 4]))
    assert found.seconds == 5 * MINUTE
    assert (found.at_maximum, found.longest_at_maximum) == (5 * MINUTE, 3 * MINUTE)
    assert found.rescales == 0


def test_a_time_far_from_the_next_one_holds_for_a_step() -> None:
    past = painted(spec(CPU, high=4), [4] * 6)
    times = [BEGIN + minute * MINUTE for minute in (0, 1, 2, 60, 61, 62)]
    found = known(dataclasses.replace(past, load=LoadHistory(times, past.load.columns)))
    assert found.seconds == 5 * MINUTE
    assert found.longest_at_maximum == 3 * MINUTE


def test_above_goal_is_what_the_hpa_itself_saw_where_that_is_known() -> None:
    past = painted(spec(CPU, high=10), [2] * 5, {"cpu": [40, 40, 40, 60, 0]})
    past = dataclasses.replace(past, seen={"cpu": [60, 40, 60, None, None]})
    found = known(past)
    assert found.above_goal == 3 * MINUTE
    assert found.peak == known(dataclasses.replace(past, seen={})).peak


def test_bounds_are_those_of_the_time() -> None:
    past = painted(spec(CPU, low=1, high=8), [4] * 7, minimum=[1, 1, 4, 4, 1, 1, 1], maximum=[4, 4, 4, 8, 8, None, 8])
    found = known(past)
    # Two minutes at the maximum of 4. In the third one both bounds are 4.
    assert found.at_maximum == 2 * MINUTE
    assert found.at_minimum == 2 * MINUTE


def test_bounds_that_the_past_does_not_have_are_those_of_now() -> None:
    found = known(painted(spec(CPU, low=2, high=4), [4, 4, 2, 2], minimum=None, maximum=None))
    assert (found.at_maximum, found.at_minimum) == (2 * MINUTE, MINUTE)


def test_an_hpa_with_equal_bounds_is_not_at_its_maximum() -> None:
    found = known(painted(spec(CPU, low=4, high=4), [4] * 4))
    assert (found.at_maximum, found.at_minimum) == (0, 3 * MINUTE)


def test_what_the_metrics_asked_for() -> None:
    # At 2 replicas: 100 % of 50 % asks for 4, 54 % is within the tolerance, 25 % for 1; at 3: 30 % for ceil(1.8) = 2.
    past = painted(spec(CPU, high=10), [2, 2, 2, 3, 3], {"cpu": [100, 54, 25, 30, 0]})
    found = known(past)
    assert found.above_goal == MINUTE
    assert found.peak == 4
    assert found.idle == (0 + 0 + 1 + 1) * MINUTE
    assert found.measured == 4 * MINUTE


def test_metrics_never_ask_for_less_than_one_replica() -> None:
    assert known(painted(spec(CPU), [3, 3, 3], {"cpu": 0})).idle == 2 * 2 * MINUTE
    hits = object_metric("hits", averageValue="10")
    assert known(painted(spec(hits, low=0), [3, 3, 3], {"hits": 0})).idle == 2 * 3 * MINUTE


@pytest.mark.parametrize("metric", [QUEUE, external("queue_messages", value="10")])
def test_the_length_of_a_queue_does_not_tell_idle_replicas(metric: dict[str, Any]) -> None:
    found = known(painted(spec(metric), [3, 3, 3], {"queue_messages": 0}))
    assert (found.idle, found.peak, found.above_goal) == (None, 1, 0)


def test_what_arrives_tells_which_replicas_of_a_queue_are_idle() -> None:
    # A replica does 2 messages per second: 5 of them take 3 replicas, 1 takes one.
    columns = {"queue_messages": [0, 0, 0, 45, 0], "in": [1, 5, 5, 1, 1], "out": 0}
    past = painted(spec(QUEUE), [4] * 5, columns, queues={"queue_messages": Rates("in", "out", 2.0)})
    # The queue asks for 5 in the fourth minute.
    assert known(past).idle == (3 + 1 + 1 + 0) * MINUTE
    assert known(past).peak == 5


def test_a_queue_whose_replicas_were_never_busy_does_not_tell_idle_ones() -> None:
    columns = {"queue_messages": 0, "in": 1, "out": 1}
    past = painted(spec(QUEUE), [4] * 5, columns, queues={"queue_messages": Rates("in", "out")})
    assert known(past).idle is None


def test_beside_the_length_of_a_queue_the_other_metrics_tell_the_load() -> None:
    columns = {"cpu": 20, "queue_messages": [0, 35, 0], "in": 1, "out": 1}
    for queues in ({}, {"queue_messages": Rates("in", "out")}):  # its replicas were never all busy
        assert known(painted(spec(CPU, QUEUE), [4] * 3, columns, queues=queues)).idle == (2 + 0) * MINUTE


@pytest.mark.parametrize(
    ("metric", "column", "value", "asked"),
    [
        (CPU, "cpu", 120.0, 10),  # 120 / 50 * 4 = 9.6
        (container("cpu", "app", averageUtilization=60), "cpu", 100.0, 7),  # 100 / 60 * 4 = 6.7
        (resource("cpu", averageValue="500m"), "cpu", 0.8, 7),  # 0.8 / 0.5 * 4 = 6.4
        (resource("memory", averageValue="1Gi"), "memory", 1.5 * 2**30, 6),
        (pods_metric("requests", "100"), "requests", 130.0, 6),  # 5.2
        (QUEUE, "queue_messages", 75.0, 8),  # the total: 75 / 10
        (LAG, "lag", 160.0, 7),  # 1.6 * 4 = 6.4
        (object_metric("hits", averageValue="10"), "hits", 75.0, 8),
        (object_metric("hits", value="100"), "hits", 160.0, 7),
    ],
)
def test_each_kind_of_metric_target(metric: dict[str, Any], column: str, value: float, asked: int) -> None:
    found = known(painted(spec(metric), [4, 4], {column: value}))
    assert found.peak == asked
    assert found.above_goal == MINUTE


def test_the_metric_that_asks_for_most_leads() -> None:
    past = painted(spec(CPU, MEMORY), [2, 2, 2], {"cpu": [25, 100, 0], "memory": [120, 40, 0]})
    found = known(past)
    assert found.peak == 4  # CPU: 100 / 50 * 2; memory asks for 3 in the first minute
    assert found.above_goal == 2 * MINUTE


def test_while_a_metric_is_missing_the_others_may_only_ask_for_more() -> None:
    past = painted(spec(CPU, MEMORY), [4, 4, 4, 4], {"cpu": [100, 10, 10, 0], "memory": [None, None, 20, 0]})
    found = known(past)
    assert found.measured == 2 * MINUTE  # CPU asks for 8 without memory; in the second minute nothing can be said
    assert found.idle == 3 * MINUTE  # ceil(10 / 50 * 4) and ceil(20 / 80 * 4) are 1
    assert found.above_goal == MINUTE


def test_without_values_nothing_is_said_of_the_load() -> None:
    found = known(painted(spec(CPU), [2, 3, 3]))
    assert (found.above_goal, found.idle, found.peak, found.starved, found.held_back) == (None,) * 5
    assert found.measured == 0


def test_the_tolerance_is_that_of_the_spec_else_of_the_settings() -> None:
    values = {"cpu": [54, 56, 62, 0]}
    assert known(painted(spec(CPU), [2] * 4, values)).above_goal == 2 * MINUTE
    assert known(painted(spec(CPU), [2] * 4, values), tolerance=0.05).above_goal == 3 * MINUTE
    own = spec(CPU, behavior={"scaleUp": {"tolerance": "0.2"}})
    assert known(painted(own, [2] * 4, values)).above_goal == MINUTE


def test_flaps_are_turns_within_five_minutes() -> None:
    # Up at minute 1, down at 6 (5 minutes later), up at 12 (6 minutes later).
    found = known(painted(spec(CPU), [2, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 4, 4]))
    assert found.rescales == 3
    assert found.flaps == 1
    assert found.regretted == 1  # down at 6, up again at 12: within ten minutes


def test_the_longest_sawtooth() -> None:
    tooth = [2] * 5 + [6] * 5  # up or down every five minutes
    found = known(painted(spec(CPU), [2] * 60 + tooth * 4 + [2] * 60 + tooth * 2 + [2] * 10))
    assert found.sawtooth is not None
    assert (found.sawtooth.rescales, found.sawtooth.lowest, found.sawtooth.highest) == (8, 2, 6)
    # Minute 65 is the first up, and 60 + 40 = 100 the last down.
    assert found.sawtooth.begin.timestamp() == BEGIN + 65 * MINUTE
    assert found.sawtooth.end - found.sawtooth.begin == timedelta(minutes=35)


def test_steps_in_one_direction_are_one_leg_of_a_sawtooth() -> None:
    tooth = [2, 4, 8, 8, 8, 8, 8, 5]
    found = known(painted(spec(CPU), tooth * 3 + [2, 2]))
    assert found.sawtooth is not None
    assert found.sawtooth.rescales == 6
    assert found.rescales == 3 * 4


def test_turns_of_a_slow_load_are_no_sawtooth() -> None:
    ramp = [*range(2, 12), *range(12, 2, -1)]
    found = known(painted(spec(CPU, high=20), [count for count in ramp * 3 for _ in range(6)]))
    assert found.sawtooth is None


def test_pods_of_a_rollout_are_no_rescale() -> None:
    past = painted(spec(CPU), [4, 4, 5, 4, 5, 4, 4], desired=4)
    assert (known(past).rescales, known(past).highest) == (0, 5)


def test_failing_time_by_reason() -> None:
    past = painted(
        spec(CPU),
        [2] * 6,
        failing={"FailedGetResourceMetric": [0, 1, 1, 0, None, 1], "FailedGetScale": [0, 0, 1, 1, 0, 0]},
    )
    found = known(past)
    assert found.failing == {"FailedGetResourceMetric": 2 * MINUTE, "FailedGetScale": 2 * MINUTE}
    assert found.unread == 3 * MINUTE


def test_an_hpa_at_zero_replicas_is_inactive_and_does_not_fail() -> None:
    found = known(painted(spec(QUEUE, low=0), [0, 0, 1, 1, 1], failing={"ScalingActive": [1, 1, 1, 0, 0]}))
    assert found.failing == {"ScalingActive": MINUTE}


def test_held_back_is_what_was_not_given_within_three_minutes() -> None:
    # At 2 replicas 100 % asks for 4, but there are 3 only after five minutes.
    slow = known(painted(spec(CPU), [2, 2, 2, 2, 2, 3, 4, 4, 4], {"cpu": [100] * 5 + [70, 50, 50, 50]}))
    assert slow.held_back == 6 * MINUTE  # minutes 0, 1 and 2, and the three after: less than 4
    quick = known(painted(spec(CPU), [2, 2, 4, 4, 4, 4], {"cpu": [100, 100, 50, 50, 50, 50]}))
    assert quick.held_back == 0
    full = known(painted(spec(CPU, high=2), [2] * 9, {"cpu": 100}))
    assert (full.held_back, full.starved) == (0, 8 * MINUTE)


def test_a_metric_that_each_pod_exceeds() -> None:
    grown = [2] * 20 + [4] * 20 + [8] * 20
    assert known(painted(spec(MEMORY, high=8), grown, {"memory": 110})).exceeded == ("memory",)
    shared = [160.0] * 20 + [130.0] * 20 + [95.0] * 20  # falls with the count
    assert known(painted(spec(MEMORY, high=8), grown, {"memory": shared})).exceeded == ()
    assert known(painted(spec(MEMORY, high=8), [8] * 60, {"memory": 110})).exceeded == ("memory",)
    assert known(painted(spec(CPU, high=8), [8] * 60, {"cpu": 110})).exceeded == ()
    assert known(painted(spec(QUEUE, high=8), [8] * 60, {"queue_messages": 800})).exceeded == ()


def test_containers_without_requests() -> None:
    past = painted(spec(CPU), [2, 2], unrequested={"cpu": ("sidecar",)})
    assert known(past).unrequested == {"cpu": ("sidecar",)}


def test_a_past_without_counts() -> None:
    past = painted(spec(CPU), [None, None, None], {"cpu": 50})
    found = known(past)
    assert (found.seconds, found.lowest, found.peak) == (0, 0, None)


def _holes(past: HpaPast, share: float, seed: int) -> HpaPast:
    """Returns the past without a share of its samples."""
    chance = random.Random(seed)

    def less(column: Sequence[float | None]) -> list[float | None]:
        return [None if chance.random() < share else value for value in column]

    columns = {name: less(column) for name, column in past.load.columns.items()}
    return dataclasses.replace(
        past,
        load=LoadHistory(past.load.times, columns),
        desired=less(past.desired),
        failing={reason: less(column) for reason, column in past.failing.items()},
    )


def _durations(found: Facts) -> list[float]:
    own = [found.seconds, found.replica_seconds, found.at_maximum, found.longest_at_maximum, found.at_minimum]
    told = [each or 0.0 for each in (found.above_goal, found.idle, found.starved, found.held_back)]
    return [*own, *told, found.measured, found.unread, *(found.failing.get(name, 0.0) for name in ("A", "B"))]


def _busy() -> HpaPast:
    failing = {
        "A": [float(index % 700 < 20) for index in range(1441)],
        "B": [float(index > 1400) for index in range(1441)],
    }
    rules = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 600}]}}
    load = noisy(bursts(100, 700, 6 * HOUR, 2 * HOUR), 0.2)
    return lived(spec(CPU, MEMORY, low=2, high=9, behavior=rules), load, daily(100, 400), days=1, failing=failing)


@pytest.mark.parametrize("seed", range(20))
def test_missing_samples_never_raise_a_duration(seed: int) -> None:
    whole = _busy()
    before = known(whole)
    assert min(_durations(before)) > 0
    after = known(_holes(whole, (0.01, 0.1, 0.5)[seed % 3], seed))
    assert all(less <= more for less, more in zip(_durations(after), _durations(before), strict=True))


@pytest.mark.parametrize("at", [1, 300, 719, 1000, 1439])
def test_facts_of_parts_add_up(at: int) -> None:
    whole = _busy()

    def part(first: int, last: int) -> Facts:
        cut = {name: column[first:last] for name, column in whole.load.columns.items()}
        return known(
            dataclasses.replace(
                whole,
                load=LoadHistory(whole.load.times[first:last], cut),
                desired=whole.desired[first:last],
                minimum=whole.minimum[first:last],
                maximum=whole.maximum[first:last],
                failing={name: column[first:last] for name, column in whole.failing.items()},
            )
        )

    left, right, both = part(0, at + 1), part(at, 1441), known(whole)
    for name in ("seconds", "replica_seconds", "at_maximum", "at_minimum", "above_goal", "idle", "starved", "measured"):
        assert getattr(left, name) + getattr(right, name) == pytest.approx(getattr(both, name))
    assert left.rescales + right.rescales == both.rescales
    assert max(left.peak or 0, right.peak or 0) == both.peak


def test_the_past_of_a_real_looking_hpa() -> None:
    past = lived(spec(CPU, low=2, high=30), noisy(daily(100, 1000), 0.05))
    found = known(past)
    counts = [count or 0.0 for count in past.load.columns[REPLICAS]]
    assert found.seconds == DAYS * DAY
    assert found.replica_seconds == sum(counts[:-1]) * MINUTE
    ups = sum(later > before for before, later in itertools.pairwise(counts))
    assert found.above_goal == ups * MINUTE  # the plain controller answers each time within a minute


def test_the_bounds_are_those_of_the_schedule() -> None:
    """From 00:02 on for an hour at least 3 and at most 4: 4 replicas are full there, and held back nowhere."""
    hpa = spec(CPU, low=1, high=10)
    annotations = {"hpad.io/schedule": "2 0 * * * for 1h: min=3, max=4"}
    scheduled = msgspec.structs.replace(hpa, metadata=msgspec.structs.replace(hpa.metadata, annotations=annotations))
    found = known(painted(scheduled, [4.0] * 12, {"cpu": 100.0}))
    assert found.at_maximum == 9 * MINUTE
    assert found.starved == 9 * MINUTE
    assert found.held_back == 0
    assert known(painted(hpa, [4.0] * 12, {"cpu": 100.0})).held_back == 11 * MINUTE
    assert known(painted(scheduled, [3.0] * 12, {"cpu": 50.0})).at_minimum == 9 * MINUTE
