"""The generator of a reconcile, driven by hand: what it asks, what it wants written, and what it returns."""

from datetime import timedelta
from typing import Any

import pytest
from support.engine import START, Workload, external, resource, series, used

from hpad.api.sample import AdapterError, PodSample, PodValue
from hpad.engine import shadow
from hpad.engine.settle import Outcome
from hpad.engine.turn import Answered, Ask, AskWork, Effect, Reconcile, Steps, Write, held_back, run, turn
from hpad.engine.view import DRY_RUN, HPA, SHADOW, Competitor, View, Withheld, yielded

CPU = resource("cpu", averageUtilization=50)
QUEUE = external("jobs", averageValue="10")
DOUBLE = used([200, 200])
"""All of the 200 millicores that each pod requests: twice the metric target."""


def web(**fields: Any) -> View:
    """Returns the view of an HPA for 50 % CPU with two pods."""
    return Workload(CPU, replicas=2).view(**fields)


def workers(**annotations: str) -> View:
    """Returns the view of an HPA for 10 jobs per pod with four pods; the annotations are those under hpad.io/."""
    named = {f"hpad.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return Workload(QUEUE, replicas=4, annotations=named, downscale_stabilization=timedelta(0)).view()


def asked(steps: Steps) -> Ask:
    step = next(steps)
    assert isinstance(step, Ask)
    return step


def to_write(steps: Steps, *answers: Any) -> Write:
    """Starts the turn, sends the answers, and returns the Write that follows."""
    asked(steps)
    step = steps.send(Answered(answers))
    assert isinstance(step, Write)
    return step


def ended(steps: Steps, outcome: Outcome | None) -> Reconcile:
    """Sends the outcome of the write, and returns the reconcile."""
    with pytest.raises(StopIteration) as end:
        steps.send(outcome)
    assert isinstance(end.value.value, Reconcile)
    return end.value.value


def test_a_turn_asks_for_its_metrics_writes_the_count_and_settles() -> None:
    steps, view = turn(web()), web()
    assert [query.name for query in asked(steps).verdict.queries] == ["cpu"]
    write = steps.send(Answered([DOUBLE]))
    assert isinstance(write, Write)
    assert (write.to, write.decision.scale_to) == (4, 4)
    done = ended(steps, Outcome((4,)))
    assert done.settlement.rescaled
    assert done.settlement.status.desired_replicas == 4
    assert (done.view, done.answers, done.work, done.outcome) == (view, [DOUBLE], None, Outcome((4,)))
    assert done.queries == done.decision.verdict.queries != ()


def test_the_settlement_of_a_success_is_known_before_the_write() -> None:
    steps = turn(web())
    write = to_write(steps, DOUBLE)
    assert write.settlement.status.last_scale_time == START
    done = ended(steps, Outcome((4, 4)))
    assert done.settlement is write.settlement
    assert done.outcome == Outcome((4, 4))


def test_a_write_that_fails_is_settled_as_such() -> None:
    steps = turn(web())
    write = to_write(steps, DOUBLE)
    done = ended(steps, Outcome((4,), "the server is down"))
    assert (write.settlement.rescaled, done.settlement.rescaled) == (True, False)
    assert [event.reason for event in done.settlement.events] == ["FailedRescale"]


def test_a_count_that_stays_is_not_written() -> None:
    steps = turn(web())
    write = to_write(steps, used([100, 100]))
    assert write.to is None
    done = ended(steps, None)
    assert (done.outcome, done.decision.scale_to) == (None, None)
    assert done.settlement is write.settlement


def test_a_turn_without_metrics_asks_with_no_queries() -> None:
    steps = turn(Workload(CPU, replicas=11).view())
    assert asked(steps).verdict.queries == ()
    write = steps.send(Answered(()))
    assert isinstance(write, Write)
    assert write.to == 10
    assert ended(steps, Outcome((10,))).answers == ()


def test_the_decision_is_made_at_the_moment_of_the_answers() -> None:
    steps, late = turn(web()), START + timedelta(seconds=5)
    asked(steps)
    write = steps.send(Answered([DOUBLE], late))
    assert isinstance(write, Write)
    assert write.view.now == late
    done = ended(steps, Outcome((4,)))
    assert (done.view.now, done.settlement.status.last_scale_time) == (late, late)


def test_after_an_edit_the_turn_is_closed_and_another_takes_the_same_answers() -> None:
    first = turn(web())
    to_write(first, DOUBLE)
    first.close()
    with pytest.raises(StopIteration):
        first.send(Outcome((4,)))
    edited = Workload(CPU, replicas=2, high=3).view()
    second = turn(edited)
    assert asked(second).verdict.queries == asked(turn(web())).verdict.queries
    write = second.send(Answered([DOUBLE]))
    assert isinstance(write, Write)
    assert write.to == 3


OTHER = Withheld("CompetingHPA", "another HPA scales the target")


@pytest.mark.parametrize(
    ("annotations", "held", "expected"),
    [
        ({}, OTHER, OTHER.message),
        ({"hpad.io/mode": "paused"}, None, "the HPA is paused"),
        ({"hpad.io/paused-until": "2026-01-02T00:00:00Z"}, OTHER, "the HPA is paused until 2026-01-02T00:00:00Z"),
    ],
)
def test_a_count_that_is_held_back_is_not_to_be_written(
    annotations: dict[str, str], held: Withheld | None, expected: str
) -> None:
    steps = turn(Workload(CPU, replicas=2, annotations=annotations).view(), held)
    write = to_write(steps, DOUBLE)
    assert (write.to, write.decision.scale_to) == (None, 4)
    outcome = ended(steps, None).outcome
    assert outcome is not None
    assert (outcome.attempts, outcome.failure) == ((), expected)


@pytest.mark.parametrize(
    ("annotations", "dry_run", "yields", "expected"),
    [
        ({}, False, False, None),
        ({}, False, True, yielded(Competitor(HPA, "default/other"))),
        ({}, True, True, DRY_RUN),
        ({"hpad.io/mode": "shadow"}, False, True, SHADOW),
        ({"hpad.io/mode": "shadow"}, True, False, DRY_RUN),
    ],
)
def test_what_holds_a_count_back(
    annotations: dict[str, str], dry_run: bool, yields: bool, expected: Withheld | None
) -> None:
    view = Workload(CPU, replicas=2, annotations=annotations).view(competitors=(Competitor(HPA, "default/other"),))
    assert held_back(view, dry_run=dry_run, yields=yields) == expected


def test_a_shadow_decides_on_an_even_share_of_the_load_and_writes_nothing() -> None:
    steps = turn(shadow.begun(web(), SHADOW, 4))
    write = to_write(steps, used([400, 400]))
    assert (write.to, write.decision.current, write.decision.scale_to, len(write.view.pods)) == (None, 4, 8, 4)
    done = ended(steps, None)
    (sample,) = done.answers
    assert isinstance(sample, PodSample)
    assert [value.value for value in sample.values.values()] == [200] * 4
    assert done.outcome == Outcome((), withheld=SHADOW)
    assert done.settlement.status.current_replicas == 2


def test_a_recorded_shadow_stays_as_it_is() -> None:
    steps = turn(shadow.begun(web(), SHADOW, 4))
    to_write(steps, used([400, 400]))
    done = ended(steps, None)
    again = run(done.view, lambda queries: done.answers, lambda count: Outcome((count,)))
    assert again == done


BUSY = PodSample({f"web-{n}": PodValue(1000 * (n < 3), START, timedelta()) for n in range(4)}, START)
"""Three of the four pods hold work."""


def test_a_scale_down_of_an_hpa_that_keeps_busy_pods_asks_what_they_do() -> None:
    steps = turn(workers(keep_busy="true"))
    asked(steps)
    step: Effect = steps.send(Answered([series(10)]))
    assert isinstance(step, AskWork)
    assert [len(query.members) for query in step.queries if not isinstance(query, AdapterError)] == [4]
    write = steps.send([BUSY])
    assert isinstance(write, Write)
    assert (write.to, write.decision.limited) == (3, 1)
    done = ended(steps, Outcome((3,)))
    assert (done.work, done.decision.desired) == ([BUSY], 3)


def test_a_scale_down_spares_no_pod_where_their_work_is_not_known() -> None:
    steps = turn(workers(keep_busy="true"))
    asked(steps)
    assert isinstance(steps.send(Answered([series(10)])), AskWork)
    write = steps.send(None)
    assert isinstance(write, Write)
    assert write.to == 1
    done = ended(steps, Outcome((1,)))
    assert (done.work, done.decision.spared) == (None, None)


def test_a_turn_whose_answers_are_at_hand_is_run_at_once() -> None:
    written: list[int] = []

    def write(count: int) -> Outcome:
        written.append(count)
        return Outcome((count,))

    view = workers(keep_busy="true")
    done = run(view, lambda queries: [series(10) for _ in queries], write, work=[BUSY])
    assert (written, done.work) == ([3], [BUSY])
    held = run(view, lambda queries: [series(10) for _ in queries], write, held=OTHER)
    assert written == [3]
    assert held.outcome == Outcome((), withheld=OTHER)


def test_what_a_driver_raises_ends_the_turn() -> None:
    def fails(queries: Any) -> Any:
        raise LookupError("nothing was recorded")

    with pytest.raises(LookupError):
        run(web(), fails, lambda count: Outcome((count,)))
