"""The filter by name of RabbitMQ's lists, which makes the broker leave out most other queues."""

import re
from collections.abc import Iterable, Mapping

from hpad_adapters.rabbitmq.values import Lookup

_LONGEST_FILTER = 1024
"""Bytes of a regular expression that RabbitMQ accepts from 4.2.6 on (rabbit_mgmt_util.erl: MAX_FILTER_LENGTH)."""
_LONGEST_NAME = 255
"""Bytes of a name in AMQP; no queue has a longer one."""
_AROUND = "^(?:{})$"
_LITERAL = re.compile(r"[A-Za-z0-9_-]*")


def name_filter(lookup: Lookup) -> Mapping[str, str]:
    """Returns the parameters that make the broker leave out most other queues; names must fit into one filter.

    The broker ignores case, matches a part of a name in bytes, and has another dialect of expressions. So it gets only
    names, or the literal prefix of a pattern, and its list is filtered again here.
    """
    if not lookup.patterns:
        return _by_name(_AROUND.format("|".join(sorted(map(re.escape, filter(possible, lookup.names))))))
    if not lookup.names and len(lookup.patterns) == 1:
        [pattern] = lookup.patterns
        prefix = _prefix(pattern.pattern)
        return _by_name(f"^{prefix}") if prefix else {}
    return {}


def chunks(names: Iterable[str]) -> list[frozenset[str]]:
    """Returns the names in sets that each fit into one filter; at least one set."""
    found, chunk, free = list[frozenset[str]](), set[str](), _LONGEST_FILTER - len(_AROUND)
    for name in sorted(filter(possible, names)):
        length = len(re.escape(name).encode()) + 1
        if length > free:
            found.append(frozenset(chunk))
            chunk, free = set(), _LONGEST_FILTER - len(_AROUND)
        chunk.add(name)
        free -= length
    return [*found, frozenset(chunk)]


def possible(name: str) -> bool:
    """Returns whether a queue can have this name; a request with a longer one may be refused."""
    return len(name.encode()) <= _LONGEST_NAME


def _by_name(expression: str) -> Mapping[str, str]:
    return {"name": expression, "use_regex": "true"}


def _prefix(expression: str) -> str:
    """Returns a text with which each match of the expression begins; "" where it is not obvious."""
    if "|" in expression or "(?" in expression:
        return ""
    found = _LITERAL.match(expression)
    prefix = found.group() if found else ""
    # A quantifier that allows zero makes the last character optional.
    prefix = prefix[:-1] if expression[len(prefix) : len(prefix) + 1] in ("*", "?", "{") else prefix
    return prefix[:_LONGEST_NAME]
