"""Converts KEDA's trigger `nats-jetstream`.

Source: KEDA 2.21, "NATS JetStream"; nats_jetstream_scaler.go: pending and unacknowledged messages of a consumer.
"""

from typing import Any, Final

from hpad.manifests.keda.fields import split_url
from hpad.manifests.keda.trigger import Trigger

_DEFAULT_LAG: Final = "10"
_EXAMPLE: Final = "nats.example.com:8222"


def nats_jetstream(trigger: Trigger) -> None:
    """Adds the lag of a consumer; raises ConversionError."""
    stream, consumer = trigger.needed("stream"), trigger.needed("consumer")
    value = trigger.target("lagThreshold", _DEFAULT_LAG)
    endpoint = trigger.required_text("natsServerMonitoringEndpoint", _EXAMPLE)
    scheme = "https" if trigger.metadata.truth("useHttps") else "http"
    url = f"{scheme}://{endpoint.partition('://')[2] or endpoint}".rstrip("/")
    parts = split_url(url)
    if not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise trigger.invalid("natsServerMonitoringEndpoint", "…", "must be of the form host:port")
    account = trigger.text("account") or trigger.text("accountID") or trigger.unread("account")
    trigger.reference("accountID")
    settings: dict[str, Any] = {"url": url} | ({"account": account} if account and account != "$G" else {})
    trigger.note_change(
        "natsServerMonitoringEndpoint",
        "of a cluster, name the headless Service: only the leader of a consumer knows its lag",
    )
    query = {"stream": stream, "consumer": consumer}
    source = trigger.source("nats-jetstream", query, parts.hostname, settings)
    trigger.external(source, value, trigger.number("activationLagThreshold"))
