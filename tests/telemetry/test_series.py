"""The exported series: present from the start, named as in Kubernetes, removed with their HPA."""

from prometheus_client import parser

from hpad.api.metadata import Key
from hpad.sources.report import Report
from hpad.telemetry import Telemetry

PREFIX = "horizontal_pod_autoscaler_controller_"


async def samples(telemetry: Telemetry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = (await telemetry.exposition()).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_every_combination_of_fixed_labels_is_there_at_zero() -> None:
    found = await samples(Telemetry())
    for action in ("scale_up", "scale_down", "none"):
        for error in ("spec", "internal", "none"):
            labels = (("action", action), ("error", error))
            assert found[f"{PREFIX}reconciliations_total", labels] == 0
            assert found[f"{PREFIX}reconciliation_duration_seconds_count", labels] == 0
            for kind in ("Resource", "ContainerResource", "Pods", "Object", "External"):
                assert found[f"{PREFIX}metric_computation_total", (*labels, ("metric_type", kind))] == 0
    assert found[f"{PREFIX}num_horizontal_pod_autoscalers", ()] == 0
    queue = (("name", "horizontalpodautoscaler"),)
    for name in ("adds_total", "depth", "queue_duration_seconds_count", "longest_running_processor_seconds"):
        assert found[f"workqueue_{name}", queue] == 0


async def test_requests_per_reconcile_count_all_but_those_for_the_lead() -> None:
    telemetry = Telemetry()
    found = await samples(telemetry)
    assert (found["hpad_requests_per_reconcile_sum", ()], found["hpad_requests_per_reconcile_count", ()]) == (0, 0)
    for _ in range(4):
        telemetry.controller.reconciled("none", "none", 0.1)
    for code in ("200", "200", "500", "<error>", "201", "409"):
        telemetry.controller.requested("GET", "api:6443", code, 0.1)
    telemetry.controller.requested_by_election("PUT", "api:6443", "200", 0.1)
    found = await samples(telemetry)
    assert (found["hpad_requests_per_reconcile_sum", ()], found["hpad_requests_per_reconcile_count", ()]) == (6, 4)
    client = (("code", "200"), ("host", "api:6443"), ("method", "PUT"))
    assert found["rest_client_requests_total", client] == 1


async def test_the_buckets_are_the_originals() -> None:
    found = await samples(Telemetry())
    edges = {
        float(dict(labels)["le"]) for name, labels in found if name == f"{PREFIX}reconciliation_duration_seconds_bucket"
    }
    assert edges == {*(0.001 * 2**k for k in range(15)), float("inf")}


async def test_series_of_an_hpa_go_with_it() -> None:
    telemetry = Telemetry()
    telemetry.controller.desired(Key("shop", "web"), 7, 10, 0.0)
    labels = (("hpa_name", "web"), ("namespace", "shop"))
    assert (await samples(telemetry))[f"{PREFIX}desired_replicas", labels] == 7
    telemetry.controller.forget(Key("shop", "web"))
    assert (f"{PREFIX}desired_replicas", labels) not in await samples(telemetry)


async def test_time_at_the_maximum_adds_up_and_goes_with_the_hpa() -> None:
    telemetry = Telemetry()
    labels = (("hpa_name", "web"), ("namespace", "shop"))
    for now, replicas in ((0, 5), (15, 10), (30, 10), (45, 4), (60, 4), (75, 10), (80, 10)):
        telemetry.controller.desired(Key("shop", "web"), replicas, 10, float(now))
    assert (await samples(telemetry))["hpad_hpa_at_max_seconds_total", labels] == (45 - 15) + (80 - 75)
    telemetry.controller.forget(Key("shop", "web"))
    assert not [name for name, held in await samples(telemetry) if held == labels]


async def test_what_happens_is_counted() -> None:
    telemetry = Telemetry()
    telemetry.sources.configured("broker")
    telemetry.controller.reconciled("scale_up", "none", 0.004)
    telemetry.controller.computed("External", "scale_up", "none", 0.002)
    telemetry.sources.answered("broker", 0.1, "source")
    telemetry.controller.requested("GET", "api:6443", "200", 0.01)
    telemetry.process.cache_staleness("pods", 3.5)
    telemetry.controller.late(0.2)
    telemetry.process.bug()
    telemetry.before_scrape(lambda: telemetry.controller.hpas(12))
    found = await samples(telemetry)
    outcome = (("action", "scale_up"), ("error", "none"))
    assert found[f"{PREFIX}reconciliations_total", outcome] == 1
    assert found[f"{PREFIX}reconciliation_duration_seconds_sum", outcome] == 0.004
    assert found[f"{PREFIX}metric_computation_total", (*outcome, ("metric_type", "External"))] == 1
    assert found["hpad_source_errors_total", (("blame", "source"), ("source", "broker"))] == 1
    assert found["hpad_source_errors_total", (("blame", "spec"), ("source", "broker"))] == 0
    assert found["hpad_api_request_seconds_count", (("code", "200"), ("method", "GET"))] == 1
    client = (("code", "200"), ("host", "api:6443"), ("method", "GET"))
    assert found["rest_client_requests_total", client] == 1
    assert found["hpad_cache_staleness_seconds", (("resource", "pods"),)] == 3.5
    assert found["hpad_reconcile_lateness_seconds_count", ()] == 1
    assert found["hpad_bugs_total", ()] == 1
    assert found[f"{PREFIX}num_horizontal_pod_autoscalers", ()] == 12


async def test_sources_are_seen_as_they_count_themselves():
    telemetry = Telemetry()
    telemetry.sources.report([Report(name="broker", adapter="rabbitmq", state="open", asked=7, hits=4, retries=2)])
    text = (await telemetry.exposition()).decode()
    assert 'hpad_source_state{source="broker",state="open"} 1.0' in text
    assert 'hpad_source_state{source="broker",state="ok"} 0.0' in text
    assert 'hpad_source_questions_total{source="broker"} 7.0' in text
    assert 'hpad_source_cache_hits_total{source="broker"} 4.0' in text
    assert 'hpad_source_retries_total{source="broker"} 2.0' in text
