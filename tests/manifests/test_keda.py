"""Conversion of KEDA's ScaledObjects to HPAs and sources, with notes on losses."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpad.api.hpa import from_builtins
from hpad.api.problem import Invalid
from hpad.cli import main
from hpad.engine.annotations import PLAIN, Own
from hpad.manifests.keda import conversion, modifiers, scaledobject
from hpad.manifests.keda.conversion import Converted

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "config" / "keda").glob("*.yaml"))
RABBITMQ = {"host": "http://rabbitmq:15672/", "queueName": "orders", "mode": "QueueLength", "value": "20"}
PROMETHEUS = {
    "serverAddress": "http://prometheus:9090",
    "query": "sum(x)",
    "threshold": "100",
    "ignoreNullValues": "false",
}
CRON = {"timezone": "Europe/Berlin", "start": "0 8 * * *", "end": "0 18 * * *", "desiredReplicas": "10"}


def trigger(kind: str, metadata: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"type": kind, "metadata": metadata, **rest}


def scaled(*triggers: dict[str, Any], metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "worker", "namespace": "shop", **(metadata or {})},
        "spec": {"scaleTargetRef": {"name": "worker"}, "triggers": list(triggers), **spec},
    }


def converted(*triggers: dict[str, Any], **rest: Any) -> Converted:
    return scaledobject.convert(scaled(*triggers, **rest))


def notes(found: Converted) -> dict[str, str]:
    return {note.field: note.text for note in found.notes}


def lost(found: Converted) -> set[str]:
    return {note.field for note in found.notes if note.lost}


def hpa_of(found: Converted) -> dict[str, Any]:
    assert found.hpa is not None
    return found.hpa


def policies(found: Converted) -> Own:
    """Returns what hpad reads in the annotations of the HPA, which have no errors."""
    read = PLAIN.of(from_builtins(hpa_of(found)))
    assert read.errors == ()
    return read


def only_source(found: Converted) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the settings and the query of the only source."""
    [source] = found.sources
    return dict(source.settings), dict(source.query)


def test_names_and_limits_are_those_of_keda() -> None:
    hpa = converted(trigger("rabbitmq", RABBITMQ)).hpa
    assert hpa["metadata"] == {"name": "worker", "namespace": "shop"}
    spec = hpa["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (0, 100)
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "worker"}


def test_fields_with_a_counterpart_are_kept() -> None:
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 60}}
    found = converted(
        trigger("cpu", {"value": "60"}, metricType="Utilization"),
        metadata={
            "labels": {"team": "a"},
            "annotations": {"note": "x", "scaledobject.keda.sh/unheard-of": "true"},
        },
        scaleTargetRef={"name": "db", "kind": "StatefulSet", "apiVersion": "apps/v1"},
        minReplicaCount=2,
        maxReplicaCount=7,
        advanced={"horizontalPodAutoscalerConfig": {"name": "mine", "behavior": behavior}},
    )
    metadata = {"name": "mine", "namespace": "shop", "labels": {"team": "a"}, "annotations": {"note": "x"}}
    assert hpa_of(found)["metadata"] == metadata
    assert hpa_of(found)["spec"] == {
        "scaleTargetRef": {"name": "db", "kind": "StatefulSet", "apiVersion": "apps/v1"},
        "minReplicas": 2,
        "maxReplicas": 7,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
            }
        ],
        "behavior": behavior,
    }
    assert lost(found) == {"metadata.annotations[scaledobject.keda.sh/unheard-of]"}


def test_memory_of_a_container_in_the_older_form() -> None:
    found = converted(trigger("memory", {"type": "AverageValue", "value": "1Gi", "containerName": "app"}))
    assert hpa_of(found)["spec"]["metrics"] == [
        {
            "type": "ContainerResource",
            "containerResource": {
                "name": "memory",
                "container": "app",
                "target": {"type": "AverageValue", "averageValue": "1Gi"},
            },
        }
    ]
    assert hpa_of(found)["spec"]["minReplicas"] == 1
    assert "carried over as 1" in notes(found)["spec.minReplicaCount"]


