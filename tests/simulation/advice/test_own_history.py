"""The past of HPAs from recordings: values in the units of targets, counts, bounds, reasons; gaps stay gaps."""

import copy
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.replays import QUEUE, scenario
from support.simulations import CPU, START, hpa

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.sample import PodSample
from hpad.engine.annotations import PLAIN
from hpad.engine.turn import Reconcile
from hpad.engine.view import SHADOW, Tunables
from hpad.records import writer
from hpad.records.encode import encode_head, encode_reconcile
from hpad.records.format import RecordingError
from hpad.simulation import load, model
from hpad.simulation.advice import own_history
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.history import REPLICAS
from hpad.simulation.run import simulate
from hpad.simulation.service import Service, ServiceModel

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
Steps = dict[str, Any]


def served(found: HorizontalPodAutoscaler, minutes: float, seed: int = 1) -> list[Reconcile]:
    """Returns the reconciles of a service under a load that rises and falls, four a minute."""
    workload = ServiceModel(
        Service(noise=0.2),
        load.parse("sine:mean=500,amplitude=450,period=17m"),
        start=START,
        replicas=2,
        shown=model.shows(found, "load", {}),
        seed=seed,
    )
    length, period = timedelta(minutes=minutes), timedelta(seconds=15)
    return [each.done for each in simulate(
        found, workload, start=START, length=length, period=period, tunables=Tunables()
    )]  # fmt: skip


def written(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def recording(done: Iterable[Reconcile]) -> Steps:
    value: Steps = {}
    for each in done:
        value = value or encode_head(each, "web") | {"steps": []}
        value["steps"].append(encode_reconcile(each, new_spec=False))
    return value


def at(seconds: float, length: str | None = "60", replicas: int = 3, **fields: Any) -> Steps:
    """Returns a step with a queue, so many seconds after noon; None: the queue cannot be read."""
    answer = {"error": "the broker is down"} if length is None else {"values": [int(float(length) * 1000)]}
    return {
        "time": (NOON + timedelta(seconds=seconds)).isoformat(),
        "scale": {"spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": "app=web"}},
        "answers": [{**answer, "timestamp": NOON.isoformat()}],
    } | fields


def one(path: Path, *steps: Steps, **fields: Any) -> HpaPast:
    (past,) = own_history.recorded_pasts(str(written(path / "one.jsonl", scenario(*steps, **fields))))
    return past


def test_the_utilization_is_what_the_hpa_compares_with_its_goal(tmp_path: Path) -> None:
    done = served(hpa(CPU), 20)
    (past,) = own_history.recorded_pasts(str(written(tmp_path / "r.jsonl", recording(done))))
    known = {each.view.now.timestamp(): each for each in done}
    compared = 0
    for index, time in enumerate(past.load.times):
        last = known[max(moment for moment in known if moment <= time)]
        metrics = last.settlement.status.current_metrics
        assert metrics is not None
        assert metrics[0].resource is not None
        assert past.load.columns["cpu"][index] == metrics[0].resource.current.average_utilization
        assert past.load.columns[REPLICAS][index] == last.settlement.status.current_replicas
        assert past.desired[index] == last.settlement.status.desired_replicas
        compared += 1
    assert compared >= 20
    assert len({*past.load.columns[REPLICAS]}) > 2
    assert past.load.step == 60
    assert (set(past.minimum), set(past.maximum)) == ({1.0}, {40.0})
    assert past.readings["cpu"].source == "hpad's recording"
    assert past.failing == {}


def test_of_each_minute_the_last_reconcile_counts(tmp_path: Path) -> None:
    past = one(tmp_path, *(at(second, str(second)) for second in (0, 15, 45, 60, 75, 118, 130)))
    assert [time - NOON.timestamp() for time in past.load.times] == [0, 60, 120, 180]
    assert past.load.columns["queue"] == [0, 60, 118, 130]


