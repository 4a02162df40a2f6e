"""`hpad config`: which settings there are, and which are in force.

The settings in force as people may see them: where each comes from, and no secrets.

What may be shown of a source's settings: addresses and queries, but nothing that could be a credential.

A field is hidden where its name tells of a secret (`gather.confidential`), where its adapter's schema does not know it,
or where the schema marks it with `writeOnly` (msgspec.Meta(extra_json_schema={"writeOnly": True})). Of what is shown,
texts lose user info, values in the query string of a URL, and what follows `password=`, `Bearer` and the like.
"""

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from hpad import settings
from hpad.adapter import AdapterError
from hpad.cli import run as daemon
from hpad.cli import schema
from hpad.sources import plugins, redact

HIDDEN: Final = "(not shown)"
_MASK: Final = "***"
_USER_INFO: Final = re.compile(r"//[^\s'\"]*@")
_BARE_USER_INFO: Final = re.compile(r"^[^\s/@:(){}]+:[^\s(){}]*@")
"""Of an address without a scheme; PromQL has an @ too, but brackets with it or a space before."""
_PARAMETER: Final = re.compile(r"([?&;][^=&;#\s]*=)[^&;#\s]*|#\S*")
_SAID: Final = re.compile(
    r"\b((?:pass(?:word|wd|phrase)?|pwd|secret|token|api[-_]?key|access[-_]?key)\w*\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&}]+)",
    re.IGNORECASE,
)
_SCHEME: Final = re.compile(r"\b(Bearer|Basic)\s+\S+", re.IGNORECASE)


def disclosed_settings(adapter: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The adapter's own settings of a source as they may be shown. It blocks: the adapter is imported."""
    known = _known(adapter)
    return {name: _field(name, value) if name in known else HIDDEN for name, value in given.items()}


def _known(adapter: str) -> frozenset[str]:
    """The fields that the adapter's schema has, but for those that it keeps secret; none where it cannot be loaded."""
    try:
        about = msgspec.inspect.type_info(plugins.adapter_class(adapter).Settings)
    except AdapterError:
        return frozenset()
    assert isinstance(about, msgspec.inspect.StructType)
    return frozenset(field.encode_name for field in about.fields if not _write_only(field.type))


def _write_only(form: msgspec.inspect.Type) -> bool:
    extra = form.extra_json_schema if isinstance(form, msgspec.inspect.Metadata) else None
    return bool((extra or {}).get("writeOnly"))


def _field(name: str, value: Any) -> Any:
    if redact.holds_secret(name):
        return _places(value)
    if name in redact.CHOSEN_NAMES and isinstance(value, Mapping):
        return {str(key): _value(entry) for key, entry in value.items()}
    return _value(value)


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _field(str(name), entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_value(entry) for entry in value]
    return text(value) if isinstance(value, str) else value


def _places(value: Any) -> Any:
    """Of a secret, where it is kept: `{file: …}` and `{env: …}`; of several, by name. A list of names is none."""
    if isinstance(value, Mapping) and value and set(value) <= {"file", "env"}:
        return {str(name): text(str(entry)) for name, entry in value.items()}
    if isinstance(value, Mapping):
        return {str(name): _places(entry) for name, entry in value.items()}
    return HIDDEN


def text(said: str) -> str:
    """The text without what may be a credential."""
    if "PRIVATE KEY" in said:
        return HIDDEN
    said = _USER_INFO.sub(f"//{_MASK}@", said) if "//" in said else _BARE_USER_INFO.sub(f"{_MASK}@", said)
    if "://" in said:
        said = _PARAMETER.sub(lambda found: f"{found[1] or '#'}{_MASK}", said)
    return _SCHEME.sub(rf"\1 {_MASK}", _SAID.sub(rf"\g<1>{_MASK}", said))


class Row(NamedTuple):
    """One setting; `origin` is a file, a variable, a flag or "default", or several with commas between."""

    name: str
    value: Any
    origin: str


def setting_rows(told: Sequence[tuple[str, str, Any]], store: settings.StoreSettings) -> list[Row]:
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
        return HIDDEN
    return {name: _source(str(name), source) for name, source in value.items()}


def _source(name: str, source: dict[str, Any]) -> dict[str, Any]:
    """The fields in the order of the file."""
    own = disclosed_settings(source.get("adapter", name), settings.of_adapter(source))
    return {field: own.get(field, entry) for field, entry in source.items()}


_EPILOG = """\
examples:
  hpad config show --config hpad.yaml      every setting in force, and where it comes from
  hpad config show -o json --workers=9     {"workers": {"value": 9, "from": "--workers"}, ...}
  hpad config schema > hpad.schema.json    the JSON schema of hpad.yaml, for editors and for CI

`config show` takes the settings of `hpad run`. Of sources it shows addresses and queries, but no credentials: fields
that may hold one are "(not shown)", user info and values of a URL's query string are ***.
The exit status is 2 if the settings are not good.
"""
_SHORT = 60


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    parser = commands.add_parser(
        "config",
        help="show the settings in force, or the schema of the configuration",
        description="Show the settings in force, or the schema of the configuration.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="the settings in force, and where each comes from")
    show.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text (default) or json")
    daemon.add_settings(show)
    show.set_defaults(run=run_show, flags={})
    actions.add_parser("schema", help="the JSON schema of the configuration").set_defaults(run=run_schema)


def run_schema(args: argparse.Namespace) -> int:
    """Print the schema."""
    print(json.dumps(schema.document(), indent=2))
    return 0


def run_show(args: argparse.Namespace) -> int:
    """0, or 2 if the settings are not good."""
    try:
        told = daemon.read_settings(args)
    except settings.SettingsError as error:
        print(f"hpad: {error}".replace("\n", "\nhpad: "), file=sys.stderr)
        return 2
    rows = setting_rows(daemon.origins(args), told.store)
    if args.output == "json":
        print(json.dumps({row.name: {"value": row.value, "from": row.origin} for row in rows}, indent=2))
        return 0
    width = max(len(row.name) for row in rows)
    for row in rows:
        print(_line(row, width))
    return 0


def _line(row: Row, width: int) -> str:
    """Name, value and origin; a long list or mapping stands below, as in a file."""
    value = json.dumps(row.value, ensure_ascii=False)
    if len(value) <= _SHORT or not isinstance(row.value, list | dict):
        return f"{row.name:<{width}}  {value}  # {row.origin}"
    below = yaml.safe_dump(row.value, sort_keys=False, allow_unicode=True, width=10_000).rstrip()
    return f"{row.name:<{width}}  # {row.origin}\n{textwrap.indent(below, '  ')}"
