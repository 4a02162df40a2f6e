"""Finds all errors in a source's settings, each with its field, its value and what would be right.

An adapter's schema is a msgspec.Struct. msgspec reports one error at a time, in words of Python; here each field is
checked by itself, and the message is translated into words for users.
"""

import contextlib
import functools
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from hpad.api.text import shown
from hpad.settings import parsers as settings
from hpad.sources import redact

_PLACE = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[(?P<index>\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.+)`")
_MISSING = re.compile(r"Object missing required field `(?P<field>.+)`")
_EXPECTED = re.compile(r"Expected `(?P<types>[^`]+)`(, got `[^`]+`)?(?P<within> .+)?")
_SCHEMAS = re.compile(r"Object (contains|missing)|Expected |Invalid |Length |Array |Str")
"""Begin of the messages of msgspec itself, as opposed to those of a __post_init__."""
_ANYTHING: tuple[Any, ...] = ("", 0, 1, False, [], {}, None)
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_USER_INFO = re.compile(r"//[^/@\s'\"]*@")
_PARAMETER = re.compile(r"([?&][^=&#\s'\"]*=)[^&#\s'\"]*")
_LONGEST_VALUE = 80
Path = tuple[str | int, ...]


class InvalidSetting(NamedTuple):
    """One error; `path` holds fields, keys of mappings and positions in lists."""

    path: Path
    text: str

    def __str__(self) -> str:
        return ": ".join(part for part in (_written(self.path), self.text) if part)


def check(values: Mapping[str, Any], schema: type[msgspec.Struct]) -> list[InvalidSetting]:
    """Returns all errors of the settings, in the order of the fields; none if the schema accepts the settings.

    The text shows no value of a field that may hold a secret.
    """
    found = list(_in_struct(values, schema, _Root(values, schema), ()))
    if found:
        return found
    try:
        msgspec.convert(values, schema)
    except (msgspec.ValidationError, ValueError) as error:  # such as a key that is not text
        return [InvalidSetting((), str(error))]
    return []


def valid_part(values: Mapping[str, Any], schema: type[msgspec.Struct], found: Sequence[InvalidSetting]) -> Any:
    """Returns an object with the fields that are valid without the errors `found`, defaults included."""
    rest = functools.reduce(_without, (each.path[:2] for each in found), values)
    fields = {}
    for field in msgspec.structs.fields(schema):
        if field.encode_name in rest:
            with contextlib.suppress(msgspec.ValidationError, ValueError):
                fields[field.name] = msgspec.convert(rest[field.encode_name], field.type)
        elif not field.required:
            known = field.default is not msgspec.NODEFAULT
            fields[field.name] = field.default if known else field.default_factory()
    return types.SimpleNamespace(**fields)


class _Root(NamedTuple):
    """The settings as a whole, from which the message about a part of them is made."""

    values: Mapping[str, Any]
    schema: type[msgspec.Struct]

    def error(self, path: Path, text: str) -> InvalidSetting:
        """Translates msgspec's message about a place."""
        try:
            return InvalidSetting(*_translated(self.values, self.schema, path, text))
        except (LookupError, TypeError):  # such as a key that is not text: msgspec's message stays
            return InvalidSetting(path, text)


def _in_struct(value: Any, form: type[msgspec.Struct], root: _Root, path: Path) -> Iterator[InvalidSetting]:
    """Yields the errors of single fields, then those that __post_init__ finds in the valid fields together."""
    if not isinstance(value, Mapping):
        yield from _as_a_whole(value, form, root, path)
        return
    fields = {field.encode_name: field for field in msgspec.structs.fields(form)}
    unknown = [str(name) for name in value if name not in fields]
    wrong = []
    if form.__struct_config__.forbid_unknown_fields:
        wrong = [root.error(path, f"Object contains unknown field `{name}`") for name in unknown]
    for name, field in fields.items():
        if name in value:
            wrong += _in(value[name], field.type, root, (*path, name))
        elif field.required and not any(settings.meant(each, tuple(fields)) == name for each in unknown):
            wrong.append(root.error(path, f"Object missing required field `{name}`"))
    yield from wrong
    yield from _together(value, form, path, wrong)


def _together(
    value: Mapping[str, Any], form: type[msgspec.Struct], path: Path, wrong: Sequence[InvalidSetting]
) -> Iterator[InvalidSetting]:
    """Yields what __post_init__ reports, a line for each error, about the fields that are valid by themselves.

    __post_init__ runs without the invalid fields. A line that mentions one of these is dropped: it might not hold for
    the corrected field.
    """
    places = [each.path[len(path) :] for each in wrong]
    dropped = {str(place[0]) for place in places if place}
    for line in _post_init_lines(value, form, places):
        head, colon, text = line.partition(": ")
        if colon and head in value and head not in dropped:
            if not any(re.search(rf"\b{re.escape(name)}\b", line) for name in dropped):
                yield InvalidSetting((*path, head), text)
        elif not wrong:
            yield InvalidSetting(path, line)


def _post_init_lines(value: Mapping[str, Any], form: type[msgspec.Struct], places: Sequence[Path]) -> Sequence[str]:
    """Returns the lines of __post_init__ about the mapping without its invalid places.

    First only the invalid entries of mappings are left out; if the rest is still invalid, whole fields are. A required
    field that is left out gets any value that its type accepts.
    """
    for depth in (2, 1):
        rest = functools.reduce(_without, (place[:depth] for place in places), value)
        try:
            msgspec.convert(_filled(rest, form), form)
        except (msgspec.ValidationError, ValueError) as error:
            if not _PLACE.search(str(error)) and not _SCHEMAS.match(str(error)):
                return str(error).splitlines()
        else:
            return ()
    return ()


def _filled(value: Mapping[str, Any], form: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Returns the mapping with any valid value for each required field that is missing."""
    filled = dict(value)
    for field in msgspec.structs.fields(form):
        if field.required and field.encode_name not in value:
            for anything in _ANYTHING:
                with contextlib.suppress(msgspec.ValidationError, ValueError):
                    msgspec.convert(anything, field.type)
                    filled[field.encode_name] = anything
                    break
    return filled


def _without(value: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Returns the mapping without the value at `path`."""
    if not path:
        return value
    step, rest = str(path[0]), path[1:]
    inner = value.get(step)
    if rest and isinstance(inner, Mapping):
        return {**value, step: _without(inner, rest)}
    return {name: entry for name, entry in value.items() if name != step}


def _in(value: Any, form: Any, root: _Root, path: Path) -> Iterator[InvalidSetting]:
    """Yields the errors of a value of any type; for containers, those of each part."""
    for each in _forms(form):
        origin, inner = typing.get_origin(each), typing.get_args(each)
        if isinstance(each, type) and issubclass(each, msgspec.Struct) and isinstance(value, Mapping):
            yield from _in_struct(value, each, root, path)
            return
        if origin in (dict, Mapping) and isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            for key, entry in value.items():
                yield from _in(entry, inner[1], root, (*path, key))
            return
        if origin in (list, set, frozenset) and isinstance(value, list):
            for index, entry in enumerate(value):
                yield from _in(entry, inner[0], root, (*path, index))
            return
    yield from _as_a_whole(value, form, root, path)


def _forms(form: Any) -> tuple[Any, ...]:
    """Returns the members of a union, or the type itself."""
    return typing.get_args(form) if typing.get_origin(form) in (typing.Union, types.UnionType) else (form,)


def _as_a_whole(value: Any, form: Any, root: _Root, path: Path) -> Iterator[InvalidSetting]:
    """Yields msgspec's error about a value."""
    try:
        msgspec.convert(value, form)
    except (msgspec.ValidationError, ValueError) as error:
        message = str(error)
        place = _PLACE.search(message)
        text = message[: place.start()] if place else message
        yield root.error((*path, *_steps(place["path"] if place else "")), text)


def _translated(values: Mapping[str, Any], schema: type[msgspec.Struct], path: Path, text: str) -> tuple[Path, str]:
    if found := _UNKNOWN.fullmatch(text):
        inner, form = (*path, found["field"]), _struct(_form(schema, path))
        renamed: Mapping[str, str] = getattr(form.cls, "renamed", {})
        if found["field"] in renamed:
            return inner, f"is written as {renamed[found['field']]} now"
        hint = settings.hint(found["field"], tuple(field.encode_name for field in form.fields))
        return inner, f"unknown field{hint}{_beside(values, inner)}"
    if found := _MISSING.fullmatch(text):
        return (*path, found["field"]), "is missing"
    if found := _EXPECTED.fullmatch(text):
        words = [_WORDS.get(name, name) for name in found["types"].split(" | ")]
        return path, _not(values, path, " or ".join(words) + (found["within"] or ""))
    if text.startswith("Invalid enum value"):
        choices = [str(each) for form in _alternatives(_form(schema, path)) for each in getattr(form, "values", ())]
        return path, _not(values, path, f"one of {', '.join(choices)}")
    return path, text


def _steps(written: str) -> Path:
    """Parses msgspec's path, which leaves out the keys of mappings."""
    steps = (step for step in _STEP.finditer(written) if step["index"] != "...")
    return tuple(step["field"] if step["field"] is not None else int(step["index"]) for step in steps)


def _at(values: Any, path: Path) -> Any:
    for step in path:
        values = values[step]
    return values


def _form(schema: type[msgspec.Struct], path: Path) -> inspect.Type:
    """Returns the type that the schema has at `path`; raises LookupError."""
    form: inspect.Type = inspect.type_info(schema)
    for step in path:
        form = _inside(form, step)
    return form


def _inside(form: inspect.Type, step: str | int) -> inspect.Type:
    for each in _alternatives(form):
        if isinstance(each, inspect.StructType):
            return {field.encode_name: field.type for field in each.fields}[str(step)]
        if isinstance(each, inspect.DictType):
            return each.value_type
        if isinstance(each, inspect.ListType):
            return each.item_type
    raise LookupError(step)


def _struct(form: inspect.Type) -> inspect.StructType:
    for each in _alternatives(form):
        if isinstance(each, inspect.StructType):
            return each
    raise LookupError(form)


def _alternatives(form: inspect.Type) -> Sequence[inspect.Type]:
    return form.types if isinstance(form, inspect.UnionType) else (form,)


def _not(values: Mapping[str, Any], path: Path, right: str) -> str:
    return f"is not {right}" if _may_be_secret(path) else f"{_shown(_at(values, path))} is not {right}"


def _beside(values: Mapping[str, Any], path: Path) -> str:
    return "" if _may_be_secret(path) else f" (value: {_shown(_at(values, path))})"


def _may_be_secret(path: Path) -> bool:
    """Includes fields that name the place of a secret: an invalid value there may be the secret itself."""
    return any(redact.refers_to_secret(str(step)) for step in path)


def _shown(value: Any) -> str:
    text = _USER_INFO.sub("//***@", shown(value))
    return (_PARAMETER.sub(r"\1***", text) if "://" in text else text)[:_LONGEST_VALUE]


def _written(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
