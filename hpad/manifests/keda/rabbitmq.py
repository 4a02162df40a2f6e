"""KEDA's trigger `rabbitmq` as a metric of hpad's adapter of that name."""

import urllib.parse
from typing import Any

from hpad.manifests.keda.found import Found, Source, Trigger, Wrong
from hpad.model.fields import invalid

UNKNOWN_HOST = "rabbitmq.example.com"
_ADAPTER = "rabbitmq"
_DEFAULT_LENGTH = "20"
_MODES = {
    "QueueLength": "messages",
    "MessageRate": "publish_rate",
    "DeliverGetRate": "deliver_rate",
    "ExpectedQueueConsumptionTime": "drain_time",
}
_PORTS = {"http": 15672, "https": 15671, "amqp": 5672, "amqps": 5671}
_KNOWN = frozenset({
    "host", "hostFromEnv", "protocol", "queueName", "mode", "value", "queueLength", "activationValue", "vhostName",
    "useRegex", "operation", "excludeUnacknowledged", "timeout", "unsafeSsl", "username", "usernameFromEnv",
    "password", "passwordFromEnv", "pageSize", "metricName",
})  # fmt: skip


def convert(trigger: Trigger, found: Found) -> None:
    """Add the metric and its source to what is found; raises Wrong."""
    mode, value = _mode_and_value(trigger)
    if mode not in _MODES:
        found.note(trigger.field("mode"), f"{mode} is not carried over, so neither is the trigger: see drain_time")
        return
    settings, vhost, host = _connection(trigger, found)
    query = _query(trigger, found, _MODES[mode], by_amqp=settings.get("source") == "amqp")
    activation = trigger.metadata.get("activationValue")
    if activation is not None:
        trigger.number("activationValue", activation)
    found.sources.append(Source(_ADAPTER, host, settings, trigger.metric, {**query, "vhost": vhost}))
    trigger.external(found, value, activation)
    trigger.leftover(found, _KNOWN)


def _mode_and_value(trigger: Trigger) -> tuple[str, str]:
    """Without mode, value and queueLength: a length of 20. `queueLength` is the older name of a length's value."""
    given = trigger.metadata
    if "queueLength" in given:
        if "mode" in given or "value" in given:
            raise Wrong(invalid(trigger.field("queueLength"), given["queueLength"], "excludes mode and value"))
        return "QueueLength", trigger.number("queueLength", given["queueLength"])
    if "mode" not in given and "value" not in given:
        return "QueueLength", _DEFAULT_LENGTH
    return trigger.needed("mode"), trigger.number("value", trigger.needed("value"))


def _query(trigger: Trigger, found: Found, mode: str, *, by_amqp: bool) -> dict[str, Any]:
    name = trigger.needed("queueName")
    query: dict[str, Any] = {"queue": name, "mode": mode}
    if by_amqp:
        if mode != "messages" or trigger.flag("useRegex"):
            raise Wrong(invalid(trigger.field("host"), "amqp", "must be http for rates and patterns"))
        return {"queue": name, "mode": "ready"}  # all that AMQP tells, to KEDA too
    if trigger.flag("excludeUnacknowledged"):
        query["include_unacked"] = False
    if trigger.flag("useRegex"):
        query = {"queue_regex": f"(?i).*(?:{name}).*", **{key: query[key] for key in query if key != "queue"}}
        found.note(
            trigger.field("queueName"),
            f'KEDA\'s pattern means any part of a name, in any case; carried over as "{query["queue_regex"]}": '
            "narrow it if that is not what you want",
        )
        operation = trigger.metadata.get("operation", "sum")
        if operation not in ("sum", "avg", "max"):
            raise Wrong(invalid(trigger.field("operation"), operation, "must be sum, avg or max"))
        if (mode, operation) == ("drain_time", "sum"):
            operation = "max"
            found.note(trigger.field("operation"), "a sum of times means nothing; carried over as max")
        query["aggregate"] = operation
    return query


def _connection(trigger: Trigger, found: Found) -> tuple[dict[str, Any], str, str]:
    """The source's settings, the vhost, and the host's name."""
    given = trigger.metadata
    if "host" in given:
        settings, vhost, host, user = _from_host(trigger)
    else:
        settings, vhost, host, user = (
            {"url": f"http://{UNKNOWN_HOST}:{_PORTS['http']}"},
            "/",
            UNKNOWN_HOST,
            "REPLACE-ME",
        )
        found.note(trigger.field("host"), "is not in the trigger: write the address and the user into the source")
    user = given.get("username") or user
    if user:
        variable = f"HPAD_{''.join(c if c.isalnum() else '_' for c in host.upper())}_PASSWORD"
        settings |= {"username": user, "password_env": variable}
        found.note(trigger.field("host"), f"the password is not copied: give it to hpad as {variable}")
    if timeout := trigger.milliseconds("timeout"):
        settings["request_timeout"] = timeout
    if trigger.flag("unsafeSsl"):
        settings["insecure"] = True
    return settings, given.get("vhostName") or vhost, host


def _from_host(trigger: Trigger) -> tuple[dict[str, Any], str, str, str]:
    """The last segment of the path is the vhost; what is before it, with HTTP, belongs to the address."""
    try:
        parts = urllib.parse.urlsplit(trigger.metadata["host"])
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
        parts = urllib.parse.urlsplit("")
    if parts.scheme not in _PORTS or not host:
        raise Wrong(invalid(trigger.field("host"), "…", "must be a URL of http, https, amqp or amqps"))
    before, _, vhost = parts.path.rpartition("/")
    address = f"[{host}]" if ":" in host else host
    settings: dict[str, Any] = {"url": f"{parts.scheme}://{address}:{port or _PORTS[parts.scheme]}"}
    if parts.scheme in ("amqp", "amqps"):
        settings["source"] = "amqp"
    else:
        settings["url"] += before
    return settings, urllib.parse.unquote(vhost) or "/", host, urllib.parse.unquote(parts.username or "")
