"""The fuzz targets and their seeds. An input that once showed a bug is a file in tests/fuzz/found/TARGET."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tools.fuzz import nouns, wire
from tools.fuzz import seeds as seeds_module

FOUND = Path(__file__).resolve().parents[2] / "tests" / "fuzz" / "found"
Check = Callable[[bytes], None]


class Target(NamedTuple):
    """A fuzz target; its check raises AssertionError, or an unexpected exception, for an input that shows a bug.

    `patience` multiplies the time limit of one input.
    """

    name: str
    opened: Callable[[], contextlib.AbstractContextManager[Check]]
    seeds: tuple[bytes, ...]
    patience: float = 1.0

    @property
    def found(self) -> list[bytes]:
        """Inputs that once showed a bug."""
        return [file.read_bytes() for file in sorted((FOUND / self.name).glob("*"))]


def _plain(check: Check) -> Callable[[], contextlib.AbstractContextManager[Check]]:
    @contextlib.contextmanager
    def opened() -> Iterator[Check]:
        yield check

    return opened


TARGETS = {
    target.name: target
    for target in (
        Target("quantity", _plain(nouns.quantity), seeds_module.QUANTITIES),
        Target("selector", _plain(nouns.selectors), seeds_module.SELECTORS),
        Target("duration", _plain(nouns.durations), seeds_module.DURATIONS),
        Target("name", _plain(nouns.object_names), seeds_module.NAMES),
        Target("hpa", _plain(nouns.hpa), seeds_module.HPAS),
        Target("manifests", _plain(nouns.manifests), seeds_module.MANIFESTS),
        Target("scaledobject", _plain(nouns.scaled_object), seeds_module.SCALED_OBJECTS),
        Target("scenario", _plain(nouns.scenario), seeds_module.SCENARIOS),
        Target("recording", _plain(nouns.recording), seeds_module.SCENARIOS),
        Target("record", _plain(nouns.remembered), seeds_module.RECORDS),
        # PyYAML's loader is slow for deeply nested input, which is acceptable for a file of the operator
        Target("settings", _plain(nouns.configuration), seeds_module.SETTINGS, patience=20.0),
        Target("source", _plain(nouns.source), seeds_module.SOURCES),
        Target("own-queries", _plain(nouns.own_queries), seeds_module.OWN_QUERIES),
        Target("watch", _plain(wire.watched), seeds_module.WATCHES),
        Target("objects", _plain(wire.objects), seeds_module.OBJECTS),
        Target("metrics-lists", wire.metrics_lists, seeds_module.METRICS_LISTS),
        Target("http-documents", _plain(wire.http_documents), seeds_module.HTTP_DOCUMENTS),
        Target("prometheus", wire.prometheus, seeds_module.PROMETHEUS),
        Target("rabbitmq", wire.rabbitmq, seeds_module.RABBITMQ),
    )
}
