"""What is wrong with a source's settings, for the people who wrote them: the field, its value, and what would be right.

An adapter's schema is a msgspec.Struct; what msgspec says of a flaw is read here and said in hpad's own words.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect

from hpad.settings import values as settings

_PLACE = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[(?P<index>\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.+)`")
_MISSING = re.compile(r"Object missing required field `(?P<field>.+)`")
_EXPECTED = re.compile(r"Expected `(?P<types>[^`]+)`(, got `[^`]+`)?(?P<within> .+)?")
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_SECRET = re.compile(r"pass|secret|token|key|auth|credential|header", re.IGNORECASE)
_USER_INFO = re.compile(r"//[^/@\s'\"]*@")
_LONGEST_VALUE = 80
Path = tuple[str | int, ...]


def explained(given: Mapping[str, Any], schema: type[msgspec.Struct], message: str) -> str:
    """`message`, msgspec's or that of the schema's own __post_init__, as "field: what is wrong with its value".

    No value is shown of a field that may hold a secret.
    """
    place = _PLACE.search(message)
    text = message[: place.start()] if place else message
    try:
        path = _path(given, schema, message, place["path"] if place else "")
        path, text = _worded(given, schema, path, text)
    except (LookupError, TypeError):  # such as a key that is no text: then msgspec's own words have to do
        return message
    return ": ".join(part for part in (_written(path), text) if part)


def _worded(given: Mapping[str, Any], schema: type[msgspec.Struct], path: Path, text: str) -> tuple[Path, str]:
    if found := _UNKNOWN.fullmatch(text):
        inner, form = (*path, found["field"]), _struct(_form(schema, path))
        renamed: Mapping[str, str] = getattr(form.cls, "renamed", {})
        if found["field"] in renamed:
            return inner, f"is written as {renamed[found['field']]} now"
        hint = settings.hint(found["field"], tuple(field.encode_name for field in form.fields))
        return inner, f"unknown field{hint}{_beside(given, inner)}"
    if found := _MISSING.fullmatch(text):
        return (*path, found["field"]), "is missing"
    if found := _EXPECTED.fullmatch(text):
        words = [_WORDS.get(name, name) for name in found["types"].split(" | ")]
        return path, _not(given, path, " or ".join(words) + (found["within"] or ""))
    if text.startswith("Invalid enum value"):
        choices = [str(each) for form in _alternatives(_form(schema, path)) for each in getattr(form, "values", ())]
        return path, _not(given, path, f"one of {', '.join(choices)}")
    return path, text


def _path(given: Mapping[str, Any], schema: type[msgspec.Struct], message: str, written: str) -> Path:
    """msgspec's path, with the keys of mappings, which it leaves out."""
    path: Path = ()
    for step in _STEP.finditer(written):
        if step["field"] is not None:
            path = (*path, step["field"])
        elif step["index"] != "...":
            path = (*path, int(step["index"]))
        else:
            path = (*path, _culprit(given, schema, message, path))
    return path


def _culprit(given: Mapping[str, Any], schema: type[msgspec.Struct], message: str, path: Path) -> str:
    """The entry of the mapping there that is complained of: the one that draws the same complaint when it is alone."""
    entries = _at(given, path)
    for key in entries:
        try:
            msgspec.convert(_with(given, path, {key: entries[key]}), schema)
        except msgspec.ValidationError as error:
            if str(error) == message:
                return str(key)
    raise LookupError(path)


def _with(given: Any, path: Path, entry: Any) -> Any:
    """`given` with something else at that place."""
    if not path:
        return entry
    first, *rest = path
    if isinstance(given, Mapping):
        return {**given, first: _with(given[first], tuple(rest), entry)}
    return [_with(each, tuple(rest), entry) if index == first else each for index, each in enumerate(given)]


def _at(given: Any, path: Path) -> Any:
    for step in path:
        given = given[step]
    return given


def _form(schema: type[msgspec.Struct], path: Path) -> inspect.Type:
    """What the schema wants there; raises LookupError."""
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


def _not(given: Mapping[str, Any], path: Path, right: str) -> str:
    return f"is not {right}" if _may_be_secret(path) else f"{_shown(_at(given, path))} is not {right}"


def _beside(given: Mapping[str, Any], path: Path) -> str:
    return "" if _may_be_secret(path) else f" (value: {_shown(_at(given, path))})"


def _may_be_secret(path: Path) -> bool:
    return any(_SECRET.search(str(step)) for step in path)


def _shown(value: Any) -> str:
    return _USER_INFO.sub("//***@", repr(value))[:_LONGEST_VALUE]


def _written(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
