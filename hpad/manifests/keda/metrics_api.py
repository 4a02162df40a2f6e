"""Converts KEDA's trigger `metrics-api` to hpad's adapter `http-json`.

Source: KEDA 2.21, "Metrics API"; metrics_api_scaler.go.
"""

import re
from typing import Any, Final

from hpad.manifests.keda.conversion import PLACEHOLDER
from hpad.manifests.keda.fields import split_url
from hpad.manifests.keda.trigger import Trigger

_STEP: Final = re.compile(r"[A-Za-z0-9_-]+|#")
_FORMATS: Final = ("json", "xml", "yaml", "prometheus")
_COMBINES: Final = {"average": "avg", "sum": "sum", "max": "max", "min": "min"}
_MODES: Final = {"apiKey": "apiKey", "basic": "username", "tls": "ca", "bearer": "token"}
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
    query: dict[str, Any] = {"url": url, "path": path} | ({} if kind == "json" else {"format": kind}) | _pods(trigger)
    settings: dict[str, Any] = {"insecure": True} if metadata.truth("unsafeSsl") else {}
    if timeout := trigger.milliseconds("timeout"):
        settings["request_timeout"] = timeout
    settings |= _authentication(trigger, parts.hostname)
    trigger.external(trigger.source("http-json", query, parts.hostname, settings), value, activation)


def _pods(trigger: Trigger) -> dict[str, str]:
    """Returns how the values of all pods of a Service become one; empty where one pod is asked."""
    if not trigger.metadata.truth("aggregateFromKubeServiceEndpoints"):
        trigger.note_unneeded({"aggregationType": "it has an effect with aggregateFromKubeServiceEndpoints only"})
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


def _authentication(trigger: Trigger, host: str) -> dict[str, Any]:
    """Returns the settings of the modes in `authMode`, which may be several with commas between."""
    settings: dict[str, Any] = trigger.oauth2()
    for mode in (part.strip() for part in trigger.text("authMode").split(",") if part.strip()):
        needed = _MODES.get(mode)
        if needed is None or (trigger.reference(needed) is None and not trigger.text(needed)):
            lacking = f'there is no "{needed}"' if needed else "there is no such mode"
            trigger.note_loss("authMode", f"{mode} is not carried over: {lacking} in a TriggerAuthentication")
        elif mode == "basic":
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
