"""Graphs in the terminal: whole numbers for counts, and one scale for what is compared."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from hpad import cli
from hpad.cli import simulate_text

BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: default}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 30
  metrics:
    - {type: External, external: {metric: {name: queue}, target: {type: AverageValue, averageValue: "10"}}}
"""
TOP = re.compile(r"^ *(\S+) ┤", re.MULTILINE)


@pytest.mark.parametrize("most", [*range(1, 40), 99, 1000, 12345])
def test_rows_of_a_count_end_at_whole_numbers_and_hold_the_highest(most: int) -> None:
    tops = simulate_text.tops_of_counts([1, most])
    assert all(top % 1000 == 0 for top in tops)
    assert len({later - earlier for earlier, later in pairwise([0, *tops])}) == 1
    assert tops[-1] >= most * 1000
    assert len(tops) <= simulate_text.ROWS
    assert most * 1000 > tops[-1] - tops[0], "the top row is used"


def drawn(values: Sequence[int], width: int = 26, span: timedelta = HOUR) -> list[str]:
    """Returns the graph of values at equal intervals."""
    curve = [(BEGIN + span * place / len(values), value) for place, value in enumerate(values)]
    return simulate_text.graph(curve, BEGIN, BEGIN + span, width, simulate_text.tops_of(values))


def cells(curve: Sequence[tuple[datetime, int]]) -> list[str]:
    """Returns the cells of the bottom row and of the top row, in sixteen columns of an hour, with a top of 8."""
    top, *_, bottom, _, _ = simulate_text.graph(curve, BEGIN, BEGIN + HOUR, 26, simulate_text.tops_of([8000]))
    return [line.partition(" ┤")[2].ljust(16) for line in (bottom, top)]


def test_a_count_is_as_high_as_its_row() -> None:
    curve = [(BEGIN + HOUR * place / 4, count * 1000) for place, count in enumerate((1, 2, 3, 3))]
    lines = simulate_text.graph(curve, BEGIN, BEGIN + HOUR, 26, simulate_text.tops_of_counts([3]))
    assert [line.rstrip() for line in lines[:3]] == [
        "       3 ┤        ████████",
        "       2 ┤    ████████████",
        "       1 ┤████████████████",
    ]


def test_curves_with_other_times_are_drawn_on_one_time_axis() -> None:
    """A column is of 3:45 minutes. A value holds until the next one, the last one for an average interval."""
    minute = timedelta(minutes=1)
    rare = [(BEGIN + 15 * minute, 1000), (BEGIN + 30 * minute, 8000)]
    assert cells(rare) == ["····████████····", "        ████    "]
    dense = [(BEGIN + number * minute, 8000 if number == 25 else 1000) for number in range(60)]
    assert cells(dense) == ["█" * 16, "      █".ljust(16)], "no peak is lost"
    assert cells(dense[:30]) == ["████████········", "      █".ljust(16)], "nor is it held"


@pytest.fixture
def compared(tmp_path: Path) -> list[str]:
    """A recorded curve that is always 5, and a spec that wants 23 in the middle; ten minutes lack the count."""
    (tmp_path / "web.yaml").write_text(HPA)
    rows = [f"{minute * 60},{230 if 20 <= minute < 40 else 20},{5 if minute < 50 else ''}" for minute in range(60)]
    (tmp_path / "past.csv").write_text("\n".join(["time,queue,replicas", *rows]) + "\n")
    return ["backtest", str(tmp_path / "web.yaml"), "--csv", str(tmp_path / "past.csv"), "--color", "never"]


def test_graphs_of_a_backtest_share_scale_and_times(compared: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(compared) == 0
    _, recorded, own = re.split(r"^Replicas, .*$", capsys.readouterr().out, flags=re.MULTILINE)
    assert TOP.findall(recorded) == TOP.findall(own) == [str(3 * row) for row in range(8, 0, -1)]
    axis = re.compile(r"┴[─┴]*\n.*")
    assert axis.findall(recorded)[0] == axis.findall(own)[0]


def test_a_simulation_has_whole_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "web.yaml").write_text(HPA)
    queue = ["--load", "step:from=1,to=9,at=10m", "--workload", "queue", "--service-time", "2s", "--for", "20m"]
    assert cli.main(["simulate", str(tmp_path / "web.yaml"), *queue, "--color", "never"]) == 0
    _, _, drawn = capsys.readouterr().out.partition("Replicas")
    tops = TOP.findall(drawn.partition("Load")[0])
    assert len(tops) > 1
    assert all(each.isdigit() for each in tops)


def test_a_missing_value_is_drawn_differently_from_zero() -> None:
    assert cells([(BEGIN + HOUR / 2, 0)]) == ["········▁▁▁▁▁▁▁▁", " " * 16]


def test_many_values_show_the_highest_of_each_column() -> None:
    values = [1000] * 1600
    values[805] = 9000
    lines = drawn(values, width=40)
    assert lines[0].count("█") == 1
    assert max(map(len, lines)) <= 40


@pytest.mark.parametrize("values", [(0,), (0, 0, 0), (5, 5)])
def test_constant_values_can_be_drawn(values: tuple[int, ...]) -> None:
    lines = drawn(values)
    assert len(lines) == simulate_text.ROWS + 2
    assert simulate_text.GAP not in lines[-3]


def test_the_axis_shows_times() -> None:
    lines = drawn(range(0, 60_000, 1000), width=80)
    assert lines[-1].split()[0] == "12:00"
    assert lines[-1].split()[-1] == "13:00"
    days = drawn(range(0, 60_000, 1000), width=80, span=timedelta(days=3))
    assert days[-1].split()[:2] == ["01-01", "12:00"]
