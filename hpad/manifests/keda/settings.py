"""The settings that converted objects need."""

from collections.abc import Iterable
from typing import Any, Final

from hpad.manifests.keda.conversion import EXTERNAL, Converted, Source

_NOT_OWN: Final = ("namespaces", "match", "metrics", "keys")
"""Settings that differ between metrics of one server, or that every source has."""


def settings_document(converted: Iterable[Converted]) -> dict[str, Any]:
    """Returns the settings that the converted objects need; empty if they need none.

    Metrics of the same server share one source, limited to the namespaces of their objects.
    """
    sources: dict[str, dict[str, Any]] = {}
    scale_to_zero = False
    for each in converted:
        scale_to_zero |= each.scale_to_zero
        for source in each.sources:
            _add(_settings_of(sources, source), source, each.namespace)
    gates: dict[str, Any] = {"feature_gates": {"HPAScaleToZero": True}} if scale_to_zero else {}
    return {**gates, "sources": sources} if sources else gates


def _add(settings: dict[str, Any], source: Source, namespace: str) -> None:
    if source.labels:
        match = {"types": [EXTERNAL], "metrics": [source.metric], "labels": dict(source.labels)}
        settings.setdefault("match", []).append(match)
    else:
        names = settings.setdefault("match", {"types": [EXTERNAL], "metrics": []})["metrics"]
        if source.metric not in names:
            names.append(source.metric)
    if source.entry:
        settings.setdefault(source.section, {})[source.entry] = source.query
    if namespace not in settings["namespaces"]:
        settings["namespaces"].append(namespace)


def _settings_of(sources: dict[str, dict[str, Any]], source: Source) -> dict[str, Any]:
    """Returns the entry in `sources` with the same adapter and settings, or adds one, named after adapter and host."""
    settings = {"adapter": source.adapter, **source.settings}
    label = source.host.lower().partition(".")[0]
    stem = "-".join(filter(None, (source.adapter, source.host if label.isdigit() else label)))
    name, number = stem, 1
    while True:
        known = sources.setdefault(name, {**settings, "namespaces": []})
        if {key: value for key, value in known.items() if key not in _NOT_OWN} == settings:
            return known
        number += 1
        name = f"{stem}-{number}"
