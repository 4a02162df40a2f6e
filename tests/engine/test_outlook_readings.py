"""Each reading of an outlook is exact: the engine takes the step beyond it, and not just before."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st
from support.engine import pod, used
from support.outlook_cases import (
    EXAMPLES,
    Case,
    activations,
    again,
    behaviors,
    decided,
    found,
    kinds,
    parts,
    requested,
    requests,
    states,
    zeroed,
)

from hpad.api.sample import AdapterError, PodSample, Sample
from hpad.engine.decision import Decision
from hpad.engine.outlook.types import (
    GROWTH,
    PODS,
    SHRINKING,
)
from hpad.engine.trace.metric_types import MetricTrace


@EXAMPLES
@given(kinds, states, requests, parts, behaviors, activations, st.booleans())
def test_the_count_grows_beyond_each_threshold_and_not_before(
    names: list[str],
    pods: list[str],
    request: int | None,
    parts: list[int],
    behavior: dict[str, Any] | None,
    activation: str | None,
    gone: bool,
) -> None:
    """Scenario 29."""
    fields = zeroed(names, activation)
    case, present = decided(names, pods, request, parts, behavior=behavior, gone=gone, **fields)
    for each in found(case.web, GROWTH):
        assert each.thresholds
        for threshold in each.thresholds:
            name, beyond, before = case.crossing(threshold)
            event(f"{name} {threshold.relation}")
            assert case.eventually(present | {name: beyond}) > case.web.replicas
            assert case.eventually(present | {name: before}) <= case.web.replicas


@EXAMPLES
@given(kinds, states, requests, parts, behaviors, activations, st.booleans())
def test_the_count_shrinks_beyond_all_thresholds_and_not_before(
    names: list[str],
    pods: list[str],
    request: int | None,
    parts: list[int],
    behavior: dict[str, Any] | None,
    activation: str | None,
    gone: bool,
) -> None:
    """Scenario 29."""
    case, present = decided(names, pods, request, parts, behavior=behavior, gone=gone, **zeroed(names, activation))
    for each in found(case.web, SHRINKING):
        crossings = [case.crossing(threshold) for threshold in each.thresholds]
        event(f"{[name for name, *_ in crossings]}")
        all_crossed = present | {name: beyond for name, beyond, _ in crossings}
        assert case.eventually(all_crossed) < case.web.replicas
        for name, _, before in crossings:
            assert case.eventually(all_crossed | {name: before}) >= case.web.replicas


waiting_states = st.lists(
    st.sampled_from(["ready", "ready", "starting", "pending", "silent", "lacking"]), min_size=2, max_size=8
).filter(lambda states: "ready" in states)
of_pods = st.lists(st.sampled_from(["cpu", "busy", "memory", "app"]), min_size=1, max_size=2, unique=True)


class Waiting(Case):
    """A case whose pods use CPU or memory in proportion to their requests; 100% of them is 1 unit of memory."""

    def __init__(self, names: list[str], states: list[str], request: int | None, percents: Mapping[str, int]) -> None:
        super().__init__(names, states, request)
        self.percents = percents

    def answers(self, busy: Mapping[str, Mapping[str, int]] | None = None) -> list[Sample | AdapterError]:
        """Returns the values of the pods that have one; `busy` are further values by metric and pod."""
        return [self.values(name, (busy or {}).get(name, {})) for name in self.names]

    def values(self, name: str, busy: Mapping[str, int]) -> Sample:
        pods = zip(self.web.pods or (), self.states, strict=True)
        known = [each for each, state in pods if state in ("ready", "starting")]
        percent = self.percents[name]
        used_by = {each.name: percent * (requested(each) if name != "memory" else 1000) // 100 for each in known}
        return used(used_by | dict(busy))


@EXAMPLES
@given(of_pods, waiting_states, requests, st.lists(st.integers(0, 300), min_size=2, max_size=2), st.data())
def test_a_step_comes_once_enough_pods_count_and_not_with_one_less(
    names: list[str], states: list[str], request: int | None, percents: list[int], data: st.DataObject
) -> None:
    """Scenario 29."""
    # What a pod without the container will request is not known, so all pods request the same then.
    request = 100 if request is None and "lacking" in states else request
    scaled = {name: percent * (70 if name == "memory" else 1) for name, percent in zip(names, percents, strict=False)}
    case = Waiting(names, states, request, scaled)
    case.web.reconcile(*case.answers())
    for each in found(case.web, PODS):
        assert each.needed is not None
        event(f"{each.needed} of {len(each.pods)} for {each.metrics}")
        [metric] = [metric for metric in case.web.trace.metrics if metric.address in each.metrics]
        name = names[case.web.trace.metrics.index(metric)]
        chosen = data.draw(st.permutations(each.pods))[: each.needed]
        step = counting(case, name, chosen, metric)
        assert step.desired != case.web.replicas or each.at is not None
        assert (step.proposals[names.index(name)].replicas > len(states)) == (metric.usage.ratio > 1.0)
        fewer = counting(case, name, each.pods[: each.needed - 1], metric)
        assert fewer.proposals[names.index(name)].replicas == len(states)
        if request is not None and each.at is None and each.replicas is not None:
            # A pod without the container does not count for the percentage but for the pods, and is rounded elsewhere.
            waited = {
                state for known, state in zip(case.web.pods or (), states, strict=True) if known.name in each.pods
            }
            alike = "lacking" not in waited or len(waited) == 1
            assert step.desired == each.replicas if alike else step.desired >= each.replicas


def counting(case: Waiting, name: str, chosen: Sequence[str], metric: MetricTrace) -> Decision:
    """Decides with these pods ready, and as busy as the others on average."""
    ready = [each for each, state in zip(case.web.pods or (), case.states, strict=True) if state == "ready"]
    up = metric.usage is not None and (metric.usage.ratio or 0) > 1.0
    shares = {each.name: 1 if name == "memory" else requested(each) for each in ready}
    total, whole = 0, sum(shares.values())
    sample = case.values(name, {})
    assert isinstance(sample, PodSample)
    total = sum(sample.values[each].value for each in shares)
    made = [
        pod(each.name, cpu=case.request or 60 + 35 * index) if each.name in chosen else each
        for index, each in enumerate(case.web.pods or ())
    ]
    parts = {each.name: 1 if name == "memory" else requested(each) for each in made if each.name in chosen}
    busy = {each: -(-total * part // whole) if up else total * part // whole for each, part in parts.items()}
    return again(case.web, *case.answers({name: busy}), pods=made)
