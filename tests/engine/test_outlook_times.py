"""Each time of an outlook is exact: the engine takes the step then, and not just before."""

import copy
from datetime import timedelta
from typing import Any

from hypothesis import assume, event, given
from hypothesis import strategies as st
from support.engine import Workload, external, series
from support.outlook_cases import EXAMPLES, LONG, again, behaviors, bounds, found, lived, uncertain, wanted

from hpad.api.sample import AdapterError
from hpad.engine.outlook.types import (
    FALLBACK,
    READING,
    STEP,
    STOPPED,
)


@EXAMPLES
@given(behaviors, bounds, st.integers(1, 30), wanted, st.lists(st.booleans(), max_size=8))
def test_a_step_comes_at_its_time_and_not_before(
    behavior: dict[str, Any] | None,
    limits: tuple[int, int],
    replicas: int,
    counts: list[tuple[int, int]],
    marks: list[bool],
) -> None:
    """Scenario 29."""
    web = lived(behavior, limits, replicas, counts[:-1])
    uncertain(web, marks)
    count, after = counts[-1]
    web.reconcile(series(count), after=after)
    assume(web.trace.chosen is not None and web.replicas > 0)
    steps = found(web, STEP)
    event(f"{len(steps)} steps")
    for step in steps:
        at = step.at or web.now
        left = (at - web.now).total_seconds()
        for part in (1e-6, left / 3, left / 2, left - 1e-6):
            if 0 < part < left:
                assert again(web, series(count), after=part).desired == web.replicas
        assert again(web, series(count), after=left + 1e-6).desired == step.replicas != web.replicas
        turns = copy.copy(web)
        while turns.now + timedelta(seconds=15) < at:
            assert turns.reconcile(series(count), after=15).scale_to is None, "turns in between change nothing"
        turns.now = at
        assert turns.reconcile(series(count), after=1e-6).desired == step.replicas
    if not steps:
        for seconds in (1e-6, 1, 15, 60, 300, LONG):
            assert again(web, series(count), after=seconds).desired == web.replicas


@EXAMPLES
@given(behaviors, bounds, st.integers(2, 30), wanted, st.integers(0, 20), st.booleans())
def test_the_count_shrinks_once_failing_metrics_can_be_read(
    behavior: dict[str, Any] | None,
    limits: tuple[int, int],
    replicas: int,
    counts: list[tuple[int, int]],
    last: int,
    all_fail: bool,
) -> None:
    """Scenario 29."""
    low, high = limits
    metrics = [external(name, averageValue="1") for name in ("queue", "other", "third")]
    web = Workload(*metrics, replicas=replicas, low=low, high=high, behavior=behavior, tolerance=0.0)
    for count, after in counts:
        web.reconcile(series(count), series(0), series(0), after=after)
        assume(web.replicas > 0)
    down = AdapterError("no answer")
    web.reconcile(down if all_fail else series(last), down, down, after=15)
    assume(web.trace.chosen is not None and web.trace.stabilization is None)
    [each] = found(web, READING)
    event(f"all fail: {all_fail}, step: {each.replicas is not None}, later: {each.at is not None}")
    assert set(each.metrics) == ({"queue", "other", "third"} if all_fail else {"other", "third"})
    if each.replicas is None:
        assert all_fail or again(web, series(last), series(0), series(0), after=LONG).desired == web.replicas
        return
    left = ((each.at or web.now) - web.now).total_seconds()
    assert again(web, series(last), series(last), series(0), after=left + 1e-6).desired == each.replicas != web.replicas
    assert again(web, series(last), down, series(0), after=left + 1e-6).desired == web.replicas, "one still fails"
    if each.at is not None:
        assert again(web, series(last), series(0), series(0), after=left - 1e-6).desired == web.replicas


@EXAMPLES
@given(
    st.integers(1, 30),
    st.sampled_from(["replicas:4 after 1m", "ignore after 90s", "last-good:10m after 45s", "replicas:12"]),
    st.integers(0, 20),
    st.integers(0, 20),
    behaviors,
)
def test_a_fallback_begins_at_its_time(
    replicas: int, policy: str, good: int, other: int, behavior: dict[str, Any] | None
) -> None:
    """Scenario 29."""
    web = Workload(
        *(external(name, averageValue="1") for name in ("queue", "other")),
        replicas=replicas,
        high=30,
        behavior=behavior,
        tolerance=0.0,
        annotations={"hpad.io/fallback": f"queue={policy}"},
    )
    down = AdapterError("no answer")
    web.reconcile(series(good), series(other))
    web.reconcile(down, series(other), after=15)
    web.reconcile(down, series(other), after=15)
    [each] = found(web, FALLBACK)
    assert each.at is not None
    left = (each.at - web.now).total_seconds()
    begun = copy.copy(web)
    decision = begun.reconcile(down, series(other), after=left)
    assert begun.trace.metrics[0].fallback is not None
    assert again(web, down, series(other), after=left - 1e-6).proposals[0].fallback == ""
    event(f"{policy} claims a count: {each.replicas is not None}")
    if each.replicas is not None:
        assert again(web, down, series(other), after=left + 1e-6).desired == each.replicas
        assert again(web, down, series(other), after=left - 1e-6).desired == web.replicas
    elif web.trace.stabilization is None:
        assert decision.desired == web.replicas


@EXAMPLES
@given(behaviors, bounds, st.integers(1, 30), wanted)
def test_a_write_that_failed_is_tried_again(
    behavior: dict[str, Any] | None, limits: tuple[int, int], replicas: int, counts: list[tuple[int, int]]
) -> None:
    web = lived(behavior, limits, replicas, counts[:-1])
    count, after = counts[-1]
    web.reconcile(series(count), after=after, refused="the webhook says no")
    assume(web.trace.write is not None)
    [each] = web.outlook
    assert each.kind == STOPPED
    answers = () if web.trace.chosen is None else (series(count),)
    assert again(web, *answers).desired == each.replicas