@pytest.mark.parametrize(
    ("changed", "query", "value"),
    [
        ({}, {"queue": "orders", "mode": "messages", "vhost": "/"}, "20"),
        ({"mode": "MessageRate", "value": "100.5"}, {"queue": "orders", "mode": "publish_rate", "vhost": "/"}, "100.5"),
        ({"mode": "DeliverGetRate"}, {"queue": "orders", "mode": "deliver_rate", "vhost": "/"}, "20"),
        ({"mode": "ExpectedQueueConsumptionTime"}, {"queue": "orders", "mode": "drain_time", "vhost": "/"}, "20"),
        ({"vhostName": "a/b"}, {"queue": "orders", "mode": "messages", "vhost": "a/b"}, "20"),
        ({"host": "http://rabbitmq:15672/a%2Fb"}, {"queue": "orders", "mode": "messages", "vhost": "a/b"}, "20"),
        (
            {"excludeUnacknowledged": "true"},
            {"queue": "orders", "mode": "messages", "include_unacked": False, "vhost": "/"},
            "20",
        ),
        (
            {"useRegex": "true", "queueName": "^orders", "operation": "avg"},
            {"queue_regex": "(?i).*(?:^orders).*", "mode": "messages", "aggregate": "avg", "vhost": "/"},
            "20",
        ),
        (
            {"useRegex": "true", "queueName": "(?i)^orders"},
            {"queue_regex": "(?i).*(?:^orders).*", "mode": "messages", "aggregate": "sum", "vhost": "/"},
            "20",
        ),
        (
            {"useRegex": "true", "mode": "ExpectedQueueConsumptionTime"},
            {"queue_regex": "(?i).*(?:orders).*", "mode": "drain_time", "aggregate": "max", "vhost": "/"},
            "20",
        ),
        ({"host": "amqp://rabbitmq/prod"}, {"queue": "orders", "mode": "ready", "vhost": "prod"}, "20"),
        ({"queueName": " orders\n", "value": " 20 "}, {"queue": "orders", "mode": "messages", "vhost": "/"}, "20"),
        ({"host": "amqp://rabbitmq/a/b"}, {"queue": "orders", "mode": "ready", "vhost": "a/b"}, "20"),
    ],
)
def test_a_trigger_of_rabbitmq_becomes_the_same_query(
    changed: dict[str, str], query: dict[str, Any], value: str
) -> None:
    found = converted(trigger("rabbitmq", RABBITMQ | changed), minReplicaCount=1)
    assert only_source(found)[1] == query
    assert hpa_of(found)["spec"]["metrics"] == [
        {
            "type": "External",
            "external": {
                "metric": {"name": "shop-worker-s0-rabbitmq"},
                "target": {"type": "AverageValue", "averageValue": value},
            },
        }
    ]


@pytest.mark.parametrize(
    ("mode", "activation"),
    [
        ("QueueLength", None),
        ("MessageRate", "=3,shop-worker-s0-rabbitmq-waiting=3"),
        ("DeliverGetRate", None),
        ("ExpectedQueueConsumptionTime", "=3"),
    ],
)
def test_a_target_that_may_sleep_stays_awake_while_messages_wait(mode: str, activation: str | None) -> None:
    metadata = RABBITMQ | {"mode": mode, "activationValue": "3", "excludeUnacknowledged": "true"}
    found = converted(trigger("rabbitmq", metadata, metricType="Value"))
    assert len(found.sources) == len(hpa_of(found)["spec"]["metrics"]) == (1 if activation is None else 2)
    if activation is not None:
        waiting = {"queue": "orders", "mode": "messages", "include_unacked": False, "vhost": "/"}
        assert found.sources[1].query == waiting
        [_, metric] = hpa_of(found)["spec"]["metrics"]
        assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1G"}
        assert hpa_of(found)["metadata"]["annotations"]["hpad.io/activation"] == f"shop-worker-s0-rabbitmq{activation}"


@pytest.mark.parametrize(
    ("changed", "field", "text"),
    [
        ({"host": "amqp://monitor:pass#20@rabbit:5672/"}, "host", "characters such as # in the user or the password"),
        ({"host": "BROKER_URL"}, "host", "hostFromEnv names a variable"),
        ({"mode": "queueLength"}, "mode", "must be one of QueueLength, MessageRate"),
    ],
)
def test_the_error_of_a_trigger_says_what_would_be_right(changed: dict[str, str], field: str, text: str) -> None:
    with pytest.raises(Invalid) as caught:
        converted(trigger("rabbitmq", RABBITMQ | changed))
    [problem] = caught.value.problems
    assert problem.path == f"spec.triggers[0].metadata.{field}"
    assert text in str(problem)
    assert "pass#20" not in str(problem)


