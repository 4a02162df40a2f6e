"""KEDA's triggers `redis` and `redis-streams` as metrics of hpad's adapter `redis`."""

import urllib.parse
import zlib
from typing import Any, Final

from hpad.api.fields import invalid
from hpad.manifests.keda import placeholder
from hpad.manifests.keda.fields import Wrong
from hpad.manifests.keda.found import Found, Source, Trigger

UNKNOWN_HOST: Final = "redis.example.com"
_UNKNOWN_USER: Final = placeholder.VALUE
_PORT: Final = 6379
_DEFAULT: Final = "5"
_LONGEST_LABEL: Final = 63
_LIST, _STREAM, _PENDING = "redis_list_length", "redis_stream_length", "redis_stream_pending"


def lists(trigger: Trigger, found: Found) -> None:
    """Add the length of a list; raises Wrong."""
    key = trigger.needed("listName")
    value = trigger.number("listLength") or _DEFAULT
    _add(trigger, found, _LIST, key, {}, (value, trigger.number("activationListLength")))


def streams(trigger: Trigger, found: Found) -> None:
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
    settings, host = _connection(trigger, found)
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


def _connection(trigger: Trigger, found: Found) -> tuple[dict[str, Any], str]:
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
        return UNKNOWN_HOST, _PORT
    try:
        parts = urllib.parse.urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or "@" in address or "/" in address:
        raise Wrong(invalid(trigger.field("address"), "…", "must be of the form host:port"))
    return host, port or _PORT
