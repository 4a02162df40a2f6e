"""Reads series of a controller, and what two scrapes say about the time between them."""

import math
import re
import ssl
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Self

_SAMPLE: Final = re.compile(r"^([a-z_A-Z:]+)(?:\{(.*)\})? (\S+)", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Labels = tuple[tuple[str, str], ...]


def fetch(url: str, trust: ssl.SSLContext | None = None, token: str = "") -> str:
    """Reads a page without a proxy. Raises OSError."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if trust is not None:
        handlers.append(urllib.request.HTTPSHandler(context=trust))
    with urllib.request.build_opener(*handlers).open(request, timeout=60) as answer:
        return str(answer.read().decode())


class Scrape(NamedTuple):
    """The samples of some series at a time, by name and labels."""

    time: float
    samples: Mapping[str, Mapping[Labels, float]]

    @classmethod
    def of(cls, text: str, names: Iterable[str]) -> Self:
        """Takes the series whose names start with one of `names`."""
        found: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        starts = tuple(names)
        for name, labels, value in _SAMPLE.findall(
            "\n".join(line for line in text.split("\n") if line.startswith(starts))
        ):
            found[name][tuple(sorted(_LABEL.findall(labels)))] = float(value)
        return cls(time.monotonic(), found)

    def increase(self, before: "Scrape", name: str) -> dict[Labels, float]:
        """Returns how much each series of this name has grown since an earlier scrape."""
        old = before.samples.get(name, {})
        return {labels: value - old.get(labels, 0.0) for labels, value in self.samples.get(name, {}).items()}

    def histogram(self, before: "Scrape", series: str, **only: str) -> "Histogram":
        """Returns the observations of a histogram since an earlier scrape, of all its series with these labels."""
        buckets: defaultdict[float, float] = defaultdict(float)
        for labels, count in self.increase(before, f"{series}_bucket").items():
            if all((label, value) in labels for label, value in only.items()):
                buckets[float(dict(labels)["le"])] += count
        return Histogram(sorted(buckets.items()))


class Histogram(NamedTuple):
    """Cumulative counts by upper bounds."""

    buckets: list[tuple[float, float]]

    @classmethod
    def merged(cls, parts: Iterable["Histogram"]) -> Self:
        """Returns the observations of several histograms with the same bounds."""
        total: defaultdict[float, float] = defaultdict(float)
        for part in parts:
            for bound, count in part.buckets:
                total[bound] += count
        return cls(sorted(total.items()))

    @property
    def count(self) -> float:
        return self.buckets[-1][1] if self.buckets else 0.0

    def quantile(self, part: float) -> float | None:
        """Returns a quantile, interpolated within its bucket; None without observations, infinity beyond the last."""
        wanted, low, below = part * self.count, 0.0, 0.0
        if not self.count:
            return None
        for bound, count in self.buckets:
            if count >= wanted:
                part_of_bucket = (wanted - below) / (count - below) if count > below else 1.0
                return bound if math.isinf(bound) else low + (bound - low) * part_of_bucket
            low, below = bound, count
        return None

    def largest(self) -> float | None:
        """Returns the upper bound of the highest bucket with an observation."""
        return next((bound for bound, count in self.buckets if count >= self.count), None) if self.count else None


def quantile(values: list[float], part: float) -> float | None:
    """Returns the smallest value that is not exceeded by this part of the values; None without values."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)] if values else None