@pytest.mark.parametrize(
    ("metadata", "value"),
    [({}, "20"), ({"queueLength": "7"}, "7"), ({"mode": "QueueLength", "value": "9"}, "9")],
)
def test_the_older_forms_of_a_length_and_its_default(metadata: dict[str, str], value: str) -> None:
    found = converted(
        trigger("rabbitmq", {"host": "http://r:15672/", "queueName": "q", **metadata}, metricType="Value")
    )
    [metric] = hpa_of(found)["spec"]["metrics"]
    assert metric["external"]["target"] == {"type": "Value", "value": value}


def test_an_address_is_split_and_its_password_is_not_copied() -> None:
    host = "https://guest:hunter2@rabbitmq.shop.svc/behind/a/proxy/prod"
    found = converted(trigger("rabbitmq", RABBITMQ | {"host": host, "timeout": "1500", "unsafeSsl": "true"}))
    settings, query = only_source(found)
    assert settings == {
        "url": "https://rabbitmq.shop.svc/behind/a/proxy",  # port 443, as for KEDA
        "username": "guest",
        "password_env": "HPAD_RABBITMQ_SHOP_SVC_PASSWORD",
        "request_timeout": "1500ms",
        "insecure": True,
    }
    assert query["vhost"] == "prod"
    assert "HPAD_RABBITMQ_SHOP_SVC_PASSWORD" in notes(found)["spec.triggers[0].metadata.host"]
    assert "hunter2" not in str(found)


def test_an_address_in_a_variable_becomes_a_placeholder() -> None:
    metadata = {"hostFromEnv": "RABBITMQ_HOST", "queueName": "q"}
    found = converted(trigger("rabbitmq", metadata, authenticationRef={"name": "broker"}))
    assert only_source(found)[0]["url"] == "http://REPLACE-ME:15672"
    note = notes(found)["spec.triggers[0].authenticationRef"]
    assert 'TriggerAuthentication "broker" is not among the documents' in note


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {}),
        ({"namespace": "shop"}, {"params": {"namespace": "shop"}}),
        ({"queryParameters": "dedup=true, tenant=a"}, {"params": {"dedup": "true", "tenant": "a"}}),
        ({"customHeaders": "X-Scope-OrgID=shop"}, {"headers": {"X-Scope-OrgID": "shop"}}),
        ({"unsafeSsl": "true", "timeout": "2s"}, {"insecure": True, "query_timeout": "2s"}),
    ],
)
def test_a_query_of_prometheus(changed: dict[str, str], expected: dict[str, Any]) -> None:
    found = converted(trigger("prometheus", PROMETHEUS | changed))
    settings, query = only_source(found)
    assert settings == {"url": "http://prometheus:9090", **expected}
    assert query == {"query": "sum(x)", "types": ["External"]}
    assert set(notes(found)) == {"spec.minReplicaCount"}


def test_an_empty_answer_is_zero_only_with_ignore_null_values() -> None:
    metadata = {key: value for key, value in PROMETHEUS.items() if key != "ignoreNullValues"}
    default = converted(trigger("prometheus", metadata))
    assert "empty" not in only_source(default)[1]
    assert "write empty: zero" in notes(default)["spec.triggers[0].metadata.ignoreNullValues"]
    explicit = converted(trigger("prometheus", metadata | {"ignoreNullValues": "true"}))
    assert only_source(explicit)[1]["empty"] == "zero"


