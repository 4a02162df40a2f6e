"""KEDA's trigger `prometheus` as a query of hpad's adapter of that name."""

import urllib.parse
from typing import Any, Final

from hpad.api.fields import invalid
from hpad.manifests.keda.fields import Wrong
from hpad.manifests.keda.found import Found, Source, Trigger

_ADAPTER: Final = "prometheus"
_CREDENTIALS: Final = {
    "bearer": "bearer_token_file",
    "basic": "username and password_file",
    "tls": "cert and key",
    "custom": "headers, such as {NAME: {file: …}}",
}


def convert(trigger: Trigger, found: Found) -> None:
    """Add the metric and its source to what is found; raises Wrong."""
    trigger.needed("threshold")
    threshold, activation = trigger.number("threshold"), trigger.number("activationThreshold")
    query: dict[str, Any] = {"query": trigger.needed("query"), "types": ["External"]}
    if "<<" in query["query"]:
        raise Wrong(invalid(trigger.field("query"), "<<", "must hold no <<, where hpad's variables begin"))
    if trigger.metadata.truth("ignoreNullValues"):
        query["empty"] = "zero"
    elif "ignoreNullValues" not in trigger.metadata:
        found.note(
            trigger.field("ignoreNullValues"),
            "KEDA takes an empty answer for zero where nothing is said; hpad takes it for missing and keeps the "
            "replicas: write empty: zero if zero is meant",
        )
    settings, host = _connection(trigger, found)
    trigger.needless(found, {"metricName": "KEDA gives it no meaning any more"})
    name = trigger.metric
    source = Source(
        path=trigger.path, adapter=_ADAPTER, host=host, settings=settings, entry=name, query=query, metric=name
    )
    trigger.external(found, source, threshold, activation)


def _connection(trigger: Trigger, found: Found) -> tuple[dict[str, Any], str]:
    given = trigger.metadata
    address = trigger.needed("serverAddress")
    try:
        parts = urllib.parse.urlsplit(address)
        host, user = parts.hostname, urllib.parse.unquote(parts.username or "")
    except ValueError:
        parts, host, user = urllib.parse.urlsplit(""), None, ""
    if parts.scheme not in ("http", "https") or not host or parts.fragment:
        raise Wrong(invalid(trigger.field("serverAddress"), "…", "must be a URL of http or https"))
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="")
    settings: dict[str, Any] = {"url": urllib.parse.urlunsplit(bare).rstrip("/")}
    settings |= trigger.user(found, "serverAddress", user, host)
    params = dict(urllib.parse.parse_qsl(parts.query)) | _pairs(trigger, "queryParameters")
    if namespace := given.text("namespace"):
        params["namespace"] = namespace
    headers = _pairs(trigger, "customHeaders")
    if tenant := given.text("cortexOrgID"):
        headers.setdefault("X-Scope-OrgID", tenant)
    settings |= {name: value for name, value in (("params", params), ("headers", headers)) if value}
    if given.truth("unsafeSsl"):
        settings["insecure"] = True
    if timeout := trigger.milliseconds("timeout"):
        settings["query_timeout"] = timeout
    for mode in filter(None, (part.strip() for part in given.text("authModes").split(","))):
        instead = _CREDENTIALS.get(mode, "headers")
        found.lose(trigger.field("authModes"), f"{mode} is not carried over: write {instead} into the source")
    return settings, host


def _pairs(trigger: Trigger, name: str) -> dict[str, str]:
    """`a=b,c=d`; raises Wrong, without the text, which may hold a secret."""
    pairs = [part.partition("=") for part in trigger.metadata.text(name).split(",") if part.strip()]
    if any(not equals or not key.strip() for key, equals, _ in pairs):
        raise Wrong(invalid(trigger.field(name), "…", "must be of the form name=value,other=value"))
    return {key.strip(): value.strip() for key, _, value in pairs}
