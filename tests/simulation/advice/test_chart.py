"""What is drawn of one HPA: thinned, with gaps, and with the metric first that asks for the most."""

from collections.abc import Sequence

from support.simulations import CPU, hpa

from hpad.simulation.advice.assess import chart_of
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.history import Column, LoadHistory
from hpad.simulation.thinning import PARTS, VALUE_PARTS, metric_charts

QUEUE = {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "200"}}}


def past(times: Sequence[float], replicas: Column, **columns: Column) -> HpaPast:
    metrics = [{"cpu": CPU, "queue": QUEUE}[name] for name in columns]
    bounds: Column = [1.0] * len(times)
    load = LoadHistory(times, {**columns, "replicas": replicas})
    return HpaPast(
        hpa=hpa(metrics[0], metrics=metrics), load=load, desired=replicas, minimum=bounds, maximum=[5.0] * len(times)
    )


def minutes(count: int) -> list[float]:
    return [60.0 * minute for minute in range(count)]


def test_each_part_has_its_lowest_and_highest_value() -> None:
    """Ten minutes in each part; the values rise by one per minute."""
    count = VALUE_PARTS * 10 + 1
    chart = chart_of(past(minutes(count), [1.0] * count, cpu=[float(each) for each in range(count)]), (), ())
    assert chart is not None
    (metric,) = chart.metrics
    assert (metric.unit, metric.goal) == ("%", 50.0)
    assert (metric.lowest[:2], metric.highest[:2]) == ((0.0, 10.0), (9.0, 19.0))
    assert metric.highest[-1] == count - 1


def test_gaps_stay_gaps() -> None:
    """Values are missing from minute 30 to 59, and all times from minute 90 to 119."""
    times = [time for time in minutes(151) if not 90 * 60 <= time < 120 * 60]
    values = [None if 30 * 60 <= time < 60 * 60 else 2.0 for time in times]
    chart = chart_of(past(times, values, cpu=values), (), ())
    assert chart is not None
    assert chart.recorded == ((0.0, 2), (1800.0, None), (3600.0, 2), (90 * 60.0 + 90, None), (7200.0, 2), (9000.0, 2))
    (metric,) = chart.metrics
    known = [value is not None for value in metric.lowest]
    at = [known[int(VALUE_PARTS * minute / 150)] for minute in (15, 45, 75, 105, 135)]
    assert at == [True, False, True, False, True]


def test_a_curve_with_many_changes_keeps_its_extremes() -> None:
    count = PARTS * 10 + 1
    replicas = [float(2 + minute % 2) for minute in range(count)]
    replicas[4321], replicas[5555] = 9.0, 0.0
    chart = chart_of(past(minutes(count), replicas, cpu=[1.0] * count), (), ())
    assert chart is not None
    assert len(chart.recorded) <= 4 * PARTS
    assert (4321 * 60.0, 9) in chart.recorded
    assert (5555 * 60.0, 0) in chart.recorded
    assert list(chart.recorded) == sorted(chart.recorded, key=lambda each: each[0])


def test_the_metric_nearest_to_its_goal_is_first() -> None:
    chart = chart_of(past(minutes(9), [1.0] * 9, cpu=[10.0] * 9, queue=[150.0] * 9), (), ())
    assert chart is not None
    assert [(each.address, each.goal, each.unit) for each in chart.metrics] == [
        ("queue", 200.0, "count"),
        ("cpu", 50.0, "%"),
    ]


def test_a_total_is_drawn_per_replica_as_its_goal_is() -> None:
    """300 messages over 1 to 3 replicas, goal 100 each; no count is no value."""
    goal = {"type": "AverageValue", "averageValue": "100"}
    metric = {"type": "External", "external": {"metric": {"name": "queue"}, "target": goal}}
    replicas: Column = [1.0, 2.0, 3.0, None, 0.0, 3.0]
    load = LoadHistory(minutes(6), {"queue": [300.0] * 6, "replicas": replicas})
    (found,) = metric_charts(hpa(metric), load)
    assert (found.goal, found.per_replica) == (100.0, True)
    assert list(dict.fromkeys(found.highest)) == [300.0, 150.0, 100.0, None]
    (alone,) = metric_charts(hpa(metric), LoadHistory(minutes(6), {"queue": [300.0] * 6}))
    assert (alone.goal, alone.per_replica, alone.highest[0]) == (None, False, 300.0)


def test_a_past_without_time_has_no_chart() -> None:
    assert chart_of(past([0.0], [1.0], cpu=[1.0]), (), ()) is None
