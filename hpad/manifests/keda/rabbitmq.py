"""KEDA's trigger `rabbitmq` as a metric of hpad's adapter of that name."""

import urllib.parse
from typing import Any, Final

from hpad.api.fields import invalid
from hpad.manifests.keda import placeholder
from hpad.manifests.keda.fields import Wrong
from hpad.manifests.keda.found import Found, Source, Trigger

UNKNOWN_HOST: Final = "rabbitmq.example.com"
_UNKNOWN_USER: Final = placeholder.VALUE
_ADAPTER: Final = "rabbitmq"
_DEFAULT_LENGTH: Final = "20"
_MODES: Final = {
    "QueueLength": "messages",
    "MessageRate": "publish_rate",
    "DeliverGetRate": "deliver_rate",
    "ExpectedQueueConsumptionTime": "drain_time",
}
_PORTS: Final = {"http": 15672, "https": 15671, "amqp": 5672, "amqps": 5671}


def convert(trigger: Trigger, found: Found) -> None:
    """Add the metric and its source to what is found; raises Wrong."""
    mode, value = _mode_and_value(trigger)
    if mode not in _MODES:
        found.lose(trigger.field("mode"), f"{mode} is not carried over, so neither is the trigger: see drain_time")
        return
    settings, vhost, host = _connection(trigger, found)
    query = _query(trigger, found, _MODES[mode], by_amqp=settings.get("source") == "amqp")
    trigger.needless(
        found, {"metricName": "KEDA gives it no meaning any more", "pageSize": "hpad reads all pages of a list"}
    )
    source = Source(
        path=trigger.path,
        adapter=_ADAPTER,
        host=host,
        settings=settings,
        entry=trigger.metric,
        query={**query, "vhost": vhost},
        metric=trigger.metric,
    )
    trigger.external(found, source, value, trigger.number("activationValue"))


def _mode_and_value(trigger: Trigger) -> tuple[str, str]:
    """Without mode, value and queueLength: a length of 20. `queueLength` is the older name of a length's value."""
    given = trigger.metadata
    if "queueLength" in given:
        if "mode" in given or "value" in given:
            raise Wrong(invalid(trigger.field("queueLength"), given.get("queueLength"), "excludes mode and value"))
        return "QueueLength", trigger.number("queueLength") or _DEFAULT_LENGTH
    if "mode" not in given and "value" not in given:
        return "QueueLength", _DEFAULT_LENGTH
    trigger.needed("value")
    return trigger.needed("mode"), trigger.number("value")


def _query(trigger: Trigger, found: Found, mode: str, *, by_amqp: bool) -> dict[str, Any]:
    name = trigger.needed("queueName")
    by_pattern = trigger.metadata.truth("useRegex")
    if by_amqp:
        if mode != "messages" or by_pattern:
            raise Wrong(invalid(trigger.field("host"), "amqp", "must be http for rates and patterns"))
        trigger.needless(found, {"excludeUnacknowledged": "AMQP tells of ready messages only, to KEDA too"})
        return {"queue": name, "mode": "ready"}
    query: dict[str, Any] = {"queue": name, "mode": mode}
    if trigger.metadata.truth("excludeUnacknowledged"):
        query["include_unacked"] = False
    if not by_pattern:
        trigger.needless(found, {"operation": "it has an effect with useRegex only"})
        return query
    query = {"queue_regex": f"(?i).*(?:{name}).*", **{key: query[key] for key in query if key != "queue"}}
    found.note(
        trigger.field("queueName"),
        f'KEDA\'s pattern means any part of a name, in any case; carried over as "{query["queue_regex"]}": '
        "narrow it if that is not what you want",
    )
    return {**query, "aggregate": _operation(trigger, found, mode)}


def _operation(trigger: Trigger, found: Found, mode: str) -> str:
    operation = trigger.metadata.text("operation") or "sum"
    if operation not in ("sum", "avg", "max"):
        raise Wrong(invalid(trigger.field("operation"), operation, "must be sum, avg or max"))
    if (mode, operation) == ("drain_time", "sum"):
        found.note(trigger.field("operation"), "a sum of times means nothing; carried over as max")
        return "max"
    return operation


def _connection(trigger: Trigger, found: Found) -> tuple[dict[str, Any], str, str]:
    """The source's settings, the vhost, and the host's name."""
    given = trigger.metadata
    protocol = given.text("protocol") or "auto"
    if protocol not in ("auto", "http", "amqp"):
        raise Wrong(invalid(trigger.field("protocol"), protocol, "must be auto, http or amqp"))
    trigger.from_environment(found, "host", "username", "password")
    if given.text("host"):
        settings, vhost, host, user = _from_host(trigger, found)
    else:
        settings, vhost, host, user = _unknown(found, trigger, "amqp" if protocol == "amqp" else "http")
    if protocol != "auto" and not settings["url"].startswith(protocol):
        raise Wrong(invalid(trigger.field("protocol"), protocol, "must be the one of the host's URL"))
    user = given.text("username") or user or (_UNKNOWN_USER if given.text("usernameFromEnv") else "")
    settings |= trigger.user(found, "password" if given.text("password") else "host", user, host)
    if timeout := trigger.milliseconds("timeout"):
        settings["request_timeout"] = timeout
    if given.truth("unsafeSsl"):
        settings["insecure"] = True
    return settings, given.text("vhostName") or vhost, host


def _unknown(found: Found, trigger: Trigger, scheme: str) -> tuple[dict[str, Any], str, str, str]:
    """A broker that the trigger does not name: an object that it refers to, or a variable, holds the address."""
    found.lose(trigger.field("host"), "is not in the trigger: write the address and the user into the source")
    settings = {"url": f"{scheme}://{UNKNOWN_HOST}:{_PORTS[scheme]}"}
    return settings | ({"source": "amqp"} if scheme == "amqp" else {}), "/", UNKNOWN_HOST, _UNKNOWN_USER


def _from_host(trigger: Trigger, found: Found) -> tuple[dict[str, Any], str, str, str]:
    """The last segment of the path is the vhost; what is before it, with HTTP, belongs to the address."""
    try:
        parts = urllib.parse.urlsplit(trigger.metadata.text("host"))
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
        parts = urllib.parse.urlsplit("")
    if parts.scheme not in _PORTS or not host or parts.fragment:
        raise Wrong(invalid(trigger.field("host"), "…", "must be a URL of http, https, amqp or amqps"))
    if parts.query:
        found.lose(trigger.field("host"), "the parameters of the URL, after its ?, are not carried over")
    before, _, vhost = parts.path.rpartition("/")
    address = f"[{host}]" if ":" in host else host
    settings: dict[str, Any] = {"url": f"{parts.scheme}://{address}:{port or _PORTS[parts.scheme]}"}
    if parts.scheme in ("amqp", "amqps"):
        settings["source"] = "amqp"
    else:
        settings["url"] += before
    return settings, urllib.parse.unquote(vhost) or "/", host, urllib.parse.unquote(parts.username or "")
