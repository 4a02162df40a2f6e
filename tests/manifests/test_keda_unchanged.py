"""What KEDA ignores is no loss, what becomes something else has a note, and null counts as absent."""

import copy
from typing import Any

import pytest
from manifests.test_keda_authentication import auth, deployment, held, lost, settings
from manifests.test_keda_authentication import converted as with_objects
from manifests.test_keda_losses import SHAPES, at, leaves
from support.scaled_objects import CRON, METRICS_API, PROMETHEUS, RABBITMQ, REDIS, scaled, trigger

from hpad.api.problem import Invalid
from hpad.cli import check, convert
from hpad.cli.check_configuration import Given
from hpad.manifests import documents
from hpad.manifests.keda import conversion as of_keda
from hpad.manifests.keda import scaledobject
from hpad.manifests.keda.conversion import Converted

KAFKA = trigger("kafka", {"bootstrapServers": "k:9092", "consumerGroup": "g", "topic": "t"})
MONITORED = {"natsServerMonitoringEndpoint": "nats:8222", "account": "A", "stream": "s", "consumer": "c"}
NATS = trigger("nats-jetstream", MONITORED)
POSTGRESQL = trigger(
    "postgresql", {"query": "select 1", "targetQueryValue": "2", "host": "db", "dbName": "jobs", "userName": "u"}
)
SQS = trigger("aws-sqs-queue", {"queueURL": "https://sqs.eu-west-1.amazonaws.com/1/jobs", "awsRegion": "eu-west-1"})


def changed(base: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {**base, "metadata": {**base["metadata"], **metadata}}


def converted(base: dict[str, Any], **metadata: Any) -> Converted:
    return scaledobject.convert(scaled(changed(base, **metadata), minReplicaCount=1))


def notes_at(found: Converted, name: str) -> list[Any]:
    return [note for note in found.notes if note.field == f"spec.triggers[0].metadata.{name}"]


def is_needless(found: Converted, name: str) -> bool:
    [note] = notes_at(found, name)
    return not note.lost and note.text == "is left out: hpad needs nothing in its place"


@pytest.mark.parametrize(
    "base", [RABBITMQ, PROMETHEUS, REDIS, KAFKA, POSTGRESQL, NATS, SQS, CRON], ids=lambda each: each["type"]
)
@pytest.mark.parametrize("name", ["metricType", "useCachedMetrics", "metricName"])
def test_what_keda_ignores_is_no_loss(base: dict[str, Any], name: str) -> None:
    found, before = converted(base, **{name: "Value"}), converted(base)
    assert (found.hpa, found.sources) == (before.hpa, before.sources)
    assert is_needless(found, name)


@pytest.mark.parametrize(
    ("base", "name"),
    [
        (KAFKA, "unsafeSsl"),
        (KAFKA, "saslTokenProvider"),
        (KAFKA, "awsRegion"),
        (REDIS, "sentinelMaster"),
        (REDIS, "host"),
        (METRICS_API, "keyParamName"),
        (METRICS_API, "aggregationType"),
        (RABBITMQ, "operation"),
        (RABBITMQ, "pageSize"),
        (SQS, "identityOwner"),
        *((RABBITMQ, name) for name in ("ca", "cert", "key", "tls")),
    ],
)
def test_what_has_no_effect_here_is_no_loss(base: dict[str, Any], name: str) -> None:
    found = converted(base, **{name: "false"})
    assert is_needless(found, name)
    assert not lost(found)


@pytest.mark.parametrize(
    ("name", "text"), [("queueLenght", 'or hpad lacks it; did you mean "queueLength"?'), ("publishRate", "lacks it")]
)
def test_what_hpad_does_not_know_is_lost(name: str, text: str) -> None:
    [note] = notes_at(converted(RABBITMQ, **{name: "5"}), name)
    assert (note.lost, text in note.text) == (True, True)


@pytest.mark.parametrize("word", ["yes", "on", "enable", "tRUE"])
@pytest.mark.parametrize(("base", "name"), [(RABBITMQ, "unsafeSsl"), (REDIS, "enableTLS"), (NATS, "useHttps")])
def test_a_word_that_is_no_boolean_is_refused_as_by_keda(base: dict[str, Any], name: str, word: str) -> None:
    with pytest.raises(Invalid, match="must be true or false"):
        converted(base, **{name: word})


@pytest.mark.parametrize("scheme", ["nats", "tls", "ws"])
def test_the_address_of_nats_clients_is_refused(scheme: str) -> None:
    with pytest.raises(Invalid, match="must be host:port of the monitoring, such as nats:8222") as caught:
        converted(NATS, natsServerMonitoringEndpoint=f"{scheme}://u:s3cret@nats.nats.svc:4222")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("endpoint", "url", "text"),
    [
        ("nats.nats.svc:8222", "http://nats.nats.svc:8222", ""),
        ("nats.nats.svc:4222", "http://nats.nats.svc:4222", "4222 is the usual port of clients"),
        ("nats:6222", "http://nats:6222", "6222 is the usual port of the other servers"),
        ("nats:7422", "http://nats:7422", "7422 is the usual port of leaf nodes"),
        ("http://nats:8222/", "http://nats:8222", "http:// is left out"),
        ("https://nats:8222", "http://nats:8222", "https:// is left out"),
    ],
)
def test_the_monitoring_address_of_nats(endpoint: str, url: str, text: str) -> None:
    found = converted(NATS, natsServerMonitoringEndpoint=endpoint)
    assert settings(found)["url"] == url
    texts = " ".join(note.text for note in notes_at(found, "natsServerMonitoringEndpoint"))
    assert text in texts
    assert ("left out" in texts or "usual port" in texts) == bool(text)


