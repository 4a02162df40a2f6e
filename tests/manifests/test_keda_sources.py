"""Triggers of single adapters: Redis in its three forms, numbers over HTTP, pods, external scalers."""

from typing import Any

import pytest
from support.scaled_objects import METRICS_API, PROMETHEUS, REDIS, STREAM, scaled, trigger

from hpad.api.problem import Invalid
from hpad.manifests.keda import authentication, scaledobject
from hpad.manifests.keda.conversion import Converted

FOLDER = "/etc/hpad/secrets/shop/x"


def converted(kind: str, metadata: dict[str, Any], *held: str, **spec: Any) -> Converted:
    secrets = [{"parameter": each, "name": "x", "key": each} for each in held]
    auth = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": {"name": "auth", "namespace": "shop"},
        "spec": {"secretTargetRef": secrets},
    }
    used = trigger(kind, metadata, **({"authenticationRef": {"name": "auth"}} if held else {}))
    return scaledobject.convert(scaled(used, **spec), None, authentication.collect([auth]))


def settings(found: Converted) -> dict[str, Any]:
    [source] = found.sources
    return dict(source.settings)


def external(found: Converted) -> dict[str, Any]:
    assert found.hpa is not None
    [metric] = found.hpa["spec"]["metrics"]
    return dict(metric["external"])


def lost(found: Converted) -> list[str]:
    return [note.field for note in found.notes if note.lost]


LIST = {"listName": "jobs", "listLength": "10"}


@pytest.mark.parametrize(
    ("kind", "metadata", "expected"),
    [
        ("redis", {"host": "r", "port": "7000", "tls": "enable"}, {"url": "rediss://r:7000/0"}),
        ("redis-cluster", {"addresses": "a:1, b:2"}, {"cluster": {"nodes": ["a:1", "b:2"]}}),
        (
            "redis-cluster",
            {"hosts": "a,b", "ports": "1,2", "enableTLS": "true", "unsafeSsl": "true"},
            {"cluster": {"nodes": ["a:1", "b:2"], "tls": True}, "insecure": True},
        ),
        (
            "redis-sentinel",
            {"addresses": "s1,s2:7", "sentinelMaster": "main", "databaseIndex": "2"},
            {"sentinel": {"master": "main", "nodes": ["s1:26379", "s2:7"], "database": 2}},
        ),
    ],
)
def test_the_servers_of_redis(kind: str, metadata: dict[str, str], expected: dict[str, Any]) -> None:
    found = converted(kind, LIST | metadata)
    assert settings(found) == expected
    assert external(found)["metric"]["name"] == "redis_list_length"
    assert lost(found) == []


def test_the_passwords_of_redis_and_of_its_sentinels() -> None:
    metadata = LIST | {"addresses": "s1", "sentinelMaster": "main", "sentinelUsername": "u"}
    found = settings(converted("redis-sentinel", metadata, "password", "sentinelPassword"))
    assert found["password_file"] == f"{FOLDER}/password"
    assert found["sentinel"]["password_file"] == f"{FOLDER}/sentinelPassword"
    assert found["sentinel"]["username"] == "u"


STREAMS = {"addresses": "r:1", "stream": "s"}


@pytest.mark.parametrize(
    ("metadata", "metric", "target"),
    [
        ({"streamLength": "50"}, "redis_stream_length", "50"),
        ({"consumerGroup": "g"}, "redis_stream_pending", "5"),
        ({"consumerGroup": "g", "lagCount": "9", "activationLagCount": "3"}, "redis_stream_lag", "9"),
    ],
)
def test_the_three_numbers_of_a_stream(metadata: dict[str, str], metric: str, target: str) -> None:
    found = converted("redis-cluster-streams", STREAMS | metadata)
    assert external(found)["metric"]["name"] == metric
    assert external(found)["target"] == {"type": "AverageValue", "averageValue": target}
    annotations = (found.hpa or {})["metadata"].get("annotations", {})
    assert ("hpad.io/activation" in annotations) == ("activationLagCount" in metadata)
    assert [source.settings.get("missing_group") for source in found.sources] == [
        "all" if "lagCount" in metadata else None
    ]
    assert lost(found) == []


