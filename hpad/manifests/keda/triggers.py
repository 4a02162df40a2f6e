"""KEDA's trigger `metrics-api` as a metric of hpad's adapter `http-json`.

KEDA's triggers `cpu`, `memory` and `cron`: no server is asked for these.

KEDA's trigger `prometheus` as a query of hpad's adapter of that name.
"""

import re
import urllib.parse
from typing import Any, Final

from hpad.api.fields import invalid
from hpad.manifests.keda.found import Found, Source, Trigger, Wrong

_STEP: Final = re.compile(r"[A-Za-z0-9_-]+")


def metrics_api(trigger: Trigger, found: Found) -> None:
    """Add a number of a JSON document; raises Wrong. What KEDA reads of other formats has no counterpart."""
    given = trigger.metadata
    kind, location = given.text("format") or "json", trigger.needed("valueLocation")
    if kind != "json":
        found.lose(trigger.field("format"), f"{kind} is not carried over, so neither is the trigger: hpad reads JSON")
        return
    path = _path(location)
    if path is None:
        reason = "only names and numbers with dots between are carried over, so the trigger is not"
        found.lose(trigger.field("valueLocation"), f'"{location}": {reason}')
        return
    trigger.needed("targetValue")
    value, activation = trigger.number("targetValue"), trigger.number("activationTargetValue")
    url = trigger.needed("url")
    source = Source(
        path=trigger.path,
        adapter="http-json",
        host=_host(trigger, url),
        settings={"insecure": True} if given.truth("unsafeSsl") else {},
        entry=trigger.metric,
        query={"url": url, "path": path},
        metric=trigger.metric,
    )
    trigger.external(found, source, value, activation)


def _host(trigger: Trigger, url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    if not host or "@" in parts.netloc:
        raise Wrong(invalid(trigger.field("url"), "…", "must be a URL of http or https without credentials"))
    return host


def _path(location: str) -> str | None:
    """A location as KEDA has it ("jobs.0.depth", GJSON) in hpad's form ("jobs[0].depth"); None for any other syntax."""
    steps: list[Any] = location.split(".")
    if not all(_STEP.fullmatch(step) for step in steps):
        return None
    return "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in steps).lstrip(".")


_UTILIZATION, _AVERAGE = "Utilization", "AverageValue"


def resource(trigger: Trigger, found: Found) -> None:
    """Add a Resource metric, or with `containerName` a ContainerResource metric; raises Wrong."""
    older = trigger.metadata.text("type")
    kind = trigger.metric_type or older
    value = trigger.needed("value")
    target: dict[str, Any]
    if kind == _UTILIZATION:
        if not (value.isascii() and value.isdigit()):
            raise Wrong(invalid(trigger.field("value"), value, "must be a whole number of percent"))
        target = {"type": kind, "averageUtilization": int(value)}
    elif kind == _AVERAGE:
        target = {"type": kind, "averageValue": trigger.number("value")}
    else:
        raise Wrong(invalid(f"{trigger.path}.metricType", kind, f"must be {_UTILIZATION} or {_AVERAGE}"))
    container = trigger.metadata.text("containerName")
    if container:
        measured = {"name": trigger.type, "container": container, "target": target}
        found.metrics.append({"type": "ContainerResource", "containerResource": measured})
    else:
        found.metrics.append({"type": "Resource", "resource": {"name": trigger.type, "target": target}})
    if older and older != kind:
        found.note(trigger.field("type"), "is left out: metricType says otherwise, and counts")


def cron(trigger: Trigger, found: Found) -> None:
    """Add a metric that wants a number of replicas between two points of a schedule; raises Wrong."""
    replicas = trigger.needed("desiredReplicas")
    if not (replicas.isascii() and replicas.isdigit()):
        raise Wrong(invalid(trigger.field("desiredReplicas"), replicas, "must be a whole number"))
    window = {name: trigger.needed(name) for name in ("timezone", "start", "end")}
    query = {**window, "replicas": int(replicas)}
    source = Source(path=trigger.path, adapter="cron", entry=trigger.metric, query=query, metric=trigger.metric)
    trigger.external(found, source, "1")


_ADAPTER: Final = "prometheus"
_CREDENTIALS: Final = {
    "bearer": "bearer_token_file",
    "basic": "username and password_file",
    "tls": "cert and key",
    "custom": "headers, such as {NAME: {file: …}}",
}


def prometheus(trigger: Trigger, found: Found) -> None:
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
