"""Feeds a decision log, for tests of the decision history."""

import itertools
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
from support import virtual_time
from support.engine import START, Answer, Workload, external, series

from hpad.api.metadata import Key
from hpad.engine.settle import Outcome, settle
from hpad.engine.turn import Reconcile
from hpad.engine.view import DRY_RUN
from hpad.records.entry import Entry
from hpad.records.history import DecisionHistory

WEB = Key("default", "web")


def named(done: Reconcile, name: str, by: timedelta = timedelta(0)) -> Reconcile:
    """Returns the done as that of another HPA, `by` later."""
    hpa = done.view.hpa
    other = msgspec.structs.replace(hpa, metadata=msgspec.structs.replace(hpa.metadata, name=name))
    view = msgspec.structs.replace(done.view, hpa=other, now=done.view.now + by)
    return msgspec.structs.replace(done, view=view)


def of_kind(done: Reconcile | None, kind: str) -> Reconcile:
    """Returns the done as that of an object of this kind."""
    assert done is not None
    view = msgspec.structs.replace(done.view, hpa=msgspec.structs.replace(done.view.hpa, kind=kind))
    return msgspec.structs.replace(done, view=view)


class Diary:
    """One workload whose decisions are logged."""

    def __init__(self, workload: Workload, log: DecisionHistory | None = None) -> None:
        self.workload = workload
        self.log = log or DecisionHistory()
        self.done: list[Reconcile] = []

    def turn(self, *answers: Answer, after: float = 15, **fields: Any) -> None:
        """Reconciles and logs the decision."""
        self.workload.reconcile(*answers, after=after, **fields)
        assert self.workload.done is not None
        self.done.append(self.workload.done)
        self.log.add(self.workload.done)

    def dry_turn(self, *answers: Answer, after: float = 15) -> None:
        """Reconciles as a dry run does: the target keeps its count."""
        before = self.workload.replicas
        self.workload.reconcile(*answers, after=after)
        self.workload.replicas = before
        done = self.workload.done
        assert done is not None
        if done.outcome is not None:
            outcome = Outcome((), withheld=DRY_RUN)
            settlement = settle(done.view, done.decision, outcome)
            done = msgspec.structs.replace(done, outcome=outcome, settlement=settlement)
        self.log.add(done)

    def entries(self, **search: Any) -> list[Entry]:
        """Returns the entries of the workload, the oldest first."""
        return virtual_time.run(self.log.entries(WEB, **search))[::-1]

    def counts(self) -> list[tuple[int, int, int]]:
        """Returns turns, current and desired count of each entry, the oldest first."""
        return [(each.turns, each.current, each.desired) for each in self.entries()]


def contiguous(entries: Iterable[Entry]) -> bool:
    """Whether the entries, the oldest first, follow one another in time and number."""
    return all(
        one.began <= one.ended < other.began and one.number < other.number for one, other in itertools.pairwise(entries)
    )


def one_queue(**fields: object) -> Workload:
    return Workload(external("orders", averageValue="10"), **{"replicas": 5, "high": 20, **fields})  # type: ignore[arg-type]


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def scaled(*messages: int, log: DecisionHistory | None = None) -> Diary:
    """One turn per number, at 15 s, 30 s and so on; a count 10 times the current one changes nothing."""
    undelayed = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    diary = Diary(one_queue(behavior=undelayed), log)
    for each in messages:
        diary.turn(series(each))
    return diary
