"""The settings in force as people may see them: where each comes from, and no secrets."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from hpad import settings
from hpad.cli import disclosed, schema


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
        joined = name in settings.JOINED
        origins[name] = f"{origins[name]}, {origin}" if joined and origins[name] != "default" else origin
        shown = _sources(value) if name == "sources" else _as_in_a_file(name, value)
        keeps = joined and isinstance(values[name], dict) and isinstance(shown, dict)
        values[name] = {**values[name], **shown} if keeps else shown
    return [Row(name, values[name], origins[name]) for name in values]


def _as_in_a_file(name: str, value: Any) -> Any:
    """Numbers, lists and the like of variables and flags, which are text; what may be text in a file stays as it is."""
    form = schema.forms()[name]
    kinds = form.get("anyOf", [form])[0].get("type", "string")
    if not isinstance(value, str) or "string" in kinds or name == "store":
        return value
    read = settings.PARSERS[name](value)
    return list(read) if isinstance(read, tuple) else read


def _sources(value: Any) -> Any:
    if not isinstance(value, dict):
        return disclosed.HIDDEN
    return {name: _source(str(name), source) for name, source in value.items()}


def _source(name: str, source: dict[str, Any]) -> dict[str, Any]:
    """The fields in the order of the file."""
    own = disclosed.settings(source.get("adapter", name), settings.of_adapter(source))
    return {field: own.get(field, entry) for field, entry in source.items()}
