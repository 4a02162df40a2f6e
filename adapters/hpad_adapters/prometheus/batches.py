"""Batches: entries that one PromQL query answers together, and the assignment of its series to them.

`sum(x{queue=~"a|b"}) by (queue)` answers `sum(x{queue="a"})` and `sum(x{queue="b"})`, because the label `queue` keeps
their series apart. For a query that may mix series each entry is a batch of its own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hpad.adapter import AdapterError
from hpad_adapters.prometheus import queries, samples, separation
from hpad_adapters.prometheus.queries import Entry
from hpad_adapters.prometheus.settings import Window

_MOST_NAMES = 200
MOST_AT_ONCE = {"POST": 2000, "GET": 50}
"""Most entries in one query, by method; more would exceed the limits of proxies."""


class Batch(msgspec.Struct, frozen=True):
    """The entries of one PromQL query; `apart`: the labels that distinguish their series."""

    entries: tuple[Entry, ...]
    apart: tuple[str, ...]

    def expression(self, window: Window | None = None) -> str:
        """Returns the PromQL, with this window or that of the recipe; raises AdapterError."""
        first, names = self.entries[0], self._names()
        exact = {label: tuple(sorted({entry.exact[label] for entry in self.entries})) for label in first.exact}
        # Beyond some hundreds, all pods of the namespace cost the server less than a longer pattern.
        long = first.by_pod_names and names is not None and len(names) > _MOST_NAMES
        every = long and _separable(first, frozenset({*self.apart, first.item}))
        text = queries.rendered(first, exact, names, _grouped_by(first, self.apart), every)
        window = window or first.recipe.window
        return text if window is None else _ranged(text, window)

    def halves(self) -> Iterator["Batch"]:
        """Yields two batches of half the entries; nothing if all entries are one query."""
        if len(_queries(self.entries)) > 1:
            middle = len(self.entries) // 2
            yield Batch(self.entries[:middle], self.apart)
            yield Batch(self.entries[middle:], self.apart)

    def answers(self, series: Iterable[samples.Series]) -> Iterator[tuple[Entry, Sequence[samples.Row]]]:
        """Yields each entry with its rows."""
        rows = self._indexed(series)
        for entry in self.entries:
            key = tuple(entry.exact[label] for label in self.apart)
            if entry.names is None:
                yield entry, rows.get(key, ())
            else:
                yield entry, [row for name in entry.names for row in rows.get((*key, name), ())]

    def _names(self) -> frozenset[str] | None:
        if self.entries[0].names is None:
            return None
        return frozenset[str]().union(*(entry.names or () for entry in self.entries))

    def _indexed(self, series: Iterable[samples.Series]) -> Mapping[tuple[str, ...], list[samples.Row]]:
        """Returns the rows by the values of `apart`, and by pod where entries have pods, so that no entry reads all."""
        first = self.entries[0]
        labels = self.apart if first.names is None else (*self.apart, first.item)
        window = first.recipe.window
        index: dict[tuple[str, ...], list[samples.Row]] = {}
        for each in series:
            points = each.points
            point = samples.reduced(points, window) if window is not None else points[-1] if points else None
            key = tuple(each.labels.get(label, "") for label in labels)
            index.setdefault(key, []).append(samples.Row(each.labels, point))
        return index


def planned(entries: Iterable[Entry], most: int) -> list[Batch]:
    """Makes few batches, of at most `most` entries, in which no entry changes the answer of another."""
    alike: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        alike.setdefault(entry.shape, []).append(entry)
    return [batch for group in alike.values() for batch in _batches(group, most)]


def _batches(entries: list[Entry], most: int) -> Iterator[Batch]:
    apart = tuple(label for label in entries[0].exact if len({entry.exact[label] for entry in entries}) > 1)
    kept_apart = set(apart)
    # Only a query that is narrowed to pods by their label differs between targets.
    if entries[0].by_pod_names and len({entry.names for entry in entries}) > 1:
        kept_apart.add(entries[0].item)
    if kept_apart and not _separable(entries[0], frozenset(kept_apart)):
        yield from _equal_ones(entries)
        return
    for start in range(0, len(entries), most):
        yield Batch(tuple(entries[start : start + most]), apart)


def _separable(entry: Entry, labels: frozenset[str]) -> bool:
    """Returns whether one query may answer for several values of these labels; `<<.GroupBy>>` holds all of them."""
    # A place in the list is another label in the query for one value.
    if "GroupBySlice" in entry.recipe.template.variables:
        return False
    exact = {label: separation.VALUES if label in labels else (value,) for label, value in entry.exact.items()}
    names = frozenset(separation.VALUES if entry.item in labels else ("hpad",))
    try:
        text = queries.rendered(entry, exact, names, _grouped_by(entry, (separation.GROUP,)))
    except AdapterError:
        return False
    return separation.separable(text, labels)


def _grouped_by(entry: Entry, apart: Iterable[str]) -> tuple[str, ...]:
    return (*filter(None, (entry.item, entry.container)), *(label for label in apart if label != entry.item))


def _equal_ones(entries: list[Entry]) -> Iterator[Batch]:
    for group in _queries(entries):
        yield Batch(tuple(group), ())


def _queries(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Returns the entries by the query that each has alone."""
    equal: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        names = entry.names if entry.by_pod_names else None
        equal.setdefault((tuple(entry.exact.values()), names), []).append(entry)
    return list(equal.values())


def _ranged(expression: str, window: Window) -> str:
    """Returns the expression that fetches the samples of a window: a range selector, or a subquery if it has a step."""
    if window.step:
        return f"({expression})[{window.fetch}:{window.step}]"
    return f"{expression.rstrip()}[{window.fetch}]"
