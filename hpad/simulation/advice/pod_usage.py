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
from hpad.simulation.advice.answers import Answers
from hpad.simulation.advice.series import Series
from hpad.simulation.prometheus import FoundSeries, TimeGrid

_LOOKED_AT: Final = 24 * 3600.0
"""Seconds before the end in which containers without a request are looked for."""
_DOUBLED: Final = 1.1
"""Series per container from which on they are doubled: a container that has just been restarted has two, too."""
_ON: Final = "on (pod,container)"
_WHAT: Final = "hpad_what"


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
            "users": f"count by (container) ({usage})",
            "pods": f"count by (container) (group by (pod,container) ({usage}))",
            "unrequested": f"count by (container) ({usage} unless {_ON} {requests})",
            "requested": f"count by (container) ({requests} and {_ON} {usage})",
            "low": f"min by (container) ({requests} and {_ON} {usage})",
            "high": f"max by (container) ({requests} and {_ON} {usage})",
        }
        tagged = (f'label_replace({text},"{_WHAT}","{what}","","")' for what, text in asked.items())
        found: dict[str, dict[str, Sequence[float | None]]] = {what: {} for what in asked}
        rows = answers.coarse(" or ".join(tagged), grid)
        for row in rows:
            found.get(row.labels.get(_WHAT, ""), {})[row.labels.get("container", "")] = row.values
        return _shape(found, _recent(rows, grid)) if found["users"] else PodShape()

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


def _recent(rows: Sequence[FoundSeries], grid: TimeGrid) -> int:
    """Returns how many of the times of a look are recent."""
    points = len(rows[0].values) if rows else 0
    return max(1, round(points * _LOOKED_AT / max(grid.end - grid.begin, _LOOKED_AT)))


def _shape(found: Mapping[str, Mapping[str, Sequence[float | None]]], recent: int) -> PodShape:
    users, unrequested, pods = found["users"], found["unrequested"], found["pods"]
    counts = list(pods.values())
    alike = all(column == counts[0] for column in counts)
    requests = [_constant(found["low"].get(name), found["high"].get(name)) for name in users]
    is_requested = alike and not any(map(_known, unrequested.values())) and all(requests)
    missing = [name for name, column in unrequested.items() if 2 * _total(column, recent) > _total(users[name], recent)]
    doubled = [*users.items(), *found["requested"].items()]
    return PodShape(
        containers=len(counts) if alike else 0,
        request=sum(requests) if is_requested else 0.0,
        unrequested=tuple(sorted(missing)),
        is_doubled=any(sum(_known(column)) > _DOUBLED * sum(_known(pods[name])) for name, column in doubled),
    )


def _constant(low: Sequence[float | None] | None, high: Sequence[float | None] | None) -> float:
    """Returns the request of a container; 0 if there is none, or more than one."""
    values = {*_known(low or ()), *_known(high or ())}
    return values.pop() if len(values) == 1 else 0.0


def _known(column: Sequence[float | None]) -> list[float]:
    return [value for value in column if value is not None]


def _total(column: Sequence[float | None], recent: int) -> float:
    return sum(_known(column[-recent:]))
