"""What is fuzzed, and from which inputs it starts. An input that once found a bug is a file in `found/TARGET`."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fuzz import nouns, seeds, wire

FOUND = Path(__file__).parent / "found"
Check = Callable[[bytes], None]


class Target(NamedTuple):
    """`check` raises, AssertionError or what never should come out, for an input that shows a bug.

    `patience` stretches the budget of time.
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
        Target("quantity", _plain(nouns.quantity), seeds.QUANTITIES),
        Target("selector", _plain(nouns.selectors), seeds.SELECTORS),
        Target("duration", _plain(nouns.durations), seeds.DURATIONS),
        Target("name", _plain(nouns.object_names), seeds.NAMES),
        Target("hpa", _plain(nouns.hpa), seeds.HPAS),
        Target("manifests", _plain(nouns.manifests), seeds.MANIFESTS),
        Target("scaledobject", _plain(nouns.scaled_object), seeds.SCALED_OBJECTS),
        Target("scenario", _plain(nouns.scenario), seeds.SCENARIOS),
        Target("recording", _plain(nouns.recording), seeds.SCENARIOS),
        Target("record", _plain(nouns.remembered), seeds.RECORDS),
        # PyYAML's own loader: slow, and slower the deeper; the file is the operator's.
        Target("settings", _plain(nouns.configuration), seeds.SETTINGS, patience=20.0),
        Target("source", _plain(nouns.source), seeds.SOURCES),
        Target("watch", _plain(wire.watched), seeds.WATCHES),
        Target("objects", _plain(wire.objects), seeds.OBJECTS),
        Target("metrics-lists", wire.metrics_lists, seeds.METRICS_LISTS),
        Target("prometheus", wire.prometheus, seeds.PROMETHEUS),
        Target("rabbitmq", wire.rabbitmq, seeds.RABBITMQ),
        Target("rabbitmq-metrics", wire.rabbitmq_metrics, seeds.RABBITMQ_METRICS),
    )
}