def test_a_step_may_be_shorter_than_a_minute(tmp_path: Path) -> None:
    path = written(tmp_path / "one.jsonl", scenario(at(0, "1"), at(14, "2"), at(29, "3"), at(31, "4")))
    (past,) = own_history.recorded_pasts(str(path), step=15)
    assert past.load.columns["queue"] == [1, 2, 3, 4]


def test_a_time_without_reconciles_is_a_gap_and_a_failing_metric_too(tmp_path: Path) -> None:
    past = one(tmp_path, at(0, "5"), at(60, "6"), at(240, None), at(300, "0"), at(360, "7"))
    assert past.load.columns["queue"] == [5, 6, None, None, None, 0, 7]
    assert past.load.columns[REPLICAS] == [3, 3, None, None, 3, 3, 3]
    assert past.failing == {"FailedGetExternalMetric": [0, 0, None, None, 1, 0, 0]}
    assert past.minimum == [1, 1, None, None, 1, 1, 1]


def test_a_period_longer_than_a_step_leaves_no_gaps(tmp_path: Path) -> None:
    past = one(tmp_path, at(0, "1"), at(180, "2"), at(360, "3"))
    assert past.load.columns["queue"] == [1, 1, 1, 2, 2, 2, 3]


def test_the_value_of_an_averagevalue_is_the_total_and_of_a_value_the_value(tmp_path: Path) -> None:
    whole = copy.deepcopy(QUEUE)
    whole["external"]["metric"]["name"] = "latency"
    whole["external"]["target"] = {"type": "Value", "value": "200m"}
    steps = [at(second, replicas=4) for second in (0, 60)]
    for each in steps:
        each["answers"] = [
            {"values": [30_500, 500], "timestamp": NOON.isoformat()},
            {"values": [190], "timestamp": NOON.isoformat()},
        ]
    row = scenario(*steps)
    row["hpa"]["spec"]["metrics"].append(whole)
    (past,) = own_history.recorded_pasts(str(written(tmp_path / "two.jsonl", row)))
    assert past.load.columns["queue"] == [31, 31]
    assert past.load.columns["latency"] == [0.19, 0.19]


def test_an_unreadable_metric_has_no_column_and_says_why(tmp_path: Path) -> None:
    past = one(tmp_path, at(0, None), at(60, None))
    assert [*past.load.columns] == [REPLICAS]
    assert past.readings["queue"].problem == "hpad has read no value of it: the broker is down"
    assert past.failing == {"FailedGetExternalMetric": [1, 1]}


def test_an_unreadable_scale_is_no_count(tmp_path: Path) -> None:
    lost = {"time": (NOON + timedelta(minutes=1)).isoformat(), "scaleError": "the server is away"}
    past = one(tmp_path, at(0), lost, at(120))
    assert past.load.columns[REPLICAS] == [3, None, 3]
    assert past.desired[1] is None
    assert past.failing == {"FailedGetScale": [0, 1, 0]}


def test_a_stopped_target_has_no_replicas_and_fails_in_nothing(tmp_path: Path) -> None:
    past = one(tmp_path, at(0), *(at(second, replicas=0, answers=[]) for second in (60, 120)))
    assert past.load.columns[REPLICAS] == [3, 0, 0]
    assert past.load.columns["queue"] == [60, None, None]
    assert past.failing == {}


def test_the_spec_is_the_last_one_and_bounds_are_those_of_the_time(tmp_path: Path) -> None:
    later = scenario(at(60))["hpa"]["spec"] | {"maxReplicas": 30, "minReplicas": 2}
    past = one(tmp_path, at(0), at(60, spec=later), at(120))
    assert past.hpa.spec.max_replicas == 30
    assert past.maximum == [10, 30, 30]
    assert past.minimum == [1, 2, 2]
    assert past.load.columns["queue"] == [60, 60, 60]


def test_values_for_another_kind_of_target_are_not_mixed_in(tmp_path: Path) -> None:
    later = copy.deepcopy(scenario(at(60))["hpa"]["spec"])
    later["metrics"][0]["external"]["target"] = {"type": "Value", "value": "60"}
    past = one(tmp_path, at(0), at(60, spec=later), at(120))
    assert past.load.columns["queue"] == [None, 60, 60]


