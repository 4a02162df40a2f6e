"""Converts KEDA's triggers that ask a server for a number: `prometheus`, `metrics-api` and `postgresql`.

Source: KEDA 2.21, "Prometheus".
"""

import re
import shlex
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from hpad.manifests.keda.conversion import PLACEHOLDER
from hpad.manifests.keda.fields import split_url
from hpad.manifests.keda.trigger import Trigger

_CREDENTIAL: Final = re.compile(r"auth|token|key|secret|pass|cookie", re.IGNORECASE)
_SECRET_PARAMETER: Final = re.compile(
    "(.*(token|secret|passw|api.?key|access.?key).*)|key|sig|signature|auth|authorization|pass|pwd", re.IGNORECASE
)
"""Names of parameters of a URL whose values are secrets; keyspace and author have none."""
_MODES: Final = {"bearer": "bearerToken", "basic": "username", "tls": "cert", "custom": "customAuthValue"}
"""The modes of `authModes`, and a parameter that each needs."""


def prometheus(trigger: Trigger) -> None:
    """Adds the query and its source; raises Invalid."""
    threshold, activation = trigger.target("threshold"), trigger.number("activationThreshold")
    query: dict[str, Any] = {"query": trigger.needed("query"), "types": ["External"]}
    if "<<" in query["query"]:
        raise trigger.invalid("query", "<<", "must not contain <<, which begins a variable of hpad")
    if trigger.metadata.truth("ignoreNullValues"):
        query["empty"] = "zero"
    elif "ignoreNullValues" not in trigger.metadata:
        trigger.note_change(
            "ignoreNullValues",
            "KEDA counts an empty answer as zero by default; hpad counts it as missing and keeps the replicas: write "
            "empty: zero if zero is meant",
        )
    settings, host = _connection(trigger)
    trigger.external(trigger.source("prometheus", query, host, settings), threshold, activation)


def _connection(trigger: Trigger) -> tuple[dict[str, Any], str]:
    metadata = trigger.metadata
    address = trigger.required_text("serverAddress", f"http://{PLACEHOLDER}:9090")
    parts = split_url(address)
    host, user = parts.hostname, urllib.parse.unquote(parts.username or "")
    if parts.scheme not in ("http", "https") or not host or parts.fragment:
        raise trigger.invalid("serverAddress", "…", "must be a URL of http or https")
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="")
    settings: dict[str, Any] = {"url": urllib.parse.urlunsplit(bare).rstrip("/")}
    of_url = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
    names = [name for name, _ in of_url]
    for name in sorted({each for each in names if names.count(each) > 1}):
        trigger.note_loss("serverAddress", f"of the values of {name} in the URL only the last is carried over")
    params = dict(of_url) | _pairs(trigger, "queryParameters")
    for name in filter(_SECRET_PARAMETER.fullmatch, params):
        field = "serverAddress" if name in names else "queryParameters"
        trigger.note_change(field, f"{name} is copied, though it looks like a secret: keep the settings as one")
    if namespace := metadata.text("namespace"):
        params["namespace"] = namespace
    headers = _headers(trigger, host)
    if tenant := metadata.text("cortexOrgID"):
        headers.setdefault("X-Scope-OrgID", tenant)
    settings |= {name: value for name, value in (("params", params), ("headers", headers)) if value}
    settings |= {**trigger.insecure(), **trigger.timeout("query_timeout")}
    own = _authentication(trigger, host, user)
    headers = settings.get("headers", {}) | own.get("headers", {})
    settings |= own | ({"headers": headers} if headers else {})
    return settings, host


def _headers(trigger: Trigger, host: str) -> dict[str, Any]:
    """Returns the headers. The value of one that looks like a credential is not copied."""
    headers: dict[str, Any] = dict(_pairs(trigger, "customHeaders"))
    for name in headers:
        if _CREDENTIAL.search(name):
            what = re.sub(r"\W", "_", name)
            headers[name] = {"env": trigger.variable_of(trigger.metadata.at("customHeaders"), host, what)}
    return headers


def _authentication(trigger: Trigger, host: str, user: str) -> dict[str, Any]:
    """Returns the settings of the modes in `authModes`, and of the user in the URL."""
    settings: dict[str, Any] = trigger.file_settings(ca="ca")
    modes = list(_modes(trigger, "authModes", _MODES))
    for mode in modes:
        if mode == "bearer":
            settings |= trigger.file_settings(bearerToken="bearer_token_file")
        elif mode == "tls":
            settings |= trigger.file_settings(cert="cert", key="key")
        elif mode == "custom":
            settings |= _custom_header(trigger)
    if "basic" in modes or user:
        settings |= trigger.login(host, user, "serverAddress")
    return settings


def _modes(trigger: Trigger, field: str, known: Mapping[str, str]) -> Iterator[str]:
    """Yields the modes in a field, with commas between, whose parameter is there; notes the others as lost."""
    for mode in (part.strip() for part in trigger.text(field).split(",") if part.strip()):
        needed = known.get(mode)
        if needed is not None and (trigger.reference(needed) is not None or trigger.text(needed)):
            yield mode
        else:
            lacking = f'there is no "{needed}"' if needed else "there is no such mode"
            trigger.note_loss(field, f"{mode} is not carried over: {lacking} in a TriggerAuthentication")


