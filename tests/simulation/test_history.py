"""Histories: CSV files, gaps, and what the simulated replicas see of the past."""

import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.engine import external
from support.simulations import BACKLOG, CPU, hpa

from hpad.api.sample import AdapterError, ExternalSample, PodSample
from hpad.engine.view import Tunables
from hpad.simulation import backtest, history
from hpad.simulation.backlog import Rates
from hpad.simulation.history import HistoryError, LoadHistory
from hpad.simulation.past import PastLoad, PastModel

START = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN = START.timestamp()


def flat(step: float = 60.0, **columns: Any) -> LoadHistory:
    """Returns a history of ten minutes; a column is a value, or a value for each minute."""
    times = [BEGIN + index * step for index in range(11)]
    filled = {name: value if isinstance(value, list) else [value] * 11 for name, value in columns.items()}
    return LoadHistory(times, filled)


def answered(metric: dict[str, Any], past: LoadHistory, after: timedelta, scale: int | None = None, **how: Any) -> Any:
    workload = PastModel(hpa(metric), past, PastLoad(**how))
    if scale is not None:
        workload.advance(START)
        workload.scale(scale)
    workload.advance(START + after)
    from hpad.engine.spec import compiled_spec

    (answer,) = workload.answer([each.query for each in compiled_spec(hpa(metric)).metrics])
    return answer


