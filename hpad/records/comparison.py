"""Compares the decisions of a simulation with the recorded ones: the turns that change the count, and figures."""

from datetime import datetime
from typing import NamedTuple

from hpad.api.metadata import Key
from hpad.engine.settle import sentence
from hpad.engine.turn import Reconcile
from hpad.engine.view import Withheld
from hpad.records.simulate import ComparedTurn, Difference, NotRecorded, after


class Side(NamedTuple):
    """One of the two decisions of a turn. `done` is the whole changed one, if it is wanted."""

    current: int
    desired: int
    written: bool
    sentence: str
    done: Reconcile | None = None

    @classmethod
    def of(cls, done: Reconcile, *, full: bool = False) -> "Side":
        decision, outcome = done.decision, done.outcome
        return cls(
            current=decision.current,
            desired=decision.desired,
            written=outcome is not None and outcome.written,
            sentence=sentence(decision, outcome),
            done=done if full else None,
        )


class Row(NamedTuple):
    """A turn in which either decision changes the count, or another client had (`reset`, see `ComparedTurn`)."""

    time: datetime
    recorded: Side
    changed: Side
    valid: bool
    reset: bool


class Tally:
    """Counts and durations of one side. A count is in force from its turn to the next one."""

    def __init__(self) -> None:
        self.rescales = 0
        self.lowest: int | None = None
        self.highest: int | None = None
        self.seconds_at_max = 0.0
        self.replica_seconds = 0.0
        self._seconds = 0.0
        self._last: tuple[datetime, int, bool] | None = None

    def add(self, done: Reconcile) -> None:
        """Counts a turn. A turn whose scale is unknown leaves the count in force."""
        now = done.view.now
        if self._last is not None:
            since, count, at_max = self._last
            seconds = (now - since).total_seconds()
            self._seconds += seconds
            self.replica_seconds += seconds * count
            self.seconds_at_max += seconds if at_max else 0.0
            self._last = now, count, at_max
        if done.view.scale is None:
            return
        count = after(done)
        self._last = now, count, count >= done.view.max_replicas
        self.lowest = count if self.lowest is None else min(self.lowest, count)
        self.highest = count if self.highest is None else max(self.highest, count)
        self.rescales += done.outcome is not None and done.outcome.written

    @property
    def replica_hours(self) -> float | None:
        """Replicas times hours; None without two turns at different times, since no count has a duration then."""
        return self.replica_seconds / 3600 if self._seconds > 0 else None

    @property
    def at_max(self) -> float | None:
        """The seconds with maxReplicas or more; None as for `replica_hours`."""
        return self.seconds_at_max if self._seconds > 0 else None


class Comparison:
    """The turns of one HPA in a selected interval, without a gap in its state.

    `apart` of the `turns` began with another count than the recorded one.
    """

    def __init__(self, key: Key, *, full: bool = False) -> None:
        self.key = key
        self.rows: list[Row] = []
        self.turns = 0
        self.apart = 0
        self.begin: datetime | None = None
        self.end: datetime | None = None
        self.difference: Difference | None = None
        self.of_pods = self.of_totals = False
        self.withheld: Withheld | None = None
        self.not_recorded: dict[str, int] = {}
        self.recorded, self.changed = Tally(), Tally()
        self._full = full
        self._before: tuple[int, int, int, int] | None = None

    def note(self, turn: ComparedTurn) -> None:
        """Notes what a turn outside the interval says about those in it: since when the counts differ."""
        self.difference = turn.difference
        metrics = turn.changed.view.spec.metrics
        self.of_pods = any(metric.of_pods for metric in metrics)
        self.of_totals = any(not metric.of_pods for metric in metrics)

    def add(self, turn: ComparedTurn) -> None:
        """Adds a turn of the interval."""
        self.note(turn)
        self.turns += 1
        self.apart += turn.changed.view.replicas != turn.recorded.view.replicas
        self.begin, self.end = self.begin or turn.changed.view.now, turn.changed.view.now
        self.recorded.add(turn.recorded)
        self.changed.add(turn.changed)
        outcome = turn.changed.outcome
        self.withheld = self.withheld or (None if outcome is None else outcome.withheld)
        for proposal, answer in zip(turn.changed.decision.proposals, turn.changed.answers, strict=False):
            if isinstance(answer, NotRecorded):
                label = proposal.metric.label
                self.not_recorded[label] = self.not_recorded.get(label, 0) + 1
        self._add_row(turn)

    def _add_row(self, turn: ComparedTurn) -> None:
        """Adds a row for a turn that changes a count. A decision that could not be written is repeated in each turn."""
        recorded, changed = turn.recorded.decision, turn.changed.decision
        counts = recorded.current, recorded.desired, changed.current, changed.desired
        written = any(each.outcome is not None and each.outcome.written for each in (turn.recorded, turn.changed))
        moved = recorded.scale_to is not None or changed.scale_to is not None
        if turn.reset or (moved and (written or counts != self._before)):
            row = Row(
                turn.changed.view.now,
                Side.of(turn.recorded),
                Side.of(turn.changed, full=self._full),
                turn.valid,
                turn.reset,
            )
            self.rows.append(row)
        self._before = counts