def test_a_trigger_of_cron_becomes_a_schedule() -> None:
    found = converted(trigger("cron", CRON, name="hours"))
    [metric] = hpa_of(found)["spec"]["metrics"]
    assert metric["external"] == {
        "metric": {"name": "shop-worker-hours"},
        "target": {"type": "AverageValue", "averageValue": "1"},
    }
    assert only_source(found)[1] == {
        "timezone": "Europe/Berlin", "start": "0 8 * * *", "end": "0 18 * * *", "replicas": 10,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"fallback": {"failureThreshold": 3, "replicas": 6}}, "replicas:6 after 1m30s"),
        ({"fallback": {"failureThreshold": 2, "replicas": 6}, "pollingInterval": 10}, "replicas:6 after 20s"),
        (
            {"fallback": {"failureThreshold": 2**31 - 1, "replicas": 6}, "pollingInterval": 30},
            "replicas:6 after 596523h14m7s",
        ),
        ({"fallback": {"failureThreshold": 2, "replicas": 6, "behavior": "currentReplicas"}}, "hold"),
        (
            {"fallback": {"failureThreshold": 2, "replicas": 6, "behavior": "currentReplicasIfHigher"}},
            "at-least:6 after 1m0s",
        ),
        (
            {"fallback": {"failureThreshold": 2, "replicas": 6, "behavior": "currentReplicasIfLower"}},
            "at-most:6 after 1m0s",
        ),
        ({"fallback": {"failureThreshold": 2, "replicas": 0, "behavior": "currentReplicasIfHigher"}}, "hold"),
        ({"fallback": {"failureThreshold": 2, "replicas": 0}}, "hold"),
    ],
)
def test_a_fallback_applies_to_all_metrics_but_cpu_and_memory(spec: dict[str, Any], expected: str) -> None:
    cpu = trigger("cpu", {"value": "60"}, metricType="Utilization")
    read = policies(converted(cpu, trigger("rabbitmq", RABBITMQ), **spec))
    assert [str(each.fallback) if each.fallback else None for each in read.policies] == [None, expected]


def test_a_fallback_of_cpu_alone_is_left_out_with_a_note() -> None:
    cpu = trigger("cpu", {"value": "60"}, metricType="Utilization")
    found = converted(cpu, minReplicaCount=1, fallback={"failureThreshold": 3, "replicas": 6})
    assert [(note.field, note.lost) for note in found.notes] == [("spec.fallback", False)]


def test_activation_thresholds_are_carried_over() -> None:
    found = converted(trigger("rabbitmq", RABBITMQ | {"activationValue": "5.5"}), trigger("prometheus", PROMETHEUS))
    assert [each.activation for each in policies(found).policies] == [5_500, None]


def test_lists_that_share_a_metric_keep_their_activation_thresholds() -> None:
    redis = {"address": "redis:6379", "listLength": "10"}
    found = converted(
        trigger("redis", redis | {"listName": "mails", "activationListLength": "5"}),
        trigger("redis", redis | {"listName": "orders"}),
        trigger("redis", redis | {"listName": "bills", "activationListLength": "7"}),
        fallback={"failureThreshold": 3, "replicas": 6},
    )
    assert hpa_of(found)["metadata"]["annotations"]["hpad.io/activation"] == (
        "redis_list_length{key=shop-worker-s0-redis}=5,redis_list_length{key=shop-worker-s2-redis}=7"
    )
    read = policies(found).policies
    assert [each.activation for each in read] == [5_000, None, 7_000]
    assert [str(each.fallback) for each in read] == ["replicas:6 after 1m30s"] * 3
    assert lost(found) == set()


def test_a_name_of_a_trigger_that_no_address_can_express_is_addressed_by_index() -> None:
    odd = trigger("rabbitmq", RABBITMQ | {"activationValue": "5"}, name="a,b{c}")
    found = converted(odd, trigger("prometheus", PROMETHEUS | {"activationThreshold": "3"}))
    annotation = hpa_of(found)["metadata"]["annotations"]["hpad.io/activation"]
    assert annotation == "#0=5,shop-worker-s1-prometheus=3"
    assert [each.activation for each in policies(found).policies] == [5_000, 3_000]