def test_the_account_of_nats_is_the_one_that_keda_takes() -> None:
    found = converted(NATS, account="name", accountID="ID")
    assert settings(found)["account"] == "ID"
    assert not lost(found)


def test_nats_without_an_account_is_refused_as_by_keda() -> None:
    bare = {**NATS, "metadata": {name: each for name, each in NATS["metadata"].items() if name != "account"}}
    with pytest.raises(Invalid, match=r"metadata\.account: Required value"):
        converted(bare)


@pytest.mark.parametrize(
    ("host", "more", "url", "vhost"),
    [
        ("http://u:p@r:15672/rabbit/", {"vhostName": "/"}, "http://r:15672/rabbit", "/"),
        ("http://u:p@r:15672/%2f", {}, "http://r:15672", "/"),
        ("http://u:p@r:15672//", {}, "http://r:15672", "/"),
        ("http://u:p@r:15672//a//b/v", {}, "http://r:15672/a/b", "v"),
        ("http://u:p@r:15672", {}, "http://r:15672", "/"),
        ("amqp://u:p@r:5672//", {}, "amqp://r:5672", "/"),
        ("amqp://u:p@r/v%2fw", {}, "amqp://r:5672", "v/w"),
        ("http://u:p@[::1]:15672/v", {}, "http://[::1]:15672", "v"),
    ],
)
def test_vhost_and_path_of_a_rabbitmq_host(host: str, more: dict[str, str], url: str, vhost: str) -> None:
    """Source: KEDA 2.21, rabbitmq_scaler.go: getVhostAndPathFromURL."""
    found = converted(RABBITMQ, host=host, **more)
    [source] = found.sources
    assert (source.settings["url"], source.query["vhost"]) == (url, vhost)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("postgresql://u:p@db/jobs?sslmode=require&options=-c%20x", "verify", "options is not carried over"),
        ("host=db user=u password=p dbname=jobs application_name=x", "words", "application_name is not carried over"),
        ("user=u password=p dbname=jobs", "host", "has no host: write it into the source, in place of REPLACE-ME"),
    ],
)
def test_parts_of_a_connection_string_without_a_counterpart_are_lost(name: str, value: str, text: str) -> None:
    bare = {**POSTGRESQL, "metadata": {"query": "select 1", "targetQueryValue": "2", "connectionFromEnv": "PG"}}
    found = with_objects(bare, deployment({"env": [{"name": "PG", "value": name}]}))
    assert any(text in line for line in lost(found))


def test_repeated_parameters_of_a_prometheus_address_are_named() -> None:
    found = converted(PROMETHEUS, serverAddress="http://prom:9090?a=1&a=2&b=")
    assert settings(found)["params"] == {"a": "2", "b": ""}
    assert [note.text for note in notes_at(found, "serverAddress")] == [
        "of the values of a in the URL only the last is carried over"
    ]


# Addresses in Secrets.

OF_SECRET = "/etc/hpad/secrets/shop/rabbit/password"


@pytest.mark.parametrize("by_variable", [False, True])
def test_a_host_in_a_secret_leaves_a_skeleton_for_user_and_password(by_variable: bool) -> None:
    bare = trigger("rabbitmq", {"queueName": "orders"} | ({"hostFromEnv": "URL"} if by_variable else {}))
    env = {"name": "URL", "valueFrom": {"secretKeyRef": {"name": "rabbit", "key": "url"}}}
    objects = deployment({"env": [env]}) if by_variable else auth(secretTargetRef=held("host"))
    found = with_objects(bare, objects)
    assert settings(found) == {"url": "http://REPLACE-ME:15672", "username": "REPLACE-ME", "password_file": OF_SECRET}
    assert found.sources[0].query["vhost"] == "REPLACE-ME"
    assert any(f"and the password alone into {OF_SECRET}" in note.text for note in found.notes)
    own = with_objects(bare, auth(secretTargetRef=held("host", "username", "password")))
    assert by_variable or settings(own)["password_file"] == "/etc/hpad/secrets/shop/rabbit/the-password"


