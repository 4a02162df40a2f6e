"""`hpad config`: prints the settings in force, with their origins and without secrets, or the JSON schema.

A field of a source is hidden if its name suggests a secret (`redact.holds_secret`), if the adapter's schema does not
have it, or if the schema marks it with `writeOnly` (msgspec.Meta(extra_json_schema={"writeOnly": True})). Printed texts
lose user info, the values in the query string of a URL, and what follows `password=`, `Bearer` and the like.

hpad's configuration file: which one applies, its settings, and what is wrong in it.
"""

import argparse
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from hpad import settings
from hpad.adapter import AdapterError
from hpad.api.fields import INVALID, FieldError
from hpad.cli import run as daemon
from hpad.cli import schema
from hpad.manifests.documents import Document
from hpad.sources import plugins, redact

HIDDEN: Final = "(not shown)"
_MASK: Final = "***"
_USER_INFO: Final = re.compile(r"//[^\s'\"]*@")
_BARE_USER_INFO: Final = re.compile(r"^[^\s/@:(){}]+:[^\s(){}]*@")
"""User info of an address without a scheme. PromQL's @ modifier has brackets or a space before it."""
_PARAMETER: Final = re.compile(r"([?&;][^=&;#\s]*=)[^&;#\s]*|#\S*")
_ASSIGNED: Final = re.compile(
    r"\b((?:pass(?:word|wd|phrase)?|pwd|secret|token|api[-_]?key|access[-_]?key)\w*\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&}]+)",
    re.IGNORECASE,
)
_SCHEME: Final = re.compile(r"\b(Bearer|Basic)\s+\S+", re.IGNORECASE)


