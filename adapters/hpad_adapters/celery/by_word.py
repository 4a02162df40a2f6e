"""What pods hold, and how many tasks there are, by the workers' own word.

The broker counts tasks that are not acknowledged. The workers say what it cannot: which pod holds a task, which tasks
are acknowledged and still in work, and which ones are not due.
"""

import fnmatch
from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec

from hpad.adapter import (
    AdapterError,
    Answer,
    ExternalSample,
    Member,
    PodSample,
    PodValue,
    or_error,
    shown,
)
from hpad_adapters.celery.settings import Settings
from hpad_adapters.celery.wanted import ACTIVE, BY_WORD, TASKS, WAITING, WantedTasks
from hpad_adapters.celery.workers import CeleryWorkers, HeldTask, Said, listed, silence
from hpad_adapters.selection import attempt

_LONGEST_HOSTNAME = 63
"""Characters of a host name: that of a pod with a longer name is cut (Kubernetes 1.36, kubelet_pods.go:
truncatePodHostnameIfNeeded)."""


_NOW = 0.2
"""Seconds for which what the workers say serves queries of pods: a scale-down follows."""


class ByWord:
    """Asks the workers, and answers with what they say."""

    def __init__(self, settings: Settings, workers: CeleryWorkers) -> None:
        self._workers = workers
        self._tasks = TaskCounts(settings)

    async def pods(self, asked: Sequence[WantedTasks]) -> list[Answer]:
        """Returns what each pod holds; raises AdapterError if no worker answers."""
        said = await self._workers.read(_NOW)
        return [attempt(pod_work, said, each.query.members or ()) for each in asked]

    async def corrected(self, asked: Sequence[WantedTasks], counted: Sequence[Answer]) -> list[Answer]:
        """Returns the counts of the broker, corrected by what the workers say after it: tasks move from it to them."""
        if not any(each.query.name in BY_WORD for each in asked):
            return list(counted)
        said = await or_error(self._workers.read)
        return [
            self._corrected(each, said, answer) if each.query.name in BY_WORD else answer
            for each, answer in zip(asked, counted, strict=True)
        ]

    async def aclose(self) -> None:
        """Ends an asking."""
        await self._workers.aclose()

    def _corrected(self, wanted: WantedTasks, said: Said | AdapterError, counted: Answer) -> Answer:
        if not isinstance(counted, ExternalSample):
            return counted
        if isinstance(said, AdapterError):
            return said
        return attempt(self._tasks.corrected, wanted, said, counted)


def pod_work(said: Said, members: Sequence[Member]) -> PodSample:
    """Returns the tasks that the workers of each pod work on or have fetched, without those that are not due.

    A pod without a worker, and one of which a worker is silent, has no value. Raises AdapterError if none has one.
    """
    pods = PodNames(members)
    held: dict[str, int] = {}
    for report in said.reports:
        if (pod := pods.of(report.name)) is not None:
            held[pod] = held.get(pod, 0) + len(report.active) + len(report.reserved)
    unknown = {pods.of(name) for name in said.silent}
    values = {
        name: PodValue(count * 1000, said.at, timedelta(0)) for name, count in held.items() if name not in unknown
    }
    if members and not values:
        own = [name for name in said.silent if pods.of(name) is not None]
        why = silence(own) if own else _nobody(said)
        raise AdapterError(f"the Celery workers of the pods do not say what they hold: {why}", alive=True)
    return PodSample(values, said.at)


def _nobody(said: Said) -> str:
    if said.faults:
        return said.faults[0]
    if not said.reports:
        return "no worker listens to the broker"
    named = listed([report.name for report in said.reports])
    return f'none is named after a pod, as with "-n worker@$(POD_NAME)": there is {named}'


class PodNames:
    """Finds the pod of a worker by its name, "worker@POD" or "worker@POD.example.com"."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._names: dict[str, str | None] = {}
        for member in members:
            cut = member.name[:_LONGEST_HOSTNAME].rstrip("-.")
            # A cut name that several pods share is that of none.
            self._names[cut] = member.name if cut not in self._names else None
            self._names[member.name] = member.name

    def of(self, worker: str) -> str | None:
        """Returns the name of the pod; None for a worker outside these pods."""
        host = worker.partition("@")[2]
        return self._names.get(host) or self._names.get(host.partition(".")[0])


class TaskCounts:
    """Corrects the counts of the broker by what the workers say."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def corrected(self, wanted: WantedTasks, said: Said, counted: ExternalSample) -> ExternalSample:
        """Returns the tasks of the queues: each once, and none that is not due. Raises AdapterError.

        A silent worker holds what it held last, without those tasks that were not due then.
        """
        reports = (*said.reports, *said.earlier)
        active = [task for report in reports for task in report.active]
        tasks, name = sum(counted.values) // 1000, wanted.query.name
        if name == TASKS:
            later = self._own(wanted, [task for report in said.reports for task in report.later])
            tasks = max(0, tasks - later) + self._own(wanted, [task for task in active if task.acknowledged])
        elif name == WAITING:
            tasks += self._own(wanted, [task for report in reports for task in report.reserved])
        elif name == ACTIVE:
            tasks = self._own(wanted, active)
        note = "; ".join(filter(None, (counted.note, said.note)))
        return msgspec.structs.replace(counted, values=(tasks * 1000,), note=note)

    def _own(self, wanted: WantedTasks, tasks: Sequence[HeldTask]) -> int:
        """Returns how many of the tasks are of the queues. Raises AdapterError where one cannot be told."""
        return sum(self._is_of(wanted, task) for task in tasks)

    def _is_of(self, wanted: WantedTasks, task: HeldTask) -> bool:
        queue = self._queue(task)
        if wanted.queues:
            return queue in wanted.queues
        return any(fnmatch.fnmatchcase(queue, each) for each in self._settings.queues)

    def _queue(self, task: HeldTask) -> str:
        """Returns the queue of a task. Celery sends to the queue itself unless the application names an exchange."""
        known = self._settings.known
        if not task.exchange or task.routing_key in known:
            return task.routing_key
        if task.exchange in known:
            return task.exchange
        if (routed := self._settings.route(task.name)) is not None:
            return routed
        raise AdapterError(
            f"the queue of a task {shown(task.name)} of the exchange {shown(task.exchange)} is not known: name it in "
            "routes",
            "spec",
        )
