"""Series of kube-state-metrics and cAdvisor as OpenMetrics text, for a Prometheus with a past."""

from collections.abc import Iterable, Mapping

Point = tuple[int, float]
"""A time in seconds since 1970, and a value."""


class PastSeries:
    """Gathers series; `text` has them in the order of their names, as promtool needs it."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, name: str, labels: Mapping[str, str], points: Iterable[Point]) -> None:
        """Adds a gauge; one whose name ends with `_total` is a counter."""
        inner = ",".join(f'{label}="{value}"' for label, value in labels.items())
        lines = self._lines.setdefault(name, [])
        lines += [f"{name}{{{inner}}} {value:.10g} {at}" for at, value in points]

    def hpa(self, namespace: str, name: str, series: str, points: Iterable[Point], **labels: str) -> None:
        """Adds kube_horizontalpodautoscaler_<series>."""
        owner = {"namespace": namespace, "horizontalpodautoscaler": name}
        self.add(f"kube_horizontalpodautoscaler_{series}", owner | labels, points)

    @property
    def text(self) -> str:
        """The series as OpenMetrics."""
        found = []
        for name, lines in self._lines.items():
            counter = name.endswith("_total")
            found += [f"# TYPE {name.removesuffix('_total')} {'counter' if counter else 'gauge'}", *lines]
        return "\n".join([*found, "# EOF\n"])


def counted(points: Iterable[Point]) -> Iterable[Point]:
    """Yields a counter from its increase per second up to each time."""
    total, before = 0.0, None
    for at, rate in points:
        total += rate * (at - before) if before is not None else 0.0
        before = at
        yield at, total
