"""What adapters share to answer queries: labels of selectors, patterns, unknown metrics, answers that are errors."""

import re
from collections.abc import Callable, Collection
from typing import ParamSpec, TypeVar

from hpad.adapter import AdapterError, Operator, Query, meant

P = ParamSpec("P")
T = TypeVar("T")
EQUALITY = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN)
"""The operators of a term that names the values of its label."""


_POSIX = re.compile(r"\[:\^?[a-z]+:\]")


def pattern(text: str) -> re.Pattern[str]:
    """Compiles a regular expression of the configuration; raises re.error.

    Also for classes of POSIX, which RabbitMQ and Go have: Python takes their characters.
    """
    if posix := _POSIX.search(text):
        raise re.error(f"Python has no {posix[0]}: write \\d, \\w, or the characters")
    return re.compile(text)


def attempt(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T | AdapterError:
    """Returns what the function returns, or the AdapterError that it raises."""
    try:
        return function(*arguments, **options)
    except AdapterError as error:
        return error


def or_raise(answer: T | AdapterError) -> T:
    """Returns the answer; raises it if it is an error, as `attempt` and `or_error` return it."""
    if isinstance(answer, AdapterError):
        raise answer
    return answer


def labels(query: Query, needed: Collection[str], optional: Collection[str] = ()) -> dict[str, str]:
    """Returns the labels of the selector with their values; raises AdapterError unless they are those of the metric."""
    terms = query.selector.requirements if query.selector is not None else ()
    found = {term.key: term.values[0] for term in terms if term.operator.value in ("=", "==")}
    unknown = set(found) - {*needed, *optional}
    if len(found) != len(terms) or unknown or not all(found.get(name) for name in needed):
        shape = f"needs a selector with {_listed(needed)}" if needed else "takes no selector"
        others = f"{', and may have' if needed else ' but'} {_listed(optional)}" if optional else ""
        raise AdapterError(f'metric "{query.name}" {shape}{others}', "spec")
    return found


def _listed(names: Collection[str]) -> str:
    return ",".join(f"{name}=…" for name in names)


def no_metric(query: Query, known: Collection[str]) -> AdapterError:
    """Returns the error of a metric that the source does not have."""
    names = ", ".join(known) or "none"
    return AdapterError(f'there is no metric "{query.name}"{meant(query.name, list(known))}; there are {names}', "spec")