@pytest.mark.parametrize(
    "metadata",
    [
        LIST | {"hosts": "a,b,c", "ports": "1,2"},
        LIST | {"addresses": "a:b"},
        LIST,
        LIST | {"addresses": "a", "listLength": "0"},
    ],
)
def test_servers_and_targets_of_redis_that_keda_refuses(metadata: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        converted("redis-cluster", metadata)


def test_a_user_of_sentinels_without_a_password_is_left_out() -> None:
    found = converted("redis-sentinel", LIST | {"addresses": "s", "sentinelMaster": "m", "sentinelUsername": "u"})
    assert settings(found)["sentinel"].keys() == {"master", "nodes"}
    assert any("is left out: there is no password for it" in note.text for note in found.notes)


@pytest.mark.parametrize(("tls", "files"), [({"enableTLS": "true"}, {"ca", "cert", "key"}), ({}, set())])
def test_files_of_redis_need_tls(tls: dict[str, str], files: set[str]) -> None:
    found = converted("redis", LIST | {"address": "a:1", "unsafeSsl": "true"} | tls, "ca", "cert", "key")
    assert {"ca", "cert", "key", "insecure"} & settings(found).keys() == files | ({"insecure"} if files else set())
    assert any("are left out: tls is not enabled" in note.text for note in found.notes) == (not files)
    assert sum("mount key" in note.text for note in found.notes) == len(files)


KAFKA_LAG = {"bootstrapServers": "k:9092", "consumerGroup": "g", "topic": "t", "lagThreshold": "5"}


@pytest.mark.parametrize(
    ("kind", "metadata", "held", "told"),
    [
        ("redis-cluster", LIST | {"addresses": "a:1"}, ("password",), True),
        ("redis-cluster", LIST | {"addresses": "a:1"}, (), False),
        ("redis-cluster", LIST | {"addresses": "a:1", "enableTLS": "true"}, ("password",), False),
        ("redis-cluster", LIST | {"addresses": "a:1", "enableTLS": "true", "unsafeSsl": "true"}, ("password",), True),
        ("redis-sentinel", LIST | {"addresses": "a:1", "sentinelMaster": "m"}, ("password",), True),
        ("redis", LIST | {"address": "a:1"}, ("password",), False),
        ("kafka", KAFKA_LAG | {"sasl": "plaintext", "username": "u"}, ("password",), True),
        ("kafka", KAFKA_LAG | {"sasl": "plaintext", "username": "u", "tls": "enable"}, ("password",), False),
        ("kafka", KAFKA_LAG | {"sasl": "scram_sha512", "username": "u"}, ("password",), False),
    ],
)
def test_servers_that_would_get_no_password_are_told(
    kind: str, metadata: dict[str, str], held: tuple[str, ...], told: bool
) -> None:
    notes = converted(kind, metadata, *held).notes
    assert any("trusted_hosts" in note.text for note in notes) == told


API = METRICS_API["metadata"]


@pytest.mark.parametrize(
    ("metadata", "held", "query", "expected"),
    [
        ({"format": "xml", "valueLocation": "stats.jobs.0"}, (), {"format": "xml", "path": "stats.jobs[0]"}, {}),
        ({"valueLocation": "jobs.#"}, (), {"path": "jobs[#]"}, {}),
        (
            {"format": "prometheus", "valueLocation": 'jobs{queue="mail"}'},
            (),
            {"format": "prometheus", "path": 'jobs{queue="mail"}'},
            {},
        ),
        (
            {"url": "http://api.shop.svc:8080/s", "aggregateFromKubeServiceEndpoints": "true"},
            (),
            {"url": "http://api.shop.svc:8080/s", "pods": "avg"},
            {},
        ),
        ({"authMode": "apiKey"}, ("apiKey",), {}, {"headers": {"X-API-KEY": {"file": f"{FOLDER}/apiKey"}}}),
        (
            {"authMode": "apiKey", "method": "query", "keyParamName": "k"},
            ("apiKey",),
            {},
            {"params": {"k": {"file": f"{FOLDER}/apiKey"}}},
        ),
        ({"authMode": "bearer"}, ("token",), {}, {"bearer_token_file": f"{FOLDER}/token"}),
        (
            {"authMode": "basic,tls", "username": "u"},
            ("password", "ca"),
            {},
            {"username": "u", "password_file": f"{FOLDER}/password", "ca": f"{FOLDER}/ca"},
        ),
        ({"timeout": "2500"}, (), {}, {"request_timeout": "2500ms"}),
    ],
)
def test_a_number_over_http(
    metadata: dict[str, str], held: tuple[str, ...], query: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = converted("metrics-api", API | metadata, *held)
    [source] = found.sources
    assert source.query == {"url": API["url"], "path": "jobs[0].depth"} | query
    assert settings(found) == expected
    assert lost(found) == []


def test_a_mode_without_its_secret_is_a_loss() -> None:
    assert lost(converted("metrics-api", API | {"authMode": "bearer"})) == ["spec.triggers[0].metadata.authMode"]


def test_a_parameter_of_a_url_that_is_a_secret_is_not_copied() -> None:
    url = {"url": "http://api:8080/jobs?author=a%20b&api_key=hunter2&keyspace=orders"}
    found = converted("metrics-api", API | url | {"authMode": "apiKey", "method": "query"}, "apiKey")
    [source] = found.sources
    assert source.query["url"] == "http://api:8080/jobs?author=a+b&keyspace=orders"
    assert settings(found) == {"params": {"api_key": {"file": f"{FOLDER}/apiKey"}}}
    found = converted("metrics-api", API | url)
    assert settings(found) == {"params": {"api_key": {"env": "HPAD_API_API_KEY"}}}
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    ("field", "value"), [("serverAddress", "http://prom:9090?token=hunter2&x=1"), ("queryParameters", "token=hunter2")]
)
def test_a_secret_among_the_parameters_of_prometheus_is_noted(field: str, value: str) -> None:
    found = converted("prometheus", PROMETHEUS["metadata"] | {field: value})
    notes = [str(note) for note in found.notes if "looks like a secret" in str(note)]
    text = "token is copied, though it looks like a secret: keep the settings as one"
    assert notes == [f"spec.triggers[0].metadata.{field}: {text}"]


def test_a_header_with_a_credential_is_not_copied() -> None:
    headers = {"customHeaders": "Authorization=Bearer hunter2,X-Scope-OrgID=shop"}
    found = converted("prometheus", PROMETHEUS["metadata"] | headers)
    assert settings(found)["headers"] == {
        "Authorization": {"env": "HPAD_PROM_AUTHORIZATION"},
        "X-Scope-OrgID": "shop",
    }
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    ("metadata", "name", "selector"),
    [
        ({"podSelector": "app=backend"}, "workload_pods", {"matchLabels": {"app": "backend"}}),
        (
            {"podSelector": "app=backend,tier in (a,b),!old,x!=y", "groupByNode": "true"},
            "workload_nodes",
            {
                "matchLabels": {"app": "backend"},
                "matchExpressions": [
                    {"key": "old", "operator": "DoesNotExist"},
                    {"key": "tier", "operator": "In", "values": ["a", "b"]},
                    {"key": "x", "operator": "NotIn", "values": ["y"]},
                ],
            },
        ),
    ],
)
def test_the_pods_of_another_workload(metadata: dict[str, str], name: str, selector: dict[str, Any]) -> None:
    found = converted("kubernetes-workload", metadata | {"value": "0.5"})
    assert external(found)["metric"] == {"name": name, "selector": selector}
    assert external(found)["target"]["averageValue"] == "0.5"


