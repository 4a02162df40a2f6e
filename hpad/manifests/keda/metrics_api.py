"""Converts KEDA's trigger `metrics-api`.

Source: KEDA 2.21, "Metrics API".
"""

import re
from typing import Any, Final

from hpad.manifests.keda.fields import split_url
from hpad.manifests.keda.trigger import Trigger

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
