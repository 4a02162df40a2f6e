"""The text form of label selectors: `app=web,tier in (a,b),!canary`, and the rules of one requirement.

Sources: Kubernetes documentation, "Labels and Selectors"; grammar and messages are those of apimachinery,
pkg/labels/selector.go: Parse and NewRequirement.
"""

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from hpad.api import metadata
from hpad.api.text import quoted


class SelectorError(ValueError):
    """The text or object is not a label selector; the message is that of Kubernetes."""


class Operator(enum.StrEnum):
    """How a requirement relates a label to its values, in the order of the messages of Kubernetes."""

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
"""The text of the operators between a key and its values."""

SETS: Final = frozenset({Operator.IN, Operator.NOT_IN})
"""The operators whose values are in parentheses."""

MOST_REQUIREMENTS: Final = 100
"""Requirements of a selector. Kubernetes has no limit; users have fewer than ten."""
LONGEST: Final = 4096
"""Characters of the text of a selector."""


class SelectorTooLarge(SelectorError):
    """The selector is larger than hpad takes."""

    def __init__(self) -> None:
        super().__init__(_TOO_LARGE)


_TOO_LARGE: Final = (
    f"the label selector is too large: hpad takes at most {MOST_REQUIREMENTS} requirements and {LONGEST:,} characters"
)

_WRITTEN: Final = {operator: sign for sign, operator in SIGNS.items()}
_UNARY: Final = frozenset({Operator.EXISTS, Operator.DOES_NOT_EXIST})
ORDER: Final = frozenset({Operator.GREATER_THAN, Operator.LESS_THAN})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,63}")  # the longest label value; bounds the time of int()