def _custom_header(trigger: Trigger) -> dict[str, Any]:
    name = trigger.text("customAuthHeader") or trigger.unread("customAuthHeader")
    file = trigger.file("customAuthValue", f"headers.{name}.file")
    return {"headers": {name: {"file": file}}} if name and file else {}


def _pairs(trigger: Trigger, name: str) -> dict[str, str]:
    """Parses `a=b,c=d`. Raises Invalid without the text, which may contain a secret."""
    pairs = [part.partition("=") for part in trigger.metadata.text(name).split(",") if part.strip()]
    if any(not equals or not key.strip() for key, equals, _ in pairs):
        raise trigger.invalid(name, "…", "must be of the form name=value,other=value")
    return {key.strip(): value.strip() for key, _, value in pairs}


# Converts KEDA's trigger `metrics-api` to hpad's adapter `http-json`.
#
# Source: KEDA 2.21, "Metrics API"; metrics_api_scaler.go.

_STEP: Final = re.compile(r"[A-Za-z0-9_-]+|#")
_FORMATS: Final = ("json", "xml", "yaml", "prometheus")
_COMBINES: Final = {"average": "avg", "sum": "sum", "max": "max", "min": "min"}
_API_MODES: Final = {"apiKey": "apiKey", "basic": "username", "tls": "ca", "bearer": "token"}
"""The modes of `authMode`, and a parameter that each needs."""


def metrics_api(trigger: Trigger) -> None:
    """Adds a number of a document; raises Invalid. Notes the trigger as lost for syntax that hpad lacks."""
    metadata = trigger.metadata
    kind, location = metadata.text("format") or "json", trigger.needed("valueLocation")
    if kind not in _FORMATS:
        raise trigger.invalid("format", kind, f"must be one of {', '.join(_FORMATS)}")
    path = location if kind == "prometheus" else _path(location)
    if path is None:
        reason = "only names and numbers with dots between, and # at the end, are carried over, so the trigger is not"
        trigger.note_loss("valueLocation", f'"{location}": {reason}')
        return
    value, activation = trigger.target("targetValue"), trigger.number("activationTargetValue")
    url = trigger.required_text("url", f"http://{PLACEHOLDER}/")
    parts = split_url(url)
    if not parts.hostname or "@" in parts.netloc:
        raise trigger.invalid("url", "…", "must be a URL of http or https without credentials")
    bare, secrets = _without_secrets(trigger, url, parts)
    query: dict[str, Any] = {"url": bare, "path": path} | ({} if kind == "json" else {"format": kind}) | _pods(trigger)
    settings: dict[str, Any] = {**trigger.insecure(), **trigger.timeout("request_timeout")}
    settings |= _api_authentication(trigger, parts.hostname)
    if params := secrets | settings.get("params", {}):
        settings["params"] = params
    trigger.external(trigger.source("http-json", query, parts.hostname, settings), value, activation)


def _without_secrets(trigger: Trigger, url: str, parts: urllib.parse.SplitResult) -> tuple[str, dict[str, Any]]:
    """Returns the URL without the parameters that look like secrets, and the places of these."""
    pairs = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
    names = [name for name, _ in pairs if _SECRET_PARAMETER.fullmatch(name)]
    if not names:
        return url, {}
    field, host = trigger.field_of("url"), parts.hostname or ""
    places = {name: {"env": trigger.variable_of(field, host, re.sub(r"\W", "_", name))} for name in names}
    others = urllib.parse.urlencode([(name, value) for name, value in pairs if name not in places])
    return urllib.parse.urlunsplit(parts._replace(query=others)), places


def _pods(trigger: Trigger) -> dict[str, str]:
    """Returns how the values of all pods of a Service become one; empty where one pod is asked."""
    if not trigger.metadata.truth("aggregateFromKubeServiceEndpoints"):
        return {}
    kind = trigger.metadata.text("aggregationType") or "average"
    if kind not in _COMBINES:
        raise trigger.invalid("aggregationType", kind, f"must be one of {', '.join(_COMBINES)}")
    text = "a pod that fails makes the metric fail; KEDA leaves it out: write missing_pods: average for that"
    trigger.note_change("aggregateFromKubeServiceEndpoints", text)
    return {"pods": _COMBINES[kind]}


def _path(location: str) -> str | None:
    """Returns KEDA's location ("jobs.0.depth") in hpad's form ("jobs[0].depth"); None for any other syntax of GJSON."""
    steps: list[Any] = location.split(".")
    if not all(_STEP.fullmatch(step) for step in steps) or "#" in steps[:-1]:
        return None
    return "".join(f"[{step}]" if step.isdigit() or step == "#" else f".{step}" for step in steps).lstrip(".")


