"""Writes runs as OpenMetrics text, with the series that kube-state-metrics v2 and the kubelet's cAdvisor export.

Names and labels: docs/metrics/workload of kubernetes/kube-state-metrics (horizontalpodautoscaler, pod, deployment,
statefulset, replicaset), docs/storage/prometheus.md of google/cadvisor. A series is there as long as its object is;
promtool cannot write the mark of staleness that Prometheus leaves at the end, so a server has to be started with a
lookback of less than one scrape (`Scrapes.lookback`). To save samples and bytes, some things are dropped as operators
do by relabeling: labels of nodes and uids, conditions that are unknown.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, TextIO
from uuid import UUID

from support.advice_seeds import Case
from support.plain_hpa import PERIOD, Spec
from support.plain_world import Pod, Run

WEEK = 7 * 86_400
KSM, CADVISOR = 'job="ksm"', 'job="cadvisor"'
KSM_OFFSET, CADVISOR_OFFSET = 7, 22
"""Seconds after a whole minute at which each is scraped."""
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""What Kubernetes makes the random ends of names of (apimachinery: util/rand)."""
_HASH_LETTERS = "456789bcdf"
"""What stands in the name of a ReplicaSet for the digits of the hash of its pods (util/rand: SafeEncodeString)."""


class Span(NamedTuple):
    """The seconds of a run from the first on and before the last."""

    begin: int
    end: int


