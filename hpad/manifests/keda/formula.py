"""Parses the formula of `advanced.scalingModifiers`, as far as it can be carried over.

    sum = product {("+" | "-") product}
    product = choice {("*" | "/") choice}
    choice = value {"??" value}
    value = NUMBER | NAME | FUNCTION "(" sum {"," sum} ")" | "[" sum {"," sum} "]" | "-" value | "(" sum ")"

FUNCTION is max, min, sum, mean, float, int, and a list stands for its elements. Comparisons, conditions and the other
functions of KEDA's language are not part of it. Source: the language definition of expr (expr-lang.org), which binds
`??` closer than arithmetic.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

import msgspec

MAX: Final = "max"
MIN: Final = "min"
SUM: Final = "sum"
MEAN: Final = "mean"
FIRST: Final = "??"
_PLAIN: Final = ("float", "int")
"""Conversions: every value is a float already, and int cuts less than one unit off."""
_FUNCTIONS: Final = (MAX, MIN, SUM, MEAN)
_DEEPEST: Final = 16
_TOKEN: Final = re.compile(r"\s*(?:([0-9]+(?:\.[0-9]+)?)|([A-Za-z_$][A-Za-z0-9_$]*)|(\?\?|[-+*/(),\[\]])|(\S))")


class UnreadableFormula(Exception):
    """The formula has something that cannot be carried over; the message names it."""


class Number(msgspec.Struct, frozen=True):
    """A constant."""

    value: Fraction


class FormulaName(msgspec.Struct, frozen=True):
    """The value of the trigger of that name."""

    name: str


class Product(msgspec.Struct, frozen=True):
    """`left * right`, or `left / right`."""

    left: "Node"
    right: "Node"
    divides: bool = False


class FormulaCall(msgspec.Struct, frozen=True):
    """A function of MAX, MIN, SUM, MEAN and FIRST. A difference is the sum with the negative of its second part."""

    function: str
    parts: tuple["Node", ...]


Node = Number | FormulaName | Product | FormulaCall
MINUS: Final = Number(Fraction(-1))


def parse(text: str) -> Node:
    """Parses a formula. Raises Unreadable."""
    return _Parser(text).whole()


def names(node: Node) -> list[str]:
    """Returns the names of triggers in the order of the formula, each as often as it occurs."""
    return [each.name for each in _leaves(node) if isinstance(each, FormulaName)]


def _leaves(node: Node) -> Iterator[Node]:
    if isinstance(node, Product):
        yield from _leaves(node.left)
        yield from _leaves(node.right)
    elif isinstance(node, FormulaCall):
        for part in node.parts:
            yield from _leaves(part)
    else:
        yield node


class _Parser:
    """Parses one formula by recursive descent; the depth is bounded."""

    def __init__(self, text: str) -> None:
        self._tokens = [match.group().strip() for match in _TOKEN.finditer(text)]
        self._depth = 0

    def whole(self) -> Node:
        found = self._sum()
        if self._tokens:
            raise UnreadableFormula(f'"{self._tokens[0]}" is not carried over')
        return found

    def _sum(self) -> Node:
        parts = [self._product()]
        while self._next() in ("+", "-"):
            sign, part = self._take(), self._product()
            parts.append(part if sign == "+" else Product(MINUS, part))
        return parts[0] if len(parts) == 1 else FormulaCall(SUM, tuple(parts))

    def _product(self) -> Node:
        found = self._choice()
        while self._next() in ("*", "/"):
            found = Product(found, divides=self._take() == "/", right=self._choice())
        return found

    def _choice(self) -> Node:
        parts = [self._value()]
        while self._next() == "??":
            self._take()
            parts.append(self._value())
        return parts[0] if len(parts) == 1 else FormulaCall(FIRST, tuple(parts))

    def _value(self) -> Node:
        token = self._take()
        if token == "-":
            return Product(MINUS, self._value())
        if token == "(":
            [found] = self._list(")", most=1)
            return found
        if token[:1].isdigit():
            return Number(Fraction(token))
        if not (token[:1].isalpha() or token[:1] in ("_", "$")):
            raise UnreadableFormula(f'"{token}" is not carried over' if token else "it ends too early")
        return self._call(token) if self._next() == "(" else FormulaName(token)

    def _call(self, function: str) -> Node:
        self._take()
        if function not in (*_FUNCTIONS, *_PLAIN):
            raise UnreadableFormula(f"the function {function} is not carried over")
        parts = self._arguments()
        if function in _PLAIN or len(parts) == 1:
            return parts[0]
        return FormulaCall(function, tuple(parts))

    def _arguments(self) -> list[Node]:
        if self._next() != "[":
            return self._list(")")
        self._take()
        parts = self._list("]")
        if self._take() != ")":
            raise UnreadableFormula("a list beside other arguments is not carried over")
        return parts

    def _list(self, end: str, most: int = 64) -> list[Node]:
        """Parses what follows a parenthesis up to the one that closes it."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UnreadableFormula(f"more than {_DEEPEST} parentheses within each other are not carried over")
        parts = [self._sum()]
        while self._next() == "," and len(parts) < most:
            self._take()
            parts.append(self._sum())
        if (token := self._take()) != end:
            raise UnreadableFormula(f'"{token}" is not carried over' if token else f'a "{end}" is missing')
        self._depth -= 1
        return parts

    def _next(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _take(self) -> str:
        return self._tokens.pop(0) if self._tokens else ""
