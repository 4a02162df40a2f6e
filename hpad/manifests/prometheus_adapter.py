"""Converts configurations of prometheus-adapter, in a file or a ConfigMap, to sources of the adapter `prometheus`.

Source: prometheus-adapter, `pkg/config/config.go`.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from hpad.manifests import documents

UNKNOWN_URL: Final = "http://prometheus.example.com:9090"
_RULES: Final = ("rules", "externalRules", "resourceRules")


class Rules(msgspec.Struct, frozen=True):
    """One configuration: its content, and its field in the document ("" if it is the whole document)."""

    field: str
    content: dict[str, Any]


def find(value: Any) -> list[Rules]:
    """Returns the configurations in a document; empty for any other document."""
    if not isinstance(value, dict):
        return []
    if value.get("kind") == "ConfigMap" and isinstance(value.get("data"), dict):
        return list(_in_data(value["data"]))
    return [Rules("", value)] if _is_rules(value) else []


def source(rules: Rules) -> dict[str, Any]:
    """Returns the settings of a source with these rules. The URL is a placeholder, since the rules have none."""
    return {"adapter": "prometheus", "url": UNKNOWN_URL, "rules": rules.content}


def lost(value: dict[str, Any], found: list[Rules]) -> list[str]:
    """Returns the fields in the data of a ConfigMap that are not configurations."""
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
