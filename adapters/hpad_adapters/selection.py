"""Reads the selector of an External metric as labels with values."""

from collections.abc import Collection, Mapping

from hpad.adapter import AdapterError, Query, meant


def labels(query: Query, needed: Collection[str], optional: Collection[str] = ()) -> dict[str, str]:
    """Returns the labels of the selector with their values; raises AdapterError unless they are those of the metric."""
    terms = query.selector.requirements if query.selector is not None else ()
    found = {term.key: term.values[0] for term in terms if term.operator.value in ("=", "==")}
    unknown = set(found) - {*needed, *optional}
    if len(found) != len(terms) or unknown or not all(found.get(name) for name in needed):
        shape = ",".join(f"{name}=…" for name in needed) or "no label"
        others = f", and may have {','.join(f'{name}=…' for name in optional)}" if optional else ""
        raise AdapterError(f'metric "{query.name}" needs a selector with {shape}{others}', "spec")
    return found


def no_metric(query: Query, known: Mapping[str, object] | Collection[str]) -> AdapterError:
    """Returns the error of a metric that the source does not have."""
    names = ", ".join(known) or "none"
    return AdapterError(f'there is no metric "{query.name}"{meant(query.name, list(known))}; there are {names}', "spec")
