"""Combines the proposals of the metrics by the expression of `hpad.io/metric-policy`. Beyond the Kubernetes API.

| form | value |
| --- | --- |
| `max(a, b)`, `a or b` | the largest |
| `min(a, b)` | the smallest |
| `a and b` | the smallest change if all want one in the same direction, else the current count |
| `a + b`, `sum(a, b)` | the sum |
| `avg(a, b)` | the mean |
| `0.7*a` | the share |
| `first(a, b)` | the first one that no failed metric makes uncertain |

Sums, means and shares are exact, and the result is rounded up. In them a metric counts with what it would propose
without the tolerance, which applies to their value instead: else a metric that keeps the current count would drive it.

Every form grows, or stays, where an operand grows. So the result lies between two values: the lowest, where failed
metrics propose nothing, and the highest, where they propose any count. Where both are equal the failed metrics do not
matter. Else the count may grow to the lowest value, and does not shrink, as Kubernetes decides for the largest proposal
(horizontal.go: computeReplicasForMetrics).

A metric with a fallback in force proposes what the fallback says. A metric that its fallback leaves out is left out of
its function; in a sum, and with a weight, it stays a failed one, since leaving it out would count it as 0.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from hpad.api.bounded_cache import bounded_cache
from hpad.engine import addresses, expression
from hpad.engine.addresses import Address, MetricIdentity
from hpad.engine.expression import AND, AVERAGE, FIRST, MAX, MIN, OR, SUM, Combined, Metric, Node, Scaled
from hpad.engine.spec import CompiledMetric

_MOST_SHOWN: Final = 3
_NODE: Final = 500
"""Bytes of a part of a policy, with its address."""
FAILED: Final = None
"""The proposal of a failed metric."""


class LeftOut:
    """The proposal of a metric that its fallback leaves out."""


LEFT_OUT: Final = LeftOut()


class Count(NamedTuple):
    """What a valid metric proposes, and what it would propose without the tolerance."""

    replicas: int
    exact: int


Proposed = Count | LeftOut | None
"""What a metric proposes: a count, LEFT_OUT or FAILED."""


class Standing(NamedTuple):
    """The current count, and how far a sum, mean or share may be below and above it without a change, as fractions."""

    current: int
    down: float
    up: float


class Range(msgspec.Struct, frozen=True, gc=False):
    """The values that a part can have: `high` is None without a limit.

    `leader` is the index of the metric that `low` comes from (None: a failed one). `combined`: `low` is not what that
    metric proposes, but a sum, a share, or the current count.
    """

    low: Fraction | int
    high: Fraction | int | None
    leader: int | None
    combined: bool = False

    @property
    def is_known(self) -> bool:
        """Whether failed metrics make no difference."""
        return self.low == self.high


_UNKNOWN: Final = Range(0, None, None)


class MetricPolicy(msgspec.Struct, frozen=True, gc=False):
    """An expression over the metrics of an HPA; `str()` of it has their canonical addresses.

    `metrics` are the indices of the metrics in the expression, ascending.
    """

    text: str
    metrics: tuple[int, ...]
    root: Node

    def __str__(self) -> str:
        return self.text

    def value(self, proposed: Sequence[Proposed], standing: Standing) -> Range | None:
        """Returns the value with these proposals, one per metric of the spec; None where all metrics are left out."""
        return _value(self.root, proposed, standing)


def replicas(found: Range) -> int:
    """Returns the lowest value as a number of replicas: rounded up."""
    return math.ceil(found.low)


def _weight(node: Node, metrics: tuple[MetricIdentity, ...]) -> int:
    return addresses.weight(metrics) + _NODE * _size(node)


def _size(node: Node) -> int:
    if isinstance(node, Combined):
        return 1 + sum(map(_size, node.parts))
    return 1 if isinstance(node, Metric) else 1 + _size(node.part)


@bounded_cache(_weight)
def bound(node: Node, metrics: tuple[MetricIdentity, ...]) -> MetricPolicy | None:
    """Returns the policy for these metrics; None for `max` over all of them, as Kubernetes has it.

    Raises ValueError naming the position of an address that stands for no metric, or for several.
    """
    if node == Combined(MAX) or not metrics:
        return None
    forms: dict[Address, list[int]] = {}
    for index, each in enumerate(addresses.forms(metrics)):
        for form in each:
            forms.setdefault(form, []).append(index)
    names = addresses.canonical(metrics)
    return _policy(_bound(node, forms, names), names)


def of_spec(node: Node, metrics: Sequence[CompiledMetric]) -> MetricPolicy | None:
    """Returns the policy for the metrics of a spec; None for addresses that do not fit them."""
    try:
        return bound(node, addresses.identities(metrics))
    except ValueError:
        return None


def _policy(root: Node, names: Sequence[str]) -> MetricPolicy:
    return MetricPolicy(_written(root, names), tuple(sorted(set(_indices(root)))), root)


def _bound(node: Node, forms: Mapping[Address, list[int]], names: Sequence[str]) -> Node:
    if isinstance(node, Scaled):
        return Scaled(node.weight, _bound(node.part, forms, names))
    if isinstance(node, Metric):
        return msgspec.structs.replace(node, index=_index(node, forms, names))
    if not node.parts:
        every = [Metric(Address(position=index), index=index) for index in range(len(names))]
        return Combined(node.function, tuple(every))
    return Combined(node.function, tuple([_bound(part, forms, names) for part in node.parts]))


def _index(node: Metric, forms: Mapping[Address, list[int]], names: Sequence[str]) -> int:
    found = forms.get(node.address, [])
    if len(found) == 1:
        return found[0]
    address = addresses.cut(str(node.address))
    if not found:
        raise ValueError(f"position {node.position}: there is no metric {address} here; {addresses.existing(names)}")
    several = ", ".join(names[index] for index in islice(found, _MOST_SHOWN))
    more = f" and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    raise ValueError(f"position {node.position}: {address} stands for {len(found)} metrics: {several}{more}")


def _indices(node: Node) -> Iterator[int]:
    if isinstance(node, Metric):
        yield node.index
    elif isinstance(node, Scaled):
        yield from _indices(node.part)
    else:
        for part in node.parts:
            yield from _indices(part)


def _written(node: Node, names: Sequence[str]) -> str:
    """Returns the text of a part: `and`, `or` and `+` within others are in parentheses."""
    if isinstance(node, Metric):
        name = names[node.index]
        return f"#{node.index}" if "'" in name and '"' in name else expression.quoted(name)
    if isinstance(node, Scaled):
        weight = f"{float(node.weight):.{expression.DECIMALS}f}".rstrip("0").rstrip(".")
        text = _grouped(node.part, names)
        return f"{weight}*({text})" if isinstance(node.part, Scaled) else f"{weight}*{text}"
    if node.function in (AND, OR):
        return f" {node.function} ".join(_grouped(part, names) for part in node.parts)
    if node.function == SUM and len(node.parts) > 1:
        return " + ".join(_grouped(part, names) for part in node.parts)
    return f"{node.function}({', '.join(_written(part, names) for part in node.parts)})"


def _grouped(node: Node, names: Sequence[str]) -> str:
    text = _written(node, names)
    return f"({text})" if isinstance(node, Combined) and not text.startswith(f"{node.function}(") else text


def _value(node: Node, proposed: Sequence[Proposed], standing: Standing) -> Range | None:
    if isinstance(node, Metric):
        return _operand(node, proposed)
    if isinstance(node, Scaled) or node.function in (SUM, AVERAGE):
        found = _amount(node, proposed, standing)
        return None if found is None else _tolerated(found, standing)
    return _chosen(node, [_value(part, proposed, standing) for part in node.parts], standing)


def _amount(node: Node, proposed: Sequence[Proposed], standing: Standing) -> Range | None:
    """Returns the value of a part of a sum, mean or share: without the tolerance."""
    if isinstance(node, Metric):
        return _operand(node, proposed, exact=True)
    if isinstance(node, Scaled):
        return _times(_amount(node.part, proposed, standing) or _UNKNOWN, node.weight)
    found = [_amount(part, proposed, standing) for part in node.parts]
    if node.function == SUM:
        return _sum([each or _UNKNOWN for each in found])
    return _chosen(node, found, standing)


def _operand(node: Metric, proposed: Sequence[Proposed], *, exact: bool = False) -> Range | None:
    count = proposed[node.index]
    if count is FAILED:
        return _UNKNOWN
    if isinstance(count, LeftOut):
        return None
    value = count.exact if exact else count.replicas
    return Range(value, value, node.index)


def _tolerated(found: Range, standing: Standing) -> Range:
    low, high = _settled(found.low, standing), None if found.high is None else _settled(found.high, standing)
    return Range(low, high, found.leader, found.combined)


def _settled(value: Fraction | int, standing: Standing) -> Fraction | int:
    """Returns the current count for a value within the tolerance of it."""
    current, down, up = standing
    return current if current and 1.0 - down <= value / current <= 1.0 + up else value


def _chosen(node: Combined, found: Sequence[Range | None], standing: Standing) -> Range | None:
    counted = [each for each in found if each is not None]
    if len(counted) < 2:
        return counted[0] if counted else None
    return _combined(node.function, counted, standing.current)


def _combined(function: str, found: Sequence[Range], current: int) -> Range:
    if function in (MAX, OR):
        best = max(found, key=lambda each: (each.low, each.leader is not None))
        return Range(best.low, _highest(found), best.leader, best.combined)
    if function == MIN:
        best = min(found, key=lambda each: (each.low, each.leader is None))
        return Range(best.low, _lowest_high(found), best.leader, best.combined)
    if function == AVERAGE:
        return _times(_sum(found), Fraction(1, len(found)))
    if function == FIRST:
        return next((each for each in found if each.is_known), found[0])
    return _agreed(found, current)


def _low(found: Range) -> Fraction | int:
    return found.low


def _highest(found: Sequence[Range]) -> Fraction | int | None:
    highs = [each.high for each in found if each.high is not None]
    return max(highs) if len(highs) == len(found) else None


def _lowest_high(found: Sequence[Range]) -> Fraction | int | None:
    return min((each.high for each in found if each.high is not None), default=None)


def _agreed(found: Sequence[Range], current: int) -> Range:
    """Returns the value of `and`: the current count, moved into the range of the parts."""
    smallest, largest, high = min(found, key=_low), max(found, key=_low), _agreed_high(found, current)
    if smallest.low > current:
        return Range(smallest.low, high, smallest.leader, smallest.combined)
    if largest.low < current:
        return Range(largest.low, high, largest.leader, largest.combined)
    leader = next((each.leader for each in (smallest, largest) if each.leader is not None), None)
    return Range(current, high, leader, combined=True)


def _agreed_high(found: Sequence[Range], current: int) -> Fraction | int | None:
    least, most = _lowest_high(found), _highest(found)
    if least is None:
        return None
    return max(least, current) if most is None else max(least, min(most, current))


def _sum(found: Sequence[Range]) -> Range:
    if len(found) == 1:
        return found[0]
    valid = [each for each in found if each.leader is not None]
    leader = max(valid, key=_low).leader if valid else None
    highs = [each.high for each in found if each.high is not None]
    high = sum(highs) if len(highs) == len(found) else None
    return Range(sum(each.low for each in found), high, leader, combined=True)


def _times(found: Range, weight: Fraction) -> Range:
    high = None if found.high is None else found.high * weight
    return Range(found.low * weight, high, found.leader, combined=True)
