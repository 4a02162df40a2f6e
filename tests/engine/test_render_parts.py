"""The parts of a decision as text: pods, calculations, outcomes, rules and styles."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.engine import Workload, container, object_metric, one, pod, pods_metric, resource, series, used
from support.rendered import CPU, QUEUE, part, rendered, text, traced

from hpad.api.pod import ContainerRequests
from hpad.api.sample import AdapterError
from hpad.engine.settle import Outcome
from hpad.engine.styled import BAD, GOOD, STRONG, WARN
from hpad.engine.trace import TimingTrace
from hpad.engine.view import DRY_RUN, Gates


def test_pods_that_do_not_count_come_first_and_say_why() -> None:
    """75 % and 70 % of two pods; with three idle ones 290 of 1000 millicores, 29 %."""
    web = Workload(CPU, replicas=5)
    web.pods = [pod("web-0"), pod("web-1"), pod("web-2", age=20), pod("web-3"), pod("web-4", phase="Pending")]
    web.reconcile(used([150, 140, 10]))
    assert part(web, "cpu wants") == [
        "Metric:    Resource cpu, from metrics-server",
        "Sample:    0s old",
        "Usage:     72% of the requests, 145m per pod; target 50%",
        "Ratio:     1.44, and 0.58 with 3 more pods counted as idle; outside the tolerance (0.9 to 1.1)",
        "Wants:     5, unchanged: 0.58 x 5 pods = 2.9 would reverse the scale direction",
        "Pods:      2 ready, 2 unready, 1 missing",
        "POD    GROUP    VALUE  REQUEST  USED  COUNTS AS  WHY",
        "web-2  unready  10m    200m     5%    0          its sample began before it became ready",
        "web-4  unready  -      200m     -     0          its phase is Pending",
        "web-3  missing  -      200m     -     0          the source has no value for it",
        "web-0  ready    150m   200m     75%   -",
        "web-1  ready    140m   200m     70%   -",
    ]


def test_a_long_list_of_pods_is_shortened() -> None:
    web = Workload(pods_metric("rate", "5"), replicas=30, high=50)
    web.pods = [pod(f"web-{n}", phase="Pending" if n < 12 else "Running") for n in range(30)]
    web.reconcile(used({f"web-{n}": n * 1000 for n in range(12, 30)}))
    table = part(web, "Pods:", hint="; --pods lists all")
    assert [line.split()[0] for line in table[: table.index("") if "" in table else None]] == [
        "POD",
        *(f"web-{n}" for n in range(10)),
        *(f"web-{n}" for n in (29, 28, 27, 26, 25)),
        "and",
    ]
    assert table[-1] == "and 15 more; --pods lists all"
    assert "Pods:      18 ready, 12 unready" in text(web)
    every = part(web, "Pods:", all_pods=True)
    assert [line.split()[0] for line in every] == ["POD", *(f"web-{n}" for n in range(30))]


def test_pods_that_the_trace_leaves_out_are_counted() -> None:
    web = Workload(CPU, replicas=2)
    web.reconcile(used([150, 150]))
    made = traced(web)
    [metric] = made.metrics
    made = msgspec.structs.replace(made, metrics=(msgspec.structs.replace(metric, pods_omitted=40),))
    assert "    Pods:      2 ready, and 40 that are not listed here" in [str(each) for each in rendered(web, made)]


MEBI = 2**20 * 1000
KINDS: dict[str, tuple[Any, Any, int, str, str]] = {
    "one value": (
        object_metric("load", value="3"),
        one(4),
        2,
        "4; target 3",
        "3, rounded up from 1.33 x 2 pods = 2.67",
    ),
    "one per pod": (
        pods_metric("rate", "5"),
        used([7000, 9000]),
        2,
        "8 per pod; target 5 per pod",
        "4, rounded up from 1.6 x 2 pods = 3.2",
    ),
    "nothing": (QUEUE, series(), 2, "0 per replica (0 over 2 replicas); target 10 per replica", "0 = 0 / 10"),
    "bytes": (
        resource("memory", averageValue="64Mi"),
        used([96 * MEBI]),
        1,
        "96Mi per pod; target 64Mi per pod",
        "2, rounded up from 1.5 x 1 pod = 1.5",
    ),
    "one container": (
        container("cpu", "app", averageUtilization=50),
        used([50, 50]),
        2,
        "25% of the requests, 50m per pod; target 50%",
        "1 = 0.5 x 2 pods",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_calculation_of_each_kind(kind: str) -> None:
    metric, answer, replicas, usage, wants = KINDS[kind]
    web = Workload(metric, replicas=replicas)
    web.reconcile(answer)
    found = text(web)
    assert f"    Usage:     {usage}\n" in found
    assert f"    Wants:     {wants}\n" in found


def test_samples_of_many_series_are_counted() -> None:
    web = Workload(QUEUE, replicas=1)
    web.reconcile(series(*range(10)))
    assert "    Sample:    10 series = 45, 0s old\n" in text(web)


def test_zero_replicas() -> None:
    gates, annotations = Gates(HPAScaleToZero=True), {"hpad.io/activation": "queue=5"}
    rules = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    web = Workload(QUEUE, replicas=1, low=0, gates=gates, annotations=annotations, behavior=rules)
    web.reconcile(series(3))
    assert "    Wants:     0 instead of 1, not above the activation threshold 5\n" in text(web)
    web.reconcile(series(3), after=15)
    assert "    Ratio:     not a number, since there is no replica\n" in text(web)
    web = Workload(QUEUE, replicas=0)
    web.reconcile()
    assert text(web).splitlines()[3:5] == [
        "Decision:  keep 0: scaling is disabled while the target is set to zero replicas",
        "Reason:    ScalingDisabled: scaling is disabled since the replica count of the target is zero",
    ]
    assert "Replicas:" not in text(web)


def test_a_pod_without_the_container() -> None:
    web = Workload(container("cpu", "app", averageUtilization=50), replicas=2)
    web.pods = [pod("web-0"), pod("web-1", containers=(ContainerRequests("side", {"cpu": 200}),))]
    web.reconcile(used({"web-0": 160, "gone": 5}))
    assert part(web, "Pods:") == [
        "POD    GROUP     VALUE  REQUEST  USED  WHY",
        "web-1  lacking   -      -        -     it has no container app",
        "gone   unlisted  5m     -        -     the source has a value for it, but the selector of the target does not"
        " list it",
        "web-0  ready     160m   200m     80%",
    ]


def test_the_outcome_of_a_write() -> None:
    web = Workload(QUEUE, replicas=2)
    web.reconcile(series(40))
    assert web.done is not None
    done = web.done

    def last(outcome: Outcome) -> str:
        web.done = msgspec.structs.replace(done, outcome=outcome)
        return part(web, "Replicas:")[-1]

    assert last(Outcome((4, 4))) == "written         4  after 1 conflict with other writes"
    assert last(Outcome((4, 4, 4))) == "written         4  after 2 conflicts with other writes"
    assert last(Outcome((4,), "the webhook says no")) == "not written     2  the webhook says no"
    assert last(Outcome((4,), "connection lost", unsure=True)) == "uncertain       -  connection lost"
    assert last(Outcome((4,), withheld=DRY_RUN)) == "not written     2  DryRun: this is a dry run"


def test_bounds_and_rules_of_every_kind() -> None:
    web = Workload(QUEUE, replicas=12)
    web.reconcile()
    assert part(web, "Replicas:") == [
        "now             12",
        "after min, max  10  the maximum is 10",
        "written         10",
    ]
    web = Workload(QUEUE, replicas=1, behavior=None)
    web.reconcile(series(90))
    assert part(web, "Replicas:")[2:4] == [
        "after windows   9  (scale-down 5m)",
        "after policies  4  at most 4: the larger of twice the count and 4",
    ]
    web = Workload(QUEUE, replicas=1, low=0, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    web.reconcile(series(0))
    assert part(web, "Replicas:")[-2] == (
        "after min, max  1  the minimum is 1: minReplicas 0 counts as 1 while the feature gate HPAScaleToZero is off"
    )
    web = Workload(QUEUE, replicas=2, behavior={"scaleUp": {"selectPolicy": "Disabled"}})
    web.reconcile(series(50))
    assert part(web, "Replicas:")[3] == "after policies  2  scaleUp.selectPolicy is Disabled"
    web = Workload(QUEUE, replicas=2, behavior={"scaleUp": {"stabilizationWindowSeconds": 60}})
    web.reconcile(series(20))
    web.reconcile(series(50), after=15)
    assert part(web, "Replicas:")[2] == (
        "after windows   2  2 was recommended at 12:00:00Z; the scale-up window (1m) holds it until 12:01:00Z"
    )
    web = Workload(QUEUE, replicas=5)
    web.reconcile(series(20))
    assert part(web, "Replicas:")[2] == (
        "after windows   5  no earlier recommendation is known, so the present count counts as one; "
        "the scale-down window (5m) holds it until 12:05:00Z"
    )
    web = Workload(QUEUE, object_metric("load", value="3"), CPU, replicas=2)
    web.reconcile(series(50), one(3), AdapterError("no answer"))
    assert part(web, "Replicas:")[1] == "metrics want    5  by queue, the largest of 2; cpu fails"
    web = Workload(QUEUE, CPU, replicas=2)
    web.reconcile(series(50), AdapterError("no answer"))
    assert part(web, "Replicas:")[1] == "metrics want    5  by queue; cpu fails"


def test_policies_that_allow_less_than_wanted_name_the_bound_that_is_reached_first() -> None:
    web = Workload(QUEUE, replicas=4, high=6, behavior=None)
    web.reconcile(series(150))
    assert part(web, "Replicas:")[3:5] == [
        "after policies  15  at most 8: the larger of twice the count and 4; the maximum is reached first",
        "after min, max   6  the maximum is 6",
    ]
    one_pod = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}
    web = Workload(QUEUE, replicas=5, low=4, behavior={"scaleDown": one_pod})
    web.reconcile(series(10))
    [row] = part(web, "Replicas:")[3:4]
    assert row == "after policies  1  scaleDown allows no fewer than 4; the minimum is reached first"


def test_used_budgets_of_policies_name_when_they_free() -> None:
    policies = [
        {"type": "Pods", "value": 2, "periodSeconds": 60},
        {"type": "Percent", "value": 50, "periodSeconds": 90},
    ]
    web = Workload(QUEUE, replicas=2, high=20, behavior={"scaleUp": {"policies": policies}})
    web.reconcile(series(90))
    web.reconcile(series(90), after=61)
    web.reconcile(series(90), after=15)
    # 2 -> 4 at 12:00:00, 4 -> 6 at 12:01:01; half of the two pods of 11:59:46 is one pod.
    assert part(web, "Replicas:")[3:6] == [
        "after policies  6  scaleUp allows at most 6, the largest change of 2 policies",
        "2 pods in 1m: from 4 to 6; 2 added, the first of them counts until 12:02:01Z",
        "50% in 1m30s: from 2 to 3; 4 added, the first of them counts until 12:01:30Z",
    ]


def test_a_reason_that_repeats_the_sentence_is_its_word_alone() -> None:
    web = Workload(CPU, replicas=2)
    web.reconcile(overlapping_hpas=("other",))
    decision, reason = text(web).splitlines()[3:5]
    assert decision.startswith("Decision:  cannot decide: pods by selector app=web are controlled by multiple HPAs: ")
    assert reason == "Reason:    AmbiguousSelector"


def test_a_kept_count_shows_the_calculation_that_would_reverse_it() -> None:
    """54 % of three pods are 1.35 of the target; with two idle ones 162 of 500 millicores, 32 %, are 0.8 of 40 %."""
    web = Workload(resource("cpu", averageUtilization=40), replicas=5)
    web.pods = [pod(f"web-{n}", cpu=100) for n in range(5)]
    web.reconcile(used([54, 54, 54]))
    assert "    Wants:     5, unchanged: 0.8 x 5 pods = 4 would reverse the scale direction\n" in text(web)


def test_timing_notes_and_times_without_a_present() -> None:
    web = Workload(QUEUE, replicas=5)
    web.reconcile(series(50))
    web.reconcile(series(20), after=60)
    timing = TimingTrace(late=0.1, observe=0.003, gather=1.25, act=0.008, publish=0.012)
    made = msgspec.structs.replace(traced(web), timing=timing)
    found = [str(each) for each in rendered(web, made, notes=["dry run: hpad writes nothing"])]
    assert found[2:4] == ["Time:      2026-01-01 12:01:00Z", "Note:      dry run: hpad writes nothing"]
    assert "Timing:    observe 3ms, gather 1.2s, act 8ms, publish 12ms; 100ms late" in found
    assert "  - 5 -> 2 once the scale-down window frees at 12:05:00Z, if queue still wants 2" in found
    late = [str(each) for each in rendered(web, made, now=web.now + timedelta(hours=1))]
    assert late[2] == "Time:      2026-01-01 12:01:00Z, 1h ago"
    assert late[-2].endswith("frees at 12:05:00Z (56m ago), if queue still wants 2")


def styles(web: Workload, words: str) -> list[str]:
    """Returns the styles of the spans with these words."""
    return [span.style for line in rendered(web) for span in line.spans if words in span.text]


def test_styles_show_trouble_and_change() -> None:
    web = Workload(QUEUE, CPU, replicas=5)
    web.reconcile(series(50), AdapterError("no answer"))
    assert styles(web, "no answer") == [BAD, BAD]
    assert styles(web, "cannot shrink while") == [WARN]
    assert styles(web, "Replicas:") == [STRONG]
    web = Workload(QUEUE, replicas=2)
    web.reconcile(series(40))
    assert styles(web, "scale web from 2 to 4") == [GOOD]


def test_a_line_hangs_under_its_text() -> None:
    web = Workload(CPU, replicas=2)
    web.pods = [pod("web-0"), pod("web-1", phase="Pending")]
    web.reconcile(used({"web-0": 160}))
    hangs = {str(line).split(":")[0].strip(): line.hang for line in rendered(web) if ":" in str(line)}
    assert (hangs["Decision"], hangs["Ratio"]) == (11, 15)
    [why] = [line for line in rendered(web) if "Pending" in str(line)]
    assert str(why)[why.hang :] == "its phase is Pending"
