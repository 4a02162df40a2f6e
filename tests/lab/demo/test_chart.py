"""The chart of replicas over time, with the curve of the metric."""

import pytest

from hpad.lab.demo.chart import MARGIN, Point, chart
from hpad.lab.demo.style import Style

PLAIN = Style()
WAVE = [
    Point(at, 7 if 10 <= at < 30 else 1, 305.0 if 8 <= at < 10 else 43.0 if 10 <= at < 30 else 0.0) for at in range(41)
]


def bars(lines: list[str]) -> list[str]:
    return [line.partition("┤")[2] for line in lines if "┤" in line]


def test_no_points_draw_no_chart():
    assert chart([], 80, PLAIN, label="CPU") == []


def test_each_row_is_labelled_with_its_replica_count():
    lines = chart(WAVE, 80, PLAIN)
    assert [line[: MARGIN - 1].strip() for line in lines if "┤" in line] == ["7", "6", "5", "4", "3", "2", "1"]


def test_bars_are_drawn_at_the_times_of_their_replicas():
    top, *_, bottom = bars(chart(WAVE, MARGIN + 1 + 41, PLAIN))
    assert set(bottom) == {"█"}
    assert top.strip() == "█" * top.count("█")
    assert 19 <= top.count("█") <= 21
    assert 9 <= len(top) - len(top.lstrip()) <= 11


def test_a_short_peak_within_one_column_is_drawn():
    points = [Point(at / 10, 8 if at == 333 else 1) for at in range(1000)]
    assert "█" in bars(chart(points, 50, PLAIN))[0]


def test_many_replicas_share_rows_and_half_a_row_is_half_a_block():
    points = [Point(0, 3), Point(5, 16), Point(10, 3)]
    drawn = bars(chart(points, 40, PLAIN))
    assert len(drawn) == 8
    assert drawn[-2].startswith("▄")
    assert drawn[0].strip()


@pytest.mark.parametrize("width", [40, 80, 110])
@pytest.mark.parametrize("span", [0.4, 7, 47, 100, 1000])
def test_no_line_is_wider_than_the_terminal(width: int, span: float):
    points = [Point(span * part / 100, part % 17, float(part)) for part in range(101)]
    assert max(map(len, chart(points, width, PLAIN, label="queue 1000000"))) <= width


def test_the_axis_names_round_seconds_under_their_ticks():
    lines = chart(WAVE, 80, PLAIN)
    axis, numbers = lines[-2], lines[-1]
    for seconds in ("0 s", "10 s", "20 s", "30 s"):
        assert axis[numbers.index(seconds)] == "┴", seconds


def test_the_curve_peaks_at_the_time_of_the_highest_reading():
    *_, curve = chart(WAVE, MARGIN + 1 + 41, PLAIN, label="CPU 305%")
    assert curve.startswith("CPU 305%")
    assert 8 <= curve[MARGIN:].index("█") <= 9
    assert curve.count("█") <= 3


def test_without_a_reading_the_curve_is_empty():
    *_, curve = chart([Point(0, 1), Point(5, 1)], 60, PLAIN, label="CPU")
    assert curve.strip() == "CPU"


def test_colour_adds_only_escape_sequences():
    plain = chart(WAVE, 80, PLAIN, label="CPU")
    coloured = "\n".join(chart(WAVE, 80, Style(True), label="CPU"))
    for code in ("\x1b[36m", "\x1b[33m", "\x1b[2m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured.split("\n") == plain
