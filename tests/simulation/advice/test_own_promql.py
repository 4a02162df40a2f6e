"""The past of a metric by the PromQL of its own source, with a Prometheus that answers what a test writes."""

from collections.abc import Sequence

import pytest
from support.simulations import BACKLOG, hpa

from hpad.api.sample import PastPromQL
from hpad.simulation.advice.reading.answers import Answers
from hpad.simulation.advice.reading.hpa_status import StatusReader
from hpad.simulation.advice.reading.metric_values import MetricReader, MetricValues
from hpad.simulation.advice.reading.series import DEFAULT
from hpad.simulation.backlog import Rates
from hpad.simulation.prometheus import FoundSeries, QueriedPrometheus, TimeGrid

GRID = TimeGrid(0.0, 60.0, 3)
HPA = hpa(BACKLOG)


class Answering(Answers):
    """Answers expressions as written, and everything else with nothing."""

    def __init__(self, known: dict[str, Sequence[float | None]]) -> None:
        super().__init__(QueriedPrometheus("http://127.0.0.1:9"), 1000)
        self._known = known

    def ranged(self, expression: str, grid: TimeGrid) -> list[FoundSeries]:
        inner = expression.removeprefix("sum(").removesuffix(")")
        return [FoundSeries({}, list(self._known[inner]))] if inner in self._known else []


def read(own: PastPromQL, **known: Sequence[float | None]) -> MetricValues:
    answers = Answering(known)
    reader = MetricReader(answers, DEFAULT, GRID, {(HPA.key, "queue_messages"): own})
    status = StatusReader(answers, DEFAULT, GRID, with_conditions=False)
    return reader.read([HPA], {HPA.key: [1.0, 1.0, 1.0]}, status)[HPA.key]


def test_a_queue_has_its_rates() -> None:
    found = read(PastPromQL("n", "p", "a"), n=[5, None, 7], p=[1, 1, 2], a=[0, 1, None])
    assert found.columns == {
        "queue_messages": [5, None, 7],
        "queue_messages published": [1, 1, 2],
        "queue_messages acked": [0, 1, None],
    }
    assert found.queues == {"queue_messages": Rates("queue_messages published", "queue_messages acked")}
    assert found.readings["queue_messages"].source == "the query of its source"


@pytest.mark.parametrize("own", [PastPromQL("n"), PastPromQL("n", "p", "none")])
def test_without_both_rates_it_is_no_queue(own: PastPromQL) -> None:
    found = read(own, n=[5, None, 7], p=[1, 1, 2])
    assert found.columns == {"queue_messages": [5, None, 7]}
    assert found.queues == {}


def test_a_query_without_a_value_says_what_to_do() -> None:
    found = read(PastPromQL(problem="write it into the series file"))
    assert found.columns == {}
    assert found.readings["queue_messages"].problem == (
        "no value from a query of its source (write it into the series file), nor from the status of the HPA"
    )
    assert read(PastPromQL("none")).readings["queue_messages"].problem == (
        "no value from the query of its source, nor from the status of the HPA"
    )
