"""The grammar of a label selector's text: `app=web,tier in (a,b),!canary`.

Grammar and messages are those of the Kubernetes API: "Labels and Selectors".
"""

import re
from typing import Final

from hpad.model import labels as syntax
from hpad.model import requirement
from hpad.model.quoting import quoted
from hpad.model.requirement import Operator, Requirement, SelectorError


def terms(text: str) -> list[Requirement]:
    """The requirements in a selector's text, in the order written. Raises SelectorError."""
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
        raise SelectorError(requirement.invalid("<nil>", quoted(key), faults))
    if negated:
        return requirement.checked(key, Operator.DOES_NOT_EXIST, ())
    if tokens.peek() in {"", ","}:
        return requirement.checked(key, Operator.EXISTS, ())
    sign = tokens.take()
    operator = requirement.SIGNS.get(sign)
    if operator is None:
        raise _unexpected(sign, ", ".join(requirement.SIGNS.values()))
    values = _parse_values(tokens) if operator in requirement.SETS else {_parse_value(tokens)}
    return requirement.checked(key, operator, sorted(values))


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


def _unexpected(token: str, expected: str) -> SelectorError:
    return SelectorError(f"found '{token}', expected: {expected}")
