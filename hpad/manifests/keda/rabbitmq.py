"""Converts KEDA's trigger `rabbitmq`.

Source: KEDA 2.21, "RabbitMQ Queue".
"""

import urllib.parse
from typing import Any, Final

from hpad.manifests.keda.conversion import PLACEHOLDER
from hpad.manifests.keda.fields import host_of, split_url
from hpad.manifests.keda.trigger import Trigger

_TLS: Final = '"tls" is left out: the scheme of the URL decides'
_DEFAULT_LENGTH: Final = "20"
_MODES: Final = {
    "QueueLength": "messages",
    "MessageRate": "publish_rate",
    "DeliverGetRate": "deliver_rate",
    "ExpectedQueueConsumptionTime": "drain_time",
}
_PORTS: Final = {"http": 15672, "https": 15671, "amqp": 5672, "amqps": 5671}


def rabbitmq(trigger: Trigger) -> None:
    """Adds the metric of the queue and its source; raises Invalid."""
    mode, value = _mode_and_value(trigger)
    if mode not in _MODES:
        instead = "use the mode drain_time, or two Prometheus queries divided"
        trigger.note_loss("mode", f"{mode} is not carried over, so neither is the trigger: {instead}")
        return
    settings, vhost, host = _connection(trigger)
    query = _query(trigger, _MODES[mode], by_amqp=settings.get("source") == "amqp")
    trigger.note_unneeded({"metricName": "KEDA ignores it", "pageSize": "hpad reads all pages of a list"})
    source = trigger.source("rabbitmq", {**query, "vhost": vhost}, host, settings)
    trigger.external(source, value, trigger.number("activationValue"))


def _mode_and_value(trigger: Trigger) -> tuple[str, str]:
    """Returns mode and target value. `queueLength` alone is the older form of mode QueueLength, whose default is 20."""
    metadata = trigger.metadata
    if "queueLength" in metadata:
        if "mode" in metadata or "value" in metadata:
            raise trigger.invalid("queueLength", metadata.get("queueLength"), "excludes mode and value")
        return "QueueLength", trigger.target("queueLength", _DEFAULT_LENGTH)
    if "mode" not in metadata and "value" not in metadata:
        return "QueueLength", _DEFAULT_LENGTH
    value = trigger.target("value")
    return trigger.needed("mode"), value


def _query(trigger: Trigger, mode: str, *, by_amqp: bool) -> dict[str, Any]:
    name = trigger.needed("queueName")
    by_pattern = trigger.metadata.truth("useRegex")
    if by_amqp:
        if mode != "messages" or by_pattern:
            raise trigger.invalid("host", "amqp", "must be http for rates and patterns")
        trigger.note_unneeded({"excludeUnacknowledged": "AMQP reports ready messages only, to KEDA as well"})
        return {"queue": name, "mode": "ready"}
    query: dict[str, Any] = {"queue": name, "mode": mode}
    if trigger.metadata.truth("excludeUnacknowledged"):
        query["include_unacked"] = False
    if not by_pattern:
        trigger.note_unneeded({"operation": "it has an effect with useRegex only"})
        return query
    query = {"queue_regex": f"(?i).*(?:{name}).*", **{key: query[key] for key in query if key != "queue"}}
    trigger.note_change(
        "queueName",
        f'KEDA\'s pattern means any part of a name, in any case; carried over as "{query["queue_regex"]}": '
        "narrow it if that is not what you want",
    )
    return {**query, "aggregate": _operation(trigger, mode)}


def _operation(trigger: Trigger, mode: str) -> str:
    operation = trigger.metadata.text("operation") or "sum"
    if operation not in ("sum", "avg", "max"):
        raise trigger.invalid("operation", operation, "must be sum, avg or max")
    if (mode, operation) == ("drain_time", "sum"):
        trigger.note_change("operation", "a sum of times means nothing; carried over as max")
        return "max"
    return operation


def _connection(trigger: Trigger) -> tuple[dict[str, Any], str, str]:
    """Returns the source's settings, the vhost and the host name."""
    metadata = trigger.metadata
    protocol = metadata.text("protocol") or "auto"
    if protocol not in ("auto", "http", "amqp"):
        raise trigger.invalid("protocol", protocol, "must be auto, http or amqp")
    scheme = "amqp" if protocol == "amqp" else "http"
    settings, vhost, host, user = _from_host(trigger, f"{scheme}://{PLACEHOLDER}:{_PORTS[scheme]}")
    if protocol != "auto" and not settings["url"].startswith(protocol):
        raise trigger.invalid("protocol", protocol, "must be the one of the host's URL")
    settings |= trigger.oauth2() or trigger.login(host, user) or trigger.login_of_url("host", host)
    settings |= trigger.file_settings(ca="ca", cert="cert", key="key")
    if trigger.reference("tls") is not None:
        trigger.conversion.note_change(f"{trigger.path}.authenticationRef", _TLS)
    if timeout := trigger.milliseconds("timeout"):
        settings["request_timeout"] = timeout
    if metadata.truth("unsafeSsl"):
        settings["insecure"] = True
    return settings, trigger.text("vhostName") or trigger.unread("vhostName") or vhost, host


def _from_host(trigger: Trigger, example: str) -> tuple[dict[str, Any], str, str, str]:
    """Returns settings, vhost, host and user from the trigger's URL; of the example, where a Secret holds the URL.

    The last segment of the path is the vhost; with HTTP the segments before it belong to the address.
    """
    parts = split_url(trigger.required_text("host", example))
    host = host_of(parts)
    if parts.scheme not in _PORTS or not host or parts.fragment:
        raise trigger.invalid("host", "…", "must be a URL of http, https, amqp or amqps")
    usual = {port: scheme for scheme, port in _PORTS.items()}.get(parts.port or 0, parts.scheme)
    if usual != parts.scheme:
        text = f"{parts.port} is the usual port of {usual}, that of {parts.scheme} is {_PORTS[parts.scheme]}"
        trigger.note_change("host", text)
    if parts.query:
        trigger.note_loss("host", "the parameters of the URL, after its ?, are not carried over")
    *before, vhost = parts.path.split("/")
    address = f"[{host}]" if ":" in host else host
    settings: dict[str, Any] = {"url": f"{parts.scheme}://{address}:{parts.port or _PORTS[parts.scheme]}"}
    if parts.scheme in ("amqp", "amqps"):
        settings["source"] = "amqp"
    else:
        settings["url"] += "".join(f"/{segment}" for segment in before if segment)
    vhost = urllib.parse.unquote(vhost) or "/" if trigger.text("host") else PLACEHOLDER
    return settings, vhost, host, urllib.parse.unquote(parts.username or "")
