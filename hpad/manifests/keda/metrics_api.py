"""KEDA's trigger `metrics-api` as a metric of hpad's adapter `http-json`."""

import re
import urllib.parse
from typing import Any, Final

from hpad.api.fields import invalid
from hpad.manifests.keda.fields import Wrong
from hpad.manifests.keda.found import Found, Source, Trigger

_STEP: Final = re.compile(r"[A-Za-z0-9_-]+")


def convert(trigger: Trigger, found: Found) -> None:
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
