"""The syntax of the annotation `hpad.io/metric-policy`: an expression over the proposals of metrics.

    expression = conjunction {"or" conjunction}
    conjunction = sum {"and" sum}
    sum = term {"+" term}
    term = [NUMBER "*"] factor
    factor = METRIC | FUNCTION ["(" expression {"," expression} ")"] | "(" expression ")"

FUNCTION is max, min, avg, sum or first; without arguments it stands for all metrics. METRIC is an address
(`hpad.engine.addresses`), in quotes where it has other characters than letters, digits and `_ . : / | @ -`, begins with
a digit, or is a word of this syntax. What an expression means: `hpad.engine.metric_policy`.
"""

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from hpad.api.text import begin, shown
from hpad.engine import addresses
from hpad.engine.addresses import Address

MAX: Final = "max"
MIN: Final = "min"
AVERAGE: Final = "avg"
SUM: Final = "sum"
FIRST: Final = "first"
AND: Final = "and"
OR: Final = "or"
FUNCTIONS: Final = (MAX, MIN, AVERAGE, SUM, FIRST)
_WORDS: Final = (*FUNCTIONS, AND, OR)
LONGEST: Final = 4096
"""Characters of an expression."""
_DEEPEST: Final = 16
"""Parentheses within each other."""
_LARGEST_WEIGHT: Final = 1000
DECIMALS: Final = 9
"""Decimals of a weight."""
_SHOWN: Final = 40

_NAME: Final = "name"
_NUMBER: Final = "number"
_QUOTED: Final = "quoted"
_SIGN: Final = "sign"
_END: Final = "end"
_TOKEN: Final = re.compile(
    r"\s*(?:"
    r"(?P<number>[0-9]+(?:\.[0-9]+)?(?![A-Za-z0-9_.:/|@{-]))"
    r"|(?P<quoted>\"[^\"]*\"|'[^']*')"
    r"|(?P<name>(?:[A-Za-z_][A-Za-z0-9_.:/|@-]*|\#[0-9]+)(?:\{[^{}]*\})?)"
    r"|(?P<sign>[()+*,])"
    r"|(?P<end>\Z))",
    re.ASCII,
)
_FACTOR: Final = f'a metric, a function ({", ".join(FUNCTIONS)}) or "("'
_OPERATORS: Final = '"+", "and", "or"'


class Metric(msgspec.Struct, frozen=True, gc=False):
    """An operand: the address of a metric, its position in the text, and its index in spec.metrics.

    The position is counted from 1; 0: no text names it. The index is known once the expression is bound to the metrics
    of an HPA (`hpad.engine.metric_policy`).
    """

    address: Address
    position: int = 0
    index: int = -1


class Scaled(msgspec.Struct, frozen=True, gc=False):
    """A part times a weight between 0 and 1,000."""

    weight: Fraction
    part: "Node"


class Combined(msgspec.Struct, frozen=True, gc=False):
    """A function of FUNCTIONS, AND or OR, and its parts; without parts it is over all metrics."""

    function: str
    parts: tuple["Node", ...] = ()


Node = Metric | Scaled | Combined


class _Token(NamedTuple):
    """One word of the text; `position` counts characters from 1."""

    kind: str
    text: str
    position: int

    def __str__(self) -> str:
        if self.kind == _END:
            return "the end"
        return shown(begin(self.text, _SHOWN))


def parse(text: str) -> Node:
    """Parses an expression. Raises ValueError naming the position, what was found, and what is allowed there."""
    if len(text) > LONGEST:
        raise ValueError(f"an expression has at most {LONGEST} characters, not {len(text)}")
    return _Parser(text).whole()


def _tokens(text: str) -> Iterator[_Token]:
    start, kind = 0, ""
    while kind != _END:
        match = _TOKEN.match(text, start)
        if match is None or match.lastgroup is None:
            raise ValueError(_unreadable(text, start))
        start, kind = match.end(), match.lastgroup
        yield _Token(kind, match[kind], match.start(kind) + 1)


