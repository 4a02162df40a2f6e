"""Converts KEDA's triggers `rabbitmq`, `redis` and `redis-streams` to metrics of hpad's adapters.

Source: KEDA 2.21, "RabbitMQ Queue", "Redis Lists" and "Redis Streams".
"""

import urllib.parse
import zlib
from typing import Any, Final

from hpad.manifests.keda.conversion import PLACEHOLDER, Source, Trigger
from hpad.manifests.keda.fields import split_url

_RABBITMQ_HOST: Final = "rabbitmq.example.com"
_DEFAULT_LENGTH: Final = "20"
_MODES: Final = {
    "QueueLength": "messages",
    "MessageRate": "publish_rate",
    "DeliverGetRate": "deliver_rate",
    "ExpectedQueueConsumptionTime": "drain_time",
}
_PORTS: Final = {"http": 15672, "https": 15671, "amqp": 5672, "amqps": 5671}


def rabbitmq(trigger: Trigger) -> None:
    """Adds the metric of the queue and its source; raises ConversionError."""
    mode, value = _mode_and_value(trigger)
    if mode not in _MODES:
        trigger.note_loss("mode", f"{mode} is not carried over, so neither is the trigger: see drain_time")
        return
    settings, vhost, host = _rabbitmq_connection(trigger)
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
        return "QueueLength", trigger.number("queueLength") or _DEFAULT_LENGTH
    if "mode" not in metadata and "value" not in metadata:
        return "QueueLength", _DEFAULT_LENGTH
    trigger.needed("value")
    return trigger.needed("mode"), trigger.number("value")


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


def _rabbitmq_connection(trigger: Trigger) -> tuple[dict[str, Any], str, str]:
    """Returns the source's settings, the vhost and the host name."""
    metadata = trigger.metadata
    protocol = metadata.text("protocol") or "auto"
    if protocol not in ("auto", "http", "amqp"):
        raise trigger.invalid("protocol", protocol, "must be auto, http or amqp")
    trigger.from_environment("host", "username", "password")
    if metadata.text("host"):
        settings, vhost, host, user = _from_host(trigger)
    else:
        settings, vhost, host, user = _unknown(trigger, "amqp" if protocol == "amqp" else "http")
    if protocol != "auto" and not settings["url"].startswith(protocol):
        raise trigger.invalid("protocol", protocol, "must be the one of the host's URL")
    user = metadata.text("username") or user or (PLACEHOLDER if metadata.text("usernameFromEnv") else "")
    settings |= trigger.user("password" if metadata.text("password") else "host", user, host)
    if timeout := trigger.milliseconds("timeout"):
        settings["request_timeout"] = timeout
    if metadata.truth("unsafeSsl"):
        settings["insecure"] = True
    return settings, metadata.text("vhostName") or vhost, host


def _unknown(trigger: Trigger, scheme: str) -> tuple[dict[str, Any], str, str, str]:
    """Returns example values in the form of `_from_host`: a Secret or a variable has the address of the broker."""
    trigger.note_loss("host", "is not in the trigger: write the address and the user into the source")
    settings = {"url": f"{scheme}://{_RABBITMQ_HOST}:{_PORTS[scheme]}"}
    return settings | ({"source": "amqp"} if scheme == "amqp" else {}), "/", _RABBITMQ_HOST, PLACEHOLDER


def _from_host(trigger: Trigger) -> tuple[dict[str, Any], str, str, str]:
    """Returns settings, vhost, host and user from the trigger's URL.

    The last segment of the path is the vhost; with HTTP the segments before it belong to the address.
    """
    parts = split_url(trigger.metadata.text("host"))
    host = parts.hostname
    if parts.scheme not in _PORTS or not host or parts.fragment:
        raise trigger.invalid("host", "…", "must be a URL of http, https, amqp or amqps")
    if parts.query:
        trigger.note_loss("host", "the parameters of the URL, after its ?, are not carried over")
    before, _, vhost = parts.path.rpartition("/")
    address = f"[{host}]" if ":" in host else host
    settings: dict[str, Any] = {"url": f"{parts.scheme}://{address}:{parts.port or _PORTS[parts.scheme]}"}
    if parts.scheme in ("amqp", "amqps"):
        settings["source"] = "amqp"
    else:
        settings["url"] += before
    return settings, urllib.parse.unquote(vhost) or "/", host, urllib.parse.unquote(parts.username or "")


