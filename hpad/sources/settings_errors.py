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
from typing import Any

import msgspec

from hpad.api.problem import Place, Problem
from hpad.api.secrets import hide_user_info
from hpad.api.text import shown
from hpad.settings.problems import hint, meant
from hpad.sources import redact

_INSIDE = " - at `$"
"""Part of msgspec's messages about a value inside the converted one."""
_EXPECTED = re.compile(r"Expected `(?P<types>[^`]+)`(, got `[^`]+`)?(?P<within> .+)?")
_SCHEMAS = re.compile(r"Object (contains|missing)|Expected |Invalid |Length |Array |Str")
"""Matches the start of msgspec's own messages, as opposed to those of a __post_init__."""
_ANYTHING: tuple[Any, ...] = ("", 0, 1, False, [], {}, None)
"""Stand-ins for required fields that are missing."""
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_PARAMETER = re.compile(r"([?&][^=&#\s'\"]*=)[^&#\s'\"]*")
_LONGEST_VALUE = 80


def check(values: Mapping[str, Any], schema: type[msgspec.Struct]) -> list[Problem]:
    """Returns all errors of the settings, in the order of the fields; none if the schema accepts the settings.

    The text shows no value of a field that may hold a secret.
    """
    found = list(_in_struct(values, schema, ()))
    if found:
        return found
    try:
        msgspec.convert(values, schema)
    except (msgspec.ValidationError, ValueError) as error:  # such as a key that is not text
        return [Problem((), str(error))]
    return []


def valid_part(values: Mapping[str, Any], schema: type[msgspec.Struct], found: Sequence[Problem]) -> Any:
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


def _in_struct(value: Mapping[Any, Any], form: type[msgspec.Struct], path: Place) -> Iterator[Problem]:
    """Yields the errors of single fields, then those that __post_init__ finds in the valid fields together."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(form)}
    unknown = {str(name): entry for name, entry in value.items() if name not in fields}
    wrong = []
    if form.__struct_config__.forbid_unknown_fields:
        wrong = [_unknown_field(form, tuple(fields), (*path, name), entry) for name, entry in unknown.items()]
    for name, field in fields.items():
        if name in value:
            wrong += _in(value[name], field.type, (*path, name))
        elif field.required and not any(meant(each, tuple(fields)) == name for each in unknown):
            # A misspelt field is reported once, as unknown.
            wrong.append(Problem((*path, name), "is missing"))
    yield from wrong
    yield from _together(value, form, path, wrong)


def _unknown_field(form: type[msgspec.Struct], known: tuple[str, ...], path: Place, value: Any) -> Problem:
    name = str(path[-1])
    renamed: Mapping[str, str] = getattr(form, "renamed", {})
    if name in renamed:
        return Problem(path, f"is written as {renamed[name]} now")
    beside = "" if _may_be_secret(path) else f" (value: {_shown(value)})"
    return Problem(path, f"unknown field{hint(name, known)}{beside}")


def _together(
    value: Mapping[str, Any], form: type[msgspec.Struct], path: Place, wrong: Sequence[Problem]
) -> Iterator[Problem]:
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
                yield Problem((*path, head), text)
        elif not wrong:
            yield Problem(path, line)


def _post_init_lines(value: Mapping[str, Any], form: type[msgspec.Struct], places: Sequence[Place]) -> Sequence[str]:
    """Returns the lines of __post_init__ about the mapping without its invalid places.

    First only the invalid entries of mappings are left out; if the rest is still invalid, whole fields are. A required
    field that is left out gets any value that its type accepts.
    """
    for depth in (2, 1):
        rest = functools.reduce(_without, (place[:depth] for place in places), value)
        try:
            msgspec.convert(_filled(rest, form), form)
        except (msgspec.ValidationError, ValueError) as error:
            if _INSIDE not in str(error) and not _SCHEMAS.match(str(error)):
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


def _without(value: Mapping[str, Any], path: Place) -> Mapping[str, Any]:
    """Returns the mapping without the value at `path`."""
    if not path:
        return value
    step, rest = str(path[0]), path[1:]
    inner = value.get(step)
    if rest and isinstance(inner, Mapping):
        return {**value, step: _without(inner, rest)}
    return {name: entry for name, entry in value.items() if name != step}


def _in(value: Any, form: Any, path: Place) -> Iterator[Problem]:
    """Yields the errors of a value of any type; for containers, those of each part."""
    for each in _forms(form):
        origin, inner = typing.get_origin(each), typing.get_args(each)
        if isinstance(each, type) and issubclass(each, msgspec.Struct) and isinstance(value, Mapping):
            yield from _in_struct(value, each, path)
            return
        if origin in (dict, Mapping) and isinstance(value, Mapping):
            for key, entry in value.items():
                if inner[0] is str and not isinstance(key, str):  # YAML also has numbers and dates as keys
                    yield Problem(path, f"the key {shown(key)} is not text")
                else:
                    yield from _in(entry, inner[1], (*path, str(key)))
            return
        if origin in (list, set, frozenset) and isinstance(value, list):
            for index, entry in enumerate(value):
                yield from _in(entry, inner[0], (*path, index))
            return
    yield from _as_a_whole(value, form, path)


def _forms(form: Any) -> tuple[Any, ...]:
    """Returns the members of a union, or the type itself."""
    return typing.get_args(form) if typing.get_origin(form) in (typing.Union, types.UnionType) else (form,)


def _as_a_whole(value: Any, form: Any, path: Place) -> Iterator[Problem]:
    """Yields msgspec's error about a value, in words for users."""
    try:
        msgspec.convert(value, form)
    except (msgspec.ValidationError, ValueError) as error:
        needed = _needed(str(error), form)
        if needed is None:
            yield Problem(path, str(error))
        else:
            yield Problem(path, f"{'' if _may_be_secret(path) else f'{_shown(value)} '}is not {needed}")


def _needed(message: str, form: Any) -> str | None:
    """Returns what msgspec's message requires of the value, such as "a whole number >= 0"; None for other messages."""
    if message.startswith("Invalid enum value"):
        choices = sorted(str(choice) for each in _forms(form) for choice in typing.get_args(each))
        return f"one of {', '.join(choices)}"
    found = _EXPECTED.fullmatch(message)
    if found is None or _INSIDE in message:
        return None
    words = [_WORDS.get(name, name) for name in found["types"].split(" | ")]
    return " or ".join(words) + (found["within"] or "")


def _may_be_secret(path: Place) -> bool:
    """Includes fields that name the place of a secret: an invalid value there may be the secret itself."""
    return any(redact.refers_to_secret(str(step)) for step in path)


def _shown(value: Any) -> str:
    text = hide_user_info(shown(value))
    return (_PARAMETER.sub(r"\1***", text) if "://" in text else text)[:_LONGEST_VALUE]
