"""Label selectors: as a string (`app=web,tier in (a,b)`) and as the object of the API.

Grammar, canonical text and messages are those of the Kubernetes API ("Labels and Selectors").
"""

import enum
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from hpad.model import labels as syntax


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


_SET: Final = frozenset({Operator.IN, Operator.NOT_IN})
_EQUAL: Final = frozenset({Operator.EQUALS, Operator.DOUBLE_EQUALS})
_UNARY: Final = frozenset({Operator.EXISTS, Operator.DOES_NOT_EXIST})
_ORDER: Final = frozenset({Operator.GREATER_THAN, Operator.LESS_THAN})

_TEXT_OPERATORS: Final = {
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
    "=": Operator.EQUALS,
    "==": Operator.DOUBLE_EQUALS,
    "!=": Operator.NOT_EQUALS,
    ">": Operator.GREATER_THAN,
    "<": Operator.LESS_THAN,
}
_OBJECT_OPERATORS: Final = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
}
_SIGNS: Final = {operator: sign for sign, operator in _TEXT_OPERATORS.items()}
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
        values, sign = ",".join(self.values), _SIGNS[self.operator]
        return f"{self.key} {sign} ({values})" if self.operator in _SET else f"{self.key}{sign}{values}"


@dataclass(frozen=True, slots=True)
class Selector:
    """All of its requirements together, sorted by key; one that is not selectable matches nothing."""

    requirements: tuple[Requirement, ...] = ()
    selectable: bool = True
    _equal: tuple[tuple[str, str], ...] = field(init=False, repr=False, compare=False)
    _other: tuple[Requirement, ...] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        equal = tuple((term.key, term.values[0]) for term in self.requirements if term.operator in _EQUAL)
        other = tuple(term for term in self.requirements if term.operator not in _EQUAL)
        object.__setattr__(self, "_equal", equal)
        object.__setattr__(self, "_other", other)
        object.__setattr__(self, "_hash", hash((self.requirements, self.selectable)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def empty(self) -> bool:
        """Whether it matches everything."""
        return self.selectable and not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        for key, value in self._equal:
            if labels.get(key) != value:
                return False
        for requirement in self._other:
            if not requirement.matches(labels):
                return False
        return self.selectable

    def __str__(self) -> str:
        """The canonical text; empty both for the selector of everything and for that of nothing."""
        return ",".join(map(str, self.requirements))


EVERYTHING: Final = Selector()
NOTHING: Final = Selector(selectable=False)


class LabelSelectorRequirement(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`metav1.LabelSelectorRequirement`: the operator is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`metav1.LabelSelector`, as an HPA's metric carries it."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


def from_object(selector: LabelSelector | None) -> Selector:
    """The selector an API object stands for: nothing where there is none, everything where it is empty.

    Raises SelectorError.
    """
    if selector is None:
        return NOTHING
    terms = [_requirement(key, Operator.EQUALS, (value,)) for key, value in sorted(selector.match_labels.items())]
    for expression in selector.match_expressions:
        operator = _OBJECT_OPERATORS.get(expression.operator)
        if operator is None:
            raise SelectorError(f"{_quoted(expression.operator)} is not a valid label selector operator")
        terms.append(_requirement(expression.key, operator, expression.values))
    return _selector(terms)


def go_plus_v(selector: LabelSelector | None) -> str:
    """How Go's `%+v` prints the object inside the HPA controller's messages."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted(selector.match_labels.items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{term.key},Operator:{term.operator},Values:[{' '.join(term.values)}],}},"
        for term in selector.match_expressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


@functools.lru_cache(maxsize=1 << 14)
def parse(text: str) -> Selector:
    """The selector that a string stands for; an empty one selects everything. Raises SelectorError."""
    tokens = _Tokens(text)
    terms: list[Requirement] = []
    if not tokens.peek():
        return EVERYTHING
    if not tokens.at_term():
        raise _unexpected(tokens.peek(), "!, identifier, or 'end of string'")
    while True:
        try:
            terms.append(_parse_requirement(tokens))
        except SelectorError as error:
            raise SelectorError(f"unable to parse requirement: {error}") from None
        following = tokens.take()
        if not following:
            return _selector(terms)
        if following != ",":
            raise _unexpected(following, "',' or 'end of string'")
        if not tokens.at_term():
            raise _unexpected(tokens.peek(), "identifier after ','")


class _Tokens:
    """The words and signs of a selector's text in turn; past the end they are empty strings.

    A NUL byte ends the word or sign before it, or else the text.
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
    if faults := syntax.key_faults(key):
        raise SelectorError(_invalid("<nil>", _quoted(key), faults))
    if negated:
        return _requirement(key, Operator.DOES_NOT_EXIST, ())
    if tokens.peek() in {"", ","}:
        return _requirement(key, Operator.EXISTS, ())
    sign = tokens.take()
    operator = _TEXT_OPERATORS.get(sign)
    if operator is None:
        raise _unexpected(sign, ", ".join(_TEXT_OPERATORS.values()))
    values = _parse_values(tokens) if operator in _SET else {_parse_value(tokens)}
    return _requirement(key, operator, sorted(values))


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
    """The values up to the closing parenthesis; a comma with nothing beside it stands for the empty value."""
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


def _selector(terms: list[Requirement]) -> Selector:
    return Selector(tuple(sorted(terms, key=lambda term: term.key))) if terms else EVERYTHING


def _requirement(key: str, operator: Operator, values: Sequence[str]) -> Requirement:
    """A requirement that holds to the rules; raises SelectorError with everything that is wrong."""
    errors = []
    if faults := syntax.key_faults(key):
        errors.append(_invalid("key", _quoted(key), faults))
    if fault := _count_fault(operator, values):
        errors.append(_invalid("values", _listed(values), [fault]))
    for index, value in enumerate(values):
        if operator in _ORDER and _int64(value) is None:
            fault = "for 'Gt', 'Lt' operators, the value must be an integer"
            errors.append(_invalid(f"values[{index}]", _quoted(value), [fault]))
    for index, value in enumerate(values):
        if faults := syntax.value_faults(value):
            errors.append(_invalid(f"values[{index}][{key}]", _quoted(value), faults))
    if errors:
        distinct = list(dict.fromkeys(errors))
        raise SelectorError(distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]")
    return Requirement(key, operator, tuple(sorted(values)))


def _count_fault(operator: Operator, values: Sequence[str]) -> str | None:
    """What is wrong with the number of values; the grammar itself gives every other operator exactly one."""
    if operator in _SET and not values:
        return "for 'in', 'notin' operators, values set can't be empty"
    if operator in _UNARY and values:
        return "values set must be empty for exists and does not exist"
    return None


def _int64(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _unexpected(token: str, expected: str) -> SelectorError:
    return SelectorError(f"found '{token}', expected: {expected}")


def _invalid(path: str, value: str, faults: Sequence[str]) -> str:
    return f"{path}: Invalid value: {value}: {'; '.join(faults)}"


def _listed(values: Sequence[str]) -> str:
    """A list as Go writes it in JSON; an empty one is null."""
    text = msgspec.json.encode(values).decode() if values else "null"
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f",
    "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def _quoted(text: str) -> str:
    """A string as Go's `%q` quotes it."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
