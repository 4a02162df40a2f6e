"""The exported series: present from the start, named as in Kubernetes, removed with their HPA."""

import gc
from collections.abc import Iterator

import pytest
from prometheus_client import parser, registry
from prometheus_client.core import GaugeMetricFamily, Metric

from hpad.api.metadata import Key
from hpad.api.sample import AdapterError
from hpad.sources.limits import SOURCE_STATES, SourceReport
from hpad.telemetry import Telemetry

PREFIX = "horizontal_pod_autoscaler_controller_"


async def samples(telemetry: Telemetry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = (await telemetry.exposition()).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_every_combination_of_fixed_labels_starts_at_zero() -> None:
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


async def test_requests_per_reconcile_exclude_those_of_leader_election() -> None:
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


@pytest.mark.parametrize(
    ("name", "buckets"),
    [
        # monitor/metrics.go: ExponentialBuckets(0.001, 2, 15)
        (f"{PREFIX}reconciliation_duration_seconds", [0.001 * 2**k for k in range(15)]),
        (f"{PREFIX}metric_computation_duration_seconds", [0.001 * 2**k for k in range(15)]),
        # workqueue/metrics.go: ExponentialBuckets(10e-9, 10, 10)
        ("workqueue_queue_duration_seconds", [10.0**k for k in range(-8, 2)]),
        ("workqueue_work_duration_seconds", [10.0**k for k in range(-8, 2)]),
    ],
)
async def test_histograms_have_the_buckets_of_kubernetes(name: str, buckets: list[float]) -> None:
    found = await samples(Telemetry())
    edges = {float(dict(labels)["le"]) for sample, labels in found if sample == f"{name}_bucket"}
    assert sorted(edges) == pytest.approx([*buckets, float("inf")])


async def test_the_series_of_an_hpa_end_with_it() -> None:
    telemetry = Telemetry()
    telemetry.controller.desired(Key("shop", "web"), 7, 10, 0.0)
    labels = (("hpa_name", "web"), ("namespace", "shop"))
    assert (await samples(telemetry))[f"{PREFIX}desired_replicas", labels] == 7
    telemetry.controller.forget(Key("shop", "web"))
    assert (f"{PREFIX}desired_replicas", labels) not in await samples(telemetry)


async def test_time_at_max_replicas_adds_up_and_ends_with_the_hpa() -> None:
    telemetry = Telemetry()
    labels = (("hpa_name", "web"), ("namespace", "shop"))
    for now, replicas in ((0, 5), (15, 10), (30, 10), (45, 4), (60, 4), (75, 10), (80, 10)):
        telemetry.controller.desired(Key("shop", "web"), replicas, 10, float(now))
    assert (await samples(telemetry))["hpad_hpa_at_max_seconds_total", labels] == (45 - 15) + (80 - 75)
    telemetry.controller.forget(Key("shop", "web"))
    assert not [name for name, found in await samples(telemetry) if found == labels]


async def test_reports_are_counted() -> None:
    telemetry = Telemetry()
    telemetry.sources.configured("broker")
    telemetry.controller.reconciled("scale_up", "none", 0.004)
    telemetry.controller.computed("External", "scale_up", "none", 0.002)
    telemetry.sources.answered("broker", 0.1, AdapterError("down"))
    telemetry.controller.requested("GET", "api:6443", "200", 0.01)
    telemetry.process.cache_staleness("pods", 3.5)
    telemetry.controller.lateness.observe(0.2)
    telemetry.process.bugs.count()
    telemetry.before_scrape(lambda: telemetry.controller.hpas.set(12))
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


async def test_the_figures_of_sources_are_exported() -> None:
    telemetry = Telemetry()
    telemetry.sources.report(
        [SourceReport(name="broker", adapter="rabbitmq", state="open", asked=7, hits=4, retries=2)], SOURCE_STATES
    )
    text = (await telemetry.exposition()).decode()
    assert 'hpad_source_state{source="broker",state="open"} 1.0' in text
    assert 'hpad_source_state{source="broker",state="ok"} 0.0' in text
    assert 'hpad_source_questions_total{source="broker"} 7.0' in text
    assert 'hpad_source_cache_hits_total{source="broker"} 4.0' in text
    assert 'hpad_source_retries_total{source="broker"} 2.0' in text


@pytest.mark.parametrize("fails", [False, True])
async def test_no_garbage_is_searched_for_while_series_are_rendered(fails: bool):
    """The search would stop the event loop, also that of another thread."""
    telemetry, collects = Telemetry(), list[bool]()

    class Probe(registry.Collector):
        def collect(self) -> Iterator[Metric]:
            collects.append(gc.isenabled())
            if fails:
                raise RuntimeError("a collector fails")
            yield GaugeMetricFamily("probe", "A series", 1)

    telemetry.registry.register(Probe())
    if fails:
        with pytest.raises(RuntimeError, match="a collector fails"):
            await telemetry.exposition()
    else:
        assert b"probe 1.0" in await telemetry.exposition()
    assert collects == [False]
    assert gc.isenabled()