def test_a_selector_by_order_is_a_loss_and_an_invalid_one_an_error() -> None:
    assert "spec.triggers[0].metadata.podSelector" in lost(
        converted("kubernetes-workload", {"podSelector": "a>1", "value": "1"})
    )
    with pytest.raises(Invalid, match="podSelector"):
        converted("kubernetes-workload", {"podSelector": "a in (", "value": "1"})


def test_an_external_scaler_gets_its_metadata_and_waits_for_its_target() -> None:
    metadata = {"scalerAddress": "scaler.shop:9090", "city": "Rome", "apiKey": "hunter2", "enableTLS": "true"}
    found = converted("external", metadata, "caCert", "tlsClientCert", "tlsClientKey")
    assert settings(found) == {
        "address": "scaler.shop:9090",
        "ca": f"{FOLDER}/caCert",
        "cert": f"{FOLDER}/tlsClientCert",
        "key": f"{FOLDER}/tlsClientKey",
        "tls": True,
    }
    [source] = found.sources
    sent = {"city": "Rome", "apiKey": {"env": "HPAD_SCALER_SHOP_APIKEY"}, "enableTLS": "true"}
    assert source.query == {"metadata": sent, "name": "worker"}
    assert "hunter2" not in str(found)
    assert (found.hpa or {})["metadata"]["annotations"] == {"hpad.io/mode": "paused"}
    assert lost(found) == ["spec.triggers[0].type"]


