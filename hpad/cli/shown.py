"""The settings in force as people may see them: where each comes from, and no secrets."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from hpad import settings
from hpad.cli import schema

HIDDEN: Final = "(not shown)"
_OPEN: Final = ("adapter", "timeout", "match", "namespaces", "limits", "fallback")
"""What hpad itself reads of a source; all else is the adapter's, and may be a secret or hold one."""


class Row(NamedTuple):
    """One setting; `origin` is a file, a variable, a flag or "default", or several with commas between."""

    name: str
    value: Any
    origin: str


def rows(told: Sequence[tuple[str, str, Any]], store: settings.StoreSettings) -> list[Row]:
    """A row for each setting; `told` is what was said as (origin, setting, value), the later one winning; `store` the
    one that is used, which depends on how hpad is run unless it was said."""
    values, origins = schema.defaults(), dict.fromkeys(schema.forms(), "default")
    values["store"] = store.kind if store.path is None else f"{store.kind}:{store.path}"
    for origin, name, value in told:
        joined = name in settings.JOINED and origins[name] != "default"
        origins[name] = f"{origins[name]}, {origin}" if joined else origin
        shown = _sources(value) if name == "sources" else value
        keeps = joined and isinstance(values[name], dict) and isinstance(shown, dict)
        values[name] = {**values[name], **shown} if keeps else shown
    return [Row(name, values[name], origins[name]) for name in values]


def _sources(value: Any) -> Any:
    if not isinstance(value, dict):
        return HIDDEN
    return {
        name: {field: entry if field in _OPEN else HIDDEN for field, entry in source.items()}
        for name, source in value.items()
    }