def test_a_schedule_sets_the_bounds(tmp_path: Path) -> None:
    controls = {"hpad.io/schedule": "1 12 * * * for 1h: min=2"}
    past = one(tmp_path, *(at(second, controls=controls) for second in (0, 60, 120)))
    assert past.minimum == [1, 2, 2]
    assert past.hpa.metadata.annotations == controls


def test_annotations_are_those_that_gave_the_recorded_policies(tmp_path: Path) -> None:
    terms = [{"fallback": "replicas:5 after 2m", "activation": "3"}]
    past = one(tmp_path, at(0, terms=terms), at(60, terms=terms))
    (policy,) = PLAIN.of(past.hpa).policies
    assert (str(policy.fallback), policy.activation) == ("replicas:5 after 2m0s", 3000)


def test_in_shadow_mode_the_past_is_that_of_the_target(tmp_path: Path) -> None:
    """The shadow has 4 replicas at 30 % where the target has 2 at 60 %."""
    pods = [
        {"metadata": {"name": f"web-{index}", "labels": {"app": "web"}},
         "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]},
         "status": {"phase": "Running", "startTime": "2026-01-01T08:00:00Z",
                    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T08:00:00Z"}]}}
        for index in range(4)
    ]  # fmt: skip
    values = {f"web-{index}": {"value": 30, "timestamp": NOON.isoformat(), "window": "PT30S"} for index in range(4)}
    shadow = {"withheld": {"reason": SHADOW.reason, "message": SHADOW.message}, "replicas": 2, "observed": 2}
    steps = [at(second, replicas=4, pods=pods, shadow=shadow) for second in (0, 60)]
    for each in steps:
        each["answers"] = [{"pods": values, "timestamp": NOON.isoformat()}]
    row = scenario(*steps)
    row["hpa"]["spec"]["metrics"] = [CPU]
    (past,) = own_history.recorded_pasts(str(written(tmp_path / "shadow.jsonl", row)))
    assert past.load.columns["cpu"] == [60, 60]
    assert past.load.columns[REPLICAS] == [2, 2]
    assert past.desired == [2, 2]


def test_containers_without_a_request_are_named(tmp_path: Path) -> None:
    pod = {"metadata": {"name": "web-0", "labels": {"app": "web"}},
           "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}, {"name": "proxy"}]},
           "status": {"phase": "Running"}}  # fmt: skip
    steps = [at(second, replicas=1, pods=[pod]) for second in (0, 60)]
    for each in steps:
        each["answers"] = [{"error": "there is no metrics-server"}]
    row = scenario(*steps)
    row["hpa"]["spec"]["metrics"] = [CPU]
    (past,) = own_history.recorded_pasts(str(written(tmp_path / "bare.jsonl", row)))
    assert past.unrequested == {"cpu": ["proxy"]}
    assert past.failing == {"FailedGetResourceMetric": [1, 1]}


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str, str, str, Steps], None]:
    def write(namespace: str, name: str, started: str, row: Steps) -> None:
        row["hpa"]["metadata"] = {"name": name, "namespace": namespace}
        written(tmp_path / writer.file_name(namespace, name, started), row)

    return write


def test_of_a_folder_the_files_of_an_hpa_are_one_past_in_each_namespace(
    tmp_path: Path, folder: Callable[[str, str, str, Steps], None]
) -> None:
    folder("shop", "web", "20260101T120000Z", scenario(at(0, "1"), at(60, "2")))
    folder("shop", "web.20251231T", "20260101T120000Z", scenario(at(0, "8"), at(60, "8")))
    folder("shop", "web", "20260101T120200Z", scenario(at(180, "3"), at(240, "4")))
    folder("test", "web", "20260101T120000Z", scenario(at(0, "9"), at(60, "9")))
    found = list(own_history.recorded_pasts(str(tmp_path)))
    assert [(str(past.hpa.key), past.load.columns["queue"]) for past in found] == [
        ("shop/web", [1, 2, None, 3, 4]),
        ("shop/web.20251231T", [8, 8]),
        ("test/web", [9, 9]),
    ]


