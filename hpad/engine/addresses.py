"""Addresses of the metrics of an HPA, for its annotations, its series and its explanations.

The value of an annotation has parts with commas between, each `ADDRESS=VALUE`, or `VALUE` for all other metrics
(`assigned`). Commas and equals signs within braces belong to a selector.

| address | the metrics it stands for |
| --- | --- |
| `NAME` | all metrics, or resources, of that name |
| `NAME{SELECTOR}` | those of type Pods, Object or External with the same label selector; `NAME{}`: without one |
| `NAME@CONTAINER` | the resource of one container (ContainerResource) |
| `#INDEX` | the metric at that position of `spec.metrics`, counted from 0 as in the messages of the API server |

Selectors are compared as parsed: order, spaces and repetitions do not matter, `a in (x)` is `a=x`, and `a notin (x)` is
`a!=x`. A name may contain characters that an address cannot express, such as braces; `#INDEX` always works.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from hpad.api import selector as selectors
from hpad.api.bounded_cache import bounded_cache
from hpad.api.hpa import MetricIdentifier
from hpad.api.sample import CONTAINER_RESOURCE
from hpad.api.selector import EVERYTHING, Operator, Requirement, Selector, SelectorError
from hpad.api.text import begin, shown
from hpad.engine.spec import CompiledMetric

_INDEX: Final = re.compile(r"#([0-9]{1,9})")
_WITH_SELECTOR: Final = re.compile(r"([^{}]+)\{([^{}]*)\}")
_FORMS: Final = "NAME, NAME{SELECTOR}, NAME@CONTAINER or #INDEX"
_LONGEST: Final = 253
"""Characters of a canonical address: it is a label value of series."""
_LONGEST_TEXT: Final = 1024
"""Characters of an address in an annotation: selectors that were parsed stay in memory."""

_ONE_VALUE: Final = {
    Operator.IN: Operator.EQUALS,
    Operator.DOUBLE_EQUALS: Operator.EQUALS,
    Operator.NOT_IN: Operator.NOT_EQUALS,
}


class MetricIdentity(NamedTuple):
    """What an address can say of a metric, apart from its index.

    `container` is None for types other than ContainerResource. `selector` is None for resources, and where the spec has
    an invalid selector.
    """

    name: str
    container: str | None = None
    selector: Selector | None = None


class Address(NamedTuple):
    """A parsed address; equal addresses stand for the same metrics. `name` includes `@CONTAINER`."""

    name: str = ""
    selector: tuple[Requirement, ...] | None = None
    position: int | None = None

    def __str__(self) -> str:
        if self.position is not None:
            return f"#{self.position}"
        return self.name if self.selector is None else f"{self.name}{{{','.join(map(str, self.selector))}}}"


def addresses(metrics: Sequence[CompiledMetric]) -> tuple[str, ...]:
    """Returns the canonical address of each metric, in order: the shortest one that stands for this metric alone.

    That is its name, else its name with the selector or the container, else `#INDEX`. A name or selector that an
    address cannot express, or that makes the address longer than 253 characters, gives `#INDEX`, too.
    """
    return canonical(identities(metrics))


def identities(metrics: Sequence[CompiledMetric]) -> tuple[MetricIdentity, ...]:
    """Returns the identity of each metric, in order."""
    return tuple(map(_identity, metrics))


def weight(metrics: tuple[MetricIdentity, ...]) -> int:
    """Returns the estimated bytes of the names and selectors of metrics."""
    return sum([_IDENTITY + len(metric.name) + _selector_weight(metric.selector) for metric in metrics])


def _selector_weight(selector: Selector | None) -> int:
    terms = () if selector is None else selector.requirements
    return sum([_TERM + sum(map(len, term.values)) + _TERM * len(term.values) for term in terms])


_IDENTITY: Final = 200
_TERM: Final = 100
"""Bytes of an identity, and of a requirement or a value of its selector, beside their texts."""


@bounded_cache(weight)
def canonical(metrics: tuple[MetricIdentity, ...]) -> tuple[str, ...]:
    """Returns the canonical address of each metric, as `addresses` does. O(metrics)."""
    found = forms(metrics)
    count = Counter(itertools.chain.from_iterable(found))
    return tuple(
        next((str(form) for form in reversed(each) if count[form] == 1 and _is_expressible(form)), str(each[0]))
        for each in found
    )


def parse(text: str) -> Address:
    """Parses an address. Raises ValueError that names the valid forms, or the error in the selector."""
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"an address has at most {_LONGEST_TEXT} characters, not {len(text)}: use #INDEX")
    if text.startswith("#"):
        index = _INDEX.fullmatch(text)
        if index is None:
            raise ValueError(f"{shown(text)} is not an index such as #0")
        return Address(position=int(index[1]))
    match = _WITH_SELECTOR.fullmatch(text)
    if match is None:
        if not text or "{" in text or "}" in text:
            raise ValueError(f"{shown(text)} is not an address of the form {_FORMS}")
        return Address(text)
    try:
        return Address(match[1].strip(), _normal(selectors.parse(match[2])))
    except SelectorError as error:
        raise ValueError(f"{shown(match[2])} is not a label selector: {error}") from None


def forms(metrics: Sequence[MetricIdentity]) -> list[list[Address]]:
    """Returns the addresses of each metric, in order: the most specific one first, its name last."""
    return [_forms(identity, index) for index, identity in enumerate(metrics)]


def _forms(metric: MetricIdentity, index: int) -> list[Address]:
    found = [Address(position=index)]
    if metric.container is not None:
        found.append(Address(f"{metric.name}@{metric.container}"))
    if metric.selector is not None:
        found.append(Address(metric.name, _normal(metric.selector)))
    return [*found, Address(metric.name)]


def _identity(metric: CompiledMetric) -> MetricIdentity:
    if metric.type == CONTAINER_RESOURCE:
        return MetricIdentity(metric.name, container=metric.query.container)
    named = _named(metric)
    if named is None:
        return MetricIdentity(metric.name)
    return MetricIdentity(metric.name, selector=EVERYTHING if named.selector is None else metric.query.selector)


def _named(metric: CompiledMetric) -> MetricIdentifier | None:
    """Returns the name and selector in the spec; None for resources and unknown types."""
    source = {"Pods": metric.spec.pods, "Object": metric.spec.object, "External": metric.spec.external}.get(metric.type)
    return None if source is None else source.metric


def _normal(selector: Selector) -> tuple[Requirement, ...]:
    """Returns the distinct requirements in the order of their texts, those with a single value as `=` or `!=`."""
    return tuple(sorted(set(map(_simplest, selector.requirements)), key=str))


def _simplest(term: Requirement) -> Requirement:
    values = tuple(dict.fromkeys(term.values))
    operator = _ONE_VALUE.get(term.operator, term.operator) if len(values) == 1 else term.operator
    return Requirement(term.key, operator, values)


def _is_expressible(address: Address) -> bool:
    text = str(address)
    # Commas separate the parts of an annotation, and spaces around a part do not count.
    if len(text) > _LONGEST or not text.isprintable() or "," in address.name or text != text.strip():
        return False
    try:
        return parse(text) == address
    except ValueError:
        return False


T = TypeVar("T")

_SEPARATOR: Final = re.compile(r"\{[^}]*\}?|,")
_MOST_ERRORS: Final = 10
_MOST_SHOWN: Final = 10


def assigned(text: str, parse_value: Callable[[str], T], metrics: tuple[MetricIdentity, ...]) -> tuple[T | None, ...]:
    """Returns the value of each metric by its most specific address in the text, None where the text has none for it.

    Raises ValueError with the errors of the parts, at most ten: addresses that are malformed, match no metric or occur
    twice, and values that `parse_value` refuses with a ValueError. Of several parts each error names its own.
    """
    found = forms(metrics)
    known = set(itertools.chain.from_iterable(found))
    errors: list[str] = []
    texts: dict[Address | None, str] = {}
    values: dict[Address | None, T] = {}
    for part in _parts(text):
        try:
            address, value = _split(part)
            if address in texts:
                raise ValueError(f"{cut(texts[address])} is for the same metrics")
            if address is not None and address not in known:
                raise ValueError(f"there is no metric {cut(str(address))} here; {existing(canonical(metrics))}")
            values[address], texts[address] = parse_value(value), part
        except ValueError as error:
            errors.append(str(error) if part == text.strip() else f"{cut(part)}: {error}")
            if len(errors) == _MOST_ERRORS:
                break
    if errors:
        raise ValueError("; ".join(errors))
    return tuple(next((values[form] for form in (*each, None) if form in values), None) for each in found)


def _parts(text: str) -> Iterator[str]:
    start = 0
    for match in _SEPARATOR.finditer(text):
        if match[0] == ",":
            yield text[start : match.start()].strip()
            start = match.end()
    yield text[start:].strip()


def _split(part: str) -> tuple[Address | None, str]:
    """Returns the address, None for a value for all other metrics, and the value. Raises ValueError."""
    if not part:
        raise ValueError("a value is missing, or there is a comma too many")
    selector, brace, rest = part.rpartition("}")
    # At the last equals sign: the name of a metric may have some as well.
    name, equals, value = rest.rpartition("=")
    if equals:
        return parse(f"{selector}{brace}{name}".strip()), value.strip()
    if brace:
        raise ValueError("there is no value: METRIC=VALUE is needed")
    return None, part


def existing(names: Sequence[str]) -> str:
    """Returns the addresses of the metrics that there are, for an error."""
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return f"there are {', '.join(itertools.islice(names, _MOST_SHOWN)) or 'none'}{more}"


def cut(text: str) -> str:
    """Returns a text of an annotation for an error, at most 100 characters of it."""
    return shown(begin(text))
