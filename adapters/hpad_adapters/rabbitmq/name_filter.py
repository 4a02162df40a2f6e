"""The filter by name of RabbitMQ's lists, which makes the broker leave out most other queues."""

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

from hpad_adapters.rabbitmq.values import Lookup

_LONGEST_FILTER = 5000
"""Characters of the filter in a URL; RabbitMQ accepts URLs of 8000."""
_LITERAL = re.compile(r"[A-Za-z0-9_-]*")


def name_filter(lookup: Lookup) -> Mapping[str, str]:
    """Returns the parameters that make the broker leave out most other queues.

    The broker ignores case, matches a part of a name in bytes, and has another dialect of expressions. So it gets only
    names, as many as a URL can carry, or the literal prefix of a pattern, and its list is filtered again here.
    """
    if not lookup.patterns:
        return by_names(lookup.names)
    if not lookup.names and len(lookup.patterns) == 1:
        [pattern] = lookup.patterns
        prefix = _prefix(pattern.pattern)
        return _by_name(f"^{prefix}") if prefix else {}
    return {}


def by_names(names: Iterable[str]) -> Mapping[str, str]:
    """Returns the filter for these names; {} where they are too many for a URL."""
    escaped = sorted(map(re.escape, names))
    return _by_name(f"^(?:{'|'.join(escaped)})$") if sum(map(_weight, escaped)) <= _LONGEST_FILTER else {}


def chunks(names: Iterable[str]) -> Iterator[frozenset[str]]:
    """Yields the names in sets that each fit into one filter."""
    chunk, weight = set[str](), 0
    for name in sorted(names):
        weight += (own := _weight(re.escape(name)))
        if weight > _LONGEST_FILTER:
            yield frozenset(chunk)
            chunk, weight = set(), own
        chunk.add(name)
    yield frozenset(chunk)


def _weight(escaped: str) -> int:
    """Returns the characters of a URL that a name takes, with the separator."""
    return len(quote(escaped)) + 3


def _by_name(expression: str) -> Mapping[str, str]:
    return {"name": expression, "use_regex": "true"}


def _prefix(expression: str) -> str:
    """Returns a text with which each match of the expression begins; "" where it is not obvious."""
    if "|" in expression or "(?" in expression:
        return ""
    found = _LITERAL.match(expression)
    prefix = found.group() if found else ""
    # A quantifier that allows zero makes the last character optional.
    return prefix[:-1] if expression[len(prefix) : len(prefix) + 1] in ("*", "?", "{") else prefix
