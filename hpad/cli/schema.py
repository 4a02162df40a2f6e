"""The JSON schema of the configuration (draft 2020-12): each setting with form, default and meaning.

Covers the settings of hpad, and those of each installed adapter, described by the docstrings of its structs.
"""

import re
from typing import Final

import msgspec

from hpad import settings
from hpad.cli import adapters
from hpad.settings import SourceSettings, rows
from hpad.settings.parsers import Json
from hpad.settings.rows import Row

_FIELD_NAMES: Final = re.compile(r"(?:^|(?<=[.;] ))(\w+(?:(?:, | and |, and )\w+)*): ")
_REFERENCE: Final = "#/$defs/{name}"


def document() -> Json:
    """Returns the whole schema, with the fields of all installed adapters. Blocks: imports them."""
    form, definitions = _sources(rows.schema_of(SourceSettings))
    properties = {name: _described(row) for name, row in settings.TABLE.items()}
    properties["sources"] |= form
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hpad",
        "description": "The configuration of hpad; the environment (HPAD_SYNC_PERIOD) and flags take precedence.",
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": properties,
        "$defs": definitions,
    }


def _described(row: Row) -> Json:
    default = {} if row.written is None else {"default": row.written}
    return {"description": row.setting.meaning, **row.setting.parser.form, **default}


def _sources(own: Json) -> tuple[Json, Json]:
    """Returns the schema of `sources`, and the definitions that it refers to; `own`: the fields of every source.

    The adapter of a source is named, or has the source's name. A source of an adapter that is not installed may have
    any field. Blocks: imports all adapters.
    """
    loaded = adapters.loadable()
    forms, definitions = msgspec.json.schema_components(
        [adapter.Settings for adapter in loaded.values()], ref_template=_REFERENCE
    )
    for definition in definitions.values():
        _describe_fields(definition)
    names = [form["$ref"].rpartition("/")[2] for form in forms]  # adapters may share their Settings
    inner = {name: definition for name, definition in definitions.items() if name not in names}
    for adapter, name in zip(loaded, names, strict=True):
        definition = definitions[name]
        inner[f"source-{adapter}"] = {**definition, "properties": {**definition["properties"], **own}}
    then = {name: {"then": {"$ref": _REFERENCE.format(name=f"source-{name}")}} for name in loaded}
    named = [
        {"if": {"properties": {"adapter": {"const": name}}, "required": ["adapter"]}, **form}
        for name, form in then.items()
    ]
    implied = {name: {"if": {"not": {"required": ["adapter"]}}, **form} for name, form in then.items()}
    source: Json = {"type": "object", "properties": own, "allOf": named}
    return {"type": "object", "additionalProperties": source, "allOf": [{"properties": implied}]}, inner


def _describe_fields(definition: Json) -> None:
    """Copies the descriptions of fields from a struct's docstring, "name: text" or "name, other: text", to the fields.

    A description in a field's msgspec.Meta takes precedence.
    """
    properties: Json = definition.get("properties", {})
    text = " ".join(definition.get("description", "").split())
    matches = [(match, re.split(r", and |, | and ", match[1])) for match in _FIELD_NAMES.finditer(text)]
    matches = [(match, names) for match, names in matches if properties.keys() >= set(names)]
    ends = [*(match.start() for match, _ in matches), len(text)][1:]
    descriptions: dict[str, str] = {}
    for (match, names), end in zip(matches, ends, strict=True):
        descriptions |= dict.fromkeys(names, text[match.end() : end].strip(" ;"))
    for name, description in descriptions.items():
        properties[name].setdefault("description", description)