def _unreadable(text: str, start: int) -> str:
    rest = text[start:].lstrip()
    at = len(text) - len(rest) + 1
    found = shown(rest[:_SHOWN].split()[0])
    if rest[0] in "\"'":
        return f"position {at}: the quote is not closed"
    if rest[0].isdigit():
        return f"position {at}: found {found}: a metric whose name begins with a digit needs quotes"
    return f"position {at}: found {found}; {_FACTOR} is allowed, and an address with other characters needs quotes"


class _Parser:
    """Parses one expression by recursive descent; the depth is bounded, and so is the number of calls."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = next(self._tokens)
        self._depth = 0

    def whole(self) -> Node:
        found = self._either()
        if self._next.kind != _END:
            raise self._unexpected(f"{_OPERATORS} or the end")
        return found

    def _either(self) -> Node:
        return self._joined(OR, self._both, _NAME, OR)

    def _both(self) -> Node:
        return self._joined(AND, self._sum, _NAME, AND)

    def _joined(self, function: str, read: Callable[[], Node], kind: str, word: str) -> Node:
        """Reads parts with this word between them."""
        parts = [read()]
        while self._takes(kind, word):
            parts.append(read())
        return parts[0] if len(parts) == 1 else Combined(function, tuple(parts))

    def _sum(self) -> Node:
        return self._joined(SUM, self._term, _SIGN, "+")

    def _term(self) -> Node:
        token = self._next
        if not self._takes(_NUMBER):
            return self._factor()
        if not self._takes(_SIGN, "*"):
            raise self._unexpected('"*", since a number is a weight such as 0.5*cpu')
        return Scaled(_weight(token), self._factor())

    def _factor(self) -> Node:
        token = self._next
        if self._takes(_SIGN, "("):
            return self._within(token)[0]
        if token.kind == _NAME and token.text in FUNCTIONS:
            self._advance()
            opened = self._next
            if self._takes(_SIGN, "("):
                return Combined(token.text, self._within(opened, several=True))
            return Combined(token.text)
        if token.kind == _QUOTED or (token.kind == _NAME and token.text not in _WORDS):
            self._advance()
            return _metric(token)
        raise self._unexpected(_FACTOR)

    def _within(self, opened: _Token, *, several: bool = False) -> tuple[Node, ...]:
        """Parses what follows a parenthesis up to the one that closes it: one part, or several with commas."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError(f"position {opened.position}: more than {_DEEPEST} parentheses within each other")
        parts = [self._either()]
        while several and self._takes(_SIGN, ","):
            parts.append(self._either())
        if not self._takes(_SIGN, ")"):
            comma = '"," ' if several else ""
            raise self._unexpected(f'{comma}{_OPERATORS} or the ")" of position {opened.position}')
        self._depth -= 1
        return tuple(parts)

    def _takes(self, kind: str, text: str | None = None) -> bool:
        """Goes on to the next word if the present one is of that kind, and has that text."""
        if self._next.kind != kind or (text is not None and self._next.text != text):
            return False
        self._advance()
        return True

    def _advance(self) -> None:
        self._next = next(self._tokens)

    def _unexpected(self, allowed: str) -> ValueError:
        return ValueError(f"position {self._next.position}: found {self._next} where {allowed} is allowed")


def _weight(token: _Token) -> Fraction:
    weight = Fraction(token.text)
    if not 0 < weight <= _LARGEST_WEIGHT or len(token.text.partition(".")[2]) > DECIMALS:
        allowed = f"a weight is more than 0 and at most {_LARGEST_WEIGHT}, with at most {DECIMALS} decimals"
        raise ValueError(f"position {token.position}: found {token}; {allowed}")
    return weight


def _metric(token: _Token) -> Metric:
    text = token.text[1:-1] if token.kind == _QUOTED else token.text
    try:
        return Metric(addresses.parse(text.strip()), token.position)
    except ValueError as error:
        raise ValueError(f"position {token.position}: {error}") from None


def quoted(address: str) -> str:
    """Returns an address as an expression has it, with quotes where it needs them."""
    match = _TOKEN.fullmatch(address)
    if match is not None and match.lastgroup == _NAME and address not in _WORDS:
        return address
    return f"'{address}'" if '"' in address else f'"{address}"'
