"""What every life of `crashing` must decide, worked out from what its shelf really held.

Two readers of the lines that a run leaves behind:

- `Model` follows each life from the records that it read, and says what has to come out of each turn: the engine's
  decision on the history that survived, after the rules for a break (told here once more, in other words than
  `control.resume` has them). Records may only be those that were saved: the last one that a save was acknowledged for,
  or one that was on its way.
- `Truth` is an hpad that was never killed, beside the same target: nothing is ever lost to it. Where a life took more
  pods away than the truth would have, it did so for something it lost.
"""

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from e2e.crashing import Planned, Targets, next_of, summary

from hpad import clock
from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.engine import decide, examine, settle
from hpad.engine.history import History, PastRecommendation, Rescale
from hpad.engine.view import View
from hpad.recording.format import Step
from hpad.store import record
from hpad.store.memory import NOTHING, Memory, PendingRescale, Validity

SKEW = timedelta(minutes=1)
ATTEMPTS = 5
TARGET = "apps/Deployment/web"


class Turn(NamedTuple):
    """What has to come of a step: the write (None: none), the result line, and what is remembered of it.

    `noted` is what was saved before it, where it came before it was planned. `unconditional`: no history could keep it
    from taking pods away, as the count is above the maximum or the HPA has no stabilization window.
    """

    write: int | None
    result: list[Any]
    begun: Memory | None
    after: Memory
    unconditional: bool
    noted: Memory | None


class Loss(NamedTuple):
    """The turns of one HPA that the next life did not know of, how many of them were of the life before it, and how
    many of them wrote.
    """

    life: int
    turns: int
    recent: int
    rescales: int


class Early(NamedTuple):
    """A turn that took pods away which an hpad that lost nothing would have kept."""

    step: int
    which: int
    current: int
    wrote: int
    due: int


def view_of(planned: Planned, step: Step, history: History, status: HorizontalPodAutoscalerStatus) -> View:
    return View(
        hpa=msgspec.structs.replace(planned.hpa, status=status),
        now=step.time.astimezone(UTC),
        tunables=planned.scenario.tunables,
        history=history,
        scale=step.scale if step.scale_error is None else None,
        scale_error=step.scale_failure,
        pods=step.selected(),
        competing_hpas=step.competing_hpas(planned.scenario.others),
    )


def outcome_of(wanted: int, refusals: list[str]) -> settle.Outcome:
    """What becomes of a write: conflicts are tried again, five times in all; any other refusal is final."""
    conflicts = 0
    while conflicts < len(refusals) and refusals[conflicts] == "conflict":
        conflicts += 1
    if conflicts >= ATTEMPTS:
        return settle.Outcome((wanted,) * ATTEMPTS, "conflict")
    error = refusals[conflicts] if conflicts < len(refusals) else None
    return settle.Outcome((wanted,) * (conflicts + 1), error)


def play(planned: Planned, step: Step, held: Memory, gap: timedelta, valid: Validity) -> Turn:
    """One step, from what is remembered before it; `valid` goes with the memory it leaves."""
    uid = planned.hpa.metadata.uid
    held = held if held.uid == uid else NOTHING
    known, held = held, _announced(held, valid)
    status = held.status or planned.hpa.status
    view = view_of(planned, step, held.history, status)
    if held.pending is not None and view.scale is not None and _was_done(held.pending, view.replicas):
        due, said = held.pending.status.last_scale_time, status.last_scale_time
        if said is None or due is None or said < due:
            status = held.pending.status
    view = view_of(planned, step, _unknown(survived(held, view, gap), held, view), status)
    verdict = examine.examine(view)
    decision = decide.decide(view, verdict, step.answer(verdict.queries))
    outcome = None
    begun = None
    if decision.scale_to is not None:
        outcome = outcome_of(decision.scale_to, list(step.scale_update_errors))
        begun = msgspec.structs.replace(_begun(view, held, decision, decision.scale_to), validity=valid)
    settlement = settle.settle(view, decision, outcome)
    unconditional = isinstance(decision.verdict, examine.Clamp) or not window_of(view)
    moved = outcome is not None and outcome.error is None
    after = msgspec.structs.replace(begun or held, uid=uid, target=TARGET, status=settlement.status)
    if view.scale is not None:
        left = decision.scale_to if moved else view.replicas
        after = msgspec.structs.replace(
            after, history=settlement.history, at=view.now, last_count=left, pending=None, loaded=False, validity=valid
        )
    elif held.validity is not None and (held.complete or not held.loaded):
        start = held.validity.ticks
        after = msgspec.structs.replace(
            after, validity=Validity(valid.boot, start, valid.ticks - start + valid.lasts, valid.grace)
        )
    noted = None if held is known else held
    return Turn(decision.scale_to if moved else None, summary(settlement), begun, after, unconditional, noted)


