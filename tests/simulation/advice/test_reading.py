"""The past of HPAs from a real Prometheus: two hours, whose series another exporter would have written the same."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from support import prometheus_lab
from support.past_hpas import CPU, external, past_hpa
from support.past_series import PastSeries, counted

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.sample import PastPromQL
from hpad.lab.servers.prometheus import ABSENT, PrometheusServer
from hpad.simulation.advice import reading
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.reading import ReadingOptions
from hpad.simulation.advice.reading.series import DEFAULT, Series, read_file
from hpad.simulation.history import HistoryError
from hpad.simulation.prometheus import QueriedPrometheus

pytestmark = pytest.mark.skipif(not PrometheusServer.installed(), reason=ABSENT)

START = (int(time.time()) // 3600 - 48) * 3600
STEP = 60
BEGIN, END = START + 600, START + 6000
COUNT = (END - BEGIN) // STEP + 1
TIMES = range(START, START + 7200, 30)
HALF = START + 3600
WEB = "web-7d9f8b6c5d"
HPAS = ("web", "db", "memory", "queue", "boundless", "mixed", "twice", "values", "both", "scraped")
UNLIKE = ("changed", "uneven", "counted", "even")
LONG = "a-name-of-a-deployment-that-is-longer-than-others-are"


def past_of(
    server: QueriedPrometheus,
    hpa: HorizontalPodAutoscaler,
    series: Series = DEFAULT,
    options: ReadingOptions = ReadingOptions(),  # noqa: B008 (it is immutable)
) -> HpaPast:
    (past,) = pasts_of(server, [hpa], series, options)
    return past


def pasts_of(
    server: QueriedPrometheus,
    hpas: Sequence[HorizontalPodAutoscaler],
    series: Series = DEFAULT,
    options: ReadingOptions = ReadingOptions(),  # noqa: B008 (it is immutable)
) -> list[HpaPast]:
    begin, end = datetime.fromtimestamp(BEGIN, UTC), datetime.fromtimestamp(END, UTC)
    return list(reading.read(server, hpas, begin, end, STEP, series, options))


def at(column: Sequence[float | None], moment: int) -> float | None:
    return column[(moment - BEGIN) // STEP]


def container(past: PastSeries, pod: str, cores: float, request: float | None = 0.5, **more: str) -> None:
    """Adds the CPU usage of a container, in cores, and its request."""
    of = {"namespace": "shop", "pod": pod, "container": "app"} | more
    past.add("container_cpu_usage_seconds_total", of, counted((each, cores) for each in TIMES))
    if request is not None:
        past.add("kube_pod_container_resource_requests", of | {"resource": "cpu"}, [(each, request) for each in TIMES])


def status(past: PastSeries, name: str, replicas: float = 2, times: Sequence[int] = TIMES) -> None:
    """Adds the counts of an HPA: one more is desired, within 1 and 10."""
    past.hpa("shop", name, "status_current_replicas", [(each, replicas) for each in times])
    past.hpa("shop", name, "status_desired_replicas", [(each, replicas + 1) for each in times])
    past.hpa("shop", name, "spec_min_replicas", [(each, 1) for each in times])
    past.hpa("shop", name, "spec_max_replicas", [(each, 10) for each in times])


@pytest.fixture(scope="module")
def server() -> Iterator[QueriedPrometheus]:
    past = PastSeries()
    for name in (*HPAS, LONG, *UNLIKE):
        status(past, name)
    web(past)
    others(past)
    unlike(past)
    conditions(past)
    for each in prometheus_lab.serve(past.text):
        yield QueriedPrometheus(each.url)


def web(past: PastSeries) -> None:
    """Adds two pods of web, and pods that are none of it although their names begin so."""
    container(past, f"{WEB}-x2x4z", 0.1)
    container(past, f"{WEB}-zzzzz", 0.3)
    for pod in (
        "web-api-7d9f8b6c5d-zzzzz",
        "web-29012345-bcdfg",
        "web-29256789-bcdfg",
        "web-0",
        "web-bcdfg",
        "webs-5-bcdfg",
    ):
        container(past, pod, 7.0)
    container(past, f"{WEB}-x2x4z", 7.0, namespace="other")
    container(past, f"{WEB}-x2x4z", 7.0, None, container="POD")
    container(past, f"{WEB}-x2x4z", 7.0, None, container="")
    evicted = {"namespace": "shop", "pod": f"{WEB}-vvvvv", "container": "app", "resource": "cpu"}
    past.add("kube_pod_container_resource_requests", evicted, [(each, 9.0) for each in TIMES])


def others(past: PastSeries) -> None:
    container(past, "db-0", 0.2)
    container(past, "db-11", 0.4)
    # A name that is generated from a longer one is cut.
    container(past, f"{LONG}-7d9f8b6c5d-"[:58] + "zzzzz", 0.25)
    for exporter in ("a", "b"):
        container(past, "twice-7d9f8b6c5d-zzzzz", 0.25, instance=exporter)
    container(past, "mixed-7d9f8b6c5d-zzzzz", 0.25)
    container(past, "mixed-7d9f8b6c5d-zzzzz", 0.4, None, container="proxy")
    container(past, "mixed-7d9f8b6c5d-zzzzz", 0.25, None, container="sidecar")
    sidecar = {"namespace": "shop", "pod": "mixed-7d9f8b6c5d-zzzzz", "container": "sidecar", "resource": "cpu"}
    past.add("kube_pod_init_container_resource_requests", sidecar, [(each, 0.5) for each in TIMES])
    for pod, size in (("bcdfg", 100e6), ("zzzzz", 300e6)):
        of = {"namespace": "shop", "pod": f"memory-7d9f8b6c5d-{pod}"}
        for name, share in (("app", 0.75), ("proxy", 0.25)):
            size_of = [(each, size * share) for each in TIMES]
            past.add("container_memory_working_set_bytes", of | {"container": name}, size_of)
    for kind, value in (("average", 50), ("value", 100)):
        labels = {"metric_name": "orders", "metric_target_type": kind}
        past.hpa("shop", "queue", "status_target_metric", [(each, value) for each in TIMES], **labels)
    for kind, value in (("utilization", 61), ("average", 0.3)):
        labels = {"metric_name": "cpu", "metric_target_type": kind}
        past.hpa("shop", "values", "status_target_metric", [(each, value) for each in TIMES], **labels)
    container(past, "both-7d9f8b6c5d-zzzzz", 0.25)
    labels = {"metric_name": "cpu", "metric_target_type": "utilization"}
    past.hpa("shop", "both", "status_target_metric", [(each, 72) for each in TIMES], **labels)
    scraped(past)
    past.add("orders", {"part": "a"}, [(each, 30) for each in TIMES])
    past.add("orders", {"part": "b"}, [(each, 12) for each in TIMES])


def scraped(past: PastSeries) -> None:
    """Adds the status of `scraped` with the labels that a scrape adds for the pod of kube-state-metrics."""
    target = {"container": "kube-state-metrics", "pod": "kube-state-metrics-0", "job": "kube-state-metrics"}
    for labels, value in (
        ({"metric_name": "cpu", "metric_target_type": "utilization"}, 72),
        ({"metric_name": "cpu", "metric_target_type": "utilization", "container": "app"}, 81),
        ({"metric_name": "orders", "metric_target_type": "average"}, 50),
    ):
        past.hpa("shop", "scraped", "status_target_metric", [(each, value) for each in TIMES], **{**target, **labels})


def unlike(past: PastSeries) -> None:
    """Adds targets whose pods differ, or changed."""
    # changed: the request is doubled at HALF.
    container(past, "changed-7d9f8b6c5d-zzzzz", 0.25, None)
    of = {"namespace": "shop", "pod": "changed-7d9f8b6c5d-zzzzz", "container": "app", "resource": "cpu"}
    points = [(each, 0.5 if each < HALF else 1.0) for each in TIMES]
    past.add("kube_pod_container_resource_requests", of, points)
    # uneven: one pod has a second container.
    container(past, "uneven-7d9f8b6c5d-bcdfg", 0.5)
    container(past, "uneven-7d9f8b6c5d-zzzzz", 0.1)
    container(past, "uneven-7d9f8b6c5d-zzzzz", 0.3, 0.5, container="proxy")
    # counted: two exporters have the request, one the usage, and one of two containers has no request.
    container(past, "counted-7d9f8b6c5d-zzzzz", 0.25, instance="a")
    container(past, "counted-7d9f8b6c5d-zzzzz", 0.25, None, container="proxy")
    of = {"namespace": "shop", "pod": "counted-7d9f8b6c5d-zzzzz", "container": "app", "resource": "cpu"}
    past.add("kube_pod_container_resource_requests", of | {"instance": "b"}, [(each, 0.5) for each in TIMES])
    # even: two containers in each pod; their requests differ.
    for pod, cores in (("bcdfg", 0.1), ("zzzzz", 0.3)):
        container(past, f"even-7d9f8b6c5d-{pod}", cores, 0.4)
        container(past, f"even-7d9f8b6c5d-{pod}", cores / 2, 0.2, container="proxy")


def conditions(past: PastSeries) -> None:
    """Adds `failed`, whose ScalingActive is false in the third quarter and then unknown, and whose maximum changes."""
    past.hpa("shop", "failed", "status_current_replicas", [(each, 0 if each < START + 1800 else 2) for each in TIMES])
    past.hpa("shop", "failed", "spec_max_replicas", [(each, 10 if each < HALF else 20) for each in TIMES])
    past.hpa("shop", "failed", "spec_min_replicas", [(each, 1) for each in TIMES])

    def state(moment: int) -> str:
        if moment < START + 1800 or HALF <= moment < HALF + 1200:
            return "false"
        return "unknown" if HALF + 1200 <= moment < HALF + 1800 else "true"

    for each in ("true", "false", "unknown"):
        points = [(moment, float(state(moment) == each)) for moment in TIMES]
        past.hpa("shop", "failed", "status_condition", points, condition="ScalingActive", status=each)
        limited = [(moment, float(each == "false")) for moment in TIMES]
        past.hpa("shop", "failed", "status_condition", limited, condition="ScalingLimited", status=each)
    hole = [each for each in TIMES if not HALF <= each < HALF + 1200]
    status(past, "hole", times=hole)
    status(past, "young", times=[each for each in TIMES if each >= HALF])
    # new: made at HALF, and its status is written 40 s later.
    for name in ("status_current_replicas", "status_desired_replicas"):
        past.hpa("shop", "new", name, [(each, 0 if each < HALF + 40 else 3) for each in TIMES if each >= HALF])


def test_cpu_is_the_usage_of_the_targets_pods_in_percent_of_their_requests(server: QueriedPrometheus) -> None:
    past = past_of(server, past_hpa("web"))
    assert past.load.times == [BEGIN + STEP * index for index in range(COUNT)]
    assert past.load.columns["cpu"] == pytest.approx([40.0] * COUNT)
    assert past.load.columns["replicas"] == [2] * COUNT
    assert past.desired == [3] * COUNT
    assert past.maximum == [10] * COUNT
    assert past.minimum == [1] * COUNT
    assert past.readings["cpu"].source == "cAdvisor and the requests"
    assert past.unrequested == {}
    assert past.problem == ""
    assert past.samples == 3 * COUNT


@pytest.mark.parametrize(
    ("hpa", "percent"),
    [
        (past_hpa("db", kind="StatefulSet"), 60.0),
        (past_hpa(LONG), 50.0),
        (past_hpa("twice"), 50.0),
    ],
    ids=["StatefulSet", "a cut name", "two exporters"],
)
def test_finds_the_pods_of_each_kind_once(
    server: QueriedPrometheus, hpa: HorizontalPodAutoscaler, percent: float
) -> None:
    assert past_of(server, hpa).load.columns["cpu"] == pytest.approx([percent] * COUNT)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("changed", 50.0, 25.0), ("uneven", 60.0, 60.0), ("counted", 50.0, 50.0), ("even", 50.0, 50.0)],
)
def test_pods_that_are_not_alike_are_added_up_by_their_requests(
    server: QueriedPrometheus, name: str, before: float, after: float
) -> None:
    column = past_of(server, past_hpa(name)).load.columns["cpu"]
    assert [at(column, HALF - 60), at(column, HALF)] == pytest.approx([before, after])
    assert None not in column


def test_alike_pods_are_asked_for_by_a_mean(server: QueriedPrometheus) -> None:
    assert past_of(server, past_hpa("web")).readings["cpu"].expression.startswith("200 * avg(rate(")
    assert past_of(server, past_hpa("even")).readings["cpu"].expression.startswith("166.666666667 * sum(avg by (con")
    assert past_of(server, past_hpa("changed")).readings["cpu"].expression.startswith("100 * sum(rate(")


def test_names_containers_without_a_request_and_leaves_their_usage_out(server: QueriedPrometheus) -> None:
    one = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    proxy = {"type": "ContainerResource", "containerResource": one | {"container": "proxy"}}
    sidecar = {"type": "ContainerResource", "containerResource": one | {"container": "sidecar"}}
    past = past_of(server, past_hpa("mixed", CPU, proxy, sidecar))
    assert past.unrequested == {"#0": ("proxy",), "cpu@proxy": ("proxy",)}
    assert past.load.columns["#0"] == pytest.approx([50.0] * COUNT)
    assert past.load.columns["cpu@sidecar"] == pytest.approx([50.0] * COUNT)
    assert "cpu@proxy" not in past.load.columns
    assert past.readings["cpu@proxy"].problem == (
        "no value from cAdvisor and the requests, nor from the status of the HPA"
    )


def test_leaves_out_the_containers_that_the_hpa_ignores(server: QueriedPrometheus) -> None:
    hpa = past_hpa("mixed")
    annotations = {"hpad.io/ignore-containers": "app, proxy"}
    metadata = msgspec.structs.replace(hpa.metadata, annotations=annotations)
    past = past_of(server, msgspec.structs.replace(hpa, metadata=metadata))
    assert past.load.columns["cpu"] == pytest.approx([50] * COUNT, rel=0.01)
    assert past.unrequested == {}


def test_an_average_is_that_of_pods_with_all_their_containers(server: QueriedPrometheus) -> None:
    target = {"type": "AverageValue", "averageValue": "200M"}
    metric = {"type": "Resource", "resource": {"name": "memory", "target": target}}
    past = past_of(server, past_hpa("memory", metric))
    assert past.load.columns["memory"] == pytest.approx([200e6] * COUNT)
    assert past.readings["memory"].source == "cAdvisor"


def test_knows_what_the_hpa_itself_saw_beside_the_usage_of_the_pods(server: QueriedPrometheus) -> None:
    past = past_of(server, past_hpa("both"))
    assert past.load.columns["cpu"] == pytest.approx([50] * COUNT)
    assert past.seen == {"cpu": [72] * COUNT}
    assert past_of(server, past_hpa("web")).seen == {}


def test_falls_back_to_the_status_where_cadvisor_has_nothing(server: QueriedPrometheus) -> None:
    past = past_of(server, past_hpa("values"))
    assert past.load.columns["cpu"] == [61] * COUNT
    assert past.readings["cpu"].source == "the status of the HPA"


def test_an_external_average_of_the_status_becomes_a_total(server: QueriedPrometheus) -> None:
    average, value = external("orders", "AverageValue", "40"), external("orders", "Value", "40")
    past = past_of(server, past_hpa("queue", average))
    assert past.load.columns["orders"] == [100] * COUNT
    assert past.readings["orders"].source == "the status of the HPA, times its replicas"
    assert past_of(server, past_hpa("queue", value)).load.columns["orders"] == [100] * COUNT
    twice = past_of(server, past_hpa("queue", average, average))
    assert "no sign which is which" in twice.readings["#0"].problem


def test_the_status_is_read_whatever_labels_the_scrape_adds(server: QueriedPrometheus) -> None:
    resource = {"name": "cpu", "container": "app", "target": {"type": "Utilization", "averageUtilization": 50}}
    container = {"type": "ContainerResource", "containerResource": resource}
    hpa = past_hpa("scraped", CPU, container, external("orders", "AverageValue", "40"))
    past = past_of(server, hpa)
    found = {address: set(column) for address, column in past.load.columns.items()}
    assert found == {"replicas": {2}, "#0": {72}, "cpu@app": {81}, "orders": {100}}
    assert past.seen == {"#0": [72] * COUNT, "cpu@app": [81] * COUNT}


def test_takes_the_query_of_a_source_before_the_status(server: QueriedPrometheus) -> None:
    hpa = past_hpa("queue", external("orders", "AverageValue", "40"))
    own = {(hpa.key, "orders"): PastPromQL("orders")}
    past = past_of(server, hpa, options=ReadingOptions(own=own))
    assert past.load.columns["orders"] == [42] * COUNT
    assert past.readings["orders"].expression == "orders"
    own = {(hpa.key, "orders"): PastPromQL("sum(orders")}
    wrong = past_of(server, hpa, options=ReadingOptions(own=own))
    assert wrong.readings["orders"].source == "the status of the HPA, times its replicas"


def test_says_that_a_metric_is_not_readable(server: QueriedPrometheus) -> None:
    past = past_of(server, past_hpa("web", external("depth", "Value", "40")))
    assert past.readings["depth"].problem == "no value from a query of its source, nor from the status of the HPA"
    assert list(past.load.columns) == ["replicas"]


def test_a_bound_that_changed_has_both_values(server: QueriedPrometheus) -> None:
    past = past_of(server, past_hpa("failed"))
    assert (at(past.maximum, HALF - 60), at(past.maximum, HALF)) == (10, 20)
    assert set(past.minimum) == {1}
    assert set(past.desired) == {None}


def test_failing_is_scaling_active_false_but_not_when_it_is_switched_off(server: QueriedPrometheus) -> None:
    (column,) = past_of(server, past_hpa("failed")).failing.values()
    assert at(column, BEGIN) == 0, "no replicas, so scaling is disabled"
    assert (at(column, HALF - 60), at(column, HALF), at(column, HALF + 1140)) == (0, 1, 1)
    assert at(column, HALF + 1200) is None
    assert at(column, HALF + 1800) == 0
    assert past_of(server, past_hpa("web")).failing == {"ScalingActive": [0.0] * COUNT}


def test_the_reason_of_now_is_that_since_the_condition_is_as_it_is(server: QueriedPrometheus) -> None:
    since = datetime.fromtimestamp(HALF + 600, UTC).isoformat()
    now = {"type": "ScalingActive", "status": "False", "reason": "FailedGetScale", "lastTransitionTime": since}
    failing = past_of(server, past_hpa("failed", conditions=(now,))).failing
    assert sorted(failing) == ["FailedGetScale", "ScalingActive"]
    assert [at(failing[name], HALF + 540) for name in sorted(failing)] == [0, 1]
    assert [at(failing[name], HALF + 600) for name in sorted(failing)] == [1, 0]


def test_a_gap_stays_a_gap(server: QueriedPrometheus) -> None:
    hole, young = pasts_of(server, [past_hpa("young"), past_hpa("hole")])
    counts = hole.load.columns["replicas"]
    # Prometheus takes a value for up to five minutes.
    assert [at(counts, HALF + second) for second in (0, 240, 300, 1140, 1200)] == [2, 2, None, None, 2]
    assert at(hole.maximum, HALF + 600) is None
    assert [at(young.load.columns["replicas"], moment) for moment in (BEGIN, HALF - 60, HALF)] == [None, None, 2]
    assert at(young.minimum, BEGIN) is None


def test_the_status_of_a_new_hpa_has_no_count_until_it_is_written(server: QueriedPrometheus) -> None:
    """kube-state-metrics says 0 of a count that is not there."""
    past = past_of(server, past_hpa("new"))
    assert (at(past.load.columns["replicas"], HALF), at(past.desired, HALF)) == (None, None)
    assert {*past.load.columns["replicas"], *past.desired} == {None, 3}
    assert 0 in past_of(server, past_hpa("failed")).load.columns["replicas"]


def test_reads_many_hpas_by_namespace_and_reports_progress(
    server: QueriedPrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_VALUES", 2 * COUNT)  # two HPAs in a batch
    seen: list[tuple[int, int, int]] = []
    hpas = [past_hpa(name) for name in ("web", "twice", "hole", "young", "absent")]
    options = ReadingOptions(progress=lambda done, of, samples: seen.append((done, of, samples)))
    found = pasts_of(server, hpas, options=options)
    assert [past.hpa.key.name for past in found] == ["absent", "hole", "twice", "web", "young"]
    assert [(done, of) for done, of, _ in seen] == [(number, 5) for number in range(1, 6)]
    assert seen[-1][2] >= sum(past.samples for past in found)
    assert set(found[0].load.columns["replicas"]) == {None}


def test_a_queue_has_its_rates(server: QueriedPrometheus, tmp_path: Path) -> None:
    file = tmp_path / "series.yaml"
    file.write_text(
        "queues:\n  shop/queue:\n"
        "    orders: {messages: orders, published: orders / 6, acked: orders / 7, per_replica: 3}\n"
    )
    hpa = past_hpa("queue", external("orders", "AverageValue", "40"))
    past = past_of(server, hpa, read_file(file))
    rates = past.queues["orders"]
    assert past.load.columns["orders"] == [42] * COUNT
    assert past.load.columns[rates.published] == [7] * COUNT
    assert past.load.columns[rates.acked] == [6] * COUNT
    assert rates.per_replica == 3
    file.write_text("queues: {shop/queue: {mails: {messages: orders, published: orders, acked: orders}}}\n")
    with pytest.raises(HistoryError, match=r"series.yaml: queues.shop/queue: there is no metric 'mails'; it has o"):
        past_of(server, hpa, read_file(file))


def test_says_what_to_change_where_there_is_too_much_or_nothing(server: QueriedPrometheus) -> None:
    with pytest.raises(HistoryError, match=r"1 HPAs at 91 times have about 273 values, more than 200; choose a s"):
        past_of(server, past_hpa("web"), options=ReadingOptions(most_samples=200))
    renamed = DEFAULT._replace(expressions={**DEFAULT.expressions, "current": "kube_hpa_replicas{<<.HPAs>>}"})
    with pytest.raises(HistoryError, match=r"no value of kube_hpa_replicas.* in the whole time; is kube-state-metrics"):
        past_of(server, past_hpa("web"), renamed)


@pytest.fixture(scope="module")
def exported() -> Iterator[QueriedPrometheus]:
    """Runs a Prometheus that scrapes kube-state-metrics with honor_labels: false."""
    past = PastSeries()
    target = {"namespace": "monitoring", "pod": "kube-state-metrics-0", "container": "main"}
    for name, value in (("status_current_replicas", 2), ("status_desired_replicas", 2), ("spec_max_replicas", 10)):
        labels = {**target, "exported_namespace": "shop", "horizontalpodautoscaler": "web"}
        past.add(f"kube_horizontalpodautoscaler_{name}", labels, [(each, value) for each in TIMES])
    of = {"exported_namespace": "shop", "exported_pod": f"{WEB}-zzzzz", "exported_container": "app", "resource": "cpu"}
    past.add("kube_pod_container_resource_requests", target | of, [(each, 0.5) for each in TIMES])
    container(past, f"{WEB}-zzzzz", 0.25, None)
    for each in prometheus_lab.serve(past.text):
        yield QueriedPrometheus(each.url)


def test_finds_labels_that_were_renamed_by_the_scrape(exported: QueriedPrometheus) -> None:
    past = past_of(exported, past_hpa("web"))
    assert past.load.columns["replicas"] == [2] * COUNT
    assert past.maximum == [10] * COUNT
    assert past.load.columns["cpu"] == pytest.approx([50.0] * COUNT)
    assert past.failing == {}, "Prometheus has no conditions, so nothing is known"
