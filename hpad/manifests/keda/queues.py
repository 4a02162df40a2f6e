"""KEDA's trigger `rabbitmq` as a metric of hpad's adapter of that name.

KEDA's triggers `redis` and `redis-streams` as metrics of hpad's adapter `redis`.
"""

import urllib.parse
import zlib
from typing import Any, Final

from hpad.api.fields import invalid
from hpad.manifests.keda import found as placeholder
from hpad.manifests.keda.found import Found, Source, Trigger, Wrong

_RABBITMQ_HOST: Final = "rabbitmq.example.com"
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


def rabbitmq(trigger: Trigger, found: Found) -> None:
    """Add the metric and its source to what is found; raises Wrong."""
    mode, value = _mode_and_value(trigger)
    if mode not in _MODES:
        found.lose(trigger.field("mode"), f"{mode} is not carried over, so neither is the trigger: see drain_time")
        return
    settings, vhost, host = _rabbitmq_connection(trigger, found)
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


def _rabbitmq_connection(trigger: Trigger, found: Found) -> tuple[dict[str, Any], str, str]:
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
    settings = {"url": f"{scheme}://{_RABBITMQ_HOST}:{_PORTS[scheme]}"}
    return settings | ({"source": "amqp"} if scheme == "amqp" else {}), "/", _RABBITMQ_HOST, _UNKNOWN_USER


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


_REDIS_HOST: Final = "redis.example.com"

_PORT: Final = 6379
_DEFAULT: Final = "5"
_LONGEST_LABEL: Final = 63
_LIST, _STREAM, _PENDING = "redis_list_length", "redis_stream_length", "redis_stream_pending"


def redis_lists(trigger: Trigger, found: Found) -> None:
    """Add the length of a list; raises Wrong."""
    key = trigger.needed("listName")
    value = trigger.number("listLength") or _DEFAULT
    _add(trigger, found, _LIST, key, {}, (value, trigger.number("activationListLength")))


def redis_streams(trigger: Trigger, found: Found) -> None:
    """Add the length of a stream, or with `consumerGroup` what the group has yet to acknowledge; raises Wrong.

    The lag of a group, which KEDA asks for with `lagCount`, has no counterpart.
    """
    key, given = trigger.needed("stream"), trigger.metadata
    group = given.text("consumerGroup")
    if group and "lagCount" in given:
        found.lose(trigger.field("lagCount"), "the lag of a group is not carried over, so neither is the trigger")
        return
    if not group:
        trigger.needless(found, {"pendingEntriesCount": "it has an effect with consumerGroup only"})
        value = trigger.number("streamLength") or _DEFAULT
        _add(trigger, found, _STREAM, key, {}, (value, ""))
        return
    trigger.needless(found, {"streamLength": "consumerGroup has KEDA count pending entries"})
    value = trigger.number("pendingEntriesCount") or _DEFAULT
    _add(trigger, found, _PENDING, key, {"group": group}, (value, ""))


def _add(
    trigger: Trigger, found: Found, metric: str, key: str, labels: dict[str, str], numbers: tuple[str, str]
) -> None:
    """A key may hold what no value of a label may: the selector has a name that stands for the key in the source."""
    value, activation = numbers
    if any(source.metric == metric and found.activation.get(metric, "") != activation for source in found.sources):
        found.lose(trigger.path, f"its threshold of activity is not carried over: all metrics {metric} have the same")
        activation = found.activation.get(metric, "")
    settings, host = _redis_connection(trigger, found)
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
    trigger.external(found, source, value, activation)


def _label(name: str) -> str:
    """The name, cut where it is longer than the value of a label may be, and then told apart by a checksum."""
    return name if len(name) <= _LONGEST_LABEL else f"{name[: _LONGEST_LABEL - 9]}-{zlib.crc32(name.encode()):08x}"


def _redis_connection(trigger: Trigger, found: Found) -> tuple[dict[str, Any], str]:
    given = trigger.metadata
    trigger.from_environment(found, "address", "host", "port", "username", "password")
    host, port = _address(trigger, found)
    scheme = "rediss" if given.truth("enableTLS") or given.text("tls") == "enable" else "redis"
    database = given.text("databaseIndex") or "0"
    if not (database.isascii() and database.isdigit()):
        raise Wrong(invalid(trigger.field("databaseIndex"), database, "must be a whole number"))
    address = f"[{host}]" if ":" in host else host
    settings: dict[str, Any] = {"url": f"{scheme}://{address}:{port}/{int(database)}"}
    if given.truth("unsafeSsl"):
        settings["insecure"] = True
    if given.text("usernameFromEnv") or given.text("passwordFromEnv"):
        user = trigger.user(found, "passwordFromEnv", _UNKNOWN_USER, host)
        settings |= user if given.text("usernameFromEnv") else {"password_env": user["password_env"]}
    return settings, host


def _address(trigger: Trigger, found: Found) -> tuple[str, int]:
    """Host and port of `address`, or of `host` and `port`; a place to fill in where neither is given."""
    given = trigger.metadata
    address = given.text("address") or ":".join(filter(None, (given.text("host"), given.text("port"))))
    if not address:
        found.lose(trigger.field("address"), "is not in the trigger: write the address into the source")
        return _REDIS_HOST, _PORT
    try:
        parts = urllib.parse.urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or "@" in address or "/" in address:
        raise Wrong(invalid(trigger.field("address"), "…", "must be of the form host:port"))
    return host, port or _PORT
