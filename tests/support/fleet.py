"""A fleet of HPAs with state and decision history, for tests of the API and of the status page.

Every status, sentence and trace is made by the engine: a fleet simulates the turns of its HPAs. The same seed gives the
same fleet. `Fleet.hpas` has the part of a cache of HPAs that the server uses.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from support.engine import Answer, Workload

from hpad.api.hpa import HorizontalPodAutoscaler, from_builtins
from hpad.api.metadata import Key
from hpad.api.pod import ContainerRequests, Pod
from hpad.api.sample import PodSample, PodValue, Query
from hpad.engine.history import Memory
from hpad.records.history import DecisionHistory
from hpad.store.store import InMemory

END = datetime.now(UTC).replace(microsecond=0)
"""The time of the last turns of a fleet: the present, with which a browser compares them."""
PERIOD = timedelta(seconds=15)
_STARTS = timedelta(seconds=25)
"""The time from the start of a pod until it is ready and has a value."""
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Member:
    """One HPA of a fleet, with the pods of its target.

    `answers` returns the answers of the metric sources at a time, in the order of the metrics; it reads the pods from
    the member. `fields` returns fields of the view that differ from those of a healthy target.
    """

    def __init__(
        self,
        key: Key,
        workload: Workload,
        answers: Callable[["Member", datetime], Sequence[Answer]],
        *,
        kind: str = "Deployment",
        requests: dict[str, int] | None = None,
        fields: Callable[["Member"], dict[str, Any]] = lambda _: {},
    ) -> None:
        self.key = key
        self.workload = workload
        self.answers = answers
        self.fields = fields
        self.dice = random.Random(str(key))
        self._requests = requests or {"cpu": 500, "memory": 512 * 1024**2 * 1000}
        self._replica_set = "".join(self.dice.choices(_LETTERS, k=9))
        self.pods: list[Pod] = []
        hpa = workload.hpa
        target = msgspec.structs.replace(hpa.spec.scale_target_ref, kind=kind, name=key.name)
        workload.hpa = msgspec.structs.replace(
            hpa,
            metadata=msgspec.structs.replace(
                hpa.metadata,
                namespace=key.namespace,
                name=key.name,
                annotations=dict(workload.annotations or {}) or None,
            ),
            spec=msgspec.structs.replace(hpa.spec, scale_target_ref=target),
        )

    def turn(self, now: datetime) -> None:
        """Decides once at this time."""
        self.workload.now = now
        self._scale_pods(now)
        self.workload.pods = tuple(self.pods)
        self.workload.reconcile(*self.answers(self, now), **self.fields(self))

    def shares(self, total: float, now: datetime, spread: float = 0.12) -> PodSample:
        """Spreads a total, in milli-units, over the pods that have run long enough to have a value."""
        measured = [pod for pod in self.pods if pod.start_time is not None and now - pod.start_time > _STARTS]
        stamp, window = now - timedelta(seconds=self.dice.uniform(2, 14)), timedelta(seconds=15)
        share = total / len(measured) if measured else 0
        values = {
            pod.name: PodValue(max(0, round(share * self.dice.uniform(1 - spread, 1 + spread))), stamp, window)
            for pod in measured
        }
        return PodSample(values, stamp)

    def _scale_pods(self, now: datetime) -> None:
        first = not self.pods
        del self.pods[self.workload.replicas :]
        while len(self.pods) < self.workload.replicas:
            self.pods.append(self._pod(now - timedelta(hours=5) if first else now))
        self.pods = [
            msgspec.structs.replace(pod, ready="True", ready_since=pod.start_time + _STARTS)
            if pod.ready == "False" and pod.start_time is not None and now - pod.start_time > _STARTS
            else pod
            for pod in self.pods
        ]

    def _pod(self, started: datetime) -> Pod:
        return Pod(
            name=f"{self.key.name}-{self._replica_set}-{''.join(self.dice.choices(_LETTERS, k=5))}",
            namespace=self.key.namespace,
            labels={"app": "web"},
            phase="Running",
            start_time=started,
            ready="False",
            ready_since=started,
            containers=(ContainerRequests("app", self._requests),),
        )


class Fleet:
    """HPAs, their state and their past decisions. `idle` are HPAs without any decision."""

    def __init__(self, members: Iterable[Member] = (), idle: Iterable[Key] = ()) -> None:
        self.members = {member.key: member for member in members}
        self.idle = {key: _untouched(key) for key in idle}
        self.store = InMemory()
        self.log = DecisionHistory(source_of)

    def values(self) -> list[HorizontalPodAutoscaler]:
        """Returns the HPAs as a cache would have them."""
        return [*(member.workload.hpa for member in self.members.values()), *self.idle.values()]

    def keys(self) -> list[Key]:
        """Returns their keys."""
        return [*self.members, *self.idle]

    def get(self, key: Key) -> HorizontalPodAutoscaler | None:
        """Returns one HPA."""
        member = self.members.get(key)
        return self.idle.get(key) if member is None else member.workload.hpa

    def turn(self, key: Key, now: datetime) -> None:
        """Decides once for an HPA, and keeps status, state and decision as the controller does."""
        member = self.members[key]
        member.turn(now)
        done = member.workload.done
        assert done is not None
        self.log.add(done)
        settled = done.settlement
        kept = Memory(status=settled.status, at=now, history=settled.history, shadow=member.workload.shadow)
        self.store.put(key, kept)

    def now(self, key: Key) -> None:
        """Decides once for an HPA, at the present time."""
        self.turn(key, datetime.now(UTC))

    def live(self, key: Key, until: datetime, turns: int, period: timedelta = PERIOD) -> None:
        """Decides a number of times, the last time at `until`."""
        for number in range(turns - 1, -1, -1):
            self.turn(key, until - number * period)


def source_of(query: Query) -> str:
    """Returns the name of the metric source of a query."""
    named = {"Resource": "metrics-server", "ContainerResource": "metrics-server", "Pods": "prometheus"}
    return named.get(query.type, "static" if query.name.startswith("static") else "rabbitmq")


def _untouched(key: Key) -> HorizontalPodAutoscaler:
    spec = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": key.name}, "maxReplicas": 4}
    return from_builtins({"metadata": {"namespace": key.namespace, "name": key.name}, "spec": spec})
