"""Converts KEDA's triggers of queues and logs: `kafka`, `apache-kafka`, `nats-jetstream` and `aws-sqs-queue`.

Source: KEDA 2.21, "Apache Kafka" and "Apache Kafka (Experimental)"; kafka_scaler.go.
"""

import re
from typing import Any, Final

from hpad.manifests.keda.conversion import PLACEHOLDER
from hpad.manifests.keda.fields import host_of, split_url
from hpad.manifests.keda.trigger import Trigger

_EXAMPLE: Final = f"{PLACEHOLDER}:9092"
_DEFAULT_LAG: Final = "10"
_MECHANISMS: Final = {"plaintext": "PLAIN", "scram_sha256": "SCRAM-SHA-256", "scram_sha512": "SCRAM-SHA-512"}
_BEARER: Final = "oauthbearer"
_SWITCHES: Final = {
    "allowIdleConsumers": "allow_idle_consumers",
    "limitToPartitionsWithLag": "limit_to_partitions_with_lag",
    "scaleToZeroOnInvalidOffset": "scale_to_zero_on_invalid_offset",
}


def kafka(trigger: Trigger) -> None:
    """Adds the lag of a consumer group; raises Invalid."""
    servers = trigger.required_text("bootstrapServers", _EXAMPLE)
    value = trigger.target("lagThreshold", _DEFAULT_LAG)
    query = _query(trigger, value)
    nodes = [server.strip() for server in servers.split(",") if server.strip()]
    host = nodes[0].partition(":")[0]
    settings = {"bootstrap_servers": nodes, **_tls(trigger), **_login(trigger, host)}
    if settings.get("sasl") in ("PLAIN", "OAUTHBEARER"):
        trigger.note_trust(settings, "brokers that are not in bootstrapServers")
    even = "ensureEvenDistributionOfPartitions"
    if trigger.metadata.truth(even):
        trigger.note_loss(even, "is not carried over: hpad takes any number of replicas")
    source = trigger.source("kafka", query, host, settings)
    trigger.external(source, value, trigger.number("activationLagThreshold"))


def _query(trigger: Trigger, value: str) -> dict[str, Any]:
    group = trigger.required_text("consumerGroup", PLACEHOLDER)
    topics = [topic.strip() for topic in (trigger.text("topic") or trigger.unread("topic")).split(",") if topic.strip()]
    policy = trigger.metadata.text("offsetResetPolicy") or "latest"
    if policy not in ("latest", "earliest"):
        raise trigger.invalid("offsetResetPolicy", policy, "must be latest or earliest")
    query: dict[str, Any] = {"group": group, **({"topics": topics} if topics else {}), "offset_reset_policy": policy}
    query["lag_threshold"] = float(value) if "." in value else trigger.whole_number("lagThreshold", value)
    query |= {setting: True for name, setting in _SWITCHES.items() if trigger.metadata.truth(name)}
    if limitation := trigger.metadata.text("partitionLimitation"):
        query["partition_limitation"] = limitation
    if trigger.metadata.truth("excludePersistentLag"):
        query["exclude_persistent_lag_after"] = f"{trigger.polling}s"
        text = f"is carried over with pollingInterval as the time after which a lag is persistent, {trigger.polling} s"
        trigger.note_change("excludePersistentLag", text)
    return query


def _tls(trigger: Trigger) -> dict[str, Any]:
    tls = trigger.text("tls")
    unknown = not tls and trigger.reference("tls") is not None
    if unknown:
        text = '"tls" is kept elsewhere, and counts as "enable": remove tls, ca, cert and key where it is not'
        trigger.conversion.note_change(trigger.field_of("tls"), text)
    if tls != "enable" and not unknown:
        trigger.leave_tls_files()
        return {}
    return {"tls": True, **trigger.tls_files(), **trigger.insecure()}


