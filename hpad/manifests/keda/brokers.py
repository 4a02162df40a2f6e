"""Converts KEDA's triggers `rabbitmq`, and those of Redis lists and streams.

Source: KEDA 2.21, "RabbitMQ Queue".
"""

import urllib.parse
import zlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from hpad.manifests.keda.conversion import PLACEHOLDER, ConvertedSource
from hpad.manifests.keda.fields import host_of, split_url
from hpad.manifests.keda.trigger import Trigger

_TLS: Final = '"tls" is left out: the scheme of the URL decides'
_DEFAULT_LENGTH: Final = "20"
_LENGTH, _RATE, _TIME, _RATIO = (
    "QueueLength",
    "MessageRate",
    "ExpectedQueueConsumptionTime",
    "PublishedToDeliveredRatio",
)
_MODES: Final = {_LENGTH: "messages", _RATE: "publish_rate", "DeliverGetRate": "deliver_rate", _TIME: "drain_time"}
_ONE_FOR_ALL: Final = "1G"
"""A target so large that any number of messages asks for one replica."""
_ENCODED: Final = "characters such as # in the user or the password are written as %23"
_PORTS: Final = {"http": 15672, "https": 15671, "amqp": 5672, "amqps": 5671}


def rabbitmq(trigger: Trigger) -> None:
    """Adds the metric of the queue and its source; raises Invalid."""
    mode, value = _mode_and_value(trigger)
    if mode == _RATIO:
        instead = "use the mode drain_time, or two Prometheus queries divided"
        trigger.note_loss("mode", f"{mode} is not carried over, so neither is the trigger: {instead}")
        return
    if mode not in _MODES:
        raise trigger.invalid("mode", mode, f"must be one of {', '.join((*_MODES, _RATIO))}")
    settings, vhost, host = _connection(trigger)
    query = _query(trigger, _MODES[mode], by_amqp=settings.get("source") == "amqp")
    source = trigger.source("rabbitmq", {**query, "vhost": vhost}, host, settings)
    activation = trigger.number("activationValue")
    trigger.external(source, value, activation)
    if trigger.to_zero and mode in (_RATE, _TIME) and not trigger.in_formula:
        _keep_awake(trigger, source, activation if mode == _RATE else "")


def _keep_awake(trigger: Trigger, source: ConvertedSource, activation: str) -> None:
    """Adds a metric that asks for one replica while messages wait, as KEDA does: by a rate alone a target could sleep.

    Source: KEDA 2.21, rabbitmq_scaler.go: GetMetricsAndActivity.
    """
    name = f"{trigger.metric}-waiting"
    query = {**source.query, "mode": _MODES[_LENGTH]}
    trigger.average(msgspec.structs.replace(source, entry=name, metric=name, query=query), _ONE_FOR_ALL, activation)
    trigger.note_change("mode", f"KEDA keeps a replica while messages wait: the metric {name} does that")


def _mode_and_value(trigger: Trigger) -> tuple[str, str]:
    """Returns mode and target value. `queueLength` alone is the older form of mode QueueLength, whose default is 20."""
    metadata = trigger.metadata
    if "queueLength" in metadata:
        if "mode" in metadata or "value" in metadata:
            raise trigger.invalid("queueLength", metadata.get("queueLength"), "excludes mode and value")
        return _LENGTH, trigger.target("queueLength", _DEFAULT_LENGTH)
    if "mode" not in metadata and "value" not in metadata:
        return _LENGTH, _DEFAULT_LENGTH
    value = trigger.target("value")
    return trigger.needed("mode"), value


