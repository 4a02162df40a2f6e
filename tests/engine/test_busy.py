"""Scale-downs that spare busy pods: the floor, the order, what is unknown, and what people read of it."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from support.engine import START, Workload, external, pod, pods_metric, resource, series, used

from hpad.api.hpa import CrossVersionObjectReference
from hpad.api.sample import AdapterError, Member
from hpad.engine import busy, controls
from hpad.engine.conditions import IDLE_FIRST, SCALING_LIMITED
from hpad.engine.holds import held_by

KEEP = {"hpad.io/keep-busy": "true"}
ORDER = {"hpad.io/scale-down-order": "idle-first"}
QUEUE = external("orders", averageValue="10")
FAST: dict[str, Any] = {"scaleDown": {"stabilizationWindowSeconds": 0}}


def workload(annotations: Mapping[str, str], replicas: int = 5, **fields: Any) -> Workload:
    """An HPA whose queue may shrink it at once."""
    return Workload(QUEUE, replicas=replicas, behavior=FAST, annotations=annotations, **fields)


def work(*amounts: int) -> list[Any]:
    """The unfinished work of web-0, web-1, and so on, in whole units."""
    return [used([amount * 1000 for amount in amounts])]


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("scale-down-order", "busy-last", "'busy-last' is not an order of removal; there are default, idle-first"),
        ("keep-busy", "yes", "'yes' is neither true nor false"),
        ("busy-metric", "jobs above many", "'many' is not a number such as 0.5"),
        ("busy-metric", "jobs above -1", "'-1' is below 0"),
        ("busy-metric", "jobs above", "'jobs above' is not of the form NAME or NAME above NUMBER"),
        ("busy-metric", "jobs > 1", "'jobs > 1' is not of the form NAME or NAME above NUMBER"),
        ("busy-metric", "jobs{", "is not an address of the form"),
    ],
)
def test_mistakes(name: str, text: str, error: str) -> None:
    ((_, found),) = controls.read({f"hpad.io/{name}": text}).errors
    assert error in found


@pytest.mark.parametrize(
    ("amounts", "count"),
    [((0, 0, 0, 0, 0), 1), ((0, 3, 0, 1, 0), 2), ((1, 1, 1, 1, 0), 4), ((1, 1, 1, 1, 1), None)],
)
def test_the_count_stays_at_the_busy_pods(amounts: tuple[int, ...], count: int | None) -> None:
    web = workload(KEEP)
    assert web.reconcile(series(1), work=work(*amounts)).scale_to == count


def test_a_scale_up_and_an_hpa_without_the_annotations_ask_nothing() -> None:
    for annotations, messages in ((KEEP | ORDER, 90), ({}, 1), (KEEP | ORDER, 50)):
        web = workload(annotations)
        assert web.reconcile(series(messages), work=work(1, 1, 1, 1, 1)).spared is None
        assert web.done is not None
        assert not busy.applies(web.done.view, web.done.decision)


def test_a_held_count_is_named_wherever_people_look() -> None:
    web = workload(KEEP)
    decision = web.reconcile(series(1), work=work(0, 2, 0, 1, 1))
    assert "1 wanted but 3 pods hold unfinished work: hpad.io/keep-busy keeps 3" in str(decision)
    assert [(stage.name, stage.replicas) for stage in decision.stages if stage.holds] == [("busy", 3)]
    condition = web.condition(SCALING_LIMITED)
    assert (condition.status, condition.reason) == ("True", "BusyPods")
    assert condition.message == "the desired replica count is 1, but 3 pods hold unfinished work"
    assert web.done is not None
    assert held_by(web.done.view, web.done.decision, web.done.outcome) == ("busy_pods",)
    trace = web.trace
    assert trace.spared is not None
    assert (trace.spared.wanted, trace.spared.replicas, trace.spared.floor) == (1, 3, 3)


def test_while_busy_pods_hold_a_count_the_status_stays_as_it_is() -> None:
    web = workload(KEEP, replicas=3)
    for _ in range(2):
        assert web.reconcile(series(10), work=work(1, 1, 1), after=15).desired == 3
    assert web.settled is not None
    assert not web.settled.status_changed


def test_the_outlook_says_what_the_count_waits_for() -> None:
    web = workload(KEEP)
    web.reconcile(series(1), work=work(0, 2, 0, 1))
    first, *others = web.outlook
    text = "shrinks to 1 as pods finish their work (hpad.io/keep-busy); of 1 it is unknown"
    assert (first.kind, first.text, first.replicas) == ("blocked", text, 1)
    assert [each.kind for each in others] == ["growth"]
    web.reconcile(series(1), after=15, work=[AdapterError("the broker is down")])
    assert web.outlook[0].text.endswith(
        "once it is known what the pods are doing (hpad.io/keep-busy): the broker is down"
    )


def test_the_stages_of_an_explanation() -> None:
    web = workload(KEEP | ORDER)
    web.reconcile(series(1), work=work(0, 2, 0, 1, 1))
    *_, busy, write = web.trace.stages
    assert (busy.label, busy.replicas, busy.held_by) == ("after busy pods", 3, "busy_pods")
    assert busy.text == "3 busy, 0 unknown, 2 idle: no fewer than 3"
    assert busy.more == ("first to go: web-0, web-2",)
    assert (write.label, write.replicas) == ("written", 3)


def test_a_count_that_cannot_shrink_is_kept_without_a_rescale() -> None:
    web = workload(KEEP)
    decision = web.reconcile(series(1), work=work(1, 1, 1, 1, 1))
    assert str(decision).startswith("keep 5: ")
    assert (decision.reason, web.replicas, web.events) == ("", 5, [])


def test_busy_pods_beyond_the_maximum_are_the_next_step_and_not_the_metrics() -> None:
    web = Workload(QUEUE, replicas=5, high=2, annotations=KEEP)
    web.reconcile(work=work(1, 0, 1, 1, 0))
    assert web.replicas == 3
    web.reconcile(after=15, work=work(1, 1, 1))
    assert web.replicas == 3
    assert [each.text for each in web.outlook] == ["shrinks to 2 as pods finish their work (hpad.io/keep-busy)"]


def test_a_pod_that_the_source_does_not_know_counts_as_busy() -> None:
    web = workload(KEEP)
    decision = web.reconcile(series(1), work=work(0, 0, 1))  # web-3 and web-4 have no value
    assert decision.desired == 3
    assert decision.spared is not None
    assert (decision.spared.busy, decision.spared.unknown, decision.spared.idle) == (1, 2, 2)
    assert decision.spared.holding == "1 pod holds unfinished work and 2 may"


def counted(most: int, *amounts: int) -> list[Any]:
    """The work of the first pods, and how many are busy at most."""
    return [msgspec.structs.replace(each, most_busy=most) for each in work(*amounts)]


@pytest.mark.parametrize(
    ("answers", "count"),
    [
        (counted(2), 2),
        (counted(0), 1),
        (counted(9), 5),
        (counted(2, 0, 0, 0, 0), 1),  # it is at most the one of which nothing is known
        (counted(0, 1, 1), 2),  # pods that are known to be busy are
        ([*counted(1), *counted(2)], 3),  # each metric counts its own
        ([*counted(1), *work(0, 1, 0)], 4),  # one that counts and one that knows pods: 1, and 1 with 2 unknown ones
    ],
)
def test_the_count_stays_at_the_number_of_busy_pods_where_it_is_unknown_which(answers: Any, count: int) -> None:
    web = workload(KEEP)
    assert web.reconcile(series(1), work=answers).desired == count


def test_a_number_of_busy_pods_is_named_wherever_people_look() -> None:
    web = workload(KEEP)
    decision = web.reconcile(series(1), work=counted(2))
    holding = "at most 2 of 5 pods hold unfinished work, unknown which"
    assert f"1 wanted but {holding}: hpad.io/keep-busy keeps 2" in str(decision)
    assert web.condition(SCALING_LIMITED).message == f"the desired replica count is 1, but {holding}"
    assert web.outlook[0].text == f"shrinks to 1 as pods finish their work (hpad.io/keep-busy); {holding}"
    text = "0 busy, 5 unknown, 0 idle (at most 2 busy in all): no fewer than 2"
    assert text in [stage.text for stage in web.trace.stages]


def test_with_idle_first_a_pod_that_may_be_busy_is_kept() -> None:
    web = workload(KEEP | ORDER)
    decision = web.reconcile(series(1), work=counted(1, 0, 0))
    holding = "at most 1 of 3 pods holds unfinished work, unknown which"
    assert (decision.desired, decision.spared and decision.spared.first) == (3, ("web-0", "web-1"))
    condition = web.condition(IDLE_FIRST)
    assert (condition.status, condition.reason) == ("False", "BusynessCounted")
    assert condition.message == f"{holding}: only pods that are known to be idle are removed first"
    assert web.outlook[0].text.startswith("shrinks to 1 once no pod holds unfinished work, or it is known which do")


def test_a_stateful_set_keeps_the_highest_pod_that_may_be_busy() -> None:
    web = workload(KEEP)
    target = CrossVersionObjectReference("StatefulSet", "web", "apps/v1")
    web.hpa = msgspec.structs.replace(web.hpa, spec=msgspec.structs.replace(web.hpa.spec, scale_target_ref=target))
    values = used({"web-0": 0, "web-3": 0, "web-4": 0})
    decision = web.reconcile(series(1), work=[msgspec.structs.replace(values, most_busy=1)])
    assert decision.desired == 3


def test_while_the_source_fails_all_pods_count_as_busy() -> None:
    web = workload(KEEP | ORDER)
    decision = web.reconcile(series(1), work=[AdapterError("the broker is down")])
    assert (decision.scale_to, web.replicas) == (None, 5)
    assert "it is unknown which pods hold unfinished work (the broker is down)" in str(decision)
    condition = web.condition(IDLE_FIRST)
    assert (condition.status, condition.reason) == ("False", "BusynessUnknown")


def test_while_not_even_the_pods_are_known_the_count_stays() -> None:
    """As where it is unknown which pods belong to the target. Without an error, pods that do not exist hold nothing."""
    web = workload(KEEP)
    web.pods = []
    assert web.reconcile(series(1), work=[AdapterError("its controller is not known", "cluster")]).desired == 5
    assert web.reconcile(series(1), after=15, work=work()).desired == 1


def test_idle_first_alone_scales_down_although_the_source_fails() -> None:
    web = workload(ORDER)
    decision = web.reconcile(series(1), work=[AdapterError("the broker is down")])
    assert (decision.scale_to, web.replicas) == (1, 1)
    assert decision.spared is not None
    assert (decision.spared.first, decision.spared.costs) == ((), ())


def test_answers_add_up_and_each_must_know_the_pod() -> None:
    web = workload(KEEP)
    decision = web.reconcile(series(1), work=[*work(0, 0, 1, 0), *work(0, 1, 0, 0, 0)])
    assert decision.spared is not None
    assert (decision.spared.busy, decision.spared.unknown, decision.desired) == (2, 1, 3)


def test_pods_are_busy_above_the_given_number() -> None:
    web = workload(KEEP | {"hpad.io/busy-metric": "cpu_used above 500m"})
    assert web.reconcile(series(1), work=[used([500, 501, 0, 100, 2000])]).desired == 2


def test_a_pending_pod_holds_nothing_and_a_pod_that_ends_does_not_count() -> None:
    web = workload(KEEP, replicas=4)
    web.pods = [pod("web-0"), pod("web-1", phase="Pending"), pod("web-2"), pod("web-3"), pod("web-4", deleted=True)]
    assert web.reconcile(series(1), work=work(0, 0, 1, 1, 1)).desired == 2
    web = workload(KEEP, replicas=4)
    web.pods = [pod("web-0"), pod("web-1", phase="Pending"), pod("web-2", phase="Succeeded")]
    assert web.reconcile(series(1), work=work(1)).desired == 1


def test_the_floor_also_holds_where_the_maximum_was_lowered() -> None:
    web = workload(KEEP, replicas=8, high=4)
    decision = web.reconcile(work=work(1, 1, 1, 1, 1, 1, 0, 0))
    assert decision.scale_to == 6
    assert "the maximum is 4; 6 pods hold unfinished work" in str(decision)


def test_zero_is_for_idle_workers_only() -> None:
    from hpad.engine.view import Gates

    gates = Gates(HPAScaleToZero=True)
    busy = workload(KEEP, replicas=2, low=0, gates=gates)
    assert busy.reconcile(series(0), work=work(0, 1)).desired == 1
    idle = workload(KEEP, replicas=2, low=0, gates=gates)
    assert idle.reconcile(series(0), work=work(0, 0)).desired == 0


@pytest.mark.parametrize(
    ("names", "amounts", "count"),
    [
        ((0, 1, 2, 3, 4), {"web-3": 1}, 4),
        ((0, 1, 2, 3, 4), {}, 1),
        ((5, 6, 7, 8, 9), {"web-7": 1}, 3),  # spec.ordinals.start: 5
        ((1, 2, 3, 4), {"web-3": 1}, 4),  # web-0 is being created again
    ],
)
def test_a_stateful_set_keeps_the_pods_up_to_the_highest_busy_ordinal(
    names: tuple[int, ...], amounts: dict[str, int], count: int
) -> None:
    web = workload(KEEP | ORDER)
    target = CrossVersionObjectReference("StatefulSet", "web", "apps/v1")
    web.hpa = msgspec.structs.replace(web.hpa, spec=msgspec.structs.replace(web.hpa.spec, scale_target_ref=target))
    web.pods = [pod(f"web-{number}") for number in names]
    values = {f"web-{number}": 0 for number in names} | amounts
    decision = web.reconcile(series(1), work=[used(values)])
    assert decision.desired == count
    assert decision.spared is not None
    assert decision.spared.costs == ()
    assert web.condition(IDLE_FIRST).reason == "ByOrdinal"


def test_the_idle_pods_go_first_and_the_sentence_names_them() -> None:
    web = workload(ORDER)
    decision = web.reconcile(series(30), work=work(7, 0, 3, 0, 0))
    assert decision.spared is not None
    assert decision.spared.first == ("web-1", "web-3")
    assert str(decision).endswith("; the pods with the least work go first (web-1, web-3)")
    assert web.condition(IDLE_FIRST).status == "True"
    web.annotations = {}
    web.reconcile(series(30))
    assert IDLE_FIRST not in [each.type for each in web.hpa.status.conditions]


def test_where_only_busy_pods_get_a_cost_the_sentence_names_these() -> None:
    """Which ones of the idle pods go is the choice of the controller of the target: a name of them could be wrong."""
    web = workload(ORDER)
    decision = web.reconcile(series(20), work=work(0, 0, 3, 0, 0))
    assert decision.spared is not None
    assert [cost.pod for cost in decision.spared.costs] == ["web-2"]
    assert decision.spared.first == ()
    assert str(decision).endswith("; idle pods go first, and these stay: web-2")


def test_no_pods_are_named_where_all_are_equally_busy() -> None:
    decision = workload(ORDER).reconcile(series(20), work=work(0, 0, 0, 0, 0))
    assert decision.spared is not None
    assert (decision.spared.first, decision.spared.costs, decision.spared.order) == ((), (), "")


def test_more_than_the_idle_pods_go_by_their_work_and_the_unknown_ones_last() -> None:
    web = workload(ORDER)
    decision = web.reconcile(series(1), work=[used({"web-0": 7000, "web-1": 0, "web-2": 3000, "web-4": 5000})])
    assert decision.spared is not None
    assert decision.spared.first == ("web-1", "web-2", "web-4", "web-0")


def test_by_default_the_external_metrics_are_asked_by_pod() -> None:
    web = Workload(resource("cpu", averageUtilization=50), QUEUE, external("mails", averageValue="1"), replicas=2)
    members = (Member("web-0"), Member("web-1"))
    found = busy.queries(web.view())
    assert [(each.type, each.name, each.members) for each in found if not isinstance(each, AdapterError)] == [
        ("External", "orders", members),
        ("External", "mails", members),
    ]


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("mails", "External", "mails"),
        ("#2", "External", "mails"),
        ("jobs_running", "Pods", "jobs_running"),
        ("cpu", "Pods", "cpu"),
        ("mails{queue=other}", "Pods", "mails"),
    ],
)
def test_the_annotation_names_an_external_metric_or_one_of_pods(text: str, kind: str, name: str) -> None:
    metrics = resource("cpu", averageUtilization=50), QUEUE, external("mails", averageValue="1")
    web = Workload(*metrics, replicas=2, annotations=KEEP | {"hpad.io/busy-metric": text})
    (found,) = busy.queries(web.view())
    assert not isinstance(found, AdapterError)
    assert (found.type, found.name) == (kind, name)
    assert found.members is not None
    if kind == "Pods":
        assert str(found.pods) == "app=web"


@pytest.mark.parametrize("text", ["", "#0", "#7"])
def test_without_a_metric_the_work_is_unknown(text: str) -> None:
    named = {"hpad.io/busy-metric": text} if text else {}
    web = Workload(pods_metric("load", "1"), replicas=2, annotations=KEEP | named)
    (found,) = busy.queries(web.view())
    assert isinstance(found, AdapterError)
    assert "hpad.io/busy-metric names a metric" in found.message


def test_a_shadow_spares_nothing() -> None:
    web = workload(KEEP | ORDER | {"hpad.io/mode": "shadow"})
    assert web.reconcile(series(1), work=work(1, 1, 1, 1, 1)).spared is None


def test_addresses_of_members_are_those_of_the_pods() -> None:
    web = workload(KEEP, replicas=2)
    web.pods = [pod("web-1", address=10 << 24 | 7), pod("web-0", address=0xFD00 << 112 | 1), pod("web-2")]
    (found,) = busy.queries(web.view())
    assert not isinstance(found, AdapterError)
    assert found.members == (Member("web-0", "fd00::1"), Member("web-1", "10.0.0.7"), Member("web-2"))
    assert web.now == START
