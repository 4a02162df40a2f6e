"""Parses the formula of `advanced.scalingModifiers`, as far as it can be carried over.

It may have numbers, names of triggers, + - * /, `??`, parentheses, and the functions max, min, sum, mean, float and
int, also of a list. Python's parser reads it, since the syntax of these parts is that of Python, but for `??`.
Comparisons, conditions and the other functions of KEDA's language are not part of it. Source: the language definition
of expr (expr-lang.org), which binds `??` closer than arithmetic.
"""

import ast
import functools
import itertools
from collections.abc import Iterator, Sequence
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
_DEEPEST: Final = 64
_LONGEST: Final = 1000


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
    """Parses a formula. Raises UnreadableFormula."""
    if len(text) > _LONGEST:
        raise UnreadableFormula(f"more than {_LONGEST} characters are not carried over")
    if "**" in text or "?" in text.replace(FIRST, ""):
        raise UnreadableFormula("powers and conditions are not carried over")
    # In one line, in which Python reads it. Python has no "??"; its "**" binds closer than arithmetic as well.
    readable = " ".join(text.split()).replace(FIRST, "**")
    try:
        return _node(ast.parse(readable, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnreadableFormula("it is not arithmetic over triggers") from None


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


def _node(found: ast.expr, depth: int = 1) -> Node:
    """Returns the node of a part of Python's tree. Raises UnreadableFormula."""
    if depth > _DEEPEST:
        raise UnreadableFormula(f"more than {_DEEPEST} parts within each other are not carried over")
    within = functools.partial(_node, depth=depth + 1)
    match found:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return Number(Fraction(str(value)))
        case ast.Name(id=name):
            return FormulaName(name)
        case ast.UnaryOp(op=ast.USub(), operand=part):
            return Product(MINUS, within(part))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _joined(SUM, within(left), within(right))
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _joined(SUM, within(left), Product(MINUS, within(right)))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _joined(FIRST, within(left), within(right))
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() as operator, right=right):
            return Product(within(left), within(right), divides=isinstance(operator, ast.Div))
        case ast.Call(func=ast.Name(id=function), args=[ast.List(elts=parts)] | parts, keywords=[]):
            return _call(function, [within(part) for part in parts])
    raise UnreadableFormula(f'"{ast.unparse(found).replace("**", FIRST)}" is not carried over')


def _joined(function: str, *parts: Node) -> Node:
    """Returns the call of the function, with the parts of an equal call in place of the call."""
    within = (each.parts if isinstance(each, FormulaCall) and each.function == function else (each,) for each in parts)
    return FormulaCall(function, tuple(itertools.chain.from_iterable(within)))


def _call(function: str, parts: Sequence[Node]) -> Node:
    if function not in (*_FUNCTIONS, *_PLAIN):
        raise UnreadableFormula(f"the function {function} is not carried over")
    if not parts or (function in _PLAIN and len(parts) > 1):
        raise UnreadableFormula(f"{function} with {len(parts)} values is not carried over")
    return parts[0] if len(parts) == 1 else FormulaCall(function, tuple(parts))