def test_unknown_hosts_of_two_objects_have_variables_of_their_own() -> None:
    bare = trigger("rabbitmq", {"queueName": "orders", "hostFromEnv": "URL"})
    named = [
        scaledobject.convert({**scaled(bare), "metadata": {"name": name, "namespace": "shop"}}) for name in ("a", "b")
    ]
    assert [settings(each)["password_env"] for each in named] == ["HPAD_SHOP_A_PASSWORD", "HPAD_SHOP_B_PASSWORD"]


@pytest.mark.parametrize(
    "base",
    [
        trigger("rabbitmq", {"queueName": "q", "hostFromEnv": "X"}),
        trigger("prometheus", {"query": "x", "threshold": "1", "serverAddressFromEnv": "X"}),
        trigger("redis", {"listName": "l", "addressFromEnv": "X"}),
        trigger("kafka", {"topic": "t", "bootstrapServersFromEnv": "X", "consumerGroupFromEnv": "Y"}),
        trigger(
            "nats-jetstream",
            {"stream": "s", "consumer": "c", "account": "a", "natsServerMonitoringEndpointFromEnv": "X"},
        ),
        trigger("postgresql", {"query": "select 1", "targetQueryValue": "1", "connectionFromEnv": "X"}),
        trigger("metrics-api", {"targetValue": "1", "valueLocation": "a", "urlFromEnv": "X"}),
        trigger("aws-sqs-queue", {"queueURLFromEnv": "X", "awsRegionFromEnv": "Y"}),
    ],
    ids=lambda each: each["type"],
)
def test_a_placeholder_for_an_address_is_refused_by_check(base: dict[str, Any], tmp_path: Any, capsys: Any) -> None:
    found = scaledobject.convert(scaled(base))
    written = of_keda.settings_document([found])
    assert convert.settings_errors(written, found.sources) == []
    file = tmp_path / "hpad.yaml"
    file.write_text(convert.dumped(written, "yaml"))
    [document] = documents.read(file)
    checked = check._check(document, Given("default", False))
    assert checked is not None
    assert all("REPLACE-ME" in error.text for error in checked.errors)
    assert checked.errors
    assert "example" not in file.read_text()


# Null, as Go reads it.


@pytest.mark.parametrize("document", SHAPES, ids=lambda each: each["spec"]["triggers"][0]["type"])
def test_a_null_field_is_an_absent_field(document: dict[str, Any]) -> None:
    for path in leaves(document):
        if isinstance(path[-1], int) or "labels" in path:
            continue
        null, absent = copy.deepcopy(document), copy.deepcopy(document)
        at(null, path[:-1])[path[-1]] = None
        del at(absent, path[:-1])[path[-1]]
        assert outcome(null) == outcome(absent), path


def outcome(document: dict[str, Any]) -> Any:
    try:
        found = scaledobject.convert(document)
    except Invalid as error:
        return str(error)
    return found.hpa, found.sources, found.notes


def test_a_null_label_is_an_empty_one() -> None:
    document = scaled(CRON)
    document["metadata"]["labels"] = {"team": None, "app": "worker"}
    found = scaledobject.convert(document).hpa
    assert found is not None
    assert found["metadata"]["labels"] == {"team": "", "app": "worker"}


def test_null_in_a_container_and_a_config_map() -> None:
    env = {"name": "URL", "value": None, "valueFrom": {"secretKeyRef": {"name": "rabbit", "key": "url"}}}
    bare = trigger("rabbitmq", {"queueName": "orders", "hostFromEnv": "URL"})
    assert settings(with_objects(bare, deployment({"env": [env], "envFrom": None})))["password_file"] == OF_SECRET


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("amqp://u:p@mq:15672/v", "15672 is the usual port of http, that of amqp is 5672"),
        ("http://u:p@mq:5672/v", "5672 is the usual port of amqp, that of http is 15672"),
        ("amqp://u:p@mq:5671/v", "5671 is the usual port of amqps, that of amqp is 5672"),
        ("http://u:p@mq:15672/v", ""),
        ("http://u:p@mq/v", ""),
        ("https://u:p@mq:443/v", ""),
    ],
)
def test_a_port_of_another_protocol_is_named(host: str, text: str) -> None:
    found = [note.text for note in notes_at(converted(RABBITMQ, host=host), "host") if "usual port" in note.text]
    assert found == ([text] if text else [])
