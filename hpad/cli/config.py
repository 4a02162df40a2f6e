"""`hpad config`: prints the settings in force, with their origins and without secrets, or the JSON schema.

Of the settings of an adapter, numbers, switches and addresses are printed, the latter without user info, query and
fragment. A field is hidden if its name suggests a secret (`holds_secret`), if the adapter's schema does not have
it, or if the schema marks it with `writeOnly` (msgspec.Meta(extra_json_schema={"writeOnly": True})).
"""

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml

from hpad import settings
from hpad.adapter import AdapterError
from hpad.api.secrets import holds_secret
from hpad.cli import adapters, flags, output, program
from hpad.settings import SourceSettings, rows
from hpad.settings.parsers import Json
from hpad.settings.rows import SettingRow
from hpad.sources import plugins, redact

HIDDEN: Final = "(not shown)"
_USER_INFO: Final = re.compile(r"//\S*@")


def without_secrets(adapter: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a source that belong to its adapter, without secrets. Blocks: imports the adapter."""
    public = _public_fields(adapter)
    return {name: _field(name, value) if name in public else HIDDEN for name, value in values.items()}


def _public_fields(adapter: str) -> frozenset[str]:
    """Returns the adapter's fields that its schema does not mark as secret; none if the adapter cannot be loaded."""
    try:
        schema = plugins.adapter_class(adapter).Settings
    except AdapterError:
        return frozenset()
    return frozenset(field.encode_name for field in msgspec.structs.fields(schema)) - redact.write_only(schema)


def _field(name: str, value: Any) -> Any:
    """Returns what is printed of a value: HIDDEN for texts that are no addresses, since any may hold a credential."""
    if isinstance(value, list):
        return [_field(name, entry) for entry in value]
    if holds_secret(name):
        return HIDDEN
    if isinstance(value, str) and "://" in value and "PRIVATE KEY" not in value:
        return re.split("[?#]", _USER_INFO.sub("//***@", value), maxsplit=1)[0]
    return value if isinstance(value, bool | int | float) else HIDDEN


def _rows(entries: Sequence[tuple[str, str, Any]], store: settings.StoreSettings) -> dict[str, tuple[Any, str]]:
    """Returns the value and origin of each setting: a file, a variable, a flag, "default", or several with commas.

    `entries`: (origin, setting, value) from file, environment and flags; the later one wins. `store`: the store in
    force, whose default depends on how hpad runs.
    """
    rows = {name: (row.written, "default") for name, row in settings.TABLE.items()}
    rows["store"] = (store.kind if store.path is None else f"{store.kind}:{store.path}", "default")
    for origin, name, value in entries:
        own = {"sources": _sources, "notify": _notify}.get(name)
        value = _as_in_file(name, value) if own is None else own(value)
        earlier, earlier_origin = rows[name]
        if settings.TABLE[name].setting.join is not None:
            origin = origin if earlier_origin == "default" else f"{earlier_origin}, {origin}"
            value = {**earlier, **value}
        rows[name] = (value, origin)
    return rows


def _as_in_file(name: str, value: Any) -> Any:
    """Converts the text of a variable or flag to the form it has in a file: a number, a list or a mapping."""
    parser = settings.TABLE[name].setting.parser
    types = parser.form.get("anyOf", [parser.form])[0].get("type", "string")
    if not isinstance(value, str) or "string" in types:
        return value
    parsed = parser(value)
    return list(parsed) if isinstance(parsed, tuple) else parsed


def _sources(value: Mapping[str, Any]) -> dict[str, Any]:
    """Sources without secrets, their fields in the order of the file."""
    shown = {}
    for name, source in value.items():
        own = without_secrets(source.get("adapter", name), settings.of_adapter(source))
        shown[name] = {field: own.get(field, entry) for field, entry in source.items()}
    return shown


def _notify(value: Mapping[str, Any]) -> dict[str, Any]:
    """The section with no more of the addresses of its destinations than the server."""
    shown = {
        name: {field: _server(entry) if field == "url" else entry for field, entry in destination.items()}
        for name, destination in value.get("destinations", {}).items()
    }
    return {**value, "destinations": shown} if shown else dict(value)


def _server(url: str) -> str:
    return "/".join(url.split("/", 3)[:3])


HELP: Final = "show the settings in force, or the JSON schema of the configuration"
DESCRIPTION: Final = "Show the settings in force and where each comes from, or the JSON schema of the configuration."
EPILOG: Final = """\
examples:
  hpad config show --config hpad.yaml      every setting in force, and where it comes from
  hpad config show -o json --workers=9     {"workers": {"value": 9, "from": "--workers"}, ...}
  hpad config schema > hpad.schema.json    the JSON schema of hpad.yaml, for editors and for CI

`config show` takes the settings of `hpad run`, from the same places. Of the settings of an adapter it prints numbers,
switches and addresses, without user and parameters; texts, which may hold credentials, are "(not shown)".

exit status: 0 success, 2 for wrong use or invalid settings
"""
_SHORT = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    text = "show the settings in force, and where each comes from"
    about = f"{text.capitalize()}. Takes the settings of `hpad run`."
    show = program.add_command(actions, "show", run_show, text, about)
    output.add_format(show)
    flags.add(show)
    text = "print the JSON schema of the configuration"
    about = f"{text.capitalize()}, with the settings of all installed adapters.".replace("json", "JSON")
    program.add_command(actions, "schema", run_schema, text, about)


def run_schema(args: argparse.Namespace) -> int:
    """Prints the schema; returns 0."""
    output.print_value(document(), "json")
    return 0


def run_show(args: argparse.Namespace) -> int:
    """Prints the settings; 0, or 2 if they are invalid."""
    try:
        in_force = flags.read(args)
    except settings.SettingsError as error:
        print(f"hpad: {error}".replace("\n", "\nhpad: "), file=sys.stderr)
        return 2
    rows = _rows(flags.origins(args), in_force.store)
    if args.output == "json":
        output.print_value({name: {"value": value, "from": origin} for name, (value, origin) in rows.items()}, "json")
        return 0
    width = max(map(len, rows))
    for name, (value, origin) in rows.items():
        print(_line(f"{name:<{width}}", value, origin))
    return 0


def _line(name: str, value: Any, origin: str) -> str:
    """Returns name, value and origin as text; a long list or mapping follows below as YAML."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= _SHORT or not isinstance(value, list | dict):
        return f"{name}  {text}  # {origin}"
    below = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=10_000).rstrip()
    return f"{name}  # {origin}\n{textwrap.indent(below, '  ')}"


# The JSON schema of the configuration (draft 2020-12): each setting with form, default and meaning.
#
# Covers the settings of hpad, and those of each installed adapter, described by the docstrings of its structs.

_FIELD_NAMES: Final = re.compile(r"(?:^|(?<=[.;] ))(\w+(?:(?:, | and |, and )\w+)*): ")
_REFERENCE: Final = "#/$defs/{name}"


def document() -> Json:
    """Returns the whole schema, with the fields of all installed adapters. Blocks: imports them."""
    form, definitions = _sources_form(rows.schema_of(SourceSettings))
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


def _described(row: SettingRow) -> Json:
    default = {} if row.written is None else {"default": row.written}
    return {"description": row.setting.meaning, **row.setting.parser.form, **default}


def _sources_form(own: Json) -> tuple[Json, Json]:
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
