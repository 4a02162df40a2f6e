"""The configuration that converted ScaledObjects need, as a document for hpad's own file."""

from collections.abc import Iterable
from typing import Any

from hpad.manifests.keda.found import EXTERNAL, Source
from hpad.manifests.keda.scaledobject import Converted

_OWN = ("namespaces", "match", "metrics", "keys")


def document(converted: Iterable[Converted]) -> dict[str, Any]:
    """Sources, one for all metrics of the same server, for HPAs of the namespaces that had them; empty without any."""
    made: dict[str, dict[str, Any]] = {}
    scale_to_zero = False
    for each in converted:
        scale_to_zero |= each.scale_to_zero
        for source in each.sources:
            _add(_settings_of(made, source), source, each.namespace)
    found: dict[str, Any] = {"feature_gates": {"HPAScaleToZero": True}} if scale_to_zero else {}
    return {**found, "sources": made} if made else found


def _add(settings: dict[str, Any], source: Source, namespace: str) -> None:
    if source.selector:
        match = {"types": [EXTERNAL], "metrics": [source.metric], "labels": dict(source.selector)}
        settings.setdefault("match", []).append(match)
    else:
        names = settings.setdefault("match", {"types": [EXTERNAL], "metrics": []})["metrics"]
        names.append(source.metric)
    settings.setdefault(source.section, {})[source.entry] = source.query
    if namespace not in settings["namespaces"]:
        settings["namespaces"].append(namespace)


def _settings_of(made: dict[str, dict[str, Any]], source: Source) -> dict[str, Any]:
    """Those of a source with the same adapter and settings, else of a new one, named after adapter and host."""
    wanted = {"adapter": source.adapter, **source.settings}
    label = source.host.partition(".")[0]
    stem = "-".join(filter(None, (source.adapter, source.host if label.isdigit() else label)))
    name, number = stem, 1
    while name in made:
        known = made[name]
        if {key: value for key, value in known.items() if key not in _OWN} == wanted:
            return known
        number += 1
        name = f"{stem}-{number}"
    made[name] = {**wanted, "namespaces": []}
    return made[name]
