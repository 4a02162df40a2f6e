"""Converts KEDA's triggers `kafka` and `apache-kafka`.

Source: KEDA 2.21, "Apache Kafka" and "Apache Kafka (Experimental)"; kafka_scaler.go.
"""

from typing import Any, Final

from hpad.manifests.keda.conversion import PLACEHOLDER
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
_UNNEEDED: Final = {
    "version": "hpad asks the brokers for the versions that they speak",
    "fullMetadata": "hpad asks for the topics of the metric only",
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
    trigger.note_unneeded(_UNNEEDED)
    even = "ensureEvenDistributionOfPartitions"
    if trigger.metadata.truth(even):
        trigger.note_loss(even, "is not carried over: hpad takes any number of replicas")
    else:
        trigger.note_unneeded({even: "it is off"})
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
    files: dict[str, Any] = trigger.file_settings(ca="ca", cert="cert", key="key")
    if password := trigger.file("keyPassword", "key_password.file"):
        files["key_password"] = {"file": password}
    if unknown:
        text = '"tls" is kept elsewhere, and counts as "enable": remove tls, ca, cert and key where it is not'
        trigger.conversion.note_change(trigger.field_of("tls"), text)
    if tls != "enable" and not unknown:
        if files:
            trigger.conversion.note_change(trigger.field_of("tls"), "ca, cert and key are left out: tls is not enabled")
        return {}
    return {"tls": True, **files} | ({"insecure": True} if trigger.metadata.truth("unsafeSsl") else {})


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
