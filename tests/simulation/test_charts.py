"""Charts: whole numbers on the axes of replicas, one scale for all curves, gaps, and marks of time in UTC."""

import re
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpad.simulation import charts
from hpad.simulation.charts import ADVISED, COUNT_OF_REPLICAS, HEIGHT, MODELLED, RECORDED, ChartScale, ReplicaCurve
from hpad.simulation.thinning import PARTS, PERCENT, VALUE_PARTS, MetricChart

DAY = 86_400.0


def scale(end: float = 700.0, highest: float = 4) -> ChartScale:
    return ChartScale.of(0.0, end, [highest], COUNT_OF_REPLICAS)


@given(st.integers(0, 1_000_000))
def test_axes_of_replicas_have_whole_numbers(highest: int) -> None:
    found = charts.ticks([highest], COUNT_OF_REPLICAS)
    assert all(each == int(each) for each in found)
    assert found[0] == 0
    assert found[-1] >= highest
    assert len({later - each for each, later in pairwise(found)}) == 1
    assert 2 <= len(found) <= 7


@pytest.mark.parametrize(
    ("highest", "unit", "written"),
    [
        (100.0, PERCENT, ["0 %", "50 %", "100 %"]),
        (0.3, "count", ["0", "0.1", "0.2", "0.3"]),
        (700 * 2**20, "bytes", ["0", "200Mi", "400Mi", "600Mi", "800Mi"]),
        (0.4, "cores", ["0", "100m", "200m", "300m", "400m"]),
    ],
)
def test_ticks_are_round_in_their_unit(highest: float, unit: str, written: list[str]) -> None:
    assert [charts.amount(each, unit) for each in charts.ticks([highest], unit)] == written


def test_a_count_holds_until_it_changes() -> None:
    path = charts.step_path([(0.0, 1), (100.0, 4), (300.0, 2), (700.0, 2)], scale())
    assert path == f"M0 {HEIGHT * 3 // 4}h100v-{HEIGHT * 3 // 4}h200v{HEIGHT // 2}h400"


def test_a_gap_is_no_line() -> None:
    curve = [(0.0, 4), (100.0, None), (600.0, 4), (700.0, 4)]
    assert charts.step_path(curve, scale()) == "M0 0h100M600 0h100"
    assert charts.gap_path(curve, scale()) == f"M100 0h500v{HEIGHT}h-500z"
    assert charts.gap_path([(0.0, 4), (700.0, 4)], scale()) == ""


def test_a_band_has_no_points_where_nothing_changes() -> None:
    values = (2.0,) * 100 + (None,) * (VALUE_PARTS - 200) + (4.0,) * 100
    lowest = (1.0,) * 100 + (None,) * (VALUE_PARTS - 200) + (4.0,) * 100
    quarter = HEIGHT // 4
    unit = PARTS // VALUE_PARTS
    width, start = 100 * unit, (VALUE_PARTS - 100) * unit
    first = f"M0 {2 * quarter}l{width} 0 0 {quarter}-{width} 0z"
    assert charts.band_path(lowest, values, scale()).startswith(first)
    middle = charts.middle_path(lowest, values, scale())
    assert middle == f"M0 {2.5 * quarter:.0f}l{width} 0M{start} 0l{width} 0"


def test_all_curves_have_one_scale() -> None:
    """The same count is at the same height in each curve, whatever else the curve has."""
    drawn = charts.replica_chart(
        [
            ReplicaCurve(RECORDED, "recorded", [(0.0, 5), (DAY, 5)]),
            ReplicaCurve(MODELLED, "model", [(0.0, 5), (DAY / 2, 2), (DAY, 2)]),
            ReplicaCurve(ADVISED, "advised", [(0.0, 5), (DAY / 2, 20), (DAY, 20)]),
        ],
        0.0,
        DAY,
    )
    starts = re.findall(r'class="(\w+)" d="M0 (\d+)h', drawn)
    heights = {look: int(y) for look, y in starts if look in (RECORDED, MODELLED, ADVISED)}
    assert heights == dict.fromkeys((RECORDED, MODELLED, ADVISED), HEIGHT * 3 // 4)
    assert re.findall("<span>([\\d,]+)</span>", drawn) == ["20", "15", "10", "5", "0"]


def test_a_far_maximum_is_said_and_does_not_flatten_the_curves() -> None:
    curve = ReplicaCurve(RECORDED, "recorded", [(0.0, 2), (DAY, 2)])
    low, high = [(0.0, 1), (DAY, 1)], [(0.0, 500), (DAY, 500)]
    drawn = charts.replica_chart([curve], 0.0, DAY, low, high)
    assert "maximum <i>500, above the chart</i>" in drawn
    assert "<span>2</span>" in drawn
    near = charts.replica_chart([curve], 0.0, DAY, low, [(0.0, 3), (DAY, 3)])
    assert "maximum <i>3</i>" in near
    assert "<span>3</span>" in near


def test_a_curve_that_changes_too_often_for_a_line_is_a_band() -> None:
    """The count is 2 and 4 in turn, and 3 in the middle of the day."""
    changes = [(60.0 * minute, 3 if 600 <= minute < 800 else 2 + minute % 2 * 2) for minute in range(1441)]
    drawn = charts.replica_chart([ReplicaCurve(RECORDED, "recorded", changes)], 0.0, DAY)
    found = re.search('class="recorded dense" d="M0 0l(.*?)z"', drawn)
    assert found is not None
    quarter, half, unit = HEIGHT // 4, HEIGHT // 2, PARTS // VALUE_PARTS
    left, right = 600 * PARTS // 1440 // unit * unit, 800 * PARTS // 1440 // unit * unit
    numbers = [int(each) for each in re.findall(r"-?\d+", found[1])]
    assert {abs(each) for each in numbers[1::2]} == {0, quarter, half}
    across = [sum(numbers[:index:2]) for index in range(2, len(numbers) + 1, 2)]
    assert any(abs(each - left) <= 2 * unit for each in across)
    assert any(abs(each - right) <= 2 * unit for each in across)
    assert "recorded <i>2 to 4</i>" in drawn


def test_a_load_without_values_says_so() -> None:
    metric = MetricChart(
        address="a<b", unit="count", goal=None, lowest=(None,) * VALUE_PARTS, highest=(None,) * VALUE_PARTS
    )
    drawn = charts.metric_chart(metric, 0.0, DAY)
    assert "a&lt;b <i>no values</i>" in drawn
    assert "NaN" not in drawn


@pytest.mark.parametrize(
    ("begin", "days", "expected"),
    [
        ("2026-11-21T10:30", 7, ["Sun 22 00:00", "Mon 23 00:00"]),
        ("2026-11-21T10:30", 1, ["Sat 21 12:00", "Sat 21 15:00"]),
        ("2026-11-21T10:30", 28, ["Mon 23 00:00", "Mon 30 00:00"]),
    ],
)
def test_marks_are_round_times_in_utc(begin: str, days: float, expected: list[str]) -> None:
    start = datetime.fromisoformat(f"{begin}+00:00").timestamp()
    found = charts.marks(start, start + days * DAY)
    texts = [f"{datetime.fromtimestamp(time, UTC):%a %d %H:%M}" for time, _ in found]
    assert texts[:2] == expected
    assert len(found) <= 8
    assert [is_day for _, is_day in found] == [text.endswith("00:00") for text in texts]
