"""hpad.io/zero-after and hpad.io/initial-delay: when the last replica may go."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.engine import START, Answer, Workload, external, series, used

from hpad.api.sample import AdapterError
from hpad.engine.history import History, PastRecommendation
from hpad.engine.holds import held_by
from hpad.engine.view import Gates
from hpad.records.encode import encode_head, encode_reconcile
from hpad.records.replay import replay

FAILED = AdapterError("no connection")
NO_WINDOW = {"scaleDown": {"stabilizationWindowSeconds": 0}}
ZERO = Gates(HPAScaleToZero=True)
AFTER = {"hpad.io/zero-after": "1m"}
BELOW = "external metric queue below target (0 / 10 per replica)"


def workload(*metrics: dict[str, Any], replicas: int = 4, **fields: Any) -> Workload:
    """Returns a workload that may sleep, of 10 messages for each replica, with `hpad.io/zero-after: 1m`."""
    defaults: dict[str, Any] = {"low": 0, "gates": ZERO, "behavior": NO_WINDOW, "annotations": AFTER}
    found = metrics or (external("queue", averageValue="10"),)
    return Workload(*found, replicas=replicas, **(defaults | fields))


def counts(web: Workload, *answers: Answer, every: float = 15) -> list[int]:
    """Returns the counts after turns with these answers, one each `every` seconds."""
    found = []
    for answer in answers:
        web.reconcile(answer, after=every)
        found.append(web.replicas)
    return found


NONE, SOME = series(0), series(5)


@pytest.mark.parametrize(
    ("fields", "answers", "expected"),
    [
        ({}, [SOME, NONE, NONE, NONE, NONE, NONE], [1, 1, 1, 1, 0, 0]),
        ({}, [NONE, NONE, NONE, NONE, NONE], [1, 1, 1, 1, 0]),
        ({}, [SOME, NONE, NONE, SOME, NONE, NONE, NONE, NONE], [1, 1, 1, 1, 1, 1, 1, 0]),
        # A metric that fails is not "no work": the time stands still.
        ({}, [SOME, NONE, NONE, FAILED, FAILED, NONE, NONE, NONE], [1, 1, 1, 1, 1, 1, 1, 0]),
        # A window holds what is more than one, as ever; once the time has passed, it holds nothing.
        ({"behavior": None}, [series(40), NONE, NONE, NONE, NONE, NONE, SOME], [4, 4, 4, 4, 0, 0, 1]),
        ({"annotations": {"hpad.io/zero-after": "0s"}, "behavior": None}, [series(40), NONE], [4, 0]),
        # Policies hold also then.
        (
            {"behavior": {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}}},
            [series(40), NONE, NONE, NONE, NONE, NONE, NONE, NONE],
            [4, 4, 4, 4, 3, 2, 1, 0],
        ),
        # Without a scale to zero it has no effect.
        ({"low": 1}, [SOME, NONE, NONE, NONE, NONE, NONE], [1, 1, 1, 1, 1, 1]),
        ({"gates": Gates()}, [SOME, NONE, NONE, NONE, NONE, NONE], [1, 1, 1, 1, 1, 1]),
    ],
)
def test_the_last_replica_goes_after_its_time_without_work(
    fields: dict[str, Any], answers: list[Answer], expected: list[int]
) -> None:
    assert counts(workload(**fields), *answers) == expected


def test_everything_says_why_the_last_replica_stays_and_until_when() -> None:
    web = workload()
    counts(web, SOME, NONE, NONE)
    assert web.done is not None
    why = "the last replica stays: no work for 30s of 1m (hpad.io/zero-after)"
    assert str(web.done.decision) == f"keep 1: {BELOW}; 0 wanted but {why}"
    assert held_by(web.done.view, web.done.decision, web.done.outcome) == ("last_replica",)
    bounds = next(stage for stage in web.trace.stages if stage.stage == "bounds")
    assert (bounds.replicas, bounds.text) == (1, why)
    assert web.outlook[0].text == "1 -> 0 once the last replica may go at 12:01:15Z, if queue still wants 0"
    condition = web.condition("ScalingLimited")
    message = "the last replica stays until there has been no work for 1m (hpad.io/zero-after)"
    assert (condition.status, condition.reason, condition.message) == ("True", "ZeroDelayed", message)
    counts(web, NONE)
    assert web.condition("ScalingLimited") == condition, "the status is not written in each turn"


def test_the_outlook_of_a_window_names_the_time_without_work_where_that_frees_first() -> None:
    web = workload(behavior=None)
    counts(web, series(40), NONE)
    assert web.outlook[0].text == "4 -> 0 once the last replica may go at 12:01:15Z, if queue still wants 0"


def test_the_outlook_of_a_busy_replica_has_the_time_without_work() -> None:
    web = workload()
    counts(web, SOME, SOME)
    assert web.outlook[-1].text == "shrinks once queue is at most 0 (now 5) for 1m"


@pytest.mark.parametrize("fallback", ["ignore", "last-good:10m"])
def test_a_fallback_is_no_proof_that_there_is_no_work(fallback: str) -> None:
    own = {**AFTER, "hpad.io/fallback": f"other={fallback}", "hpad.io/failure-duration-seconds": "0"}
    two = external("queue", averageValue="10"), external("other", averageValue="10")
    web = workload(*two, annotations=own)
    web.reconcile(SOME, NONE, after=15)
    for _ in range(10):
        web.reconcile(NONE, FAILED, after=15)
    assert web.replicas == 1
    assert web.done is not None
    assert "no work for 0s of 1m (hpad.io/zero-after), and a metric fails" in str(web.done.decision)
    assert "stays until all metrics can be read" in web.outlook[0].text


def test_what_an_activation_threshold_leaves_asleep_is_no_work() -> None:
    web = workload(annotations={**AFTER, "hpad.io/activation": "5"})
    assert counts(web, series(6), SOME, SOME, SOME, SOME, SOME) == [1, 1, 1, 1, 0, 0]


def test_a_minimum_of_the_schedule_comes_first_and_the_time_passes_meanwhile() -> None:
    web = workload(annotations={**AFTER, "hpad.io/schedule": "0 12 * * * for 2m: min=2"})
    assert counts(web, SOME, *[NONE] * 6) == [2, 2, 2, 2, 2, 2, 2]
    assert counts(web, NONE) == [0], "12:02"


def test_a_pause_and_the_shadow_mode_count_the_time_as_well() -> None:
    paused = workload(replicas=1, annotations={**AFTER, "hpad.io/mode": "paused"})
    assert counts(paused, *[NONE] * 5) == [1] * 5
    paused.annotations = AFTER
    assert counts(paused, NONE) == [0]
    shadow = workload(replicas=1, annotations={**AFTER, "hpad.io/mode": "shadow"})
    counts(shadow, *[NONE] * 4)
    assert (shadow.replicas, shadow.shadow) == (1, 1)
    counts(shadow, NONE)
    assert (shadow.replicas, shadow.shadow) == (1, 0)


def test_busy_pods_stay_beyond_the_time_without_work() -> None:
    web = workload(annotations={**AFTER, "hpad.io/keep-busy": "true"})
    counts(web, NONE, NONE, NONE, NONE)
    web.reconcile(NONE, after=15, work=[used([1000])])
    assert web.replicas == 1
    web.reconcile(NONE, after=15, work=[used([0])])
    assert web.replicas == 0


@pytest.mark.parametrize(
    ("created", "expected"),
    [
        (-600, [0, 0, 0, 0]),
        (0, [1, 1, 1, 0]),
        (None, [1, 1, 1, 1, 0]),  # of a file: since the first turn
        (600, [1, 1, 1, 1]),  # by a clock that is ahead
    ],
)
def test_a_new_hpa_keeps_its_last_replica_for_the_initial_delay(created: float | None, expected: list[int]) -> None:
    web = workload(annotations={"hpad.io/initial-delay": "1m"}, behavior=None)
    web.history = History((PastRecommendation(START - timedelta(hours=1), 0),))
    if created is not None:
        metadata = msgspec.structs.replace(web.hpa.metadata, creation_timestamp=START + timedelta(seconds=created))
        web.hpa = msgspec.structs.replace(web.hpa, metadata=metadata)
    assert counts(web, *[NONE] * len(expected)) == expected
    if expected[-1]:
        return
    web.replicas = 1
    assert counts(web, NONE) == [0], "the time without work has no part in it"


def test_without_either_annotation_nothing_is_kept() -> None:
    web = workload(annotations=None)
    assert counts(web, SOME, NONE) == [1, 0]
    assert web.history.idleness is msgspec.UNSET


def test_a_recording_decides_alike() -> None:
    web = workload(annotations={**AFTER, "hpad.io/initial-delay": "1h"}, replicas=1)
    metadata = msgspec.structs.replace(web.hpa.metadata, creation_timestamp=START - timedelta(hours=2))
    web.hpa = msgspec.structs.replace(web.hpa, metadata=metadata)
    counts(web, NONE, NONE, NONE)
    started = None
    steps = []
    for _ in range(3):
        web.reconcile(NONE, after=15)
        assert web.done is not None
        started = started or encode_head(web.done, "zero")
        steps.append(encode_reconcile(web.done, new_spec=False))
    found = replay({**started, "steps": steps})["steps"]
    assert [step["scaleTo"] for step in found] == [step["expect"]["scaleTo"] for step in steps] == [None, 0, None]
