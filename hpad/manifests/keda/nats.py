"""Converts KEDA's trigger `nats-jetstream`.

Source: KEDA 2.21, "NATS JetStream"; nats_jetstream_scaler.go: pending and unacknowledged messages of a consumer.
"""

from typing import Any, Final

from hpad.manifests.keda.conversion import PLACEHOLDER
from hpad.manifests.keda.fields import host_of, split_url
from hpad.manifests.keda.trigger import Trigger

_DEFAULT_LAG: Final = "10"
_ENDPOINT: Final = "natsServerMonitoringEndpoint"
_OTHER_PORTS: Final = {4222: "clients", 6222: "the other servers of a cluster", 7422: "leaf nodes"}
_EXAMPLE: Final = f"{PLACEHOLDER}:8222"


def nats_jetstream(trigger: Trigger) -> None:
    """Adds the lag of a consumer; raises Invalid."""
    stream, consumer = trigger.needed("stream"), trigger.needed("consumer")
    value = trigger.target("lagThreshold", _DEFAULT_LAG)
    endpoint = trigger.required_text(_ENDPOINT, _EXAMPLE)
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
        raise trigger.invalid(_ENDPOINT, "…", "must be of the form host:port")
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