_REDIS_HOST: Final = "redis.example.com"
_REDIS_PORT: Final = 6379
_DEFAULT_ENTRIES: Final = "5"
_MAX_LABEL: Final = 63
_LIST, _STREAM, _PENDING = "redis_list_length", "redis_stream_length", "redis_stream_pending"


def redis_lists(trigger: Trigger) -> None:
    """Adds the length of a list; raises ConversionError."""
    key = trigger.needed("listName")
    value = trigger.number("listLength") or _DEFAULT_ENTRIES
    _add(trigger, _LIST, key, {}, (value, trigger.number("activationListLength")))


def redis_streams(trigger: Trigger) -> None:
    """Adds the length of a stream, or with `consumerGroup` the group's pending entries; raises ConversionError.

    The lag of a group (`lagCount`) has no counterpart.
    """
    key, metadata = trigger.needed("stream"), trigger.metadata
    group = metadata.text("consumerGroup")
    if group and "lagCount" in metadata:
        trigger.note_loss("lagCount", "the lag of a group is not carried over, so neither is the trigger")
        return
    if not group:
        trigger.note_unneeded({"pendingEntriesCount": "it has an effect with consumerGroup only"})
        value = trigger.number("streamLength") or _DEFAULT_ENTRIES
        _add(trigger, _STREAM, key, {}, (value, ""))
        return
    trigger.note_unneeded({"streamLength": "with consumerGroup KEDA counts pending entries"})
    value = trigger.number("pendingEntriesCount") or _DEFAULT_ENTRIES
    _add(trigger, _PENDING, key, {"group": group}, (value, ""))


def _add(trigger: Trigger, metric: str, key: str, labels: dict[str, str], numbers: tuple[str, str]) -> None:
    """Adds a metric and its source. `numbers`: target value and activation threshold.

    The selector has an alias, which the source maps to the key: a label value cannot have all characters of a key.
    """
    settings, host = _redis_connection(trigger)
    name = _label(trigger.metric)
    source = Source(
        path=trigger.path,
        adapter="redis",
        host=host,
        settings=settings,
        section="keys",
        entry=name,
        query=key,
        metric=metric,
        selector={"key": name, **labels},
    )
    trigger.external(source, *numbers)


def _label(name: str) -> str:
    """Returns the name as a label value: a long name is shortened and ends with a checksum."""
    return name if len(name) <= _MAX_LABEL else f"{name[: _MAX_LABEL - 9]}-{zlib.crc32(name.encode()):08x}"


def _redis_connection(trigger: Trigger) -> tuple[dict[str, Any], str]:
    metadata = trigger.metadata
    trigger.from_environment("address", "host", "port", "username", "password")
    host, port = _address(trigger)
    scheme = "rediss" if metadata.truth("enableTLS") or metadata.text("tls") == "enable" else "redis"
    database = metadata.text("databaseIndex") or "0"
    address = f"[{host}]" if ":" in host else host
    settings: dict[str, Any] = {"url": f"{scheme}://{address}:{port}/{trigger.whole_number('databaseIndex', database)}"}
    if metadata.truth("unsafeSsl"):
        settings["insecure"] = True
    if metadata.text("usernameFromEnv") or metadata.text("passwordFromEnv"):
        user = trigger.user("passwordFromEnv", PLACEHOLDER, host)
        settings |= user if metadata.text("usernameFromEnv") else {"password_env": user["password_env"]}
    return settings, host


def _address(trigger: Trigger) -> tuple[str, int]:
    """Returns host and port from `address`, or from `host` and `port`; example values if neither is set."""
    metadata = trigger.metadata
    address = metadata.text("address") or ":".join(filter(None, (metadata.text("host"), metadata.text("port"))))
    if not address:
        trigger.note_loss("address", "is not in the trigger: write the address into the source")
        return _REDIS_HOST, _REDIS_PORT
    parts = split_url(f"//{address}")
    if not parts.hostname or "@" in address or "/" in address:
        raise trigger.invalid("address", "…", "must be of the form host:port")
    return parts.hostname, parts.port or _REDIS_PORT
