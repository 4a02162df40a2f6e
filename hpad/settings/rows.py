"""The rows of the table of settings: fields of structs with the type `Annotated[TYPE, Setting(...)]`.

The field gives the setting its name, its type and its default; `Setting` gives all the rest. Flags, environment
variables, JSON schema, reference and sample are made of the rows, and so are the structs themselves.
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, TypeVar, get_type_hints

import msgspec

from hpad.api.problem import Invalid, Problem, path_of
from hpad.api.text import hint, shown
from hpad.settings import parsers
from hpad.settings.parsers import Json, Parser, each

_S = TypeVar("_S", bound=msgspec.Struct)


class Group(enum.StrEnum):
    """The groups of flags in a help text, with their titles."""

    GENERAL = "options"
    DECISIONS = "intervals and decisions (the flags of kube-controller-manager work as well)"
    SERVING = "authentication of clients of --listen (any one of these suffices)"
    ELECTION = "several replicas (the flags of kube-controller-manager)"


class Setting(msgspec.Struct, frozen=True):
    """How a setting is written, and what it means.

    `metavar` stands for its value in help texts (default: that of the parser). `name`: its name, if the field has
    another one. `group` is that of its flag; None: it has a place in the file only, and neither flag nor variable.
    `kubernetes`: the flag of kube-controller-manager, where its name differs. `flags`: its flags, where their names
    differ from that of the setting. `common`: `--help` shows it, not only `--help-all`. `reloadable`: it takes effect
    without a restart. `selects`: an empty flag would select all HPAs. `join` returns the values of two origins as one;
    without it the later one wins. `written`: the default as in a file, where it depends on how hpad runs (None) or
    `Parser.write` cannot tell.
    """

    parser: Parser[Any]
    meaning: str
    metavar: str = ""
    name: str = ""
    group: Group | None = Group.GENERAL
    kubernetes: str = ""
    flags: tuple[str, ...] = ()
    common: bool = False
    reloadable: bool = False
    selects: bool = False
    join: Callable[[Any, Any], Any] | None = None
    written: Any = msgspec.UNSET


class SettingRow(msgspec.Struct, frozen=True):
    """A setting with its name and default. `field` is that of the outermost struct which holds the setting."""

    name: str
    field: str
    setting: Setting
    default: Any

    @property
    def metavar(self) -> str:
        return self.setting.metavar or self.setting.parser.metavar

    @property
    def written(self) -> Any:
        """The default as a file would hold it; None if there is none, or if it depends on how hpad runs."""
        if self.setting.written is not msgspec.UNSET:
            return self.setting.written
        return None if self.default is None else self.setting.parser.write(self.default)


Inner = dict[str, Any]
"""Attribute -> its Setting, or the Inner of the struct that the attribute holds."""


@cache
def settings_in(form: type[msgspec.Struct]) -> Inner:
    """Returns the settings among the fields of a struct.

    A field that holds a struct with settings needs no `Annotated`, except a mapping of its fields to their Settings if
    the struct belongs to another package.
    """
    found: Inner = {}
    for attribute, kind in get_type_hints(form, include_extras=True).items():
        extras = getattr(kind, "__metadata__", ())
        if extras:
            found[attribute] = extras[0]
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct) and settings_in(kind):
            found[attribute] = settings_in(kind)
    return found


def table(base: msgspec.Struct) -> dict[str, SettingRow]:
    """Returns all settings by name, with the defaults of `base`."""
    inner = settings_in(type(base))
    rows = [row for field in inner for row in _rows({field: inner[field]}, base, field)]
    return {row.name: row for row in rows}


def _rows(inner: Inner, base: msgspec.Struct, field: str) -> Iterator[SettingRow]:
    for attribute, entry in inner.items():
        default = getattr(base, attribute)
        if isinstance(entry, Setting):
            yield SettingRow(entry.name or attribute, field, entry, default)
        else:
            yield from _rows(entry, default, field)


def differing(one: msgspec.Struct, other: msgspec.Struct) -> list[str]:
    """Returns the names of the settings whose values differ in two structs of one type."""
    values = table(other)
    return [name for name, row in table(one).items() if row.default != values[name].default]


def filled(base: _S, values: Mapping[str, Any]) -> _S:
    """Returns the struct with these values of settings, and otherwise as it is."""
    return _filled(base, settings_in(type(base)), values)


def _filled(base: _S, inner: Inner, values: Mapping[str, Any]) -> _S:
    changes = {}
    for attribute, entry in inner.items():
        if not isinstance(entry, Setting):
            changes[attribute] = _filled(getattr(base, attribute), entry, values)
        elif (name := entry.name or attribute) in values:
            changes[attribute] = values[name]
    return msgspec.structs.replace(base, **changes)


def names(form: type[msgspec.Struct]) -> dict[str, str]:
    """Returns the name of each setting in a struct by its attribute."""
    return {attribute: setting.name or attribute for attribute, setting in settings_in(form).items()}


def mapping(form: type[_S]) -> Parser[_S]:
    """Returns the parser of a mapping of the settings in a struct, which it becomes."""
    known = parsers_in(form)
    required = tuple(field.name for field in msgspec.structs.fields(form) if field.required and field.name in known)

    def parse(value: Any) -> _S:
        return form(**fields(value, known, required))

    schema = parsers.closed(schema_of(form)) | ({"required": list(required)} if required else {})
    return Parser(parse, schema)


def parsers_in(form: type[msgspec.Struct]) -> dict[str, Parser[Any]]:
    """Returns the parser of each setting in a struct."""
    return {name: setting.parser for name, setting in settings_in(form).items()}


def schema_of(form: type[msgspec.Struct]) -> Json:
    """Returns the JSON schema of each setting in a struct, with its meaning."""
    return {
        name: {"description": setting.meaning, **setting.parser.form} for name, setting in settings_in(form).items()
    }


def fields(value: Any, known: Mapping[str, Parser[Any]], required: tuple[str, ...] = ()) -> dict[str, Any]:
    """Parses a mapping field by field. Raises Invalid for all unknown, invalid and missing fields."""
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is not a mapping of {', '.join(known)}")
    found = [Problem("", f"{name} is missing") for name in required if name not in value]
    unknown = [name for name in value if name not in known]
    found += [
        Problem(path_of((str(name),)), f"unknown field {shown(name)}{hint(name, tuple(known))}") for name in unknown
    ]
    present = {name: entry for name, entry in value.items() if name in known}
    try:
        read = each((name, partial(known[name], entry)) for name, entry in present.items())
    except Invalid as error:
        raise Invalid(*found, *error.problems) from None
    if found:
        raise Invalid(*found)
    return dict(zip(present, read, strict=True))