def test_each_lost_field_has_a_note() -> None:
    found = converted(
        trigger(
            "rabbitmq", RABBITMQ | {"workloadIdentityResource": "x"}
        ),  # KEDA reads it of a TriggerAuthentication only
        trigger("rabbitmq", RABBITMQ | {"mode": "PublishedToDeliveredRatio"}),
        trigger("pulsar", {"topic": "t"}),
        trigger("prometheus", PROMETHEUS | {"authModes": "bearer,tls", "awsRegion": "eu"}),
        pollingInterval=10,
        cooldownPeriod=60,
        initialCooldownPeriod=500,
        fallback={"failureThreshold": 1, "replicas": 0, "behavior": "currentReplicasIfLower"},
        advanced={"scalingModifiers": {"formula": "a+b", "target": "1"}, "restoreToOriginalReplicaCount": True},
    )
    assert lost(found) == {
        "spec.triggers[1].metadata.mode",
        "spec.triggers[2]",
        "spec.triggers[3].metadata.authModes",
        "spec.triggers[3].metadata.awsRegion",
        "spec.fallback.replicas",
        "spec.advanced.scalingModifiers.formula",
        "spec.advanced.restoreToOriginalReplicaCount",
    }
    assert [metric["external"]["metric"]["name"] for metric in hpa_of(found)["spec"]["metrics"]] == [
        "shop-worker-s0-rabbitmq",
        "shop-worker-s3-prometheus",
    ]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (scaled(), "spec.triggers"),
        (scaled(trigger("rabbitmq", {"host": "http://r/"})), "spec.triggers[0].metadata.queueName"),
        (scaled(trigger("rabbitmq", RABBITMQ | {"value": "many"})), "spec.triggers[0].metadata.value"),
        (scaled(trigger("rabbitmq", RABBITMQ | {"queueLength": "1"})), "spec.triggers[0].metadata.queueLength"),
        (scaled(trigger("rabbitmq", RABBITMQ | {"host": "r:5672"})), "spec.triggers[0].metadata.host"),
        (scaled(trigger("rabbitmq", RABBITMQ | {"host": "http://r:x/"})), "spec.triggers[0].metadata.host"),
        (scaled(trigger("rabbitmq", RABBITMQ, metricType="Utilization")), "spec.triggers[0].metricType"),
        (scaled(trigger("cpu", {"value": "60"})), "spec.triggers[0].metricType"),
        (scaled(trigger("cpu", {"value": "x"}, metricType="Utilization")), "spec.triggers[0].metadata.value"),
        (scaled(trigger("prometheus", PROMETHEUS | {"threshold": ""})), "spec.triggers[0].metadata.threshold"),
        (
            scaled(trigger("prometheus", PROMETHEUS | {"serverAddress": "http://p:x"})),
            "spec.triggers[0].metadata.serverAddress",
        ),
        (scaled(trigger("prometheus", PROMETHEUS | {"query": "a<<b"})), "spec.triggers[0].metadata.query"),
        (scaled(trigger("prometheus", PROMETHEUS | {"customHeaders": "a"})), "spec.triggers[0].metadata.customHeaders"),
        (scaled(trigger("cron", CRON | {"desiredReplicas": "x"})), "spec.triggers[0].metadata.desiredReplicas"),
        (scaled(trigger("cron", CRON), scaleTargetRef={}), "spec.scaleTargetRef.name"),
        (scaled(trigger("cron", CRON), maxReplicaCount="7"), "spec.maxReplicaCount"),
        (scaled(trigger("cron", CRON), maxReplicaCount=2**31), "spec.maxReplicaCount"),
        (
            scaled(trigger("cron", CRON), fallback={"failureThreshold": 2**31, "replicas": 1}),
            "spec.fallback.failureThreshold",
        ),
        (scaled(trigger("cron", CRON), advanced=[]), "spec.advanced"),
        (scaled("cron"), "spec.triggers[0]"),
        (scaled(trigger("cron", CRON), metadata={"name": ""}), "metadata.name"),
    ],
)  # fmt: skip
def test_the_error_for_an_invalid_scaled_object_has_the_field(value: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        scaledobject.convert(value)
    assert caught.value.problems[0].path == field


def test_a_password_before_a_host_is_not_in_the_name_of_its_source() -> None:
    connection = {"host": "me:s3cret@Pg.shop", "port": "5432", "dbName": "d", "userName": "u", "sslmode": "prefer"}
    found = converted(trigger("postgresql", {**connection, "query": "SELECT 1", "targetQueryValue": "1"}))
    assert list(conversion.settings_document([found])["sources"]) == ["postgresql-pg"]


def test_only_metrics_of_the_same_server_share_a_source() -> None:
    one = converted(trigger("rabbitmq", RABBITMQ), trigger("rabbitmq", RABBITMQ | {"queueName": "b", "vhostName": "v"}))
    other = converted(trigger("rabbitmq", RABBITMQ | {"timeout": "100"}), metadata={"namespace": "bank"})
    sources = conversion.settings_document([one, other])["sources"]
    assert list(sources) == ["rabbitmq-rabbitmq", "rabbitmq-rabbitmq-2"]
    assert list(sources["rabbitmq-rabbitmq"]["metrics"]) == ["shop-worker-s0-rabbitmq", "shop-worker-s1-rabbitmq"]
    assert [source["namespaces"] for source in sources.values()] == [["shop"], ["bank"]]


@pytest.mark.parametrize(
    ("kind", "metadata", "missing", "hint"),
    [
        ("rabbitmq", {"apiHostFromEnv": "API", "queueName": "q"}, "host", ' (did you mean it by "apiHostFromEnv"?)'),
        ("rabbitmq", {"host": "http://r", "queuename": "q"}, "queueName", ' (did you mean it by "queuename"?)'),
        ("cron", {"timezone": "UTC", "start": "0 8 * * *", "desiredReplicas": "2", "until": "18"}, "end", ""),
    ],
    ids=["of KEDA 1", "misspelt", "something else"],
)
def test_the_error_for_a_missing_entry_names_the_one_that_was_meant(
    kind: str, metadata: dict[str, str], missing: str, hint: str
) -> None:
    with pytest.raises(Invalid) as caught:
        scaledobject.convert(scaled(trigger(kind, metadata)))
    text = f"spec.triggers[0].metadata.{missing}: Required value: a trigger of type {kind} needs it{hint}"
    assert str(caught.value) == text


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_the_samples_convert_to_valid_hpas(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(path)]) == 0
    *hpas, needed = yaml.safe_load_all(capsys.readouterr().out)
    (tmp_path / "hpas.yaml").write_text(yaml.safe_dump_all(hpas))
    (tmp_path / "hpad.yaml").write_text(yaml.safe_dump(needed))
    code = main(["check", "--scale-to-zero", str(tmp_path / "hpas.yaml"), str(tmp_path / "hpad.yaml")])
    assert code == 0, capsys.readouterr().out