_FEW: Final = 8
"""Values that are found as fast in a tuple as in a set."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of a selector: the key of a label, an operator, and the values in order."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    _known: frozenset[str] | tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", self.values if len(self.values) <= _FEW else frozenset(self.values))

    @property
    def needs_label(self) -> bool:
        """Whether an object without the label cannot meet the requirement."""
        return self.operator not in (Operator.NOT_IN, Operator.NOT_EQUALS, Operator.DOES_NOT_EXIST)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Returns whether the labels meet the requirement. A missing label meets only `!=`, `notin` and `!`."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN | Operator.EQUALS | Operator.DOUBLE_EQUALS:
                return value in self._known
            case Operator.NOT_IN | Operator.NOT_EQUALS:
                return value not in self._known
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GREATER_THAN:
                return (order := self._order(value)) is not None and order > 0
            case Operator.LESS_THAN:
                return (order := self._order(value)) is not None and order < 0

    def _order(self, value: str | None) -> int | None:
        """Returns the label minus the value of the requirement; None where the label is missing or not an integer."""
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
    """Returns a valid requirement. Raises SelectorError with everything that is wrong."""
    errors = []
    if faults := metadata.key_faults(key):
        errors.append(invalid("key", quoted(key), faults))
    if fault := _count_fault(operator, values):
        errors.append(invalid("values", _listed(values), [fault]))
    for index, value in enumerate(values):
        if operator in ORDER and _int64(value) is None:
            fault = "for 'Gt', 'Lt' operators, the value must be an integer"
            errors.append(invalid(f"values[{index}]", quoted(value), [fault]))
    for index, value in enumerate(values):
        if faults := metadata.value_faults(value):
            errors.append(invalid(f"values[{index}][{key}]", quoted(value), faults))
    if errors:
        distinct = list(dict.fromkeys(errors))
        raise SelectorError(distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]")
    return Requirement(key, operator, tuple(sorted(values)))


def _count_fault(operator: Operator, values: Sequence[str]) -> str | None:
    """Returns what is wrong with the number of values; other operators have exactly one by the grammar."""
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
    """Returns the message of the API server for a field; `value` is already quoted."""
    return f"{path}: Invalid value: {value}: {'; '.join(faults)}"


def _listed(values: Sequence[str]) -> str:
    """Returns a list as Go encodes it in JSON; an empty one is null."""
    text = msgspec.json.encode(values).decode() if values else "null"
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def requirements(text: str) -> list[Requirement]:
    """Returns the requirements of a text, in the order written. Raises SelectorError."""
    if len(text) > LONGEST:
        raise SelectorTooLarge
    tokens = _Tokens(text)
    found: list[Requirement] = []
    if not tokens.peek():
        return found
    if not tokens.at_term():
        raise _unexpected(tokens.peek(), "!, identifier, or 'end of string'")
    while True:
        try:
            found.append(_parse_requirement(tokens))
        except SelectorError as error:
            raise SelectorError(f"unable to parse requirement: {error}") from None
        following = tokens.take()
        if not following:
            return found
        if len(found) == MOST_REQUIREMENTS:
            raise SelectorTooLarge
        if following != ",":
            raise _unexpected(following, "',' or 'end of string'")
        if not tokens.at_term():
            raise _unexpected(tokens.peek(), "identifier after ','")


class _Tokens:
    """The tokens of a selector's text; past the end they are empty strings.

    A NUL byte ends the token before it, or else the text.
    """

    _TOKEN: Final = re.compile(r"[ \t\r\n]*(!=|==|[=!(),<>]|[^=!(),<> \t\r\n\0]+)\0?")
    _SIGNS: Final = frozenset({"!=", "==", "=", "!", "(", ")", ",", "<", ">", ""})

    def __init__(self, text: str) -> None:
        self._found: list[str] = []
        self._position = 0
        start = 0
        while match := self._TOKEN.match(text, start):
            self._found.append(match[1])
            start = match.end()

    @classmethod
    def is_word(cls, token: str) -> bool:
        return token not in cls._SIGNS

    def peek(self) -> str:
        return self._found[self._position] if self._position < len(self._found) else ""

    def take(self) -> str:
        token = self.peek()
        self._position += 1
        return token

    def at_term(self) -> bool:
        return self.peek() == "!" or self.is_word(self.peek())


def _parse_requirement(tokens: _Tokens) -> Requirement:
    key = tokens.take()
    negated = key == "!"
    if negated:
        key = tokens.take()
    if not tokens.is_word(key):
        raise _unexpected(key, "identifier")
    if faults := metadata.key_faults(key):
        raise SelectorError(invalid("<nil>", quoted(key), faults))
    if negated:
        return checked(key, Operator.DOES_NOT_EXIST, ())
    if tokens.peek() in {"", ","}:
        return checked(key, Operator.EXISTS, ())
    sign = tokens.take()
    operator = SIGNS.get(sign)
    if operator is None:
        raise _unexpected(sign, ", ".join(SIGNS.values()))
    values = _parse_values(tokens) if operator in SETS else {_parse_value(tokens)}
    return checked(key, operator, sorted(values))


def _parse_value(tokens: _Tokens) -> str:
    if tokens.peek() in {"", ","}:
        return ""
    value = tokens.take()
    if not tokens.is_word(value):
        raise _unexpected(value, "identifier")
    return value


def _parse_values(tokens: _Tokens) -> set[str]:
    opening = tokens.take()
    if opening != "(":
        raise SelectorError(f"found '{opening}' expected: '('")
    first = tokens.peek()
    if first != ")" and first != "," and not tokens.is_word(first):
        raise _unexpected(first, "',', ')' or identifier")
    values = {""} if first == ")" else _parse_list(tokens)
    tokens.take()
    return values


def _parse_list(tokens: _Tokens) -> set[str]:
    """Returns the values up to the closing parenthesis; a comma without a value beside it is the empty value."""
    values: set[str] = set()
    while True:
        token = tokens.take()
        following = tokens.peek()
        if tokens.is_word(token):
            values.add(token)
            if following not in {",", ")"}:
                raise _unexpected(following, "',' or ')'")
        elif token == ",":
            if not values or following in {",", ")"}:
                values.add("")
            if following == ",":
                tokens.take()
                continue
        else:
            raise _unexpected(token, "',', or identifier")
        if following == ")":
            return values


def _unexpected(token: str, expected: str) -> SelectorError:
    return SelectorError(f"found '{token}', expected: {expected}")
