"""One term of a label selector, the rules it holds to, and what the API server says where it does not.

Rules and messages are those of the Kubernetes API: "Labels and Selectors".
"""

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from hpad.model import labels as syntax
from hpad.model.quoting import quoted


class SelectorError(ValueError):
    """Not a label selector; the message is Kubernetes' own."""


class Operator(enum.StrEnum):
    """How a requirement relates a label to its values; in the order Kubernetes' messages list them."""

    IN = "in"
    NOT_IN = "notin"
    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    GREATER_THAN = "gt"
    LESS_THAN = "lt"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"


SIGNS: Final = {
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
    "=": Operator.EQUALS,
    "==": Operator.DOUBLE_EQUALS,
    "!=": Operator.NOT_EQUALS,
    ">": Operator.GREATER_THAN,
    "<": Operator.LESS_THAN,
}
"""How the operators between a key and its values are written in a selector's text."""

SETS: Final = frozenset({Operator.IN, Operator.NOT_IN})
"""The operators whose values stand in parentheses."""

_WRITTEN: Final = {operator: sign for sign, operator in SIGNS.items()}
_UNARY: Final = frozenset({Operator.EXISTS, Operator.DOES_NOT_EXIST})
_ORDER: Final = frozenset({Operator.GREATER_THAN, Operator.LESS_THAN})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,63}")  # no label holds more


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a selector: a label's key, an operator, and the values in order."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet the requirement; an absent label meets `!=`, `notin` and `!` alone."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN | Operator.EQUALS | Operator.DOUBLE_EQUALS:
                return value in self.values
            case Operator.NOT_IN | Operator.NOT_EQUALS:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GREATER_THAN:
                return (order := self._order(value)) is not None and order > 0
            case Operator.LESS_THAN:
                return (order := self._order(value)) is not None and order < 0

    def _order(self, value: str | None) -> int | None:
        """The label less the requirement's value; None where the label is absent or no integer."""
        number, limit = _int64(value or ""), _int64(self.values[0])
        return None if number is None or limit is None else number - limit

    def __str__(self) -> str:
        if self.operator is Operator.EXISTS:
            return self.key
        if self.operator is Operator.DOES_NOT_EXIST:
            return f"!{self.key}"
        values, sign = ",".join(self.values), _WRITTEN[self.operator]
        return f"{self.key} {sign} ({values})" if self.operator in SETS else f"{self.key}{sign}{values}"


def checked(key: str, operator: Operator, values: Sequence[str]) -> Requirement:
    """A requirement that holds to the rules; raises SelectorError with everything that is wrong."""
    errors = []
    if faults := syntax.key_faults(key):
        errors.append(invalid("key", quoted(key), faults))
    if fault := _count_fault(operator, values):
        errors.append(invalid("values", _listed(values), [fault]))
    for index, value in enumerate(values):
        if operator in _ORDER and _int64(value) is None:
            fault = "for 'Gt', 'Lt' operators, the value must be an integer"
            errors.append(invalid(f"values[{index}]", quoted(value), [fault]))
    for index, value in enumerate(values):
        if faults := syntax.value_faults(value):
            errors.append(invalid(f"values[{index}][{key}]", quoted(value), faults))
    if errors:
        distinct = list(dict.fromkeys(errors))
        raise SelectorError(distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]")
    return Requirement(key, operator, tuple(sorted(values)))


def _count_fault(operator: Operator, values: Sequence[str]) -> str | None:
    """What is wrong with the number of values; the grammar itself gives every other operator exactly one."""
    if operator in SETS and not values:
        return "for 'in', 'notin' operators, values set can't be empty"
    if operator in _UNARY and values:
        return "values set must be empty for exists and does not exist"
    return None


def _int64(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def invalid(path: str, value: str, faults: Sequence[str]) -> str:
    """The API server's message for a field; `value` is quoted already."""
    return f"{path}: Invalid value: {value}: {'; '.join(faults)}"


def _listed(values: Sequence[str]) -> str:
    """A list as Go writes it in JSON; an empty one is null."""
    text = msgspec.json.encode(values).decode() if values else "null"
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