def test_several_hpas_of_one_file_and_parts_in_any_order(tmp_path: Path) -> None:
    other = scenario(at(0, "7"), at(60, "7"))
    other["hpa"]["metadata"]["name"] = "api"
    written(tmp_path / "a.jsonl", scenario(at(120, "3"), at(180, "4")), other)
    written(tmp_path / "b.jsonl", scenario(at(0, "1"), at(60, "2")))
    found = {past.hpa.metadata.name: past for past in own_history.recorded_pasts(str(tmp_path))}
    assert found["web"].load.columns["queue"] == [1, 2, 3, 4]
    assert found["api"].load.columns["queue"] == [7, 7]


def test_an_interval_and_chosen_hpas(tmp_path: Path) -> None:
    path = str(written(tmp_path / "r.jsonl", scenario(*(at(60 * index, str(index)) for index in range(10)))))
    begin, end = NOON + timedelta(minutes=2, seconds=30), NOON + timedelta(minutes=5, seconds=30)
    (past,) = own_history.recorded_pasts(path, begin, end)
    assert past.load.columns["queue"] == [3, 4, 5]
    assert list(own_history.recorded_pasts(path, wanted=lambda key: key.name != "web")) == []
    assert list(own_history.recorded_pasts(path, NOON + timedelta(days=1))) == []


def test_an_error_names_the_file_and_the_line(tmp_path: Path) -> None:
    row = scenario(at(0), {"time": NOON.isoformat()})
    path = written(tmp_path / "r.jsonl", row)
    with pytest.raises(RecordingError, match=r"r\.jsonl, line 1: steps\[1\]: needs scale or scaleError"):
        list(own_history.recorded_pasts(str(path)))


def test_values_that_leave_spare_replicas_out_are_those_of_each_replica(tmp_path: Path) -> None:
    plain = hpa(CPU)
    metadata = msgspec.structs.replace(plain.metadata, annotations={"hpad.io/spare": "50%"})
    done = served(msgspec.structs.replace(plain, metadata=metadata), 20)
    (past,) = own_history.recorded_pasts(str(written(tmp_path / "r.jsonl", recording(done))))
    known = {each.view.now.timestamp(): each for each in done}
    compared = 0
    for index, time in enumerate(past.load.times):
        last = known[max(moment for moment in known if moment <= time)]
        usage, answer = last.decision.proposals[0].usage, last.answers[0]
        assert usage is not None
        assert isinstance(answer, PodSample)
        busy = [each.value for each in answer.values.values()]
        settled = last.view.now - timedelta(minutes=2)
        if any(each.ready_since is None or each.ready_since > settled for each in last.view.pods):
            continue  # a pod that starts counts as spare, whatever it uses
        mean = 100 * sum(busy) / len(busy) / 500  # percent of the request
        assert past.load.columns["cpu"][index] == pytest.approx(mean, abs=1)
        compared += last.view.replicas > 2
    assert compared >= 10


def test_what_cannot_be_read_is_left_out(tmp_path: Path, folder: Callable[[str, str, str, Steps], None]) -> None:
    folder("shop", "web", "20260101T120000Z", scenario(at(0, "1"), at(60, "2")))
    folder("shop", "api", "20260101T120000Z", scenario(at(0, "7"), {"time": NOON.isoformat()}, at(60, "7")))
    (tmp_path / writer.file_name("test", "web", "20260101T120000Z")).write_text("")
    left_out: list[str] = []
    (past,) = own_history.recorded_pasts(str(tmp_path), left_out=left_out.append)
    assert past.load.columns["queue"] == [1, 2]
    assert left_out == [
        f"{tmp_path}/shop.api.20260101T120000Z.jsonl, line 1: steps[1]: needs scale or scaleError",
        f"{tmp_path}/test.web.20260101T120000Z.jsonl: has no scenario",
    ]
