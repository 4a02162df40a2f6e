"""Errors that name a field, with the types and texts of the Kubernetes API server.

Paths are written as there: `spec.metrics[0].resource.name`. Source: Kubernetes 1.36, apimachinery,
pkg/util/validation/field/errors.go.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from hpad.api.quantity import Quantity
from hpad.api.text import quoted

REQUIRED: Final = "FieldValueRequired"
INVALID: Final = "FieldValueInvalid"
FORBIDDEN: Final = "FieldValueForbidden"
NOT_SUPPORTED: Final = "FieldValueNotSupported"
TYPE_INVALID: Final = "FieldValueTypeInvalid"
DUPLICATE: Final = "FieldValueDuplicate"
UNKNOWN: Final = "FieldValueNotFound"


class FieldError(msgspec.Struct, frozen=True):
    """An error of one field; `str()` is the whole message."""

    type: str
    field: str
    message: str

    def __str__(self) -> str:
        return self.message


def required(path: str, detail: str = "") -> FieldError:
    """Returns the error for a missing field."""
    return FieldError(REQUIRED, path, f"{path}: Required value{': ' if detail else ''}{detail}")


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """Returns the error for a value of the right type that breaks a rule."""
    return FieldError(INVALID, path, f"{path}: Invalid value: {shown(value)}: {detail}")


def type_invalid(path: str, value: Any, detail: str) -> FieldError:
    """Returns the error for a value of the wrong type, which the API server cannot decode."""
    return FieldError(TYPE_INVALID, path, f"{f'{path}: ' if path else ''}Invalid value: {_outline(value)}: {detail}")


def forbidden(path: str, detail: str) -> FieldError:
    """Returns the error for a field that is not allowed in this place."""
    return FieldError(FORBIDDEN, path, f"{path}: Forbidden: {detail}")


def not_supported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    """Returns the error for a value outside the allowed ones."""
    choices = ", ".join(map(quoted, supported))
    return FieldError(NOT_SUPPORTED, path, f"{path}: Unsupported value: {shown(value)}: supported values: {choices}")


def unknown(path: str, hint: str = "") -> FieldError:
    """Returns the error for a field that does not exist, with the text of `fieldValidation=Strict`."""
    detail = f"strict decoding error: unknown field {quoted(path)}"
    return FieldError(UNKNOWN, path, f"{path}: {detail}{': ' if hint else ''}{hint}")


def duplicate(path: str) -> FieldError:
    """Returns the error for a field that occurs twice, with the text of `fieldValidation=Strict`."""
    return FieldError(DUPLICATE, path, f"{path}: strict decoding error: duplicate field {quoted(path)}")


def shown(value: Any) -> str:
    """Returns a value as the API server prints it: numbers bare, text and quantities quoted, the rest as JSON."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Quantity):
        return quoted(str(value))
    return msgspec.json.encode(value, enc_hook=str).decode()


def _outline(value: Any) -> str:
    """Returns a value of the wrong type; an object or a list, which may be large, only as {…} or […]."""
    if isinstance(value, dict):
        return "{…}" if value else "{}"
    if isinstance(value, list):
        return "[…]" if value else "[]"
    return shown(value)
