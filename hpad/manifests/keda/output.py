"""The configuration that converted ScaledObjects need, as a document for hpad's own file.

Objects of KEDA that have no counterpart, and those of versions that are not read: what is lost with each.

Configurations of prometheus-adapter, as a file or in a ConfigMap: sources of hpad's adapter `prometheus`.

Source: prometheus-adapter, `pkg/config/config.go`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from hpad.manifests import documents
from hpad.manifests.keda.found import EXTERNAL, Fields, Note, Source, Wrong
from hpad.manifests.keda.scaledobject import API_VERSION, KIND, Converted

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


_GROUPS: Final = ("keda.sh", "keda.k8s.io")
_AUTHENTICATION: Final = ("TriggerAuthentication", "ClusterTriggerAuthentication")
_INSTEAD: Final = {
    "ScaledJob": "it starts Jobs, and an HPA scales what keeps running: scale a Deployment by the same metric",
    "CloudEventSource": "hpad has events and series of its own",
    "ClusterCloudEventSource": "hpad has events and series of its own",
    "HTTPScaledObject": "hpad sees no requests; scale by a rate of requests that a source such as Prometheus knows",
}


def is_other(value: Any) -> bool:
    """Whether a document is an object of KEDA; ask `scaledobject.is_scaled_object` first."""
    version = value.get("apiVersion") if isinstance(value, dict) else None
    group = version.partition("/")[0] if isinstance(version, str) else ""
    return group.endswith(_GROUPS)


def identity(value: Mapping[str, Any]) -> str:
    """The object as messages name it: kind, namespace and name."""
    given = value.get("metadata")
    metadata = given if isinstance(given, dict) else {}
    namespace = "" if str(value.get("kind", "")).startswith("Cluster") else f"{metadata.get('namespace') or 'default'}/"
    return f"{value.get('kind') or 'object'} {namespace}{metadata.get('name') or '?'}"


def notes(value: Mapping[str, Any]) -> Iterator[Note]:
    """What is lost: the object as a whole, and of a TriggerAuthentication where each of its parameters is."""
    kind = value.get("kind")
    if kind in _AUTHENTICATION:
        yield from _authentication(value)
    elif kind in _INSTEAD:
        yield Note("kind", f"a {kind} is not carried over: {_INSTEAD[kind]}")
    elif kind == KIND:
        yield Note(
            "apiVersion",
            f"{value['apiVersion']} is not carried over: only {API_VERSION}, of KEDA 2, is read; migrate the object "
            "first, as KEDA's documentation says (scaleTargetRef.deploymentName is scaleTargetRef.name there)",
        )
    else:
        yield Note("kind", f"{kind or 'an object without a kind'} is not carried over: there is no counterpart")


def _authentication(value: Mapping[str, Any]) -> Iterator[Note]:
    advice = "mount what it holds into hpad, and write it into the sources of the triggers that refer to it"
    yield Note("kind", f"a {value['kind']} is not carried over: {advice}")
    try:
        spec = Fields(value).object("spec")
        for name in spec:
            references = spec.objects(name) if name in ("secretTargetRef", "env", "configMapTargetRef") else []
            if not references:
                yield Note(spec.at(name), "is not carried over")
            for reference in references:
                yield Note(reference.at("parameter"), f"{_parameter(reference)} is not carried over")
    except Wrong as wrong:
        yield Note("spec", f"is not carried over: {wrong.error}")


def _parameter(reference: Fields) -> str:
    place = " and ".join(f'{name} "{reference.text(name)}"' for name in ("name", "key") if name in reference)
    return f'"{reference.text("parameter") or "?"}"' + (f" ({place})" if place else "")


UNKNOWN_URL: Final = "http://prometheus.example.com:9090"
_RULES: Final = ("rules", "externalRules", "resourceRules")


class Rules(msgspec.Struct, frozen=True):
    """One configuration: where it stands in its document ("" for the whole), and its content."""

    field: str
    content: dict[str, Any]


def find(value: Any) -> list[Rules]:
    """The configurations in a document; empty for a document that is something else."""
    if not isinstance(value, dict):
        return []
    if value.get("kind") == "ConfigMap" and isinstance(value.get("data"), dict):
        return list(_in_data(value["data"]))
    return [Rules("", value)] if _is_rules(value) else []


def source(rules: Rules) -> dict[str, Any]:
    """The settings of a source that answers by the rules; its address is not part of such a configuration."""
    return {"adapter": "prometheus", "url": UNKNOWN_URL, "rules": rules.content}


def lost(value: dict[str, Any], found: list[Rules]) -> list[str]:
    """The fields of a ConfigMap's data that are not configurations."""
    if value.get("kind") != "ConfigMap":
        return []
    used = {rules.field for rules in found}
    fields = [f"{part}[{name}]" for part in ("data", "binaryData") for name in value.get(part) or {}]
    return [field for field in fields if field not in used]


def _in_data(data: dict[Any, Any]) -> Iterator[Rules]:
    for name, text in data.items():
        parsed = documents.parse(text.encode(), "") if isinstance(text, str) else []
        if len(parsed) == 1 and _is_rules(parsed[0].value):
            yield Rules(f"data[{name}]", parsed[0].value)


def _is_rules(value: Any) -> bool:
    return isinstance(value, dict) and "kind" not in value and bool(value) and set(value) <= set(_RULES)
