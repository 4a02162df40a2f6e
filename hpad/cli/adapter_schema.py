"""The JSON schema of a source: what hpad reads of it, and for each installed adapter the fields of its own."""

from typing import Any, Final

import msgspec

from hpad import settings
from hpad.adapter import Adapter, AdapterError
from hpad.cli import meanings
from hpad.sources import plugins

Json = dict[str, Any]
_REFERENCE: Final = "#/$defs/{name}"


def sources(own: Json) -> tuple[Json, Json]:
    """The form of `sources`, and the definitions that it refers to; `own` are the fields that every source may have.

    A source's adapter is named, or is that of the source's name; of one that is not installed any field is taken. It
    blocks: all adapters are imported.
    """
    adapters = dict(_loaded())
    forms, definitions = msgspec.json.schema_components(
        [adapter.Settings for adapter in adapters.values()], ref_template=_REFERENCE
    )
    for kind in _structs(adapters.values()):
        _describe(definitions, kind)
    inner = {key: definition for key, definition in definitions.items() if key not in _tops(forms)}
    for name, form in zip(adapters, forms, strict=True):
        inner[f"source-{name}"] = _whole(form, definitions, own)
    then = {name: {"then": {"$ref": _REFERENCE.format(name=f"source-{name}")}} for name in adapters}
    named = [{"if": _names(name), **form} for name, form in then.items()]
    implied = {name: {"if": {"not": {"required": ["adapter"]}}, **form} for name, form in then.items()}
    source: Json = {"type": "object", "properties": own, "allOf": named}
    return {"type": "object", "additionalProperties": source, "allOf": [{"properties": implied}]}, inner


def _loaded() -> list[tuple[str, type[Adapter]]]:
    found = []
    for name in plugins.names():
        try:
            found.append((name, plugins.adapter_class(name)))
        except AdapterError:
            continue
    return found


def _names(adapter: str) -> Json:
    return {"properties": {"adapter": {"const": adapter}}, "required": ["adapter"]}


def _tops(forms: tuple[Json, ...]) -> set[str]:
    return {form["$ref"].rpartition("/")[2] for form in forms}


def _whole(form: Json, definitions: Json, own: Json) -> Json:
    """The settings of an adapter together with those of every source."""
    definition = definitions[form["$ref"].rpartition("/")[2]]
    fields = {name: each for name, each in definition["properties"].items() if name not in settings.OF_SOURCES}
    return {**definition, "properties": {**own, **fields}}


def _structs(adapters: Any) -> list[type[msgspec.Struct]]:
    """The structs of the adapters' settings, those within too, each once."""
    found: dict[type[msgspec.Struct], None] = {}
    waiting: list[Any] = [msgspec.inspect.type_info(adapter.Settings) for adapter in adapters]
    while waiting:
        form = waiting.pop()
        if isinstance(form, msgspec.inspect.StructType):
            if form.cls not in found:
                found[form.cls] = None
                waiting += [field.type for field in form.fields]
            continue
        parts = (getattr(form, name, None) for name in ("types", "key_type", "value_type", "item_type", "type"))
        for part in parts:
            waiting += part if isinstance(part, tuple) else [part] if isinstance(part, msgspec.inspect.Type) else []
    return list(found)


def _describe(definitions: Json, kind: type[msgspec.Struct]) -> None:
    """Add what the docstring of a struct says of its fields to its definition."""
    said = meanings.of_fields(kind)
    mine = {field.encode_name for field in msgspec.structs.fields(kind)}
    for name in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}"):
        definition = definitions.get(name, {})
        if set(definition.get("properties", ())) == mine:
            for field, form in definition["properties"].items():
                if field in said:
                    form.setdefault("description", said[field])
