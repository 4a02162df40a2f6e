"""Converts KEDA's triggers of Redis lists and streams.

Source: KEDA 2.21, "Redis Lists" and "Redis Streams".
"""

import zlib
from typing import Any, Final

from hpad.manifests.keda.conversion import Source
from hpad.manifests.keda.fields import split_url
from hpad.manifests.keda.trigger import Trigger

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
    settings, host = _connection(trigger)
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


def _connection(trigger: Trigger) -> tuple[dict[str, Any], str]:
    metadata = trigger.metadata
    host, port = _address(trigger)
    scheme = "rediss" if _is_encrypted(trigger) else "redis"
    database = metadata.text("databaseIndex") or "0"
    address = f"[{host}]" if ":" in host else host
    settings: dict[str, Any] = {"url": f"{scheme}://{address}:{port}/{trigger.whole_number('databaseIndex', database)}"}
    if metadata.truth("unsafeSsl"):
        settings["insecure"] = True
    settings |= trigger.credentials(host) | trigger.file_settings(ca="ca", cert="cert", key="key")
    return settings, host


def _is_encrypted(trigger: Trigger) -> bool:
    tls = trigger.text("tls")
    if not tls and trigger.reference("tls") is not None:
        text = '"tls" is kept elsewhere, and counts as "enable": write redis:// into the source where it is not'
        trigger.conversion.note_change(f"{trigger.path}.authenticationRef", text)
        return True
    return trigger.metadata.truth("enableTLS") or tls == "enable"


def _address(trigger: Trigger) -> tuple[str, int]:
    """Returns host and port from `address`, or from `host` and `port`; example values if they are kept elsewhere."""
    if trigger.text("address") or trigger.unread("address", _REDIS_HOST):
        address = trigger.text("address") or _REDIS_HOST
    else:
        host = trigger.required_text("host", _REDIS_HOST)
        address = ":".join(filter(None, (host, trigger.text("port") or trigger.unread("port", str(_REDIS_PORT)))))
    parts = split_url(f"//{address}")
    if not parts.hostname or "@" in address or "/" in address:
        raise trigger.invalid("address", "…", "must be of the form host:port")
    return parts.hostname, parts.port or _REDIS_PORT
