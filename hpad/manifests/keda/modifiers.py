"""Carries over `advanced.scalingModifiers`: one number composed of the triggers' values, with a target of its own.

Arithmetic over queries of one Prometheus becomes one query. Everything else becomes `hpad.io/metric-policy`: each
trigger gets the target of the formula, divided by its factor, and the policy combines the proposals. The largest,
smallest or first number then gives the same count; the parts of a sum are rounded up one by one.

Source: KEDA 2.21, "Scaling Modifiers"; pkg/scaling/modifiers/modifiers.go.
"""

import ast
import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

import msgspec

from hpad.api.problem import Invalid, invalid, required
from hpad.api.quantity import QuantityError, parse_milli
from hpad.engine import expression
from hpad.manifests.keda.conversion import EXTERNAL, Conversion, ConvertedSource
from hpad.manifests.keda.fields import Fields

# The formula, as far as it can be carried over.
#
# It may have numbers, names of triggers, + - * /, `??`, parentheses, and the functions max, min, sum, mean, float and
# int, also of a list. Python's parser reads it, since the syntax of these parts is that of Python, but for `??`.
# Comparisons, conditions and the other functions of KEDA's language are not part of it. Source: the language definition
# of expr (expr-lang.org), which binds `??` closer than arithmetic.

MAX: Final = "max"
MIN: Final = "min"
SUM: Final = "sum"
MEAN: Final = "mean"
FIRST: Final = "??"
_PLAIN: Final = ("float", "int")
"""Conversions: every value is a float already, and int cuts less than one unit off."""
_KNOWN: Final = (MAX, MIN, SUM, MEAN)
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


def parse_formula(text: str) -> Node:
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


def formula_names(node: Node) -> list[str]:
    """Returns the names of triggers in the order of the formula, each as often as it occurs."""
    return [each.name for each in _nodes(node) if isinstance(each, FormulaName)]


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
    if function not in (*_KNOWN, *_PLAIN):
        raise UnreadableFormula(f"the function {function} is not carried over")
    if not parts or (function in _PLAIN and len(parts) > 1):
        raise UnreadableFormula(f"{function} with {len(parts)} values is not carried over")
    return parts[0] if len(parts) == 1 else FormulaCall(function, tuple(parts))


# The modifiers.

_FUNCTIONS: Final = {MAX: "max", MIN: "min", SUM: "sum", MEAN: "avg", FIRST: "first"}
_PROMETHEUS: Final = "prometheus"
_INDEX: Final = re.compile(r"#([0-9]+)")


