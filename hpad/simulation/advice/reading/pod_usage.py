"""PromQL of the CPU or memory of the pods of a target.

A utilization is the usage of all containers in percent of the requests of those that have a usage; an average is the
usage by the number of pods. Containers that the HPA ignores (`hpad.io/ignore-containers`) are left out. The controller
also leaves out pods that are not ready, which Prometheus does not tell.

Most targets have pods that are alike: the same containers with the same requests all the time. Then a mean is enough,
which costs Prometheus a tenth of a join of usage and requests. A look at the target at some hundred times tells.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.sample import CONTAINER_RESOURCE
from hpad.api.text import quoted
from hpad.engine.annotations import PLAIN
from hpad.engine.spec import CompiledMetric
from hpad.simulation.advice.reading.answers import Answers
from hpad.simulation.advice.reading.series import Series
from hpad.simulation.prometheus import FoundSeries, TimeGrid

_LOOKED_AT: Final = 24 * 3600.0
"""Seconds before the end in which containers without a request are looked for."""
_DOUBLED: Final = 1.1
"""Series per container from which on they are doubled: a container that has just been restarted has two, too."""
_ON: Final = "on (pod,container)"
_WHAT: Final = "hpad_what"
_REQUEST: Final = "hpad_request"


_Rows = Mapping[str, Sequence[FoundSeries]]


class PodShape(NamedTuple):
    """What the pods of a target have in common.

    `containers`: their number in each pod, 0 if it differs. `request`: that of each pod in cores or bytes, 0 if it
    differs or changed. `unrequested`: containers that had no request in most of the last day in which they had a usage.
    `is_doubled`: containers have several series, as from two exporters.
    """

    containers: int = 0
    request: float = 0.0
    unrequested: tuple[str, ...] = ()
    is_doubled: bool = False


class PodUsage:
    """The expressions for one resource of the pods of an HPA's target, or of one container of them."""

    def __init__(self, series: Series, step: float, hpa: HorizontalPodAutoscaler, metric: CompiledMetric) -> None:
        container = metric.query.container if metric.type == CONTAINER_RESOURCE else ""
        ignored = () if container else PLAIN.of(hpa).controls.ignored_containers or ()

        def filled(what: str) -> str:
            name = f"{metric.name}_{what}"
            matchers = series.pods_of(name, hpa.key.namespace, hpa.spec.scale_target_ref, container)
            labels = series.labels_of(name)
            if ignored:
                matchers += f",{labels.container}!~{quoted('|'.join(ignored))}"
            found = series.of(name, matchers, step)
            for label, plain in ((labels.pod, "pod"), (labels.container, "container")):
                if label != plain:
                    found = f'label_replace({found},"{plain}","$1","{label}","(.*)")'
            return f"({found})" if " or " in found else found

        self._usage = filled("usage")
        self._requests = filled("requests")

    def shape(self, answers: Answers, grid: TimeGrid) -> PodShape:
        """Looks at the pods at some times. Raises QueryError."""
        usage, requests = self._usage, self._requests
        asked = {
            "series": f"count by (container) ({usage})",
            "pods": f"count by (container) (group by (pod,container) ({usage}))",
            "requests": f'count_values by (container) ("{_REQUEST}",{requests} and {_ON} {usage})',
        }
        tagged = (f'label_replace({text},"{_WHAT}","{what}","","")' for what, text in asked.items())
        rows = answers.coarse(" or ".join(tagged), grid)
        found = {what: _by_container([row for row in rows if row.labels.get(_WHAT) == what]) for what in asked}
        recent = min(1.0, _LOOKED_AT / max(grid.end - grid.begin, grid.step))
        return _shape(found["series"], found["pods"], found["requests"], recent)

    def mean(self, shape: PodShape) -> str:
        """Returns the expression of the usage of a pod."""
        usage = self._single(self._usage, shape)
        if shape.containers == 1:
            return f"avg({usage})"
        return f"sum(avg by (container) ({usage}))" if shape.containers else f"avg(sum by (pod) ({usage}))"

    def utilization(self, shape: PodShape) -> str:
        """Returns the expression of the usage in percent of the requests."""
        if shape.request:
            return f"{100 / shape.request:.12g} * {self.mean(shape)}"
        usage, requests = self._single(self._usage, shape), self._single(self._requests, shape)
        # The usage of a container without a request is no part of a utilization.
        of = f"{usage} and {_ON} {requests}" if shape.unrequested else usage
        return f"100 * sum({of}) / sum({requests} and {_ON} {usage})"

    def _single(self, expression: str, shape: PodShape) -> str:
        return f"max by (pod,container) ({expression})" if shape.is_doubled else expression


def _by_container(rows: Sequence[FoundSeries]) -> dict[str, list[FoundSeries]]:
    found: dict[str, list[FoundSeries]] = {}
    for row in rows:
        found.setdefault(row.labels.get("container", ""), []).append(row)
    return found


def _shape(series: _Rows, pods: _Rows, requests: _Rows, recent: float) -> PodShape:
    """Returns the shape by rows of each container; `recent` is the share of the times that is recent."""
    counts = {name: rows[0].values for name, rows in pods.items()}
    values = {name: _constant(requests.get(name, ()), column) for name, column in counts.items()}
    is_alike = len({tuple(column) for column in counts.values()}) == 1

    def lacks_request(name: str) -> bool:
        return 2 * _total(requests.get(name, ()), recent) < _total(pods[name], recent)

    doubled = [(name, rows) for known in (series, requests) for name, rows in known.items()]
    return PodShape(
        containers=len(counts) if is_alike else 0,
        request=sum(values.values()) if is_alike and all(values.values()) else 0.0,
        unrequested=tuple(sorted(filter(lacks_request, counts))),
        is_doubled=any(_total(rows) > _DOUBLED * _total(pods.get(name, ())) for name, rows in doubled),
    )


def _constant(requests: Sequence[FoundSeries], pods: Sequence[float | None]) -> float:
    """Returns the request of a container; 0 if there are several, or pods without one."""
    if len(requests) != 1:
        return 0.0
    counts = zip(requests[0].values, pods, strict=True)
    if any((requested or 0) < (count or 0) for requested, count in counts):
        return 0.0
    return float(requests[0].labels.get(_REQUEST, "0"))


def _total(rows: Sequence[FoundSeries], recent: float = 1.0) -> float:
    """Returns the sum of the values at the recent times, by default at all."""
    return sum(value for row in rows for value in row.values[-max(1, round(recent * len(row.values))) :] if value)