def test_a_trigger_in_a_formula_needs_no_target_of_its_own() -> None:
    pods = trigger("kubernetes-workload", {"podSelector": "app=x"}, name="pods")
    scaler = trigger("external-push", {"scalerAddress": "scaler:9090"}, name="scaler")
    modifiers = {"scalingModifiers": {"formula": "pods + scaler", "target": "2"}}
    found = scaledobject.convert(scaled(pods, scaler, advanced=modifiers))
    assert found.hpa is not None
    assert [each["external"]["target"]["averageValue"] for each in found.hpa["spec"]["metrics"]] == ["2", "2"]
    assert "hpad.io/mode" not in found.hpa["metadata"]["annotations"]
    assert lost(found) == []


@pytest.mark.parametrize(
    ("spec", "inactive"),
    [({}, None), ({"minReplicaCount": 1}, "value"), ({"minReplicaCount": 2, "idleReplicaCount": 0}, None)],
)
def test_an_inactive_external_scaler_is_zero_where_keda_scales_to_zero(
    spec: dict[str, int], inactive: str | None
) -> None:
    """With other minima KEDA lets the HPA follow GetMetrics, whatever IsActive says."""
    found = converted("external", {"scalerAddress": "scaler:9090"}, **spec)
    [source] = [each for each in found.sources if each.adapter == "keda-external"]
    assert source.query.get("inactive") == inactive


def test_lists_and_streams_of_one_server_share_a_source() -> None:
    found = scaledobject.convert(scaled(REDIS, STREAM))
    assert len({str(source.settings) for source in found.sources}) == 1


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        (
            "postgresql://reader:p@db.shop.svc:6432/shop?sslmode=verify-full",
            {"host": "db.shop.svc", "port": 6432, "database": "shop", "sslmode": "verify-full", "username": "reader"},
        ),
        (
            "host=db user='read er' dbname=shop password='p q'",
            {"host": "db", "database": "shop", "sslmode": "prefer", "username": "read er"},
        ),
    ],
)
def test_the_connection_string_of_a_database_is_taken_apart_without_its_password(
    connection: str, expected: dict[str, Any]
) -> None:
    container = {"name": "app", "env": [{"name": "DB", "value": connection}]}
    target = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "worker", "namespace": "shop"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    used = trigger("postgresql", {"connectionFromEnv": "DB", "query": "SELECT 1", "targetQueryValue": "1"})
    found = scaledobject.convert(scaled(used), None, authentication.collect([target]))
    variable = settings(found).pop("password_env")
    assert settings(found) == expected | {"password_env": variable}
    assert variable.startswith("HPAD_DB")
    assert lost(found) == []