def _announced(held: Memory, turn: Validity) -> Memory:
    """A turn before the planned one is noted first."""
    before = held.validity
    if before is None or before.ticks + before.lasts <= turn.ticks:
        return held
    return msgspec.structs.replace(held, validity=Validity(before.boot, before.ticks))


def _begun(view: View, held: Memory, decision: decide.Decision, to: int) -> Memory:
    done = settle.settle(view, decision, settle.Outcome((to,)))
    past = view.history
    return msgspec.structs.replace(
        held,
        uid=view.hpa.metadata.uid,
        target=TARGET,
        history=msgspec.structs.replace(done.history, scale_ups=past.scale_ups, scale_downs=past.scale_downs),
        at=view.now,
        last_count=view.replicas,
        pending=PendingRescale(view.replicas, to, done.history.scale_ups, done.history.scale_downs, done.status),
        loaded=False,
    )


def _was_done(begun: PendingRescale, current: int) -> bool:
    return begun.to not in (begun.current,) and current == begun.to


def survived(held: Memory, view: View, gap: timedelta) -> History:
    """The history that a memory is worth when it is looked at again."""
    history, current, now = held.history, view.replicas, view.now
    if view.scale is None:
        return history
    left = held.last_count
    if held.pending is not None:
        begun = held.pending
        if _was_done(begun, current):
            left = begun.to
            history = History(history.recommendations, begun.scale_ups, begun.scale_downs, history.last_samples)
        elif begun.to < begun.current and current != begun.current:
            new = [one for one in begun.scale_downs if one not in history.scale_downs]
            downs = tuple(
                Rescale(one.timestamp, one.change, one.outdated, one.uncertain or one in new)
                for one in begun.scale_downs
            )
            history = History(history.recommendations, history.scale_ups, downs, history.last_samples)
    if held.at is not None and held.at - now > SKEW:
        history = History(
            tuple(
                PastRecommendation(min(one.timestamp, now), one.replicas, one.uncertain)
                for one in history.recommendations
            ),
            tuple(_of_now(one, now) for one in history.scale_ups),
            tuple(_of_now(one, now) for one in history.scale_downs),
        )
    changed = held.loaded and left is not None and left != current
    if not changed and not _gone_too_long(held, view, gap):
        return history
    ups, downs = history.scale_ups, history.scale_downs
    if left is not None and left > current:
        downs += (Rescale(now, left - current, uncertain=True),)
    if left is not None and left < current:
        ups += (Rescale(now, current - left, uncertain=True),)
    return History((*history.recommendations, PastRecommendation(now, current, True)), ups, downs, history.last_samples)


def _of_now(one: Rescale, now: datetime) -> Rescale:
    return one if one.timestamp <= now else Rescale(now, one.change, one.outdated, True)


def _unknown(history: History, held: Memory, view: View) -> History:
    """With a rescale of which only the status tells: as much as can have been, in both directions."""
    last, behavior = view.hpa.status.last_scale_time, view.spec.behavior
    if last is None or behavior is None or held.complete or (held.at is not None and not held.loaded):
        return history
    if held.at is not None and last <= held.at:
        return history
    when = view.now if held.at is not None else min(last, view.now)
    up = Rescale(when, view.replicas, uncertain=True)
    down = Rescale(when, max(0, view.spec.max_replicas - view.replicas), uncertain=True)
    return History(
        history.recommendations, (*history.scale_ups, up), (*history.scale_downs, down), history.last_samples
    )


def _gone_too_long(held: Memory, view: View, gap: timedelta) -> bool:
    if held.at is None or not held.history.recommendations or (held.loaded and not held.complete):
        return held.loaded
    window = window_of(view)
    away = view.now - held.at
    if held.loaded:
        return away > gap or (away > gap / 2 and away > window)
    return away > gap and away > window


