"""Fields of Kubernetes 1.37 and 1.38 that stand for annotations of hpad, and generations in the status."""

from typing import Any

import msgspec
import pytest
from support.engine import Workload, external, resource, series, used

from hpad.api import older
from hpad.api.decode import read
from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, defaulted, from_builtins
from hpad.api.sample import AdapterError
from hpad.api.validation import validate
from hpad.engine import annotations
from hpad.engine.annotations import AnnotationReader
from hpad.engine.history import History

DOWN = AdapterError("broker down")
FALLBACK = {"replicas": 5, "failureDurationSeconds": 240}


def with_fallback(fallback: dict[str, Any] | None = None) -> dict[str, Any]:
    metric = external("queue", averageValue="10")
    metric["external"]["fallback"] = FALLBACK if fallback is None else fallback
    return metric


def hpa(texts: dict[str, str] | None = None, **spec: Any) -> HorizontalPodAutoscaler:
    head = {"name": "web", "namespace": "default", "annotations": texts or {}}
    return from_builtins({"metadata": head, "spec": {"metrics": [external("queue", averageValue="10")], **spec}})


def test_a_sync_period_of_the_spec_is_that_of_the_annotation() -> None:
    assert annotations.PLAIN.sync_period(hpa(syncPeriodSeconds=5)) == 5
    own = annotations.PLAIN.of(hpa(syncPeriodSeconds=5))
    assert own.controls.sync_period is not None
    assert (own.controls.sync_period.total_seconds(), own.error) == (5, None)


@pytest.mark.parametrize(("strategy", "selection"), [("OwnerReference", "owner"), ("LabelSelector", "selector")])
def test_a_selection_strategy_is_the_pod_selection(strategy: str, selection: str) -> None:
    own = annotations.PLAIN.of(hpa(selectionStrategy=strategy))
    assert (own.controls.pod_selection, own.error) == (selection, None)


def test_a_field_wins_over_the_annotation_and_the_condition_says_so() -> None:
    given = hpa({"hpad.io/sync-period": "10m", "hpad.io/pod-selection": "owner"}, syncPeriodSeconds=5)
    own = annotations.PLAIN.of(given)
    assert annotations.PLAIN.sync_period(given) == 5
    assert own.controls.pod_selection == "owner"
    assert own.reason == "OverriddenAnnotation"
    assert own.error == (
        "annotation hpad.io/sync-period: spec.syncPeriodSeconds says something else, and wins: remove one of them"
    )


def test_a_default_of_the_configuration_gives_way_without_a_word() -> None:
    reader = AnnotationReader(defaults=lambda _: {"hpad.io/sync-period": "10m"})
    assert reader.sync_period(hpa(syncPeriodSeconds=5)) == 5
    assert reader.of(hpa(syncPeriodSeconds=5)).error is None


def test_a_field_and_an_annotation_may_say_the_same() -> None:
    texts = {"hpad.io/sync-period": "60s", "hpad.io/pod-selection": "owner", "hpad.io/fallback": "replicas:5 after 4m"}
    spec = {"syncPeriodSeconds": 60, "selectionStrategy": "OwnerReference", "metrics": [with_fallback()]}
    assert annotations.PLAIN.of(hpa(texts, **spec)).errors == ()


def test_a_default_fallback_gives_way_without_a_word() -> None:
    own = AnnotationReader(defaults=lambda _: {"hpad.io/fallback": "hold"}).of(hpa(metrics=[with_fallback()]))
    assert [str(policy.fallback) for policy in own.policies] == ["replicas:5 after 4m0s"]
    assert own.errors == ()


def test_a_failure_duration_of_64_bits_never_ends() -> None:
    web = worker(with_fallback({"replicas": 5, "failureDurationSeconds": 2**63 - 1}))
    web.reconcile(series(30))
    assert decided(web, [15, 86400], DOWN) == [3, 3]


def decided(web: Workload, seconds: list[int], answer: Any) -> list[int]:
    return [web.reconcile(answer, after=each).desired for each in seconds]


def worker(metric: dict[str, Any], texts: dict[str, str] | None = None) -> Workload:
    """A workload whose HPA is read as by the daemon, fields of the spec included."""
    web = Workload(metric, replicas=3, behavior=None)
    plain = web.view

    def view(**fields: Any) -> Any:
        made = plain(**fields)
        head = msgspec.structs.replace(made.hpa.metadata, annotations=texts)
        own = annotations.PLAIN.of(msgspec.structs.replace(made.hpa, metadata=head))
        return msgspec.structs.replace(
            made, fallback_policies=own.policies, annotation_error=own.error, annotation_reason=own.reason
        )

    web.view = view  # type: ignore[method-assign]
    return web


def external_status(web: Workload) -> Any:
    assert web.hpa.status.current_metrics is not None
    return web.hpa.status.current_metrics[0].external


def test_a_fallback_of_the_spec_stands_in_after_its_time_and_the_status_says_so() -> None:
    web = worker(with_fallback())
    assert web.reconcile(series(30)).desired == 3
    assert (external_status(web).fallback_status, external_status(web).first_failure_time) == ("Normal", None)
    assert decided(web, [15, 225], DOWN) == [3, 3]
    began = external_status(web).first_failure_time
    assert external_status(web).fallback_status == "Normal"
    assert decided(web, [15], DOWN) == [5]
    assert (external_status(web).fallback_status, external_status(web).first_failure_time) == ("Fallback", began)
    assert web.condition("ExternalMetricFallbackActive").status == "True"
    web.reconcile(series(70), after=15)
    assert (external_status(web).fallback_status, external_status(web).first_failure_time) == ("Normal", None)
    assert web.condition("ExternalMetricFallbackActive").status == "False"


