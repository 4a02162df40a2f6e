"""Converts configurations of prometheus-adapter to sources of the adapter `prometheus`.

A configuration is a file, or an entry of a ConfigMap. prometheus-adapter refuses unknown and repeated fields, and takes
null for an absent field. Values of its Helm chart are none: the chart writes the ConfigMap, with rules of its own.
Source: prometheus-adapter, pkg/config: config.go and loader.go.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hpad.api.problem import Problem
from hpad.api.text import meant
from hpad.manifests import documents
from hpad.manifests.keda.conversion import PLACEHOLDER
from hpad.manifests.keda.fields import Note, without_null

UNKNOWN_URL: Final = f"http://{PLACEHOLDER}:9090"
_RULES: Final = ("rules", "externalRules", "resourceRules")
_CHART: Final = "prometheus-adapter"
"""The key of the chart's values where it is a part of another chart."""
_OF_CHART: Final = (
    "values of the Helm chart, which lack its default rules: convert the ConfigMap that the chart writes, as in "
    "`kubectl get configmap NAME -o yaml | hpad convert -`"
)
_OF_A_RULE: Final = ("seriesquery", "metricsquery")


class WrittenRules(msgspec.Struct, frozen=True):
    """One configuration: its content, and its field in the document ("" if it is the whole document)."""

    field: str
    content: dict[str, Any]

    def origin(self, path: str) -> str:
        """Returns the path in the document of one in the content, such as rules[0].name."""
        return ".".join(filter(None, (self.field, path)))


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
    if _has_chart_rules(value.get(_CHART)):
        return FoundRules(errors=[Problem(f"{_CHART}.rules", f"{_CHART}.rules: has {_OF_CHART}")])
    if "rules" not in value and not _resembles(value):
        return None
    content, errors = _read(value)
    return FoundRules([] if errors else [WrittenRules("", content)], errors)


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
    if _has_chart_rules(value):
        return {}, [Problem("rules", f"rules: has {_OF_CHART}")]
    errors = [
        Problem(str(key), f"{key}: unknown field{meant(str(key), _RULES)}, which prometheus-adapter refuses")
        for key in value
        if key not in _RULES
    ]
    content = {str(key): without_null(each) for key, each in value.items() if each is not None}
    if not any(content.values()) and not errors:
        errors.append(Problem("", f"has no rules: neither {', '.join(_RULES[:2])} nor {_RULES[2]}"))
    return {key: each for key, each in content.items() if each}, errors


def _resembles(value: Any) -> bool:
    """Returns whether a document is a configuration, perhaps with a misspelt field.

    A list of `rules` alone is not enough: other programs have one, such as the JMX exporter.
    """
    if not isinstance(value, dict) or "kind" in value:
        return False
    entries = (each for part in value.values() if isinstance(part, list) for each in part)
    return bool(value.keys() & {*_RULES[1:]}) or _has_chart_rules(value) or any(map(_is_rule, entries))


def _is_rule(entry: Any) -> bool:
    return isinstance(entry, dict) and any(str(key).lower() in _OF_A_RULE for key in entry)


def _has_chart_rules(value: Any) -> bool:
    """Whether the rules are an object, as in values of the chart; those of a configuration are a list."""
    return isinstance(value, dict) and isinstance(value.get("rules"), dict)
