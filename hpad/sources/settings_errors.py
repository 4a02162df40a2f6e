"""Finds all errors in a source's settings, each with its field, its value and what would be right.

An adapter's schema is a msgspec.Struct. msgspec stops at the first error, and words it for programmers; here each field
is converted by itself, and what its type requires is said in words for users.
"""

import contextlib
import functools
import operator
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect

from hpad.api.problem import Place, Problem, path_of, steps
from hpad.api.secrets import hide_user_info
from hpad.api.text import shown
from hpad.settings.parsers import hint, meant
from hpad.sources import redact

_ANYTHING: tuple[Any, ...] = ("", 0, 1, False, [], {}, None)
"""Stand-ins for required fields that are missing."""
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
    """Returns all errors of the settings, in the order of the fields; none if the schema accepts the settings.

    The text shows no value of a field that may hold a secret.
    """
    found = [problem(place, text) for place, text in _in_struct(values, schema, ())]
    if found:
        return found
    try:
        msgspec.convert(values, schema)
    except (msgspec.ValidationError, ValueError) as error:  # such as a key that is not text
        return [Problem("", str(error))]
    return []


def problem(place: Place, text: str) -> Problem:
    """Returns a problem of the settings, whose message names the field."""
    path = path_of(place)
    return Problem(path, f"{path}: {text}" if path else text)


def valid_part(values: Mapping[str, Any], schema: type[msgspec.Struct], found: Sequence[Problem]) -> Any:
    """Returns an object with the fields that are valid without the errors `found`, defaults included."""
    fields = _defaults(schema) | _converted(values, schema, [steps(each.path) for each in found])
    return types.SimpleNamespace(**fields)


def _defaults(schema: type[msgspec.Struct]) -> dict[str, Any]:
    known = [field for field in msgspec.structs.fields(schema) if not field.required]
    return {
        field.name: field.default_factory() if field.default is msgspec.NODEFAULT else field.default for field in known
    }


def _converted(values: Mapping[str, Any], schema: type[msgspec.Struct], wrong: Sequence[Place]) -> dict[str, Any]:
    """Returns the fields that are valid, by their names in Python; of a mapping without its entries in `wrong`."""
    rest = functools.reduce(_without, (place[:2] for place in wrong), values)
    found = {}
    for field in msgspec.structs.fields(schema):
        if field.encode_name in rest:
            with contextlib.suppress(msgspec.ValidationError, ValueError):
                found[field.name] = msgspec.convert(rest[field.encode_name], field.type)
    return found


def _in_struct(value: Mapping[Any, Any], form: type[msgspec.Struct], place: Place) -> Iterator[tuple[Place, str]]:
    """Yields the errors of single fields, then those that __post_init__ finds in the valid fields together."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(form)}
    unknown = {str(name): entry for name, entry in value.items() if name not in fields}
    wrong: list[tuple[Place, str]] = []
    if form.__struct_config__.forbid_unknown_fields:
        wrong = [((*place, name), _unknown_field(form, (*place, name), entry)) for name, entry in unknown.items()]
    for name, field in fields.items():
        if name in value:
            wrong += _in(value[name], field.type, (*place, name))
        elif field.required and not any(meant(each, tuple(fields)) == name for each in unknown):
            # A misspelt field is reported once, as unknown.
            wrong.append(((*place, name), "is missing"))
    yield from wrong
    yield from _together(value, form, place, [each[len(place) :] for each, _ in wrong])


def _unknown_field(form: type[msgspec.Struct], place: Place, value: Any) -> str:
    name, renamed = str(place[-1]), getattr(form, "renamed", {})
    if name in renamed:
        return f"is written as {renamed[name]} now"
    known = tuple(field.encode_name for field in msgspec.structs.fields(form))
    # A misspelt name of a secret is not one of a secret.
    is_secret = _may_be_secret((*place, meant(name, known) or ""))
    beside = "" if is_secret else f" (value: {_shown(value)})"
    return f"unknown field{hint(name, known)}{beside}"


def _together(
    value: Mapping[str, Any], form: type[msgspec.Struct], place: Place, wrong: Sequence[Place]
) -> Iterator[tuple[Place, str]]:
    """Yields what __post_init__ reports, a line for each error, about the fields that are valid by themselves.

    __post_init__ runs without the invalid fields. A line that mentions one of these is dropped: it might not hold for
    the corrected field.
    """
    dropped = {str(each[0]) for each in wrong if each}
    for line in _post_init_lines(value, form, wrong):
        head, colon, text = line.partition(": ")
        if colon and head in value and head not in dropped:
            if not any(re.search(rf"\b{re.escape(name)}\b", line) for name in dropped):
                yield (*place, head), text
        elif not wrong:
            yield place, line


def _post_init_lines(value: Mapping[str, Any], form: type[msgspec.Struct], wrong: Sequence[Place]) -> Sequence[str]:
    """Returns the lines of __post_init__ about the valid fields.

    A required field that is not valid gets any value that its type accepts.
    """
    fields = _converted(value, form, wrong)
    for field in msgspec.structs.fields(form):
        if field.required and field.name not in fields:
            for anything in _ANYTHING:
                with contextlib.suppress(msgspec.ValidationError, ValueError):
                    fields[field.name] = msgspec.convert(anything, field.type)
                    break
            else:
                return ()
    try:
        form(**fields)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        return str(error).splitlines()
    return ()


def _without(value: Mapping[str, Any], path: Place) -> Mapping[str, Any]:
    """Returns the mapping without the value at `path`."""
    if not path:
        return value
    step, rest = str(path[0]), path[1:]
    inner = value.get(step)
    if rest and isinstance(inner, Mapping):
        return {**value, step: _without(inner, rest)}
    return {name: entry for name, entry in value.items() if name != step}


def _in(value: Any, form: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Yields the errors of a value of any type; for containers, those of each part."""
    for each in _forms(form):
        origin, inner = typing.get_origin(each), typing.get_args(each)
        if isinstance(each, type) and issubclass(each, msgspec.Struct) and isinstance(value, Mapping):
            yield from _in_struct(value, each, place)
            return
        if origin in (dict, Mapping) and isinstance(value, Mapping):
            for key, entry in value.items():
                if inner[0] is str and not isinstance(key, str):  # YAML also has numbers and dates as keys
                    yield place, f"the key {shown(key)} is not text"
                else:
                    yield from _in(entry, inner[1], (*place, str(key)))
            return
        if origin in (list, set, frozenset) and isinstance(value, list):
            for index, entry in enumerate(value):
                yield from _in(entry, inner[0], (*place, index))
            return
    yield from _as_a_whole(value, form, place)


def _forms(form: Any) -> tuple[Any, ...]:
    """Returns the members of a union, or the type itself."""
    return typing.get_args(form) if typing.get_origin(form) in (typing.Union, types.UnionType) else (form,)


def _as_a_whole(value: Any, form: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Yields the error of a value that its type does not accept, in words for users."""
    try:
        msgspec.convert(value, form)
    except (msgspec.ValidationError, ValueError) as error:
        needed = _needed(value, inspect.type_info(form))
        shown_value = "" if _may_be_secret(place) else f"{_shown(value)} "
        yield place, f"{shown_value}is not {needed}" if needed else str(error)


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


def _may_be_secret(place: Place) -> bool:
    """Includes fields that name the place of a secret: an invalid value there may be the secret itself."""
    return any(redact.refers_to_secret(str(step)) for step in place)


def _shown(value: Any) -> str:
    text = hide_user_info(shown(value))
    return (_PARAMETER.sub(r"\1***", text) if "://" in text else text)[:_LONGEST_VALUE]