@pytest.mark.parametrize(
    ("metadata", "query", "expected"),
    [
        (
            {"topic": "a,b", "allowIdleConsumers": "true"},
            {"topics": ["a", "b"], "allow_idle_consumers": True},
            {},
        ),
        (
            {"offsetResetPolicy": "earliest", "excludePersistentLag": "true", "partitionLimitation": "1-3"},
            {"offset_reset_policy": "earliest", "exclude_persistent_lag_after": "10s", "partition_limitation": "1-3"},
            {},
        ),
        (
            {"sasl": "scram_sha256", "tls": "enable"},
            {},
            {
                "tls": True,
                "ca": f"{FOLDER}/ca",
                "sasl": "SCRAM-SHA-256",
                "username": "REPLACE-ME",
                "password_file": f"{FOLDER}/password",
            },
        ),
        (
            {"sasl": "oauthbearer", "tls": "enable"},
            {},
            {
                "tls": True,
                "ca": f"{FOLDER}/ca",
                "sasl": "OAUTHBEARER",
                "oauth2": {
                    "client_id": "REPLACE-ME",
                    "client_secret_file": f"{FOLDER}/password",
                    "token_url": "https://REPLACE-ME/token",
                },
            },
        ),
    ],
)
def test_the_lag_of_kafka(metadata: dict[str, str], query: dict[str, Any], expected: dict[str, Any]) -> None:
    held = ("ca", "username", "password", "oauthTokenEndpointUri") if "sasl" in metadata else ()
    base = {"bootstrapServers": "one:9092, two:9092", "consumerGroup": "g", "lagThreshold": "5"}
    found = converted("kafka", base | metadata, *held, pollingInterval=10)
    [source] = found.sources
    assert source.query == {"group": "g", "offset_reset_policy": "latest", "lag_threshold": 5} | query
    assert settings(found) == {"bootstrap_servers": ["one:9092", "two:9092"]} | expected


SQS = {"queueURL": "https://sqs.eu-west-1.amazonaws.com/123456789012/jobs", "awsRegion": "eu-west-1"}


@pytest.mark.parametrize(
    ("metadata", "counts", "target"),
    [
        ({}, ["visible", "in_flight"], "5"),
        ({"scaleOnInFlight": "false", "queueLength": "20"}, ["visible"], "20"),
        ({"scaleOnInFlight": "true", "scaleOnDelayed": "true"}, ["visible", "in_flight", "delayed"], "5"),
    ],
)
def test_the_messages_of_a_queue_of_sqs(metadata: dict[str, str], counts: list[str], target: str) -> None:
    found = converted("aws-sqs-queue", SQS | metadata | {"identityOwner": "operator"})
    [source] = found.sources
    assert source.query == {"queue": SQS["queueURL"], "counts": counts}
    assert settings(found) == {"region": "eu-west-1"}
    assert external(found)["target"] == {"type": "AverageValue", "averageValue": target}
    assert lost(found) == []


def test_the_credentials_of_sqs() -> None:
    found = converted("aws-sqs-queue", SQS | {"awsEndpoint": "http://sqs:4566"}, "awsSecretAccessKey", "awsRoleArn")
    assert settings(found) == {
        "region": "eu-west-1",
        "endpoint_url": "http://sqs:4566",
        "role_arn": "arn:aws:iam::REPLACE-ME:role/hpad",
        "access_key_id": "REPLACE-ME",
        "secret_access_key_file": f"{FOLDER}/awsSecretAccessKey",
    }
    assert lost(found) == ["spec.triggers[0].authenticationRef", "spec.triggers[0].metadata.awsAccessKeyID"]
    token = converted("aws-sqs-queue", SQS, "awsSessionToken")
    assert lost(token) == ["spec.triggers[0].authenticationRef"]
    with pytest.raises(Invalid, match="must be the URL of a queue, or its name"):
        converted("aws-sqs-queue", SQS | {"queueURL": "no queue"})


def test_a_consumer_of_nats() -> None:
    metadata = {"natsServerMonitoringEndpoint": "nats:8222", "account": "shop", "stream": "s", "consumer": "c"}
    found = converted("nats-jetstream", metadata | {"activationLagThreshold": "3", "useHttps": "true"})
    [source] = found.sources
    assert (source.settings, source.query) == (
        {"url": "https://nats:8222", "account": "shop"},
        {"stream": "s", "consumer": "c"},
    )
    assert external(found)["target"]["averageValue"] == "10"
    assert lost(found) == []