def _query(trigger: Trigger, mode: str, *, by_amqp: bool) -> dict[str, Any]:
    name = trigger.needed("queueName")
    by_pattern = trigger.metadata.truth("useRegex")
    if by_amqp:
        if mode != "messages" or by_pattern:
            raise trigger.invalid("host", "amqp", "must be http for rates and patterns")
        return {"queue": name, "mode": "ready"}
    query: dict[str, Any] = {"queue": name, "mode": mode}
    if trigger.metadata.truth("excludeUnacknowledged"):
        query["include_unacked"] = False
    if not by_pattern:
        return query
    part = name.removeprefix("(?i)")  # a flag that Python takes at the start only
    query = {"queue_regex": f"(?i).*(?:{part}).*", **{key: query[key] for key in query if key != "queue"}}
    trigger.note_change(
        "queueName",
        f'KEDA\'s pattern means any part of a name, in any case; carried over as "{query["queue_regex"]}": '
        "narrow it if that is not what you want. No match is 0 for KEDA, and an error for hpad: on_missing_queue: zero",
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
    protocol = trigger.metadata.text("protocol") or "auto"
    if protocol not in ("auto", "http", "amqp"):
        raise trigger.invalid("protocol", protocol, "must be auto, http or amqp")
    scheme = "amqp" if protocol == "amqp" else "http"
    settings, vhost, host, user = _from_host(trigger, f"{scheme}://{PLACEHOLDER}:{_PORTS[scheme]}")
    if protocol != "auto" and not settings["url"].startswith(protocol):
        raise trigger.invalid("protocol", protocol, "must be the one of the host's URL")
    settings |= trigger.oauth2() or trigger.login(host, user) or trigger.login_of_url("host", host)
    settings |= trigger.tls_files()
    if trigger.reference("tls") is not None:
        trigger.conversion.note_change(f"{trigger.path}.authenticationRef", _TLS)
    settings |= {**trigger.timeout("request_timeout"), **trigger.insecure()}
    return settings, trigger.text("vhostName") or trigger.unread("vhostName") or vhost, host


def _from_host(trigger: Trigger, example: str) -> tuple[dict[str, Any], str, str, str]:
    """Returns settings, vhost, host and user from the trigger's URL; of the example, where a Secret holds the URL.

    The path is the vhost; with HTTP its last segment is, and the segments before it belong to the address.
    """
    text = trigger.required_text("host", example)
    parts = split_url(text)
    host = host_of(parts)
    if parts.scheme not in _PORTS or not host or parts.fragment:
        hint = _ENCODED if "://" in text else "hostFromEnv names a variable with one"
        raise trigger.invalid("host", "…", f"must be a URL of {', '.join(_PORTS)}; {hint}")
    usual = {port: scheme for scheme, port in _PORTS.items()}.get(parts.port or 0, parts.scheme)
    if usual != parts.scheme:
        text = f"{parts.port} is the usual port of {usual}, that of {parts.scheme} is {_PORTS[parts.scheme]}"
        trigger.note_change("host", text)
    if parts.query:
        trigger.note_loss("host", "the parameters of the URL, after its ?, are not carried over")
    path, _, vhost = parts.path.rpartition("/")
    by_amqp = parts.scheme.startswith("amqp")
    port = parts.port or (_PORTS[parts.scheme] if by_amqp else None)  # without one, HTTP has 80 and HTTPS 443
    url = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}"
    settings: dict[str, Any]
    if by_amqp:
        settings, vhost = {"url": url, "source": "amqp"}, parts.path.removeprefix("/")
    else:
        settings = {"url": url + "".join(f"/{segment}" for segment in path.split("/") if segment)}
    vhost = urllib.parse.unquote(vhost) or "/" if trigger.text("host") else PLACEHOLDER
    return settings, vhost, host, urllib.parse.unquote(parts.username or "")


# Redis lists and streams, on one server, behind Redis Sentinel, or in a cluster.
#
# Source: KEDA 2.21, "Redis Lists", "Redis Streams" and their Cluster and Sentinel variants; redis_streams_scaler.go.

_REDIS_PORT, _SENTINEL_PORT = 6379, 26379
_DEFAULT_ENTRIES: Final = "5"
_MAX_LABEL: Final = 63
_WITHOUT_GROUP: Final = {"missing_group": "all"}
"""KEDA counts the entries of the stream until the group exists: redis_streams_scaler.go: createEntriesCountFn."""
_LIST, _STREAM, _PENDING, _LAG = "redis_list_length", "redis_stream_length", "redis_stream_pending", "redis_stream_lag"


def redis_lists(trigger: Trigger) -> None:
    """Adds the length of a list; raises Invalid."""
    key = trigger.needed("listName")
    value = trigger.target("listLength", _DEFAULT_ENTRIES)
    _add(trigger, _LIST, key, {}, (value, trigger.number("activationListLength")))


def redis_streams(trigger: Trigger) -> None:
    """Adds the length of a stream, or of a consumer group its pending entries, or its lag; raises Invalid."""
    key, group = trigger.needed("stream"), trigger.metadata.text("consumerGroup")
    threshold = trigger.number("activationLagCount")
    lag = trigger.number("lagCount") if group else ""
    if lag and lag != "0":
        _add(trigger, _LAG, key, {"group": group}, (lag, threshold))
    elif group:
        value = trigger.target("pendingEntriesCount", _DEFAULT_ENTRIES)
        _add(trigger, _PENDING, key, {"group": group}, (value, threshold))
    else:
        value = trigger.target("streamLength", _DEFAULT_ENTRIES)
        _add(trigger, _STREAM, key, {}, (value, threshold))


def _add(trigger: Trigger, metric: str, key: str, labels: dict[str, str], numbers: tuple[str, str]) -> None:
    """Adds a metric and its source. `numbers`: target value and activation threshold.

    The selector has an alias, which the source maps to the key: a label value cannot have all characters of a key.
    """
    settings, host = _redis_connection(trigger)
    name = _label(trigger.metric)
    source = ConvertedSource(
        path=trigger.path,
        adapter="redis",
        host=host,
        settings=settings | (_WITHOUT_GROUP if metric == _LAG else {}),
        section="keys",
        entry=name,
        query=key,
        metric=metric,
        labels={"key": name, **labels},
    )
    trigger.external(source, *numbers)


