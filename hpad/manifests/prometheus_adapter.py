"""Converts configurations of prometheus-adapter to sources of the adapter `prometheus`.

A configuration is a file, or an entry of a ConfigMap. prometheus-adapter refuses unknown and repeated fields, and takes
null for an absent field. Source: prometheus-adapter, pkg/config: config.go and loader.go.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from hpad.api.problem import Problem
from hpad.manifests import documents
from hpad.manifests.keda.conversion import PLACEHOLDER
from hpad.manifests.keda.fields import Note, without_null

UNKNOWN_URL: Final = f"http://{PLACEHOLDER}:9090"
_RULES: Final = ("rules", "externalRules", "resourceRules")
_CHART_RULES: Final = ("default", "custom", "existing", "external", "resource")
"""The values in `rules` of the Helm chart.

Source: prometheus-community/helm-charts, prometheus-adapter: values.yaml.
"""
_OF_A_RULE: Final = ("seriesquery", "metricsquery")
_OF_THE_CHART: Final = (
    "values of the Helm chart are not converted: convert the ConfigMap that it writes, which also has its default "
    "rules: kubectl get configmap NAME -o yaml | hpad convert -"
)


class WrittenRules(msgspec.Struct, frozen=True):
    """One configuration: its content, and its field in the document ("" if it is the whole document)."""

    field: str
    content: dict[str, Any]


class FoundRules(msgspec.Struct, frozen=True):
    """What a document has of prometheus-adapter. With `errors` it is refused as a whole."""

    rules: list[WrittenRules] = []
    errors: list[Problem] = []
    notes: list[Note] = []


def find(value: Mapping[str, Any]) -> FoundRules | None:
    """Returns the configurations in a document; None for any other document."""
    if value.get("kind") == "ConfigMap" and isinstance(value.get("data"), dict):
        return _in_config_map(value)
    if value.get("kind") is not None or "apiVersion" in value:
        return None
    for values in (value.get("prometheus-adapter"), value):
        rules = values.get("rules") if isinstance(values, dict) else None
        if isinstance(rules, dict) and not rules.keys().isdisjoint(_CHART_RULES):
            return FoundRules(errors=[Problem("rules", _OF_THE_CHART)])
    if _resembles(value) or any(_meant(str(key), _RULES) for key in value):
        content, errors = _read(value)
        return FoundRules([] if errors else [WrittenRules("", content)], errors)
    return None


def source(rules: WrittenRules) -> dict[str, Any]:
    """Returns the settings of a source with these rules."""
    return {"adapter": "prometheus", "url": UNKNOWN_URL, "rules": rules.content}


def _in_config_map(value: Mapping[str, Any]) -> FoundRules | None:
    found = FoundRules()
    for name, text in value["data"].items():
        field = f"data[{name}]"
        parsed = documents.parse(text.encode(), "") if isinstance(text, str) else []
        if len(parsed) != 1 or not _resembles(parsed[0].value):
            found.notes.append(Note(field, "is not carried over"))
            continue
        content, errors = _read(parsed[0].value)
        errors = [*parsed[0].faults, *errors]
        found.errors.extend(Problem(field, f"{field}: {error.text}") for error in errors)
        found.rules.append(WrittenRules(field, content))
    others = [Note(f"binaryData[{name}]", "is not carried over") for name in value.get("binaryData") or {}]
    return msgspec.structs.replace(found, notes=[*found.notes, *others]) if found.rules else None


def _read(value: Mapping[Any, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Returns a configuration without its null fields, and the errors for which prometheus-adapter refuses it."""
    errors = [
        Problem(str(key), f"{key}: unknown field, which prometheus-adapter refuses{_hint(key, _RULES)}")
        for key in value
        if key not in _RULES
    ]
    content = {str(key): without_null(each) for key, each in value.items() if each is not None}
    if not any(content.values()) and not errors:
        errors.append(Problem("", f"has no rules: neither {', '.join(_RULES[:2])} nor {_RULES[2]}"))
    return {key: each for key, each in content.items() if each}, errors


def _resembles(value: Any) -> bool:
    """Returns whether a document is a configuration, perhaps with misspelt fields."""
    if not isinstance(value, dict) or not value or "kind" in value:
        return False
    return set(value) <= set(_RULES) or any(map(_is_rule, _entries(value.values())))


def _entries(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield from value if isinstance(value, list) else ()


def _is_rule(entry: Any) -> bool:
    return isinstance(entry, dict) and any(str(key).lower() in _OF_A_RULE for key in entry)


def _meant(name: str, known: Iterable[str]) -> str:
    """Returns the known name that a misspelt one means, "" for none."""
    names = {each.lower(): each for each in known}
    [found] = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.85) or [""]
    return names.get(found, "")


def _hint(name: Any, known: Iterable[str]) -> str:
    meant = _meant(str(name), known)
    return f'; did you mean "{meant}"?' if meant else f"; known are {', '.join(known)}"