def without_secrets(adapter: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a source that belong to its adapter, without secrets. Blocks: imports the adapter."""
    public = _public_fields(adapter)
    return {name: _field(name, value) if name in public else HIDDEN for name, value in values.items()}


def _public_fields(adapter: str) -> frozenset[str]:
    """The fields of the adapter's schema that are not marked as secret; none if the adapter cannot be loaded."""
    try:
        info = msgspec.inspect.type_info(plugins.adapter_class(adapter).Settings)
    except AdapterError:
        return frozenset()
    assert isinstance(info, msgspec.inspect.StructType)
    return frozenset(field.encode_name for field in info.fields if not _is_write_only(field.type))


def _is_write_only(field: msgspec.inspect.Type) -> bool:
    extra = field.extra_json_schema if isinstance(field, msgspec.inspect.Metadata) else None
    return bool((extra or {}).get("writeOnly"))


def _field(name: str, value: Any) -> Any:
    if redact.holds_secret(name):
        return _secret(value)
    if name in redact.CHOSEN_NAMES and isinstance(value, Mapping):
        return {str(key): _value(entry) for key, entry in value.items()}
    return _value(value)


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _field(str(name), entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_value(entry) for entry in value]
    return masked(value) if isinstance(value, str) else value


def _secret(value: Any) -> Any:
    """Where a secret is kept, `{file: …}` or `{env: …}`, or a mapping of names to such places; else hidden."""
    if isinstance(value, Mapping) and value and set(value) <= {"file", "env"}:
        return {str(name): masked(str(entry)) for name, entry in value.items()}
    if isinstance(value, Mapping):
        return {str(name): _secret(entry) for name, entry in value.items()}
    return HIDDEN


def masked(text: str) -> str:
    """The text with *** in place of possible credentials."""
    if "PRIVATE KEY" in text:
        return HIDDEN
    text = _USER_INFO.sub(f"//{_MASK}@", text) if "//" in text else _BARE_USER_INFO.sub(f"{_MASK}@", text)
    if "://" in text:
        text = _PARAMETER.sub(lambda match: f"{match[1] or '#'}{_MASK}", text)
    return _SCHEME.sub(rf"\1 {_MASK}", _ASSIGNED.sub(rf"\g<1>{_MASK}", text))


class Row(NamedTuple):
    """One setting. `origin`: a file, a variable, a flag or "default"; several, separated by commas, if they add up."""

    name: str
    value: Any
    origin: str


def setting_rows(entries: Sequence[tuple[str, str, Any]], store: settings.StoreSettings) -> list[Row]:
    """A row for each setting.

    `entries`: (origin, setting, value) from file, environment and flags; the later one wins. `store`: the store in
    force, whose default depends on how hpad runs.
    """
    values, origins = schema.defaults(), dict.fromkeys(schema.forms(), "default")
    values["store"] = store.kind if store.path is None else f"{store.kind}:{store.path}"
    for origin, name, value in entries:
        value = _sources(value) if name == "sources" else _as_in_file(name, value)
        if name in settings.JOINED and origins[name] != "default":
            origin = f"{origins[name]}, {origin}"
        if name in settings.JOINED and isinstance(values[name], dict) and isinstance(value, dict):
            value = {**values[name], **value}
        values[name], origins[name] = value, origin
    return [Row(name, values[name], origins[name]) for name in values]


def _as_in_file(name: str, value: Any) -> Any:
    """The value of a variable or flag, which is text, as a file would hold it: a number, a list or a mapping."""
    form = schema.forms()[name]
    types = form.get("anyOf", [form])[0].get("type", "string")
    if not isinstance(value, str) or "string" in types or name == "store":
        return value
    parsed = settings.PARSERS[name](value)
    return list(parsed) if isinstance(parsed, tuple) else parsed


def _sources(value: Any) -> Any:
    if not isinstance(value, dict):
        return HIDDEN
    return {name: _source(str(name), source) for name, source in value.items()}


def _source(name: str, source: dict[str, Any]) -> dict[str, Any]:
    """The fields of a source, in the order of the file."""
    own = without_secrets(source.get("adapter", name), settings.of_adapter(source))
    return {field: own.get(field, entry) for field, entry in source.items()}


_EPILOG = """\
examples:
  hpad config show --config hpad.yaml      every setting in force, and where it comes from
  hpad config show -o json --workers=9     {"workers": {"value": 9, "from": "--workers"}, ...}
  hpad config schema > hpad.schema.json    the JSON schema of hpad.yaml, for editors and for CI

`config show` takes the settings of `hpad run`, from the same places. Of sources it prints addresses and queries, but no
credentials: a field that may hold one is "(not shown)"; user info and values in the query string of a URL are ***.

exit status: 0 success, 2 for wrong use or invalid settings
"""
_SHORT = 60


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    parser = commands.add_parser(
        "config",
        help="show the settings in force, or the JSON schema of the configuration",
        description="Show the settings in force and where each comes from, or the JSON schema of the configuration.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    text = "show the settings in force, and where each comes from"
    show = actions.add_parser("show", help=text, description=f"{text.capitalize()}. Takes the settings of `hpad run`.")
    show.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text (default) or json")
    daemon.add_settings(show)
    show.set_defaults(run=run_show, flags={})
    text = "print the JSON schema of the configuration"
    about = f"{text.capitalize()}, with the settings of all installed adapters.".replace("json", "JSON")
    actions.add_parser("schema", help=text, description=about).set_defaults(run=run_schema)


def run_schema(args: argparse.Namespace) -> int:
    """Prints the schema; returns 0."""
    print(json.dumps(schema.document(), indent=2))
    return 0


def run_show(args: argparse.Namespace) -> int:
    """Prints the settings; 0, or 2 if they are invalid."""
    try:
        in_force = daemon.read_settings(args)
    except settings.SettingsError as error:
        print(f"hpad: {error}".replace("\n", "\nhpad: "), file=sys.stderr)
        return 2
    rows = setting_rows(daemon.origins(args), in_force.store)
    if args.output == "json":
        print(json.dumps({row.name: {"value": row.value, "from": row.origin} for row in rows}, indent=2))
        return 0
    width = max(len(row.name) for row in rows)
    for row in rows:
        print(_line(row, width))
    return 0


def _line(row: Row, width: int) -> str:
    """Name, value and origin; a long list or mapping follows below as YAML."""
    value = json.dumps(row.value, ensure_ascii=False)
    if len(value) <= _SHORT or not isinstance(row.value, list | dict):
        return f"{row.name:<{width}}  {value}  # {row.origin}"
    below = yaml.safe_dump(row.value, sort_keys=False, allow_unicode=True, width=10_000).rstrip()
    return f"{row.name:<{width}}  # {row.origin}\n{textwrap.indent(below, '  ')}"


_FROM_A_FILE = "configuration is checked from a file, not from standard input"


def load(option: Path | None, flags: Mapping[str, tuple[str, Any]]) -> settings.Settings:
    """The settings of file, environment and flags; see `path`. Raises SettingsError."""
    return settings.load(path(option), os.environ, flags)


def path(option: Path | None) -> Path | None:
    """The configuration file: the value of --config, else that of HPAD_CONFIG, else none."""
    name = os.environ.get("HPAD_CONFIG")
    return option or (Path(name) if name else None)


def errors(document: Document) -> Iterator[tuple[int, FieldError]]:
    """All errors of a configuration file and of its sources, each with its line.

    Blocks: imports adapters, and reads the files that sources name.
    """
    file = Path(document.file)
    if not file.is_file():
        yield document.line, FieldError(INVALID, "", _FROM_A_FILE)
        return
    try:
        settings.load(file, {}, {})
    except settings.SettingsError as error:
        for problem, place in zip(error.problems, error.places, strict=True):
            yield _placed(document, place, problem.removeprefix(f"{file}: "))
    for name, source in _configuration_sources(document.value):
        for flaw in plugins.check_settings(source):
            yield _placed(document, ("sources", name, *flaw.path), f"sources: {name}: {flaw}")


def scale_to_zero(value: dict[str, Any]) -> bool:
    """Whether the configuration turns the feature gate HPAScaleToZero on; False if its gates are invalid."""
    try:
        gates = settings.PARSERS["feature_gates"](value.get("feature_gates", {}))
    except ValueError:
        return False
    return bool(gates.get("HPAScaleToZero", False))


def _configuration_sources(value: dict[str, Any]) -> Iterator[tuple[str, settings.SourceSettings]]:
    """The sources whose own settings can be handed to their adapters, even if other fields are invalid."""
    sources = value.get("sources")
    for key, source in (sources if isinstance(sources, dict) else {}).items():
        if isinstance(source, dict) and isinstance(adapter := source.get("adapter", key), str):
            own = settings.of_adapter(source)
            yield str(key), settings.SourceSettings(name=str(key), adapter=adapter, settings=own)


def _placed(document: Document, place: tuple[str | int, ...], message: str) -> tuple[int, FieldError]:
    """An error with the line of the value at `place`, or of the nearest value around it."""
    field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")
    return document.line_at(place), FieldError(INVALID, field, message)
