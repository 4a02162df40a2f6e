"""Finds all errors in a source's settings, each with its field, its value and what would be right.

An adapter's schema is a msgspec.Struct. msgspec stops at the first error, and words it for programmers; here each field
is converted by itself, and what its type requires is said in words for users.
"""

import operator
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from hpad.api.problem import Place, Problem, path_of
from hpad.api.secrets import hide_user_info, refers_to_secret
from hpad.api.text import closest, hint, shown

_KINDS: Mapping[type[inspect.Type], tuple[str, tuple[type, ...]]] = {
    inspect.BoolType: ("true or false", (bool,)),
    inspect.IntType: ("a whole number", (int,)),
    inspect.FloatType: ("a number", (int, float)),
    inspect.StrType: ("text", (str,)),
    inspect.LiteralType: ("text", (str,)),
    inspect.DictType: ("a mapping", (dict,)),
    inspect.StructType: ("a mapping", (dict,)),
    inspect.ListType: ("a list", (list,)),
    inspect.SetType: ("a list", (list,)),
    inspect.FrozenSetType: ("a list", (list,)),
    inspect.VarTupleType: ("a list", (list,)),
    inspect.TupleType: ("a list", (list,)),
    inspect.NoneType: ("nothing", (type(None),)),
}
"""What a value of each type is called, and its types in YAML, in the order of messages."""
_BOUNDS = (("ge", ">=", operator.ge), ("gt", ">", operator.gt), ("le", "<=", operator.le), ("lt", "<", operator.lt))
_PARAMETER = re.compile(r"([?&][^=&#\s'\"]*=)[^&#\s'\"]*")
_LONGEST_VALUE = 80


def check(values: Mapping[str, Any], schema: type[msgspec.Struct]) -> list[Problem]:
    """Returns the `faults` of the values as problems, whose messages name the fields."""
    return [problem(place, text) for place, text in faults(values, schema)]


def faults(value: Any, schema: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yields the errors of a value of any type; for containers, those of each part. Nothing if its type accepts it.

    Of a struct these are all errors of its fields, in their order; if the fields are valid, those of __post_init__, a
    line for each. The text shows no value of a field that may hold a secret.
    """
    for each in _forms(schema):
        origin, inner = typing.get_origin(each), typing.get_args(each)
        if isinstance(each, type) and issubclass(each, msgspec.Struct) and isinstance(value, Mapping):
            yield from _in_struct(value, each, place)
            return
        if origin in (dict, Mapping) and isinstance(value, Mapping):
            for key, entry in value.items():
                if inner[0] is str and not isinstance(key, str):  # YAML also has numbers and dates as keys
                    yield place, f"the key {shown(key)} is not text"
                else:
                    yield from faults(entry, inner[1], (*place, str(key)))
            return
        if origin in (list, set, frozenset) and isinstance(value, list):
            for index, entry in enumerate(value):
                yield from faults(entry, inner[0], (*place, index))
            return
    yield from _as_a_whole(value, schema, place)


def problem(place: Place, text: str) -> Problem:
    """Returns a problem of the settings, whose message names the field."""
    path = path_of(place)
    return Problem(path, f"{path}: {text}" if path else text)


def _in_struct(value: Mapping[Any, Any], form: type[msgspec.Struct], place: Place) -> Iterator[tuple[Place, str]]:
    """Yields the errors of single fields; if there are none, what __post_init__ finds in all of them together."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(form)}
    unknown = {str(name): entry for name, entry in value.items() if name not in fields}
    wrong: list[tuple[Place, str]] = []
    if form.__struct_config__.forbid_unknown_fields:
        wrong = [((*place, name), _unknown_field(form, (*place, name), entry)) for name, entry in unknown.items()]
    for name, field in fields.items():
        if name in value:
            wrong += faults(value[name], field.type, (*place, name))
        elif field.required and not any(closest(each, tuple(fields)) == name for each in unknown):
            # A misspelt field is reported once, as unknown.
            wrong.append(((*place, name), "is missing"))
    yield from wrong or _together(value, form, place)


def _unknown_field(form: type[msgspec.Struct], place: Place, value: Any) -> str:
    name, renamed = str(place[-1]), getattr(form, "renamed", {})
    if name in renamed:
        return f"is written as {renamed[name]} now"
    known = tuple(field.encode_name for field in msgspec.structs.fields(form))
    # A misspelt name of a secret is not one of a secret.
    told = _told(value, (*place, closest(name, known) or ""))
    return f"unknown field{hint(name, known)}{told and f' (value: {told})'}"


def _together(value: Mapping[str, Any], form: type[msgspec.Struct], place: Place) -> Iterator[tuple[Place, str]]:
    """Yields what __post_init__ reports, a line for each error; one that begins with a field is about this field."""
    try:
        msgspec.convert(value, form)
    except (msgspec.ValidationError, ValueError) as error:  # also for a key that is not text
        for line in str(error).splitlines():
            head, colon, text = line.partition(": ")
            yield ((*place, head), text) if colon and head in value else (place, line)


def _forms(form: Any) -> tuple[Any, ...]:
    """Returns the members of a union, or the type itself."""
    return typing.get_args(form) if typing.get_origin(form) in (typing.Union, types.UnionType) else (form,)


def _as_a_whole(value: Any, form: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Yields the error of a value that its type does not accept, in words for users."""
    try:
        msgspec.convert(value, form)
    except (msgspec.ValidationError, ValueError) as error:
        needed = _needed(value, inspect.type_info(form))
        yield place, f"{_told(value, place)} is not {needed}".lstrip() if needed else str(error)


def _needed(value: Any, form: inspect.Type) -> str:
    """Returns what a type requires of a value that it refuses, such as "a whole number >= 0"; "" if not known.

    A member of a union that accepts other values of this kind says why it refuses this one.
    """
    members = form.types if isinstance(form, inspect.UnionType) else (form,)
    members = tuple(each.type if isinstance(each, inspect.Metadata) else each for each in members)
    for each in members:
        word, kinds = _KINDS.get(type(each), ("", ()))
        if type(value) in kinds:
            return _narrower(value, each, word)
    words = [word for kind, (word, _) in _KINDS.items() if any(type(each) is kind for each in members)]
    return " or ".join(dict.fromkeys(words))


def _narrower(value: Any, form: Any, word: str) -> str:
    """Returns what a type requires beyond the kind of the value; "" if that is not known."""
    if isinstance(form, inspect.LiteralType):
        return f"one of {', '.join(sorted(filter(None, map(str, form.values))))}"
    for name, sign, holds in _BOUNDS:
        bound = getattr(form, name, None)
        if bound is not None and not holds(value, bound):
            return f"{word} {sign} {bound}"
    limits = [f"{name} {limit}" for name, limit in msgspec.structs.asdict(form).items() if isinstance(limit, int | str)]
    return f"{word} with {', '.join(limits)}" if limits else ""


def _told(value: Any, place: Place) -> str:
    """Returns a value for messages, "" for one that may be or hold a secret.

    That is also a mapping, a list, or a file that is one text, and a field that names the place of a secret: an invalid
    value there may be the secret itself.
    """
    if not place or isinstance(value, dict | list) or any(refers_to_secret(str(step)) for step in place):
        return ""
    text = hide_user_info(shown(value))
    return (_PARAMETER.sub(r"\1***", text) if "://" in text else text)[:_LONGEST_VALUE]
