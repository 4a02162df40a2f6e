"""Checks the lines of a run of `crashing`.

- `Model` follows each child from the records that it read, and compares each turn with that of `crash_turns.play`. The
  records must be those that were saved: the last acknowledged one, or one whose save was in progress.
- `too_early` finds scale-downs that an hpad without kills would not have made, because it lost no history.
"""

import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec
from e2e.crash_turns import Turn, play, view_of
from e2e.crashing import Planned, Targets, next_of

from hpad import clock
from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.engine import examine, settle
from hpad.engine.decision import Decision
from hpad.engine.history import NOTHING, History, Memory, Validity
from hpad.engine.turn import decide
from hpad.engine.view import View
from hpad.store import record


class Loss(NamedTuple):
    """The turns of one HPA that the next child did not know: their number, those of the `recent` child, and those
    with `rescales`.
    """

    life: int
    turns: int
    recent: int
    rescales: int


class Early(NamedTuple):
    """A turn that removed pods which an hpad without losses would have kept."""

    step: int
    which: int
    current: int
    wrote: int
    due: int


class Model:
    """Reads the lines of a run; raises AssertionError with the number of the step at the first wrong one."""

    def __init__(self, plan: list[Planned], gap: timedelta) -> None:
        self.plan = plan
        self.gap = gap
        self.lost: list[Loss] = []
        self.compared = 0
        self._keys = {planned.hpa.key for planned in plan}
        self._targets = Targets()
        self._backend: dict[Key, list[bytes | None]] = {key: [None] for key in self._keys}
        self._ever: dict[Key, dict[bytes | None, int]] = {key: {None: 0} for key in self._keys}
        """All records that were ever about to be saved, with the number of turns of their HPA that they include."""
        self._memory_of: dict[Key, Memory] = {}
        self._life = -1
        self._incomplete: set[Key] = set()
        """HPAs whose current child has lost turns, until their next turn."""
        self._damaged: set[bytes | None] = set()
        self._spoiled = False
        self._shift = timedelta(0)
        self._next = 0
        self._turn: Turn | None = None
        self._written: int | None = None
        self._saving: dict[Key, bytes | None] = {}
        self._known = self._taken_before = dict.fromkeys(self._keys, 0)
        self._taken: dict[Key, list[bool]] = {key: [] for key in self._keys}
        self._started = dict.fromkeys(self._keys, -1)

    def read(self, file: Path) -> "Model":
        handlers = {
            "b": self._born,
            "l": self._loaded,
            "s": self._saves,
            "x": self._taken_away,
            "a": self._saved,
            "w": self._writes,
            "d": self._done,
            "t": self._begins,
            "f": self._puts_off,
        }
        for line in file.read_text().splitlines():
            kind, rest = line.split(" ", 1)
            if kind in handlers:
                handlers[kind](rest)
        return self

    def _born(self, rest: str) -> None:
        child = json.loads(rest)
        self._life += 1
        self._spoiled = child["spoiled"]
        self._shift = timedelta(seconds=child["shift"])
        self._incomplete = set()
        self._memory_of = {}
        if self._written is not None:
            self._over()
        self._turn = None
        self._taken_before, self._known = self._known, {key: len(taken) for key, taken in self._taken.items()}

    def _loaded(self, rest: str) -> None:
        loaded = json.loads(rest)
        rows = {} if loaded["trouble"] else {name: base64.b64decode(data) for name, data in loaded["rows"].items()}
        self._memory_of = {}
        for key in self._keys:
            found = rows.get(str(key))
            if not loaded["trouble"]:
                allowed = self._ever[key] if self._spoiled else self._backend[key]
                assert found in allowed or self._spoiled, f"life {self._life}: {key} differs from what was saved"
                self._backend[key] = [found]
            try:
                memory = NOTHING if found is None else record.decode(key, found)
            except record.Undecodable:
                assert self._spoiled or found in self._damaged, f"life {self._life}: the record of {key} is damaged"
                self._damaged.add(found)
                self._backend[key].append(None)
                found, memory = None, NOTHING
            assert found in self._ever[key], f"life {self._life}: {key} was never saved"
            taken = self._taken[key]
            turns = self._ever[key][found]
            if found is not None:
                self._memory_of[key] = msgspec.structs.replace(memory, complete=self._is_complete(key, memory))
            self._note_loss(key, taken[turns:], len(taken) - self._taken_before[key])
        self._spoiled = False

    def _is_complete(self, key: Key, memory: Memory) -> bool:
        """Whether the record includes all steps that have started."""
        valid = memory.validity
        return valid is not None and self._started[key] < valid.ticks + valid.lasts

    def _begins(self, rest: str) -> None:
        number = int(rest)
        self._started[self.plan[number].hpa.key] = number

    def _puts_off(self, rest: str) -> None:
        """Handles a postponed turn, which could not be noted in the storage and has no effect."""
        assert int(rest) == self._next, f"step {rest} instead of {self._next}"
        assert self._now().noted is not None, f"life {self._life}, step {rest}: a planned turn was postponed"
        self._turn = None
        self._over()

    def _note_loss(self, key: Key, missing: list[bool], lately: int) -> None:
        self.lost.append(Loss(self._life, len(missing), min(len(missing), lately), sum(missing)))
        if missing:
            self._incomplete.add(key)

    def _saves(self, rest: str) -> None:
        self._saving = {}
        for name, data in json.loads(rest).items():
            key = Key(*name.split("/"))
            found = None if data is None else base64.b64decode(data)
            assert found is not None, f"life {self._life}: {key} is deleted"
            self._saving[key] = found
            self._backend[key].append(found)
            due = self._due(key)
            assert found in due, f"life {self._life}, step {self._next}: {key} is saved with wrong content"
            self._ever[key][found] = len(self._taken[key]) + due[found]

    def _taken_away(self, rest: str) -> None:
        for kept in self._backend.values():
            kept.append(None)

    def _due(self, key: Key) -> dict[bytes, int]:
        """Maps the records that may be saved now to the turns that they include beyond the made ones: 0 or 1."""
        candidates: list[tuple[Memory | None, int]] = []
        if self._next < len(self.plan) and self.plan[self._next].hpa.key == key:
            turn = self._now()
            candidates = [(turn.after, 1), (turn.before_write, 1), (turn.noted, 0)]
        known = self._memory_of.get(key, NOTHING)
        candidates.append((known, 0))
        if self._next == len(self.plan) and known.validity is not None:  # the last child closes its records
            closed = msgspec.structs.replace(known.validity, closed=True)
            candidates.append((msgspec.structs.replace(known, validity=closed), 0))
        return {record.encode(key, memory): turns for memory, turns in candidates if memory is not None}

    def _saved(self, rest: str) -> None:
        failed = json.loads(rest)
        for key, found in self._saving.items():
            if str(key) not in failed:
                self._backend[key] = [found]
        self._saving = {}

    def _now(self) -> Turn:
        if self._turn is None:
            planned = self.plan[self._next]
            memory = self._memory_of.get(planned.hpa.key, NOTHING)
            step = self._targets.found(planned)
            step = msgspec.structs.replace(step, time=step.time + self._shift)
            lasts = next_of(self.plan, self._next) - self._next
            self._turn = play(planned, step, memory, self.gap, Validity(clock.boot(), self._next, lasts))
        return self._turn

    def _writes(self, rest: str) -> None:
        step, count = map(int, rest.split())
        assert step == self._next, f"step {step} instead of {self._next}"
        assert self._written is None, f"step {step} was written twice"
        assert count == self._now().write, f"life {self._life}, step {step}: {count}, not {self._now().write}"
        self._careful(count)
        self._written = count

    def _careful(self, count: int) -> None:
        """Asserts that the first turn after a loss removes no pods, unless it does not depend on the history."""
        turn, key = self._now(), self.plan[self._next].hpa.key
        if key in self._incomplete and count < turn.result[0]:
            assert turn.unconditional, f"life {self._life}, step {self._next}: {count} from {turn.result[0]}"

    def _done(self, rest: str) -> None:
        number, result = rest.split(" ", 1)
        step, turn = int(number), self._now()
        assert step == self._next, f"step {step} instead of {self._next}"
        assert self._written == turn.write, f"life {self._life}, step {step}: nothing written, not {turn.write}"
        assert json.loads(result) == turn.result, f"life {self._life}, step {step}"
        key = self.plan[step].hpa.key
        self._memory_of[key] = turn.after
        self._incomplete.discard(key)
        self._over()

    def _over(self) -> None:
        """Ends a step; the next child continues with the one after it."""
        planned = self.plan[self._next]
        self._targets.found(planned)
        self._targets.end_step(planned, self._written)
        self._taken[planned.hpa.key].append(self._written is not None)
        self.compared += 1
        self._next, self._turn, self._written = self._next + 1, None, None