@dataclass(frozen=True)
class Scrapes:
    """When Prometheus scraped: every `step` seconds from `begin`, seconds since 1970, but not within `gaps`."""

    begin: int
    step: int = 60
    gaps: Sequence[Span] = ()
    end: int = WEEK

    @property
    def lookback(self) -> str:
        """What to start a server with: --query.lookback-delta."""
        return f"{self.step * 1000 - 1}ms"

    def at(self, offset: int, span: Span) -> list[int]:
        """Returns the seconds of the week of the scrapes within a span."""
        first = max(0, -(-(span.begin - offset) // self.step)) * self.step + offset
        times = range(first, min(span.end, self.end), self.step)
        return [time for time in times if not any(gap.begin <= time < gap.end for gap in self.gaps)]


class Writer:
    """Writes one series after the other, and counts the samples."""

    def __init__(self, file: TextIO, scrapes: Scrapes) -> None:
        self._file = file
        self._scrapes = scrapes
        self.samples = 0

    def times(self, offset: int, span: Span) -> list[int]:
        """Returns when something was scraped, in seconds of the week."""
        return self._scrapes.at(offset, span)

    def write(self, series: str, values: Iterable[object], times: Sequence[int]) -> None:
        """Writes a series; where the value is None it has no sample."""
        begin = self._scrapes.begin
        pairs = zip(values, times, strict=False)
        lines = [f"{series} {value} {begin + time}\n" for value, time in pairs if value is not None]
        self.samples += len(lines)
        self._file.write("".join(lines))

    def constant(self, series: str, value: object, times: Sequence[int]) -> None:
        """Writes a series with the same value at all times."""
        self.write(series, itertools.repeat(value), times)


def write(file: TextIO, runs: Sequence[tuple[Case, Run]], scrapes: Scrapes, seed: int) -> int:
    """Writes all series of the runs, and returns the number of samples."""
    writer = Writer(file, scrapes)
    for case, run in runs:
        random = Random(f"{seed} {case.namespace} {case.name}")
        times = writer.times(KSM_OFFSET, Span(case.begin, WEEK))
        steps = [(time - case.begin) // PERIOD for time in times]
        if case.scaled:
            _hpa(writer, case, run, times, steps)
        _counts(writer, case, run, times, steps)
        Pods(writer, case, run, random).write()
    file.write("# EOF\n")
    return writer.samples


def _hpa(writer: Writer, case: Case, run: Run, times: list[int], steps: list[int]) -> None:
    """Writes the series of the HPA itself."""
    own = f'namespace="{case.namespace}",horizontalpodautoscaler="{case.name}"'
    kind, target = case.target

    def name(kind: str, labels: str = "") -> str:
        return f"kube_horizontalpodautoscaler_{kind}{{{KSM},{own}{labels}}}"

    reference = f',scaletargetref_api_version="apps/v1",scaletargetref_kind="{kind}",scaletargetref_name="{target}"'
    writer.constant(name("info", reference), 1, times)
    bounds = [case.bounds(step * PERIOD) for step in steps]
    writer.write(name("spec_min_replicas"), [low for low, _ in bounds], times)
    writer.write(name("spec_max_replicas"), [high for _, high in bounds], times)
    writer.write(name("status_current_replicas"), [run.before[step] for step in steps], times)
    writer.write(name("status_desired_replicas"), [run.after[step] for step in steps], times)
    limited = [not low <= run.wanted[step] <= high for (low, high), step in zip(bounds, steps, strict=True)]
    states = {
        "AbleToScale": [True] * len(steps),
        "ScalingActive": [run.active[step] for step in steps],
        "ScalingLimited": limited,
    }
    for condition, held in states.items():
        values = {"true": held, "false": [not each for each in held]}
        for status, column in values.items():
            labels = f',condition="{condition}",status="{status}"'
            writer.write(name("status_condition", labels), [int(each) for each in column], times)
    _metrics(writer, case, run, times, steps, name)


def _metrics(
    writer: Writer, case: Case, run: Run, times: list[int], steps: list[int], name: Callable[[str, str], str]
) -> None:
    requests = case.workload.requests()
    for number, goal in enumerate(Spec.of(case.manifest, requests).goals):
        values = [run.status[step][number].per_pod for step in steps]
        labels = f',metric_name="{goal.name}",metric_target_type='
        shown = [None if each is None else f"{each:.3f}" for each in values]
        writer.write(name("status_target_metric", f'{labels}"average"'), shown, times)
        if goal.kind == "Resource":
            whole = requests[goal.name]
            used = [None if each is None else int(each / whole * 100) for each in values]
            writer.write(name("status_target_metric", f'{labels}"utilization"'), used, times)
            percent = round(goal.per_pod / whole * 100)
            writer.constant(name("spec_target_metric", f'{labels}"utilization"'), percent, times)
        else:
            writer.constant(name("spec_target_metric", f'{labels}"average"'), f"{goal.per_pod:g}", times)
        if goal.kind == "External":
            queue = f'rabbitmq_queue_messages_ready{{job="rabbitmq",vhost="/",queue="{case.name}"}}'
            writer.write(queue, [round(run.backlog[step]) for step in steps], times)


def _counts(writer: Writer, case: Case, run: Run, times: list[int], steps: list[int]) -> None:
    """Writes the series of the Deployment or StatefulSet."""
    kind, target = case.target
    word = kind.lower()
    labels = f'{{{KSM},namespace="{case.namespace}",{word}="{target}"}}'
    counts = {f"kube_{word}_status_replicas": run.after, f"kube_{word}_status_replicas_ready": run.ready}
    for name, column in counts.items():
        writer.write(f"{name}{labels}", [column[step] for step in steps], times)


class Pods:
    """Writes the pods of a workload: their owner, their requests, and what their containers used."""

    def __init__(self, writer: Writer, case: Case, run: Run, random: Random) -> None:
        self._writer = writer
        self._case = case
        self._run = run
        self._random = random
        self._revision = self._letters(9, _HASH_LETTERS)
        self._used = list(itertools.accumulate(run.used, initial=0.0))
        self._uneven = 0.0

    def _letters(self, count: int, letters: str = _LETTERS) -> str:
        return "".join(self._random.choices(letters, k=count))

    def write(self) -> None:
        """Writes all of them."""
        kind, target = self._case.target
        owner = target
        if kind == "Deployment":
            owner, kind = f"{target}-{self._revision}", "ReplicaSet"
            labels = f'{KSM},namespace="{self._case.namespace}",replicaset="{owner}",owner_kind="Deployment"'
            times = self._writer.times(KSM_OFFSET, Span(self._case.begin, WEEK))
            owned = f'kube_replicaset_owner{{{labels},owner_name="{target}",owner_is_controller="true"}}'
            self._writer.constant(owned, 1, times)
        ordinals = _ordinals(self._run.pods) if kind == "StatefulSet" else None
        for number, pod in enumerate(self._run.pods):
            name = f"{owner}-{ordinals[number]}" if ordinals else f"{owner}-{self._letters(5)}"
            self._pod(pod, name, f'owner_kind="{kind}",owner_name="{owner}",owner_is_controller="true"')

    def _pod(self, pod: Pod, name: str, owner: str) -> None:
        labels = f'namespace="{self._case.namespace}",pod="{name}"'
        begin, end = self._case.begin + max(0, pod.created), WEEK
        if pod.ended is not None:
            end = self._case.begin + pod.ended
        times = self._writer.times(KSM_OFFSET, Span(begin, end))
        self._writer.constant(f"kube_pod_owner{{{KSM},{labels},{owner}}}", 1, times)
        for container in self._case.workload.containers:
            for resource, unit, value in (("cpu", "core", container.cpu), ("memory", "byte", container.memory)):
                if value is not None and (resource == "cpu" or self._case.memory):
                    own = f'{labels},container="{container.name}",resource="{resource}",unit="{unit}"'
                    self._writer.constant(f"kube_pod_container_resource_requests{{{KSM},{own}}}", value, times)
        # The kubelet knows a container some seconds after the pod was created.
        self._usage(pod, f"{CADVISOR},{labels}", self._writer.times(CADVISOR_OFFSET, Span(begin + 5, end)))

    def _usage(self, pod: Pod, labels: str, times: list[int]) -> None:
        weight = self._weight()
        total = [self._seconds(pod, time - self._case.begin) * weight for time in times]
        name, group = "container_cpu_usage_seconds_total", ""
        if self._case.cgroups or self._case.target[0] == "StatefulSet":
            group = f',id="/kubepods/burstable/pod{UUID(int=self._random.getrandbits(128), version=4)}'
        if self._case.cgroups:
            self._writer.write(f'{name}{{{labels},cpu="total"{group}"}}', [f"{each:.3f}" for each in total], times)
        for number, container in enumerate(self._case.workload.containers):
            identity = f'{group}/{number}"' if group else ""
            own = f'{{{labels},container="{container.name}",cpu="total"{identity}}}'
            self._writer.write(name + own, [f"{each * container.share:.3f}" for each in total], times)
        if self._case.memory:
            steps = [min((time - self._case.begin) // PERIOD, len(self._run.heap) - 1) for time in times]
            own = f'{{{labels},container="{self._case.workload.containers[0].name}"}}'
            heap = [round(self._run.heap[step] * weight) for step in steps]
            self._writer.write(f"container_memory_working_set_bytes{own}", heap, times)

    def _weight(self) -> float:
        """Returns what a pod uses of an even share: in pairs, the one up to 5 % more and the next as much less.

        Pods are uneven, and use together what the run has as its load: the pods made last go first, so pairs last.
        """
        self._uneven = -self._uneven if self._uneven > 0 else self._random.uniform(0.0, 0.05)
        return 1 + self._uneven

    def _seconds(self, pod: Pod, time: int) -> float:
        """Returns the CPU seconds that a pod used from its start to a time of the run."""
        starting = self._case.workload.starting * min(time - pod.created, pod.ready - pod.created)
        if time <= pod.ready:
            return starting
        return starting + self._until(time) - self._until(max(0, pod.ready))

    def _until(self, time: int) -> float:
        step, rest = divmod(time, PERIOD)
        if step >= len(self._run.used):
            return self._used[-1] * PERIOD
        return self._used[step] * PERIOD + self._run.used[step] * rest


def _ordinals(pods: Sequence[Pod]) -> list[int]:
    """Returns the ordinals of the pods of a StatefulSet in the order of their creation."""
    numbers: list[int] = []
    for index, pod in enumerate(pods):
        there = {
            number
            for number, other in zip(numbers, pods[:index], strict=True)
            if other.ended is None or other.ended > pod.created
        }
        numbers.append(next(number for number in itertools.count() if number not in there))
    return numbers
