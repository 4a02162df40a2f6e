"""Questions that one query can answer, put together and taken apart again."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hpad_adapters.prometheus import fusion, recipes, windows, wire
from hpad_adapters.prometheus.recipes import Ask
from hpad_adapters.prometheus.settings import Window

MOST_AT_ONCE = {"POST": 2000, "GET": 50}
"""Questions in one query, by method; more would meet the limits of proxies."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """One series of an answer, and its point: None where it has no number (NaN, infinite, a histogram)."""

    labels: dict[str, str]
    point: wire.Point | None


class Batch(msgspec.Struct, frozen=True):
    """Questions for one query; `apart`: the labels that tell their answers apart."""

    asks: tuple[Ask, ...]
    apart: tuple[str, ...]

    def expression(self, window: Window | None = None) -> str:
        """The PromQL, with the recipe's own window unless another is given; raises AdapterError."""
        first = self.asks[0]
        wanted = {label: tuple(sorted({ask.wanted[label] for ask in self.asks})) for label in first.wanted}
        by = (*filter(None, (first.item, first.container)), *(label for label in self.apart if label != first.item))
        text = recipes.rendered(first, wanted, self._names(), by)
        window = window or first.recipe.window
        return text if window is None else windows.asked(text, window)

    def answers(self, series: Iterable[wire.Series]) -> Iterator[tuple[Ask, Sequence[Row]]]:
        """Each question with its rows."""
        rows = self._indexed(series)
        for ask in self.asks:
            key = tuple(ask.wanted[label] for label in self.apart)
            if ask.names is None:
                yield ask, rows.get(key, ())
            else:
                yield ask, [row for name in ask.names for row in rows.get((*key, name), ())]

    def _names(self) -> frozenset[str] | None:
        if self.asks[0].names is None:
            return None
        return frozenset[str]().union(*(ask.names or () for ask in self.asks))

    def _indexed(self, series: Iterable[wire.Series]) -> Mapping[tuple[str, ...], list[Row]]:
        """The rows by the values of `apart`, and by pod where pods are meant: no HPA looks at another's rows."""
        first = self.asks[0]
        labels = self.apart if first.names is None else (*self.apart, first.item)
        window = first.recipe.window
        index: dict[tuple[str, ...], list[Row]] = {}
        for each in series:
            points = each.points
            point = windows.reduced(points, window) if window is not None else points[-1] if points else None
            key = tuple(each.metric.get(label, "") for label in labels)
            index.setdefault(key, []).append(Row(each.metric, point))
        return index


def planned(asks: Iterable[Ask], most: int) -> list[Batch]:
    """As few batches as possible, of `most` questions each, without any question changing another's answer."""
    alike: dict[tuple[object, ...], list[Ask]] = {}
    for ask in asks:
        alike.setdefault(ask.shape, []).append(ask)
    return [batch for group in alike.values() for batch in _batches(group, most)]


def _batches(asks: list[Ask], most: int) -> Iterator[Batch]:
    apart = tuple(label for label in asks[0].wanted if len({ask.wanted[label] for ask in asks}) > 1)
    kept_apart = {*apart, *((asks[0].item,) if asks[0].narrow and len({ask.names for ask in asks}) > 1 else ())}
    if not fusion.safe(asks[0].recipe.template, frozenset(kept_apart)) and kept_apart:
        yield from _equal_ones(asks)
        return
    for start in range(0, len(asks), most):
        yield Batch(tuple(asks[start : start + most]), apart)


def _equal_ones(asks: list[Ask]) -> Iterator[Batch]:
    equal: dict[tuple[object, ...], list[Ask]] = {}
    for ask in asks:
        equal.setdefault((tuple(ask.wanted.values()), ask.names), []).append(ask)
    for group in equal.values():
        yield Batch(tuple(group), ())