def _api_authentication(trigger: Trigger, host: str) -> dict[str, Any]:
    """Returns the settings of the modes in `authMode`."""
    settings: dict[str, Any] = trigger.oauth2()
    for mode in _modes(trigger, "authMode", _API_MODES):
        if mode == "basic":
            settings |= trigger.login(host)
        elif mode == "tls":
            settings |= trigger.file_settings(ca="ca", cert="cert", key="key")
        elif mode == "bearer":
            settings |= trigger.file_settings(token="bearer_token_file")
        else:
            settings |= _api_key(trigger, host)
    return settings


def _api_key(trigger: Trigger, host: str) -> dict[str, Any]:
    by_query = trigger.text("method") == "query"
    setting, name = ("params", "api_key") if by_query else ("headers", "X-API-KEY")
    name = trigger.text("keyParamName") or trigger.unread("keyParamName") or name
    return {setting: {name: trigger.secret("apiKey", f"{setting}.{name}.file", host, "api_key")}}


# Converts KEDA's trigger `postgresql`.
#
# Source: KEDA 2.21, "PostgreSQL"; PostgreSQL, "libpq: Connection Strings".

_PORT: Final = "5432"
_SSL_MODES: Final = ("disable", "prefer", "require", "verify-ca", "verify-full")
_CONNECTION: Final = "connection"


class _Place(msgspec.Struct, frozen=True):
    """A database, and the user who is in its connection string."""

    host: str
    port: str = _PORT
    database: str = ""
    sslmode: str = ""
    user: str = ""


def postgresql(trigger: Trigger) -> None:
    """Adds the number of a query; raises Invalid."""
    value, activation = trigger.target("targetQueryValue"), trigger.number("activationTargetQueryValue")
    query = {"query": trigger.needed("query")}
    place = _place(trigger)
    host = place.host.split(",")[0]
    settings: dict[str, Any] = {"host": place.host if host == place.host else place.host.split(",")}
    if place.port != _PORT:
        settings["port"] = trigger.whole_number("port", place.port)
    settings |= {"database": place.database, "sslmode": _sslmode(trigger, place.sslmode)}
    settings |= trigger.credentials(host, place.user, _CONNECTION, user="userName")
    if not settings.keys() & {"password_file", "password_env"} and trigger.reference(_CONNECTION) is not None:
        settings |= trigger.login_of_url(_CONNECTION, host)
    if "username" not in settings:
        settings["username"] = trigger.placeholder("userName")
    trigger.external(trigger.source("postgresql", query, host, settings), value, activation)


def _place(trigger: Trigger) -> _Place:
    """Returns the database of the connection string, or of the parameters; example values where they are kept."""
    if text := trigger.text(_CONNECTION):
        found = _of_url(trigger, text) if "://" in text else _of_words(trigger, text)
    elif trigger.unread(_CONNECTION, f"postgresql://{PLACEHOLDER}"):
        found = _Place(PLACEHOLDER)
    else:
        return _Place(
            trigger.required_text("host", PLACEHOLDER),
            trigger.text("port") or trigger.unread("port", _PORT) or _PORT,
            trigger.text("dbName") or trigger.unread("dbName") or trigger.placeholder("dbName"),
            trigger.text("sslmode") or trigger.unread("sslmode", "prefer"),
        )
    return found if found.database else msgspec.structs.replace(found, database=trigger.placeholder("dbName"))


def _of_url(trigger: Trigger, text: str) -> _Place:
    parts = split_url(text)
    if not parts.hostname:
        raise trigger.invalid(_CONNECTION, "…", "must be a URL of one PostgreSQL server, or words such as host=…")
    params = dict(urllib.parse.parse_qsl(parts.query))
    _note_others(trigger, params.keys() - {"sslmode"})
    return _Place(
        parts.hostname,
        str(parts.port or _PORT),
        urllib.parse.unquote(parts.path.strip("/")),
        params.get("sslmode", ""),
        urllib.parse.unquote(parts.username or ""),
    )


def _of_words(trigger: Trigger, text: str) -> _Place:
    try:
        words = dict(word.split("=", 1) for word in shlex.split(text))
    except ValueError:
        raise trigger.invalid(_CONNECTION, "…", "must be words such as host=… user=…, or a URL") from None
    names = ("host", "port", "dbname", "sslmode", "user")
    host, port, database, sslmode, user = (words.get(name, "") for name in names)
    _note_others(trigger, words.keys() - {*names, "password"})
    if not host:
        text = f"has no host: write it into the source, in place of {PLACEHOLDER}"
        trigger.conversion.note_loss(trigger.field_of(_CONNECTION), text)
    return _Place(host or PLACEHOLDER, port or _PORT, database, sslmode, user)


def _note_others(trigger: Trigger, names: Iterable[str]) -> None:
    """Notes parameters of a connection string that have no counterpart."""
    for name in sorted(names):
        trigger.conversion.note_loss(trigger.field_of(_CONNECTION), f"{name} is not carried over")


def _sslmode(trigger: Trigger, mode: str) -> str:
    """Returns the mode. libpq's default is prefer, and `allow` is the same with TLS as the second choice."""
    if mode in ("", "allow"):
        return "prefer"
    if mode not in _SSL_MODES:
        raise trigger.invalid("sslmode", mode, f"must be one of {', '.join(_SSL_MODES)}")
    return mode
