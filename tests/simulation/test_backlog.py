"""The backlog of a queue from its rates: against small steps, against the simulated queue, and in gaps."""

from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from support import environment
from support.simulations import BACKLOG, START, hpa, run

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.cli import main
from hpad.simulation import load, model
from hpad.simulation.backlog import Backlog, Rates, flowed
from hpad.simulation.history import REPLICAS, HistoryError, LoadHistory
from hpad.simulation.past import PastLoad, PastModel
from hpad.simulation.queue import QueueModel, SimulatedQueue

NAME = "queue_messages"
RATES = Rates("published", "acked")
BEGIN = START.timestamp()
MINUTES = 120
"""Three rounds of the load of `simulated`."""


@pytest.mark.parametrize("messages", [0.0, 3.0, 10.0, 12.0, 200.0])
@pytest.mark.parametrize("consumers", [0, 4, 10])
@pytest.mark.parametrize("arriving", [0.0, 1.0, 4.0, 5.0, 9.0])
@pytest.mark.parametrize("each", [0.0, 0.5])
def test_the_messages_are_those_of_many_small_steps(
    messages: float, consumers: int, arriving: float, each: float
) -> None:
    expected, step = messages, 0.005
    for _ in range(8_000):
        expected += (arriving - each * min(consumers, expected)) * step
    assert flowed(messages, arriving, each, consumers, 40.0) == pytest.approx(expected, abs=0.02)


def history(messages: list[float | None], published: float | list[float | None] | None, **more: Any) -> LoadHistory:
    """Returns a history with a sample per minute, of two replicas that acknowledged 60 messages per minute each."""
    count = len(messages)
    rates = published if isinstance(published, list) else [published] * count
    columns = {NAME: messages, "published": rates, "acked": [2.0] * count, REPLICAS: [2.0] * count}
    return LoadHistory([BEGIN + 60 * index for index in range(count)], {**columns, **more})


def test_only_samples_of_busy_replicas_show_what_one_does() -> None:
    found = Backlog(history([50, 40, 1, 0, 30, 40], 1.0, acked=[9, 3, 9, 9, 9, 4.0]), NAME, RATES)
    assert (found.busy, found.per_replica) == (2, 1.75)


def test_each_rate_is_that_of_the_time_before_its_sample() -> None:
    found = Backlog(history([100, 100, 100], [7, 3, 2.5]), NAME, RATES)
    found.advance(BEGIN + 90, 2)
    assert found.at(BEGIN + 90) == pytest.approx(100 + 60 * (3 - 2) + 30 * (2.5 - 2))


def test_in_a_gap_nothing_is_known_and_after_it_the_recorded_messages_are() -> None:
    found = Backlog(history([100, 90, None, 70, 60], [3, 3, None, 3, 3]), NAME, RATES)
    for second in range(0, 241, 20):
        found.advance(BEGIN + second, 2)
    assert [found.at(BEGIN + second) for second in (60, 80, 120)] == [pytest.approx(160), None, None]
    # The recorded messages at the end of the gap are not known either; those of the sample after it are.
    assert found.at(BEGIN + 180) is None
    assert found.at(BEGIN + 240) == pytest.approx(70 + 60 * (3 - 2))


def test_a_queue_whose_first_length_is_missing_is_unknown_and_not_empty() -> None:
    found = Backlog(history([None, 90, 80], 3.0), NAME, Rates("published", "acked", 1.0))
    seen = []
    for second in (0, 30, 60, 90):
        found.advance(BEGIN + second, 2)
        seen.append(found.at(BEGIN + second))
    assert seen == [None, None, None, pytest.approx(90 + 30 * (3 - 2))]


def test_a_history_without_lengths_begins_with_an_empty_queue() -> None:
    past = history([0, 0, 0], 3.0)
    del past.columns[NAME]
    found = Backlog(past, NAME, Rates("published", "acked", 1.0))
    found.advance(BEGIN + 60, 2)
    assert (found.begins_empty, found.at(BEGIN)) == (True, 0)
    assert found.at(BEGIN + 60) > 60


@pytest.mark.parametrize(
    ("past", "rates", "error"),
    [
        (history([0, 0], 1.0), RATES, "no sample shows queue_messages with a message or more for each replica"),
        (history([0, 0], 1.0), Rates("sent", "acked"), "the history has no column sent of the queue queue_messages"),
        (history([9, 9], -1.0), RATES, "published: a queue cannot have -1 messages per second; 0 or more are needed"),
    ],
)
def test_what_is_missing_or_cannot_be_is_named(past: LoadHistory, rates: Rates, error: str) -> None:
    with pytest.raises(HistoryError, match=error):
        Backlog(past, NAME, rates)