def test_a_file_has_columns_and_gaps(tmp_path: Path) -> None:
    file = tmp_path / "past.csv"
    file.write_text("time,cpu,replicas\n2026-01-01T00:00:00Z,50,2\n2026-01-01T00:01:00Z,,2\n1767225720,70.5,3\n")
    found = history.read_csv(file)
    assert found.start == START
    assert found.end == START + timedelta(minutes=2)
    assert found.step == 60
    values = [found.at("cpu", BEGIN + seconds) for seconds in (-1, 0, 59, 60, 119, 120, 200, 271)]
    assert values == [None, 50, 50, None, None, 70.5, 70.5, None]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "line 1: the columns must be time, then others, each once, with commas between"),
        ("time;cpu\n0;1\n60;1\n", "line 1: the columns must be time, then others, each once, with commas between"),
        ("when,cpu\n", "line 1: the columns must be time"),
        ("time,cpu,cpu\n", "line 1: the columns must be time, then others, each once"),
        ("time,cpu\n0,1\n", "has fewer than two lines of values"),
        ("time,cpu\n0,1\n0,2\n", "line 3: time: '0' is not after the line before"),
        ("time,cpu\n0,1\n60\n", "line 3: 1 columns; time, cpu are needed"),
        ("time,cpu\n0,1\n60,much\n", "line 3: cpu: 'much' is not a number; an empty cell is a gap"),
        ("time,cpu\n0,1\nnoon,2\n", "line 3: time: 'noon' is neither seconds nor"),
        ("time,cpu\n0,1\n-5,2\n", "line 3: time: '-5' is not a time since 1970"),
        ("time,cpu\n0,1\n260000000000,2\n", "line 3: time: '260000000000' is not a time since 1970"),
        ("time,cpu\n0001-01-01,1\n0001-01-02,2\n", "line 2: time: '0001-01-01' is not a time since 1970"),
        ("time,cpu\n0,1\n9999-12-31T23:59:59Z,2\n", "line 3: time: '9999-12-31T23:59:59Z' is not a time since 1970"),
    ],
)
def test_mistakes_name_the_line_and_the_column(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "past.csv"
    file.write_text(text)
    with pytest.raises(HistoryError) as failure:
        history.read_csv(file)
    assert str(failure.value).startswith(str(file))
    assert error in str(failure.value)


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(HistoryError, match=r"^/dev/zero: cannot be read: larger than 64 MiB$"):
        history.read_csv(Path("/dev/zero"))


def test_an_interval_of_a_history() -> None:
    part = flat(cpu=50).between(START + timedelta(minutes=2), START + timedelta(minutes=5))
    assert (part.start, part.end) == (START + timedelta(minutes=2), START + timedelta(minutes=5))
    with pytest.raises(HistoryError, match="has 1 times in this interval"):
        flat(cpu=50).between(START + timedelta(minutes=10), None)


def test_the_total_of_a_shared_metric_stays() -> None:
    """60 % of the request on 4 replicas are 240 %; 8 replicas show 30 % each, of a request of 1000m."""
    answer = answered(CPU, flat(cpu=60, replicas=4), timedelta(minutes=5), scale=8)
    assert isinstance(answer, PodSample)
    assert sorted(value.value for value in answer.values.values()) == [300] * 8


def test_starting_replicas_do_not_share_the_load_yet() -> None:
    answer = answered(CPU, flat(cpu=60, replicas=4), timedelta(seconds=30), scale=8, startup=60.0)
    assert sorted(value.value for value in answer.values.values()) == [0] * 4 + [600] * 4


def test_a_total_does_not_depend_on_the_count_unless_it_is_shared() -> None:
    past = flat(queue_messages=120, replicas=4)
    assert answered(BACKLOG, past, timedelta(minutes=5), scale=8) == ExternalSample(
        (120_000,), START + timedelta(minutes=5)
    )
    shared = answered(BACKLOG, past, timedelta(minutes=5), scale=8, shared=("queue_messages",))
    assert shared.values == (60_000,)


def test_a_value_for_the_whole_target_falls_as_replicas_grow() -> None:
    """A latency of 120 with 4 replicas is one of 60 with 8."""
    latency = external("latency", value="100")
    past = flat(latency=120, replicas=4)
    assert answered(latency, past, timedelta(minutes=5), scale=8).values == (60_000,)
    with pytest.raises(HistoryError, match="latency is shared by the replicas, so the history needs a column replicas"):
        PastModel(hpa(latency), flat(latency=120), PastLoad())
    PastModel(
        hpa(latency), flat(latency=120, a=1, b=1), PastLoad(queues={"latency": Rates("a", "b", 2.0)})
    )  # is no share
    with pytest.raises(HistoryError, match="the shared latencies is no metric of the HPA; it has latency"):
        PastModel(hpa(latency), past, PastLoad(shared=("latencies",)))


def test_a_gap_is_an_error_and_not_zero() -> None:
    past = flat(queue_messages=[1.0, None, *[1.0] * 9])
    answer = answered(BACKLOG, past, timedelta(seconds=90))
    assert answer == AdapterError("the history has no value of queue_messages at 2026-01-01T00:01:30Z")


def test_values_are_seen_late() -> None:
    past = flat(queue_messages=[float(minute) for minute in range(11)])
    assert answered(BACKLOG, past, timedelta(minutes=5), lag=120.0).values == (3000,)


def test_missing_columns_are_named() -> None:
    with pytest.raises(HistoryError, match="the history has no column cpu; it has memory"):
        PastModel(hpa(CPU), flat(memory=5), PastLoad())
    with pytest.raises(HistoryError, match="cpu is shared by the replicas, so the history needs a column replicas"):
        PastModel(hpa(CPU), flat(cpu=5), PastLoad())


def test_a_workload_at_its_goal_keeps_its_count() -> None:
    found = hpa(CPU)
    past = flat(cpu=50, replicas=7)
    result = backtest.over("own", found, past, PastLoad(), timedelta(seconds=15), Tunables())
    assert {count for _, count in result.curve} == {7}
    assert result.outcome.rescales == ()
    # 41 turns from the first to the last minute.
    assert result.outcome.replica_hours == pytest.approx(7 * 600 / 3600, rel=1e-3)


def test_half_the_goal_takes_twice_the_replicas() -> None:
    metric = copy.deepcopy(CPU)
    metric["resource"]["target"]["averageUtilization"] = 25
    found = hpa(metric)
    past = flat(cpu=50, replicas=4)
    result = backtest.over("half", found, past, PastLoad(), timedelta(seconds=15), Tunables())
    assert [count for _, count in result.curve][-1] == 8


def test_the_recorded_curve_is_added_up() -> None:
    past = flat(cpu=50, replicas=[2.0, 2.0, 5.0, 5.0, None, 5.0, 3.0, 3.0, 3.0, 3.0, 3.0])
    result = backtest.as_recorded(past, timedelta(minutes=5))
    assert result is not None
    outcome = result.outcome
    assert [(each.before, each.after) for each in outcome.rescales] == [(2, 5), (5, 3)]
    # 2 minutes with 2, 4 minutes with 5 (a gap included), 4 minutes with 3.
    assert outcome.replica_seconds == 60 * (2 * 2 + 4 * 5 + 4 * 3)
    assert (outcome.flaps, outcome.lowest, outcome.highest, outcome.judged) == (1, 2, 5, False)
    assert backtest.as_recorded(flat(cpu=50), timedelta(minutes=5)) is None


def test_a_grid_and_its_ranking() -> None:
    assert list(backtest.grid({"a": ["1", "2"], "b": ["x"]})) == [{"a": "1", "b": "x"}, {"a": "2", "b": "x"}]
    with pytest.raises(ValueError, match="3000 combinations; at most 2000 are tried"):
        list(backtest.grid({"a": ["1"] * 30, "b": ["1"] * 100}))
    outcomes = [(5, 9), (3, 30), (4, 30), (6, 9), (7, 1)]
    found = backtest.ranked(
        [
            backtest.Candidate({}, backtest.SimulatedOutcome(replica_seconds=cost, above_goal=above))
            for cost, above in outcomes
        ]
    )
    order = [(each.outcome.replica_seconds, each.outcome.above_goal, each.best) for each in found]
    assert order == [(3, 30, True), (4, 30, False), (5, 9, True), (6, 9, False), (7, 1, True)]