@pytest.mark.parametrize("reported", [True, False])
def test_the_time_of_a_fallback_goes_on_where_nothing_is_remembered_but_the_status(reported: bool) -> None:
    """After 200 s the memory is lost, as if another controller had scaled the HPA; the fallback begins after 240 s."""
    web = worker(with_fallback())
    web.reconcile(series(30))
    assert decided(web, [15, 200], DOWN) == [3, 3]
    web.history = History()
    if not reported:
        web.hpa = msgspec.structs.replace(web.hpa, status=HorizontalPodAutoscalerStatus())
    assert decided(web, [15, 25], DOWN) == [3, 5 if reported else 3]


def test_a_time_of_failure_in_the_status_is_forgotten_once_the_metric_is_read() -> None:
    web = worker(with_fallback())
    web.reconcile(series(30))
    assert decided(web, [15, 230], DOWN) == [3, 3]
    failing, web.history = web.hpa, History()
    web.reconcile(series(30), after=5)
    web.hpa = failing  # a status that could not be written
    assert decided(web, [15, 225], DOWN) == [3, 3]


def test_a_fallback_waits_for_three_minutes_by_default() -> None:
    web = worker(with_fallback({"replicas": 5}))
    web.reconcile(series(30))
    assert decided(web, [15, 165, 15], DOWN) == [3, 3, 5]


def test_a_fallback_of_the_spec_wins_over_the_annotation() -> None:
    web = worker(with_fallback(), {"hpad.io/fallback": "replicas:9 after 0s"})
    web.reconcile(series(30))
    assert decided(web, [15, 240], DOWN) == [3, 5]
    condition = web.condition("HpadAnnotationsValid")
    assert condition.reason == "OverriddenAnnotation"
    assert "spec.metrics[0].external.fallback says something else, and wins" in condition.message


def test_without_the_field_a_status_has_neither_field_of_it() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=3, annotations={"hpad.io/fallback": "replicas:5"})
    web.reconcile(series(30))
    written = msgspec.to_builtins(external_status(web), enc_hook=str)
    assert set(written) == {"metric", "current"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"syncPeriodSeconds": 2}, "spec.syncPeriodSeconds: Invalid value: 2: must be between 3 and 3600, inclusive"),
        ({"syncPeriodSeconds": 3601}, "spec.syncPeriodSeconds: Invalid value: 3601: must be between 3 and 3600"),
        ({"selectionStrategy": "Owner"}, "spec.selectionStrategy: Unsupported value: "),
        ({"metrics": [with_fallback({"replicas": 0})]}, "spec.metrics[0].external.fallback.replicas: Invalid value: 0"),
        (
            {"metrics": [with_fallback({"replicas": 1, "failureDurationSeconds": 179})]},
            "spec.metrics[0].external.fallback.failureDurationSeconds: Invalid value: 179: must be greater than or",
        ),
    ],
)
def test_a_value_outside_of_its_bounds_is_named(spec: dict[str, Any], message: str) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    faults = validate(defaulted(hpa(scaleTargetRef=target, maxReplicas=3, **spec)))
    assert len(faults) == 1
    assert faults[0].text.startswith(message)


def test_a_document_with_these_fields_is_read() -> None:
    document = {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"syncPeriodSeconds": 5, "selectionStrategy": "OwnerReference", "metrics": [with_fallback()]},
    }  # fmt: skip
    found = read(document)
    assert found.errors == ()
    assert found.hpa is not None
    assert found.hpa.spec.sync_period_seconds == 5


def test_autoscaling_v1_has_the_sync_period_too() -> None:
    """KEP-6003 adds it to both versions."""
    document = {
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"syncPeriodSeconds": 5, "maxReplicas": 3},
    }  # fmt: skip
    found = read(document)
    assert found.errors == ()
    assert found.hpa is not None
    assert found.hpa.spec.sync_period_seconds == 5
    assert older.to_v1(found.hpa).spec.sync_period_seconds == 5


@pytest.mark.parametrize("generation", [0, 4])
def test_generations_are_reported_where_the_server_counts_them(generation: int) -> None:
    """As Kubernetes 1.37 does, in the status and in each condition; earlier servers have none for HPAs."""
    web = Workload(resource("cpu", averageUtilization=50), replicas=2)
    head = msgspec.structs.replace(web.hpa.metadata, generation=generation)
    web.hpa = msgspec.structs.replace(web.hpa, metadata=head)
    web.reconcile(used([100, 100]))
    expected = generation or None
    assert web.hpa.status.observed_generation == expected
    assert {each.observed_generation for each in web.hpa.status.conditions} == {expected}
    since = web.condition("AbleToScale").last_transition_time
    head = msgspec.structs.replace(head, generation=generation and generation + 1)
    web.hpa = msgspec.structs.replace(web.hpa, metadata=head)
    web.reconcile(used([100, 100]), after=15)
    assert web.condition("AbleToScale").observed_generation == ((generation and generation + 1) or None)
    assert web.condition("AbleToScale").last_transition_time == since


def test_a_generation_that_a_server_drops_from_conditions_is_not_written_again_in_each_turn() -> None:
    web = Workload(resource("cpu", averageUtilization=50), replicas=2)
    head = msgspec.structs.replace(web.hpa.metadata, generation=4)
    web.hpa = msgspec.structs.replace(web.hpa, metadata=head)
    web.reconcile(used([100, 100]))
    kept = [msgspec.structs.replace(each, observed_generation=None) for each in web.hpa.status.conditions]
    status = msgspec.structs.replace(web.hpa.status, conditions=tuple(kept))
    web.hpa = msgspec.structs.replace(web.hpa, status=status)
    web.reconcile(used([100, 100]), after=15)
    assert web.done is not None
    assert not web.done.settlement.status_changed