def _login(trigger: Trigger, host: str) -> dict[str, Any]:
    """Returns the settings of SASL; none where there is none, or where hpad lacks the mechanism."""
    sasl = trigger.text("sasl")
    if not sasl and trigger.reference("sasl") is not None:
        sasl = trigger.unread("sasl", "PLAIN") and "plaintext"
    if sasl in ("", "none"):
        return {}
    if sasl == _BEARER and trigger.text("saslTokenProvider") in ("", "bearer"):
        return {"sasl": "OAUTHBEARER", "oauth2": _grant(trigger, host)}
    if sasl not in _MECHANISMS:
        instead = "use scram_sha512 or plaintext, with TLS"
        trigger.conversion.note_loss(trigger.field_of("sasl"), f"{sasl} is not carried over: {instead}")
        return {}
    return {"sasl": _MECHANISMS[sasl], **_user(trigger, host)}


def _user(trigger: Trigger, host: str) -> dict[str, str]:
    """Returns username and the place of the password; placeholders, noted as lost, where they are not known."""
    found = trigger.credentials(host)
    if "username" in found:
        return found
    field = trigger.field_of("sasl")
    trigger.conversion.note_loss(field, f"the user is not known: write it into the source, in place of {PLACEHOLDER}")
    return {"username": PLACEHOLDER, "password_env": trigger.variable_of(field, host)}


def _grant(trigger: Trigger, host: str) -> dict[str, Any]:
    """Returns the grant for tokens: KEDA takes user and password as the client's id and secret."""
    user = _user(trigger, host)
    names = {"username": "client_id", "password_file": "client_secret_file", "password_env": "client_secret_env"}
    grant: dict[str, Any] = {names[name]: value for name, value in user.items()}
    grant["token_url"] = trigger.required_text("oauthTokenEndpointUri", f"https://{PLACEHOLDER}/token")
    if scopes := trigger.text("scopes") or trigger.unread("scopes"):
        grant["scopes"] = [scope.strip() for scope in scopes.split(",")]
    return grant


# Converts KEDA's trigger `nats-jetstream`.
#
# Source: KEDA 2.21, "NATS JetStream"; nats_jetstream_scaler.go: pending and unacknowledged messages of a consumer.

_DEFAULT_NATS_LAG: Final = "10"
_ENDPOINT: Final = "natsServerMonitoringEndpoint"
_OTHER_PORTS: Final = {4222: "clients", 6222: "the other servers of a cluster", 7422: "leaf nodes"}
_MONITORING_URL: Final = f"{PLACEHOLDER}:8222"


def nats_jetstream(trigger: Trigger) -> None:
    """Adds the lag of a consumer; raises Invalid."""
    stream, consumer = trigger.needed("stream"), trigger.needed("consumer")
    value = trigger.target("lagThreshold", _DEFAULT_NATS_LAG)
    endpoint = trigger.required_text(_ENDPOINT, _MONITORING_URL)
    url, host = _url(trigger, endpoint)
    account = _account(trigger)
    settings: dict[str, Any] = {"url": url} | ({"account": account} if account and account != "$G" else {})
    trigger.note_change(
        "natsServerMonitoringEndpoint",
        "of a cluster, name the headless Service: only the leader of a consumer knows its lag",
    )
    query = {"stream": stream, "consumer": consumer}
    source = trigger.source("nats-jetstream", query, host, settings)
    trigger.external(source, value, trigger.number("activationLagThreshold"))