def _label(name: str) -> str:
    """Returns the name as a label value: a long name is shortened and ends with a checksum."""
    return name if len(name) <= _MAX_LABEL else f"{name[: _MAX_LABEL - 9]}-{zlib.crc32(name.encode()):08x}"


def _redis_connection(trigger: Trigger) -> tuple[dict[str, Any], str]:
    """Returns the settings of the source, and the host."""
    place: Callable[[Trigger, bool], tuple[dict[str, Any], str]] = _server
    if "sentinel" in trigger.type:
        place = _sentinel
    elif "cluster" in trigger.type:
        place = _cluster
    encrypted = _is_encrypted(trigger)
    settings, host = place(trigger, encrypted)
    insecure = trigger.insecure()
    if encrypted:
        settings |= {**trigger.file_settings(ca="ca", cert="cert", key="key"), **insecure}
    else:
        trigger.leave_tls_files()
    credentials = trigger.credentials(host)
    if credentials and place is not _server:
        trigger.note_trust(settings, "masters that sentinels name" if place is _sentinel else "other nodes")
    return settings | credentials, host


def _server(trigger: Trigger, encrypted: bool) -> tuple[dict[str, Any], str]:
    (host, address), *others = _addresses(trigger, _REDIS_PORT)
    if others:
        trigger.conversion.note_change(trigger.field_of(_name(trigger, "address")), "only the first counts, as in KEDA")
    return {"url": f"{'rediss' if encrypted else 'redis'}://{address}/{_database(trigger)}"}, host


def _cluster(trigger: Trigger, encrypted: bool) -> tuple[dict[str, Any], str]:
    found = _addresses(trigger, _REDIS_PORT)
    return {"cluster": {"nodes": [address for _, address in found], **_tls(encrypted)}}, found[0][0]


def _sentinel(trigger: Trigger, encrypted: bool) -> tuple[dict[str, Any], str]:
    found = _addresses(trigger, _SENTINEL_PORT)
    master = trigger.required_text("sentinelMaster", PLACEHOLDER)
    user = trigger.text("sentinelUsername") or trigger.unread("sentinelUsername")
    database = _database(trigger)
    own = {"master": master, "nodes": [address for _, address in found], **_tls(encrypted)}
    own |= {"database": database} if database else {}
    password = trigger.secret("sentinelPassword", "sentinel.password_file", found[0][0], "sentinel_password")
    own |= {f"password_{kind}": place for kind, place in password.items()}
    if user and password:
        own["username"] = user
    elif user:  # nor does KEDA send it
        trigger.conversion.note_change(trigger.field_of("sentinelUsername"), "is left out: there is no password for it")
    return {"sentinel": own}, found[0][0]


def _tls(encrypted: bool) -> dict[str, bool]:
    return {"tls": True} if encrypted else {}


def _database(trigger: Trigger) -> int:
    return trigger.whole_number("databaseIndex", trigger.metadata.text("databaseIndex") or "0")


def _is_encrypted(trigger: Trigger) -> bool:
    tls = trigger.text("tls")
    if not tls and trigger.reference("tls") is not None:
        text = '"tls" is kept elsewhere, and counts as "enable": write redis:// into the source where it is not'
        trigger.conversion.note_change(f"{trigger.path}.authenticationRef", text)
        return True
    return trigger.metadata.truth("enableTLS") or tls == "enable"


def _addresses(trigger: Trigger, port: int) -> list[tuple[str, str]]:
    """Returns host and address of each server, from the addresses, or from hosts and ports; raises Invalid.

    KEDA takes the names in the singular and the plural for each kind of Redis. Returns example values if they are kept
    where hpad cannot read them.
    """
    whole, hosts, ports = (_name(trigger, each) for each in ("address", "host", "port"))
    if text := trigger.text(whole) or trigger.unread(whole, PLACEHOLDER):
        listed = text.split(",")
    else:
        named = trigger.required_text(hosts, PLACEHOLDER).split(",")
        numbers = (trigger.text(ports) or trigger.unread(ports, str(port)) or str(port)).split(",")
        if len(numbers) not in (1, len(named)):
            raise trigger.invalid(ports, ",".join(numbers), f"must be as many as {hosts}")
        numbers = numbers * len(named) if len(numbers) == 1 else numbers
        listed = [f"{host.strip()}:{number.strip()}" for host, number in zip(named, numbers, strict=True)]
    return [_address(trigger, whole, each.strip(), port) for each in listed if each.strip()]


def _name(trigger: Trigger, singular: str) -> str:
    """Returns the name that is set: in the singular or the plural."""
    plural = f"{singular}es" if singular == "address" else f"{singular}s"
    return plural if trigger.text(plural) or trigger.reference(plural) is not None else singular


def _address(trigger: Trigger, name: str, text: str, port: int) -> tuple[str, str]:
    parts = split_url(f"//{text}")
    host = host_of(parts)
    if not host or "@" in text or "/" in text:
        raise trigger.invalid(name, "…", "must be of the form host:port")
    return host, f"{f'[{host}]' if ':' in host else host}:{parts.port or port}"