def window_of(view: View) -> timedelta:
    behavior = view.spec.behavior
    own = None if behavior is None else behavior.down.window
    return view.tunables.downscale_stabilization if own is None else own


class Model:
    """Reads the lines of a run; raises AssertionError, with the number of the step, where one is not as it must be."""

    def __init__(self, plan: list[Planned], gap: timedelta) -> None:
        self.plan = plan
        self.gap = gap
        self.lost: list[Loss] = []
        self.compared = 0
        self._keys = {planned.hpa.metadata.key for planned in plan}
        self._targets = Targets()
        self._backend: dict[Key, list[bytes | None]] = {key: [None] for key in self._keys}
        self._ever: dict[Key, dict[bytes | None, int]] = {key: {None: 0} for key in self._keys}
        """Records that were ever on their way to the shelf, and how many turns of their HPA they know of."""
        self._memories: dict[Key, Memory] = {}
        self._life = -1
        self._robbed: set[Key] = set()
        self._damaged: set[bytes | None] = set()
        self._spoiled = False
        self._shift = timedelta(0)
        self._next = 0
        self._turn: Turn | None = None
        self._written: int | None = None
        self._saving: dict[Key, bytes | None] = {}
        self._known = self._taken_before = dict.fromkeys(self._keys, 0)
        self._taken: dict[Key, list[bool]] = {key: [] for key in self._keys}
        self._begun = dict.fromkeys(self._keys, -1)

    def read(self, file: Path) -> "Model":
        ways = {
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
            if kind in ways:
                ways[kind](rest)
        return self

    def _born(self, rest: str) -> None:
        told = json.loads(rest)
        self._life += 1
        self._spoiled = told["spoiled"]
        self._shift = timedelta(seconds=told["shift"])
        self._robbed = set()
        self._memories = {}
        if self._written is not None:
            self._over()
        self._turn = None
        self._taken_before, self._known = self._known, {key: len(taken) for key, taken in self._taken.items()}

    def _loaded(self, rest: str) -> None:
        told = json.loads(rest)
        rows = {} if told["trouble"] else {name: base64.b64decode(data) for name, data in told["rows"].items()}
        self._memories = {}
        for key in self._keys:
            found = rows.get(str(key))
            if not told["trouble"]:
                allowed = self._ever[key] if self._spoiled else self._backend[key]
                assert found in allowed or self._spoiled, f"life {self._life}: {key} was saved otherwise"
                self._backend[key] = [found]
            try:
                held = NOTHING if found is None else record.decode(key, found)
            except record.Undecodable:
                assert self._spoiled or found in self._damaged, f"life {self._life}: the record of {key} is damaged"
                self._damaged.add(found)
                self._backend[key].append(None)
                found, held = None, NOTHING
            assert found in self._ever[key], f"life {self._life}: {key} was made up"
            taken = self._taken[key]
            turns = self._ever[key][found]
            if found is not None:
                self._memories[key] = msgspec.structs.replace(held, complete=self._is_complete(key, held))
            self._note_loss(key, taken[turns:], len(taken) - self._taken_before[key])
        self._spoiled = False

    def _is_complete(self, key: Key, held: Memory) -> bool:
        """Whether no step has been begun since that the record does not know of."""
        valid = held.validity
        return valid is not None and self._begun[key] < valid.ticks + valid.lasts

    def _begins(self, rest: str) -> None:
        number = int(rest)
        self._begun[self.plan[number].hpa.metadata.key] = number

    def _puts_off(self, rest: str) -> None:
        """A turn that could not be noted: it is as if it had not been."""
        assert int(rest) == self._next, f"step {rest} instead of {self._next}"
        assert self._now().noted is not None, f"life {self._life}, step {rest}: it was planned"
        self._turn = None
        self._over()

    def _note_loss(self, key: Key, missing: list[bool], lately: int) -> None:
        self.lost.append(Loss(self._life, len(missing), min(len(missing), lately), sum(missing)))
        if missing:
            self._robbed.add(key)

    def _saves(self, rest: str) -> None:
        self._saving = {}
        for name, data in json.loads(rest).items():
            key = Key(*name.split("/"))
            found = None if data is None else base64.b64decode(data)
            assert found is not None, f"life {self._life}: {key} is forgotten"
            self._saving[key] = found
            self._backend[key].append(found)
            due = self._due(key)
            assert found in due, f"life {self._life}, step {self._next}: {key} is not remembered as it was"
            self._ever[key][found] = len(self._taken[key]) + due[found]

    def _taken_away(self, rest: str) -> None:
        for kept in self._backend.values():
            kept.append(None)

    def _due(self, key: Key) -> dict[bytes, int]:
        """The records that may be on their way now, and how many turns more they know of than were made (1 or 0)."""
        memories: list[tuple[Memory | None, int]] = []
        if self._next < len(self.plan) and self.plan[self._next].hpa.metadata.key == key:
            turn = self._now()
            memories = [(turn.after, 1), (turn.begun, 1), (turn.noted, 0)]
        memories.append((self._memories.get(key, NOTHING), 0))
        return {record.encode(key, held): turns for held, turns in memories if held is not None}

    def _saved(self, rest: str) -> None:
        failed = json.loads(rest)
        for key, found in self._saving.items():
            if str(key) not in failed:
                self._backend[key] = [found]
        self._saving = {}

    def _now(self) -> Turn:
        if self._turn is None:
            planned = self.plan[self._next]
            held = self._memories.get(planned.hpa.metadata.key, NOTHING)
            step = self._targets.found(planned)
            step = msgspec.structs.replace(step, time=step.time + self._shift)
            lasts = next_of(self.plan, self._next) - self._next
            self._turn = play(planned, step, held, self.gap, Validity(clock.boot(), self._next, lasts))
        return self._turn

    def _writes(self, rest: str) -> None:
        step, count = map(int, rest.split())
        assert step == self._next, f"step {step} instead of {self._next}"
        assert self._written is None, f"step {step} was written twice"
        assert count == self._now().write, f"life {self._life}, step {step}: {count}, not {self._now().write}"
        self._careful(count)
        self._written = count

    def _careful(self, count: int) -> None:
        """Nothing is taken away in the first turn after a loss but what no history could have kept."""
        turn, key = self._now(), self.plan[self._next].hpa.metadata.key
        if key in self._robbed and count < turn.result[0]:
            assert turn.unconditional, f"life {self._life}, step {self._next}: {count} from {turn.result[0]}"

    def _done(self, rest: str) -> None:
        number, result = rest.split(" ", 1)
        step, turn = int(number), self._now()
        assert step == self._next, f"step {step} instead of {self._next}"
        assert self._written == turn.write, f"life {self._life}, step {step}: nothing written, not {turn.write}"
        assert json.loads(result) == turn.result, f"life {self._life}, step {step}"
        key = self.plan[step].hpa.metadata.key
        self._memories[key] = turn.after
        self._robbed.discard(key)
        self._over()

    def _over(self) -> None:
        """The step has been: whoever lives next goes on with the one after it."""
        planned = self.plan[self._next]
        self._targets.found(planned)
        self._targets.left(planned, self._written)
        self._taken[planned.hpa.metadata.key].append(self._written is not None)
        self.compared += 1
        self._next, self._turn, self._written = self._next + 1, None, None


def too_early(plan: list[Planned], writes: dict[int, int]) -> list[Early]:
    """The turns in which a run took pods away which an hpad that lost nothing would have kept at that moment."""
    found, targets = [], Targets()
    lived: dict[int, tuple[History, HorizontalPodAutoscalerStatus]] = {}
    for number, planned in enumerate(plan):
        history, status = lived.get(planned.which, (History(), planned.hpa.status))
        step = targets.found(planned)
        view = view_of(planned, step, history, status)
        verdict = examine.examine(view)
        decision = decide.decide(view, verdict, step.answer(verdict.queries))
        wrote = writes.get(number)
        if wrote is not None and wrote < min(view.replicas, decision.desired):
            found.append(Early(number, planned.which, view.replicas, wrote, decision.desired))
        lived[planned.which] = _lived(view, decision, wrote)
        targets.left(planned, wrote)
    return found


def _lived(view: View, decision: decide.Decision, wrote: int | None) -> tuple[History, HorizontalPodAutoscalerStatus]:
    """What is remembered by whoever decided so, while this was written."""
    seen = msgspec.structs.replace(decision, scale_to=wrote, desired=view.replicas if wrote is None else wrote)
    settlement = settle.settle(view, seen, None if wrote is None else settle.Outcome((wrote,)))
    return settlement.history, settlement.status
