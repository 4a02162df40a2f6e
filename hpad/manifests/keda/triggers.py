"""Converts KEDA's triggers `metrics-api`, `cpu`, `memory`, `cron` and `prometheus`.

Source: KEDA 2.21, "Metrics API", "CPU", "Memory", "Cron" and "Prometheus".
"""

import re
import urllib.parse
from typing import Any, Final

from hpad.api.fields import invalid
from hpad.manifests.keda.conversion import Trigger
from hpad.manifests.keda.fields import ConversionError, split_url

_STEP: Final = re.compile(r"[A-Za-z0-9_-]+")


def metrics_api(trigger: Trigger) -> None:
    """Adds a number of a JSON document, by hpad's adapter `http-json`; raises ConversionError.

    Notes the trigger as lost for other formats.
    """
    metadata = trigger.metadata
    kind, location = metadata.text("format") or "json", trigger.needed("valueLocation")
    if kind != "json":
        trigger.note_loss("format", f"{kind} is not carried over, so neither is the trigger: hpad reads JSON")
        return
    path = _path(location)
    if path is None:
        reason = "only names and numbers with dots between are carried over, so the trigger is not"
        trigger.note_loss("valueLocation", f'"{location}": {reason}')
        return
    trigger.needed("targetValue")
    value, activation = trigger.number("targetValue"), trigger.number("activationTargetValue")
    url = trigger.needed("url")
    parts = split_url(url)
    if not parts.hostname or "@" in parts.netloc:
        raise trigger.invalid("url", "…", "must be a URL of http or https without credentials")
    settings = {"insecure": True} if metadata.truth("unsafeSsl") else {}
    source = trigger.source("http-json", {"url": url, "path": path}, parts.hostname, settings)
    trigger.external(source, value, activation)


def _path(location: str) -> str | None:
    """Returns KEDA's location ("jobs.0.depth") in hpad's form ("jobs[0].depth"); None for any other syntax of GJSON."""
    steps: list[Any] = location.split(".")
    if not all(_STEP.fullmatch(step) for step in steps):
        return None
    return "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in steps).lstrip(".")


_UTILIZATION, _AVERAGE = "Utilization", "AverageValue"


def resource(trigger: Trigger) -> None:
    """Adds a Resource metric, or with `containerName` a ContainerResource metric; raises ConversionError."""
    older = trigger.metadata.text("type")
    kind = trigger.metric_type or older
    value = trigger.needed("value")
    target: dict[str, Any]
    if kind == _UTILIZATION:
        target = {"type": kind, "averageUtilization": trigger.whole_number("value", value)}
    elif kind == _AVERAGE:
        target = {"type": kind, "averageValue": trigger.number("value")}
    else:
        raise ConversionError(invalid(f"{trigger.path}.metricType", kind, f"must be {_UTILIZATION} or {_AVERAGE}"))
    measured = {"name": trigger.type, "target": target}
    container = trigger.metadata.text("containerName")
    if container:
        metric = {"type": "ContainerResource", "containerResource": {**measured, "container": container}}
    else:
        metric = {"type": "Resource", "resource": measured}
    trigger.conversion.metrics.append(metric)
    if older and older != kind:
        trigger.note_change("type", "is left out: metricType differs, and has precedence")


def cron(trigger: Trigger) -> None:
    """Adds a metric that equals `desiredReplicas` between `start` and `end`; raises ConversionError."""
    replicas = trigger.whole_number("desiredReplicas", trigger.needed("desiredReplicas"))
    window = {name: trigger.needed(name) for name in ("timezone", "start", "end")}
    trigger.external(trigger.source("cron", {**window, "replicas": replicas}), "1")


_CREDENTIALS: Final = {
    "bearer": "bearer_token_file",
    "basic": "username and password_file",
    "tls": "cert and key",
    "custom": "headers, such as {NAME: {file: …}}",
}


def prometheus(trigger: Trigger) -> None:
    """Adds the query and its source; raises ConversionError."""
    trigger.needed("threshold")
    threshold, activation = trigger.number("threshold"), trigger.number("activationThreshold")
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
    trigger.note_unneeded({"metricName": "KEDA ignores it"})
    trigger.external(trigger.source("prometheus", query, host, settings), threshold, activation)


def _connection(trigger: Trigger) -> tuple[dict[str, Any], str]:
    metadata = trigger.metadata
    address = trigger.needed("serverAddress")
    parts = split_url(address)
    host, user = parts.hostname, urllib.parse.unquote(parts.username or "")
    if parts.scheme not in ("http", "https") or not host or parts.fragment:
        raise trigger.invalid("serverAddress", "…", "must be a URL of http or https")
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="")
    settings: dict[str, Any] = {"url": urllib.parse.urlunsplit(bare).rstrip("/")}
    settings |= trigger.user("serverAddress", user, host)
    params = dict(urllib.parse.parse_qsl(parts.query)) | _pairs(trigger, "queryParameters")
    if namespace := metadata.text("namespace"):
        params["namespace"] = namespace
    headers = _pairs(trigger, "customHeaders")
    if tenant := metadata.text("cortexOrgID"):
        headers.setdefault("X-Scope-OrgID", tenant)
    settings |= {name: value for name, value in (("params", params), ("headers", headers)) if value}
    if metadata.truth("unsafeSsl"):
        settings["insecure"] = True
    if timeout := trigger.milliseconds("timeout"):
        settings["query_timeout"] = timeout
    for mode in filter(None, (part.strip() for part in metadata.text("authModes").split(","))):
        instead = _CREDENTIALS.get(mode, "headers")
        trigger.note_loss("authModes", f"{mode} is not carried over: write {instead} into the source")
    return settings, host


def _pairs(trigger: Trigger, name: str) -> dict[str, str]:
    """Parses `a=b,c=d`. Raises ConversionError without the text, which may contain a secret."""
    pairs = [part.partition("=") for part in trigger.metadata.text(name).split(",") if part.strip()]
    if any(not equals or not key.strip() for key, equals, _ in pairs):
        raise trigger.invalid(name, "…", "must be of the form name=value,other=value")
    return {key.strip(): value.strip() for key, _, value in pairs}
