"""Properties of every decision: bounds, caution, monotonicity."""

from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support import environment
from support.engine import Workload, external, pod, pods_metric, resource, series, used

from hpad.api.sample import AdapterError
from hpad.engine.turn import run

EXAMPLES = settings(max_examples=50 * environment.EFFORT)

policies = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["Pods", "Percent"]),
            "value": st.integers(1, 500),
            "periodSeconds": st.sampled_from([1, 15, 60, 300, 1800]),
        }
    ),
    min_size=1,
    max_size=3,
)
rules = st.fixed_dictionaries(
    {"policies": policies, "selectPolicy": st.sampled_from(["Max", "Min", "Disabled"])},
    optional={"stabilizationWindowSeconds": st.sampled_from([0, 15, 60, 300])},
)
behaviors = st.one_of(st.none(), st.fixed_dictionaries({}, optional={"scaleUp": rules, "scaleDown": rules}))
bounds = st.tuples(st.integers(1, 20), st.integers(0, 40)).map(lambda pair: (pair[0], sum(pair)))
lengths = st.lists(st.tuples(st.integers(0, 5_000), st.sampled_from([1, 15, 60, 301])), min_size=1, max_size=12)


@EXAMPLES
@given(behaviors, bounds, st.integers(1, 80), lengths)
def test_never_outside_min_and_max(
    behavior: dict[str, Any] | None, limits: tuple[int, int], replicas: int, queue: list[tuple[int, int]]
) -> None:
    low, high = limits
    web = Workload(external("queue", averageValue="7"), replicas=replicas, low=low, high=high, behavior=behavior)
    for length, after in queue:
        answers = () if not low <= web.replicas <= high else (series(length),)
        decision = web.reconcile(*answers, after=after)
        assert low <= decision.desired <= high
        assert low <= web.replicas <= high


@EXAMPLES
@given(behaviors, lengths)
def test_never_shrinks_while_a_metric_is_invalid(behavior: dict[str, Any] | None, queue: list[tuple[int, int]]) -> None:
    web = Workload(
        external("queue", averageValue="7"), resource("cpu", averageUtilization=50),
        replicas=20, high=100, behavior=behavior,
    )  # fmt: skip
    for length, after in queue:
        before = web.replicas
        web.reconcile(series(length), AdapterError("no answer"), after=after)
        assert web.replicas >= before


@EXAMPLES
@given(behaviors, lengths, st.integers(0, 5_000), st.integers(0, 5_000))
def test_more_of_a_total_never_means_fewer_replicas(
    behavior: dict[str, Any] | None, queue: list[tuple[int, int]], one: int, other: int
) -> None:
    web = Workload(external("queue", averageValue="7"), replicas=20, high=100, behavior=behavior)
    for length, after in queue:
        web.reconcile(series(length), after=after)
    history, hpa, replicas = web.history, web.hpa, web.replicas
    results = []
    for length in sorted((one, other)):
        web.history, web.hpa, web.replicas = history, hpa, replicas
        results.append(web.reconcile(series(length)).desired)
    assert results == sorted(results)


ages = st.sampled_from([10, 100, 400, 3600])
pods = st.lists(
    st.fixed_dictionaries(
        {
            "phase": st.sampled_from(["Running", "Running", "Running", "Pending", "Failed", "Succeeded", "Unknown"]),
            "deleted": st.sampled_from([False, False, False, True]),
            "ready": st.sampled_from(["True", "True", "False", "Unknown", None]),
            "age": ages,
        }
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150)
@given(pods, st.lists(st.integers(0, 2_000), min_size=8, max_size=8), st.integers(0, 7), st.integers(0, 1_000))
def test_more_use_of_one_pod_never_means_fewer_replicas(
    states: list[dict[str, Any]], usage: list[int], which: int, more: int
) -> None:
    gone = [state["deleted"] or state["phase"] in ("Failed", "Succeeded") for state in states]
    alive = max(1, gone.count(False))
    results = []
    for added in (0, more):
        values = [value + (added if index == which else 0) for index, value in enumerate(usage[: len(states)])]
        web = Workload(pods_metric("load", "300m"), replicas=alive, high=1000, downscale_stabilization=timedelta(0))
        web.pods = [pod(f"web-{index}", **state) for index, state in enumerate(states)]
        results.append(web.reconcile(used(values), after=15))
    first, second = results
    assert first.undecided == second.undecided
    assert first.proposals[0].replicas <= second.proposals[0].replicas


@EXAMPLES
@given(pods, st.lists(st.one_of(st.none(), st.integers(0, 2_000)), min_size=8, max_size=8))
def test_a_decision_changes_none_of_its_inputs(states: list[dict[str, Any]], usage: list[int | None]) -> None:
    """Answers are shared by HPAs and turns; Kubernetes removes pods from them (removeMetricsForPods)."""
    web = Workload(resource("cpu", averageUtilization=50), replicas=len(states))
    web.pods = [pod(f"web-{index}", **state) for index, state in enumerate(states)]
    view = web.view()
    answers = [used({f"web-{index}": value for index, value in enumerate(usage) if value is not None})]
    assert run(view, lambda _: answers) == run(view, lambda _: answers)