def test_json_output_has_one_object_per_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "so.json"
    path.write_text(json.dumps(scaled(trigger("rabbitmq", RABBITMQ))))
    assert main(["convert", "-o", "json", str(path)]) == 0
    hpa, needed = map(json.loads, capsys.readouterr().out.splitlines())
    assert (hpa["kind"], list(needed)) == ("HorizontalPodAutoscaler", ["feature_gates", "sources"])


def test_notes_and_errors_have_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "so.yaml"
    good, bad = scaled(trigger("cron", CRON), minReplicaCount=1, pollingInterval=5), scaled(trigger("rabbitmq", {}))
    path.write_text(yaml.safe_dump_all([good, bad]))
    assert main(["convert", str(path)]) == 1
    out, err = capsys.readouterr()
    assert len(list(yaml.safe_load_all(out))) == 2
    line = path.read_text().splitlines().index("  pollingInterval: 5") + 1
    note, error = err.splitlines()
    assert note.startswith(
        f"{path}:{line}: ScaledObject shop/worker: spec.pollingInterval: is carried over as hpad.io/sync-period: 5s"
    )
    assert "ScaledObject shop/worker: spec.triggers[0].metadata.host: Required value" in error


def test_the_policy_is_read_as_often_for_many_triggers_as_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ScaledObject with 3,000 triggers took half of its time for reading the policy once per metric."""
    read: list[str] = []
    indices = modifiers.indices

    def noted(text: str) -> set[int]:
        read.append(text)
        return indices(text)

    monkeypatch.setattr(modifiers, "indices", noted)
    counts, cpu = [], trigger("cpu", {"value": "60"}, metricType="Utilization")
    for triggers in (2, 20):
        read.clear()
        scaledobject.convert(scaled(*[trigger("prometheus", PROMETHEUS)] * triggers, cpu))
        counts.append(len(read))
    assert counts[0] == counts[1] > 0