def too_early(plan: list[Planned], writes: dict[int, int]) -> list[Early]:
    """Returns the turns of a run that removed pods which an hpad without losses would have kept at that time."""
    found, targets = [], Targets()
    lived: dict[int, tuple[History, HorizontalPodAutoscalerStatus]] = {}
    for number, planned in enumerate(plan):
        history, status = lived.get(planned.which, (History(), planned.hpa.status))
        step = targets.found(planned)
        view = view_of(planned, step, history, status)
        verdict = examine.examine(view)
        decision = decide(view, verdict, step.answer(verdict.queries))
        wrote = writes.get(number)
        if wrote is not None and wrote < min(view.replicas, decision.desired):
            found.append(Early(number, planned.which, view.replicas, wrote, decision.desired))
        lived[planned.which] = _lived(view, decision, wrote)
        targets.end_step(planned, wrote)
    return found


def _lived(view: View, decision: Decision, wrote: int | None) -> tuple[History, HorizontalPodAutoscalerStatus]:
    """Returns history and status after a decision, if `wrote` was written instead of its count."""
    seen = msgspec.structs.replace(decision, scale_to=wrote, desired=view.replicas if wrote is None else wrote)
    settlement = settle.settle(view, seen, None if wrote is None else settle.Outcome((wrote,)))
    return settlement.history, settlement.status
