"""KEDA's trigger `prometheus` as a query of hpad's adapter of that name."""

import urllib.parse
from typing import Any

from hpad.manifests.keda.found import Found, Source, Trigger, Wrong
from hpad.model.fields import invalid

_ADAPTER = "prometheus"
_KNOWN = frozenset({
    "serverAddress", "query", "threshold", "activationThreshold", "namespace", "queryParameters", "customHeaders",
    "ignoreNullValues", "unsafeSsl", "timeout", "authModes", "metricName",
})  # fmt: skip
_CREDENTIALS = {
    "bearer": "bearer_token_file",
    "basic": "username and password_file",
    "tls": "cert and key",
    "custom": "headers, such as {NAME: {file: …}}",
}


def convert(trigger: Trigger, found: Found) -> None:
    """Add the metric and its source to what is found; raises Wrong."""
    threshold = trigger.number("threshold", trigger.needed("threshold"))
    activation = trigger.metadata.get("activationThreshold")
    if activation is not None:
        trigger.number("activationThreshold", activation)
    query: dict[str, Any] = {"query": trigger.needed("query"), "types": ["External"]}
    if "<<" in query["query"]:
        raise Wrong(invalid(trigger.field("query"), "<<", "must hold no <<, where hpad's variables begin"))
    if trigger.flag("ignoreNullValues"):
        query["empty"] = "zero"
    elif "ignoreNullValues" not in trigger.metadata:
        found.note(
            trigger.field("ignoreNullValues"),
            "KEDA takes an empty answer for zero where nothing is said; hpad takes it for missing and keeps the "
            "replicas: write empty: zero if zero is meant",
        )
    settings, host = _connection(trigger, found)
    found.sources.append(Source(_ADAPTER, host, settings, trigger.metric, query))
    trigger.external(found, threshold, activation)
    trigger.leftover(found, _KNOWN)


def _connection(trigger: Trigger, found: Found) -> tuple[dict[str, Any], str]:
    given = trigger.metadata
    address = trigger.needed("serverAddress")
    try:
        parts = urllib.parse.urlsplit(address)
        host = parts.hostname
    except ValueError:
        parts, host = urllib.parse.urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or parts.query:
        raise Wrong(invalid(trigger.field("serverAddress"), "…", "must be a URL of http or https, nothing else"))
    settings: dict[str, Any] = {"url": address.rstrip("/")}
    params = _pairs(trigger, "queryParameters")
    if given.get("namespace"):
        params["namespace"] = given["namespace"]
    headers = _pairs(trigger, "customHeaders")
    settings |= {name: value for name, value in (("params", params), ("headers", headers)) if value}
    if trigger.flag("unsafeSsl"):
        settings["insecure"] = True
    if timeout := trigger.milliseconds("timeout"):
        settings["query_timeout"] = timeout
    for mode in filter(None, (part.strip() for part in given.get("authModes", "").split(","))):
        found.note(
            trigger.field("authModes"), f"write into the source, for {mode}: {_CREDENTIALS.get(mode, 'headers')}"
        )
    return settings, host


def _pairs(trigger: Trigger, name: str) -> dict[str, str]:
    """`a=b,c=d`; raises Wrong, without the text, which may hold a secret."""
    text = trigger.metadata.get(name, "")
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if any(not equals or not key.strip() for key, equals, _ in pairs):
        raise Wrong(invalid(trigger.field(name), "…", "must be of the form name=value,other=value"))
    return {key.strip(): value.strip() for key, _, value in pairs}