def goal(messages: str) -> HorizontalPodAutoscaler:
    target = {"type": "AverageValue", "averageValue": messages}
    return hpa({**BACKLOG, "external": {"metric": {"name": NAME}, "target": target}})


def simulated(spec: HorizontalPodAutoscaler, seed: int) -> tuple[list[int], LoadHistory]:
    """Returns the counts of a simulated queue, message by message, and what its broker would have shown."""
    queue = QueueModel(
        SimulatedQueue(service_time=2.0),
        load.parse("sine:mean=8,amplitude=7,period=40m"),
        start=START,
        replicas=2,
        shown=model.shows(spec, "backlog", {}),
        scraping=model.Scraping(interval=5.0),
        seed=seed,
    )
    step, counts, times, before = 30, [], [], (0, 0)
    columns: dict[str, list[float | None]] = {name: [] for name in ("published", "acked", NAME, REPLICAS)}
    for index, turn in enumerate(run(spec, queue, MINUTES)):
        counts.append(turn.after)
        if index % 2 == 0:  # of four samples per minute
            times.append(BEGIN + 15 * index)
            columns["published"].append((queue.arrived - before[0]) / step)
            columns["acked"].append((queue.done - before[1]) / step)
            columns[NAME].append(queue.waiting + queue.held)
            columns[REPLICAS].append(turn.done.view.replicas)
            before = queue.arrived, queue.done
    return counts, LoadHistory(times, columns)


@pytest.mark.parametrize("seed", range(1, 1 + min(3, environment.EFFORT)))
def test_another_spec_gives_nearly_the_replicas_of_the_simulated_queue(seed: int) -> None:
    """The rates of a queue with a goal of 10 messages tell what a goal of 3 would have taken; its depth does not."""
    _, past = simulated(goal("10"), seed)
    for messages, allowed in (("10", 0.03), ("3", 0.08)):
        expected, _ = simulated(goal(messages), seed)
        made = PastModel(goal(messages), past, PastLoad(queues={NAME: RATES}))
        assert made.backlogs[NAME].per_replica == pytest.approx(0.5, rel=0.03)
        found = [turn.after for turn in run(goal(messages), made, MINUTES)]
        assert mean(found) == pytest.approx(mean(expected), rel=allowed)
        assert max(found) == pytest.approx(max(expected), abs=3)
    plain = [turn.after for turn in run(goal("3"), PastModel(goal("3"), past, PastLoad()), MINUTES)]
    assert mean(plain) > 1.3 * mean(expected)


MANIFEST = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 10
  metrics:
  - type: External
    external: {metric: {name: queue_messages}, target: {type: AverageValue, averageValue: "10"}}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A manifest, and ten minutes in which 3 messages per second come and two replicas do one each."""
    lines = [f"{BEGIN + 60 * index},{20 + 60 * index},3,2,2" for index in range(11)]
    (tmp_path / "past.csv").write_text("\n".join([f"time,{NAME},published,acked,replicas", *lines]) + "\n")
    (tmp_path / "web.yaml").write_text(MANIFEST)
    return str(tmp_path / "web.yaml"), str(tmp_path / "past.csv")


def test_the_command_names_its_assumptions(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    manifest, past = files
    assert main(["backtest", manifest, "--csv", past, "--queue", f"{NAME}=published,acked"]) == 0
    out = capsys.readouterr().out
    assert "1 messages per second of each ready replica, the median of 10 samples with all replicas busy" in out
    assert main(["backtest", manifest, "--csv", past, "--queue", f"{NAME}=published,acked,4"]) == 0
    assert "4 messages per second of each ready replica; publishers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "status", "error"),
    [
        ("queue_messages", 2, "METRIC=PUBLISHED,ACKED is needed"),
        ("queue_messages=published", 2, "METRIC=PUBLISHED,ACKED is needed"),
        ("queue_messages=published,acked,fast", 2, "the messages per second of a replica: 'fast' is not a number"),
        ("mails=published,acked,1", 1, "the queue mails is no metric of the HPA; it has queue_messages"),
        ("queue_messages=sent,acked", 1, "the history has no column sent of the queue queue_messages"),
    ],
)
def test_a_wrong_queue_is_named(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str], text: str, status: int, error: str
) -> None:
    manifest, past = files
    assert main(["backtest", manifest, "--csv", past, "--queue", text]) == status
    assert error in capsys.readouterr().err
