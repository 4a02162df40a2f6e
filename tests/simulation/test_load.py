"""Loads: their shapes, and the errors in their texts."""

from pathlib import Path

import pytest

from hpad.simulation import load
from hpad.simulation.load import LoadError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("constant:40", {0: 40, 1e6: 40}),
        ("constant:rate=2.5", {7: 2.5}),
        ("step:from=20,to=80,at=10m", {0: 20, 599.9: 20, 600: 80, 1e5: 80}),
        ("step:to=80,from=20,at=1m,for=30s", {59: 20, 60: 80, 89: 80, 90: 20}),
        ("ramp:from=10,to=100,over=90s", {0: 10, 45: 55, 90: 100, 900: 100}),
        ("ramp:from=100,to=0,over=100s,at=50s", {0: 100, 50: 100, 75: 75, 150: 0}),
        ("sine:mean=50,amplitude=30,period=40s", {0: 50, 10: 80, 20: 50, 30: 20, 50: 80}),
        ("sine:mean=10,amplitude=30,period=40s", {30: 0}),
        ("spikes:height=9,every=1m,for=10s", {0: 0, 59: 0, 60: 9, 69.9: 9, 70: 0, 120: 9}),
    ],
)
def test_shapes(text: str, expected: dict[float, float]) -> None:
    found = load.parse(text)
    assert {at: pytest.approx(found(at)) for at in expected} == expected


def test_loads_add_up() -> None:
    both = load.together([load.parse("constant:2"), load.parse("spikes:height=9,every=1m,for=10s")])
    assert (both(0), both(61)) == (2, 11)


def test_poisson_counts_have_the_mean_and_the_variance_and_depend_on_the_seed_alone() -> None:
    for mean in (3.0, 400.0):
        found = load.parse(f"poisson:{mean}", seed=5)
        values = [found(at) for at in range(20_000)]
        average = sum(values) / len(values)
        variance = sum((value - average) ** 2 for value in values) / len(values)
        # Standard errors: 0.012 and 0.14 of the mean, about 1 % of the variance.
        assert average == pytest.approx(mean, rel=0.02)
        assert variance == pytest.approx(mean, rel=0.05)
        assert values[:50] == [load.parse(f"poisson:{mean}", seed=5)(at) for at in range(50)]
        assert values[:50] != [load.parse(f"poisson:{mean}", seed=6)(at) for at in range(50)]


def test_a_file_gives_values_that_hold_until_the_next_one(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text("time,rate\n2026-01-01T00:00:00Z,5\n2026-01-01T00:01:00Z,7.5\n\n2026-01-01T01:02:00+01:00,0\n")
    found = load.parse(f"csv:{file}")
    assert [found(at) for at in (0, 59, 60, 119, 120, 999)] == [5, 5, 7.5, 7.5, 0, 0]
    assert isinstance(found, load.LoadSeries)
    assert found.length == 120


@pytest.mark.parametrize("heading", ["time,load\n", ""])
def test_a_byte_order_mark_is_no_part_of_a_heading_and_a_gap_changes_nothing(tmp_path: Path, heading: str) -> None:
    file = tmp_path / "rates.csv"
    file.write_text(f"{heading}0,5\n60,\n90,7\n", encoding="utf-8-sig")
    found = load.parse(f"csv:{file}")
    assert [found(at) for at in (0, 89, 90)] == [5, 5, 7]


def test_a_gap_at_the_begin_or_the_end_of_a_file_is_a_part_of_its_time(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text("0,\n60,5\n90,7\n600,\n")
    found = load.parse(f"csv:{file}")
    assert isinstance(found, load.LoadSeries)
    assert found.length == 600
    assert [found(at) for at in (0, 89, 90, 600)] == [5, 5, 7, 7]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "--load '': there is no shape ''; there are constant:rate=40, step:"),
        ("stairs:1", "there is no shape 'stairs'"),
        ("constant", "there is no shape 'constant'; there are constant:rate=40"),
        ("constant:-1", "--load 'constant:-1': rate: '-1' is not a number of 0 or more"),
        ("constant:nan", "rate: 'nan' is not a number of 0 or more"),
        ("constant:1e308", "rate: '1e308' is more than 1e+12"),
        ("step:from=1,to=2", "--load 'step:from=1,to=2': at is missing"),
        ("step:from=1,to=2,at=10", "at: '10' is not a duration: write a number with its unit"),
        ("step:from=1,to=2,at=1m,at=2m", "at is given twice"),
        ("ramp:from=1,to=2,over=0s", "over: '0s' is zero; a duration above zero is needed"),
        ("sine:mean=1,amplitude=2,periode=3s", "'periode=3s' is not one of mean=…, amplitude=…, period=…"),
    ],
)
def test_mistakes(text: str, error: str) -> None:
    with pytest.raises(LoadError) as failure:
        load.parse(text)
    assert error in str(failure.value)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", "line 1: the columns must be time, then"),
        ("when,load\n15,2\n", "line 1: the columns must be time, then"),
        ("0,1\n15,many\n", "line 2: load: 'many' is not a number"),
        ("time,load,replicas\n0,1,1\n15,2,1\n", "line 1: the columns must be time and a load, not load, replicas"),
        ("time,load\n0,1\n", "has fewer than two lines of values"),
        ("0,1,2\n15,2,2\n", "line 1: 3 columns; time, load are needed"),
        ("time,load\n0,1\n15,-2\n", "there is a load of -2; 0 or more are needed"),
        ("time,load\n0,1\n15,1e308\n", "there is a load of 1e+308, which is more than 1e+12"),
        ("time,load\n0,\n15,\n", "there is no load: all of its cells are empty"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, content: str, error: str) -> None:
    file = tmp_path / "rates.csv"
    file.write_text(content)
    with pytest.raises(LoadError) as failure:
        load.parse(f"csv:{file}")
    assert f"{file}" in str(failure.value)
    assert error in str(failure.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="cannot be read: No such file or directory"):
        load.parse(f"csv:{tmp_path}/none.csv")