class Modifiers(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `advanced.scalingModifiers`. `path`: of the formula. activation, target: quantities."""

    path: str
    formula: str
    target: str
    activation: str = ""
    metric_type: str = "AverageValue"


def read(fields: Fields) -> Modifiers | None:
    """Returns the modifiers, None where there are none. Raises Invalid for those that KEDA would refuse."""
    if not list(fields):
        return None
    for name in ("formula", "target"):
        if not fields.text(name):
            raise Invalid(required(fields.at(name), "KEDA needs formula and target"))
    for name in ("target", "activationTarget"):
        _quantity(fields, name)
    kind = fields.text("metricType") or "AverageValue"
    if kind not in ("AverageValue", "Value"):
        raise Invalid(invalid(fields.at("metricType"), kind, "must be AverageValue or Value"))
    return Modifiers(
        path=fields.at("formula"),
        formula=fields.text("formula"),
        target=fields.text("target"),
        activation=fields.text("activationTarget"),
        metric_type=kind,
    )


def _quantity(fields: Fields, name: str) -> None:
    text = fields.text(name)
    try:
        milli = parse_milli(text) if text else 1
    except QuantityError:
        raise Invalid(invalid(fields.at(name), text, "must be a number")) from None
    if name == "target" and milli <= 0:
        raise Invalid(invalid(fields.at(name), text, "must be more than 0"))


def apply(modifiers: Modifiers, conversion: Conversion, prefix: str) -> str:
    """Changes the metrics of the triggers in the formula, and returns the policy's part for them; raises Unreadable.

    In the result, `#INDEX` is the address of a metric.
    """
    node = parse_formula(modifiers.formula)
    unknown = [name for name in formula_names(node) if name not in conversion.names]
    if unknown:
        raise UnreadableFormula(f'"{unknown[0]}" is not the name of a trigger that is carried over')
    if query := _Composed(conversion).query(node):
        return f"#{_compose(modifiers, conversion, prefix, query)}"
    return _Policy(modifiers, conversion, prefix).text(node)


def names_of(modifiers: Modifiers) -> list[str]:
    """Returns the names of the triggers in a formula that `apply` has read."""
    return formula_names(parse_formula(modifiers.formula))


def _compose(modifiers: Modifiers, conversion: Conversion, prefix: str, query: str) -> int:
    """Adds the metric of one query for the whole formula. Returns its index."""
    known = _source(conversion, names_of(modifiers)[0])
    name = conversion.unique(f"{prefix}-formula")
    composed = {"query": query, "types": [EXTERNAL]}
    source = msgspec.structs.replace(known, path=modifiers.path, entry=name, metric=name, query=composed)
    index = conversion.add({"name": name}, _target(modifiers, Fraction(1)), source)
    conversion.activation.clear()
    if modifiers.activation and parse_milli(modifiers.activation):
        conversion.activation[index] = modifiers.activation
    conversion.note_change(modifiers.path, f"is carried over as one query of Prometheus, {name}")
    return index


def _target(modifiers: Modifiers, factor: Fraction) -> dict[str, str]:
    """Returns the target of a metric that counts with a factor."""
    field = "averageValue" if modifiers.metric_type == "AverageValue" else "value"
    return {"type": modifiers.metric_type, field: _divided(modifiers.target, factor)}


def _divided(text: str, factor: Fraction) -> str:
    """Returns a quantity divided by a factor, in thousandths, and unchanged for a factor of 1."""
    if factor == 1:
        return text
    milli = max(1, round(Fraction(parse_milli(text)) / factor))
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def _source(conversion: Conversion, name: str) -> ConvertedSource:
    """Returns the source of a trigger by its name."""
    source = conversion.origins[conversion.names[name]]
    if source is None:
        raise UnreadableFormula("cpu and memory in a formula are not carried over")
    return source


class _Composed:
    """Composes one query of Prometheus for arithmetic over triggers of one server."""

    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion

    def query(self, node: Node) -> str:
        """Returns the query; "" where the formula is no such arithmetic. Raises Unreadable."""
        found = [_source(self._conversion, name) for name in formula_names(node)]
        if len(found) < 2 and not isinstance(node, Product | FormulaCall):
            return ""
        servers = {(source.adapter, str(sorted(source.settings.items()))) for source in found}
        if len(servers) != 1 or found[0].adapter != _PROMETHEUS or not _is_arithmetic(node):
            return ""
        return f"vector({self._scalar(node)})"

    def _scalar(self, node: Node) -> str:
        if isinstance(node, Number):
            return _decimal(node.value)
        if isinstance(node, FormulaName):
            query = _source(self._conversion, node.name).query
            zero = " or vector(0)" if query.get("empty") == "zero" else ""
            return f"scalar(sum({query['query']}){zero})"
        if isinstance(node, Product):
            return f"({self._scalar(node.left)} {'/' if node.divides else '*'} {self._scalar(node.right)})"
        sums = " + ".join(map(self._scalar, node.parts))
        return f"({sums}) / {len(node.parts)}" if node.function == MEAN else f"({sums})"


def _is_arithmetic(node: Node) -> bool:
    if isinstance(node, Product):
        return _is_arithmetic(node.left) and _is_arithmetic(node.right)
    return not isinstance(node, FormulaCall) or (node.function in (SUM, MEAN) and all(map(_is_arithmetic, node.parts)))


def _decimal(value: Fraction) -> str:
    return f"{float(value):.9f}".rstrip("0").rstrip(".")


class _Policy:
    """Turns a formula into a metric policy over the proposals of its triggers."""

    def __init__(self, modifiers: Modifiers, conversion: Conversion, prefix: str) -> None:
        self._modifiers, self._conversion, self._prefix = modifiers, conversion, prefix
        self._factors: dict[int, Fraction] = {}

    def text(self, node: Node) -> str:
        """Returns the policy, and gives the metrics their targets and thresholds. Raises Unreadable."""
        threshold = self._threshold(node)
        kept = dict(self._conversion.activation)
        text = self._part(node, Fraction(1))
        for index, factor in self._factors.items():
            self._conversion.metrics[index]["external"]["target"] = _target(self._modifiers, factor)
            kept.pop(index, None)
            if threshold:
                kept[index] = _divided(threshold, factor)
        self._conversion.activation = kept
        self._note(node)
        return text

    def _threshold(self, node: Node) -> str:
        """Returns the activation threshold, "" for zero. A sum may exceed a threshold that none of its parts does."""
        threshold = self._modifiers.activation
        if not threshold or not parse_milli(threshold):
            return ""
        if any(isinstance(each, FormulaCall) and each.function in (SUM, MEAN) for each in _nodes(node)):
            path = self._modifiers.path.replace("formula", "activationTarget")
            text = f'"{threshold}" is not carried over: hpad.io/activation has thresholds of metrics, and none of a sum'
            self._conversion.note_loss(path, text)
            return ""
        return threshold

    def _note(self, node: Node) -> None:
        text = "is carried over as hpad.io/metric-policy: each trigger has the target of the formula"
        if any(isinstance(each, FormulaCall) and each.function in (SUM, MEAN) for each in _nodes(node)):
            text += ", and the parts of a sum are rounded up one by one"
        self._conversion.note_change(self._modifiers.path, text)

    def _part(self, node: Node, factor: Fraction) -> str:
        if isinstance(node, FormulaName):
            return self._operand(self._conversion.names[node.name], factor)
        if isinstance(node, Number):
            return self._constant(node.value * factor)
        if isinstance(node, Product):
            return self._scaled(node, factor)
        share = factor / len(node.parts) if node.function == MEAN else factor
        function = SUM if node.function == MEAN else node.function
        parts = [self._part(part, share) for part in node.parts]
        return f"{_FUNCTIONS[function]}({', '.join(parts)})"

    def _operand(self, index: int, factor: Fraction) -> str:
        if factor <= 0:
            raise UnreadableFormula("a difference is not carried over")
        if self._factors.setdefault(index, factor) != factor:
            raise UnreadableFormula("one trigger with two factors is not carried over")
        return f"#{index}"

    def _scaled(self, node: Product, factor: Fraction) -> str:
        right = _constant(node.right)
        if node.divides:
            if not right:
                raise UnreadableFormula("a division by a trigger, or by zero, is not carried over")
            return self._part(node.left, factor / right)
        if right is not None:
            return self._part(node.left, factor * right)
        left = _constant(node.left)
        if left is None:
            raise UnreadableFormula("a product of two triggers is not carried over")
        return self._part(node.right, factor * left)

    def _constant(self, value: Fraction) -> str:
        if value <= 0:
            raise UnreadableFormula("a constant of 0 or less is not carried over")
        if self._modifiers.metric_type != "AverageValue":
            raise UnreadableFormula("a constant is not carried over with metricType Value")
        replicas = -(-value * 1000 // parse_milli(self._modifiers.target))
        name = f"{self._prefix}-constant-{len(self._conversion.constants) + 1}"
        return f"#{self._conversion.add_constant(name, int(replicas), self._modifiers.path)}"


def _constant(node: Node) -> Fraction | None:
    """Returns the value of a part without triggers; None for any other."""
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Product):
        left, right = _constant(node.left), _constant(node.right)
        if left is None or right is None or (node.divides and not right):
            return None
        return left / right if node.divides else left * right
    return None


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    parts: tuple[Node, ...] = (node.left, node.right) if isinstance(node, Product) else ()
    for part in node.parts if isinstance(node, FormulaCall) else parts:
        yield from _nodes(part)


def addressed(text: str, names: tuple[str, ...]) -> str:
    """Returns a policy with the addresses of the metrics in place of `#INDEX`."""
    return _INDEX.sub(lambda match: expression.quoted(names[int(match[1])]), text)


def renumbered(text: str, places: dict[int, int]) -> str:
    """Returns a policy with other indices."""
    return _INDEX.sub(lambda match: f"#{places[int(match[1])]}", text)


def indices(text: str) -> set[int]:
    """Returns the indices of the metrics in a policy."""
    return {int(match[1]) for match in _INDEX.finditer(text)}