def _url(trigger: Trigger, endpoint: str) -> tuple[str, str]:
    """Returns the URL of the monitoring endpoint, and its host; raises Invalid.

    KEDA takes host and port alone (nats_jetstream_scaler.go: getNATSJetStreamMonitoringURL).
    """
    scheme = "https" if trigger.metadata.truth("useHttps") else "http"
    written, separator, address = endpoint.partition("://")
    if separator and written not in ("http", "https"):
        text = "must be host:port of the monitoring, such as nats:8222; clients connect to the port of nats://"
        raise trigger.invalid(_ENDPOINT, f"{written}://…", text)
    parts = split_url(f"{scheme}://{(address or endpoint).rstrip('/')}")
    if not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise trigger.invalid(_ENDPOINT, "…", "must be host:port, of one server or service")
    if separator:
        trigger.note_change(_ENDPOINT, f"{written}:// is left out: KEDA takes host:port alone, and useHttps decides")
    if parts.port in _OTHER_PORTS:
        peers = _OTHER_PORTS[parts.port]
        text = f"{parts.port} is the usual port of {peers}: the monitoring has one of its own, usually 8222"
        trigger.note_change(_ENDPOINT, text)
    return parts.geturl(), host_of(parts)


def _account(trigger: Trigger) -> str:
    """Returns the account, in KEDA's order; raises Invalid without one, as KEDA does."""
    known = [trigger.text(name) for name in ("accountID", "account")]
    if any(known):
        return next(filter(None, known))
    return trigger.unread("accountID") or trigger.required_text("account", PLACEHOLDER)


# Converts KEDA's trigger `aws-sqs-queue`.
#
# Source: KEDA 2.21, "AWS SQS Queue"; aws_sqs_queue_scaler.go: messages in flight count unless scaleOnInFlight is false.

_DEFAULT_LENGTH: Final = "5"
_QUEUE_URL: Final = f"https://{PLACEHOLDER}"
_KEY: Final = "awsSecretAccessKey"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}(\.fifo)?")


def sqs(trigger: Trigger) -> None:
    """Adds the messages of a queue; raises Invalid."""
    value, activation = trigger.target("queueLength", _DEFAULT_LENGTH), trigger.number("activationQueueLength")
    query: dict[str, Any] = {"queue": _queue(trigger), "counts": _counts(trigger)}
    region = trigger.required_text("awsRegion", PLACEHOLDER)
    settings: dict[str, Any] = {"region": region} | _aws_login(trigger, region)
    if endpoint := trigger.text("awsEndpoint"):
        settings["endpoint_url"] = endpoint
    host = split_url(endpoint).hostname if endpoint else None
    source = trigger.source("sqs", query, host or region, settings)
    trigger.external(source, value, activation)


def _queue(trigger: Trigger) -> str:
    queue = trigger.required_text("queueURL", _QUEUE_URL)
    if "://" not in queue and not _NAME.fullmatch(queue):
        raise trigger.invalid("queueURL", queue, "must be the URL of a queue, or its name")
    return queue


def _counts(trigger: Trigger) -> list[str]:
    in_flight = trigger.metadata.truth("scaleOnInFlight") or not trigger.metadata.text("scaleOnInFlight")
    delayed = trigger.metadata.truth("scaleOnDelayed")
    return ["visible", *(["in_flight"] if in_flight else []), *(["delayed"] if delayed else [])]


def _aws_login(trigger: Trigger, region: str) -> dict[str, Any]:
    """Returns a key with its secret, or the role to assume; nothing for the credentials that hpad itself has."""
    if trigger.reference("awsSessionToken") is not None:
        field = trigger.field_of("awsSessionToken")
        trigger.conversion.note_loss(field, "a session token ends within hours: use a role, or a key without one")
    role = trigger.text("awsRoleArn") or trigger.unread("awsRoleArn", f"arn:aws:iam::{PLACEHOLDER}:role/hpad")
    found: dict[str, Any] = {"role_arn": role} if role else {}
    secret = trigger.secret(_KEY, "secret_access_key_file", region, "secret access key")
    key = trigger.text("awsAccessKeyID") or trigger.unread("awsAccessKeyID")
    if not (secret or key):
        return found
    found["access_key_id"] = key or trigger.placeholder("awsAccessKeyID")
    secret = secret or {"env": trigger.variable_of(trigger.field_of(_KEY), region, "secret access key")}
    return found | {f"secret_access_key_{kind}": place for kind, place in secret.items()}
