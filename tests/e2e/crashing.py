"""Plays a timeline with a persistent store, in child processes that are killed (-9) again and again.

The parent imports everything and forks a child for each life. The child uses the real reconciler and the real store,
and is killed at a random moment: at a sign of life, or up to ten milliseconds after it. With `lazy` it is at the sign,
so that a run can be repeated. The parent keeps a file of lines that survives all children. The next child starts with
the first step that is neither written nor complete. The lines, from which `crash_model` checks the run:

- "b LIFE": a child starts. "l FOUND": it has loaded records.
- "t STEP": a turn starts. "f STEP": it is postponed. "h STEP HISTORY": the history that it decides with.
- "w STEP COUNT": a scale was written. "d STEP RESULT": the step is complete.
- "s RECORDS": records are about to be saved. "a FAILED": the save is over. "x all": the file was deleted.

    python -m e2e.crashing TIMELINE WORLD STORE SEED KILLS [gap=SECONDS] [lazy=1] [between=1] [trouble=any|full|...]

Without arguments it plays what each line of standard input asks for, a JSON array of them, and prints a line for each:
the imports take longer than a run. TIMELINE has a scenario per line; their steps are taken in turn. STORE is memory, a
path, or the URL of a cluster. Saves are awaited after each step, with `lazy` only before the next step of the HPA, as
if saved once a period. With `between` children are killed between two turns only. The scenarios have different times,
so the monotonic clock counts steps, and an HPA's next turn is planned for its next step.
"""

import asyncio
import contextlib
import functools
import json
import math
import os
import random
import sys
import traceback
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog
from e2e import crash_troubles
from e2e.crash_world import Pulse, StepClock, StoreClock, Witness, World
from support.controller import keepers

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.clock import Clock, Moment, SystemClock
from hpad.controller.observe import Options
from hpad.controller.planning import Record, Timing
from hpad.controller.reconcile import Reconciler
from hpad.controller.workers import Worker, Workers
from hpad.controller.write import TooEarly
from hpad.election.owner import ALONE, Permit
from hpad.engine import settle, state
from hpad.kube import client
from hpad.kube.auth.credentials import ClusterConfig
from hpad.records.format import Scenario, Step, decode_scenario, decode_step
from hpad.store import configmaps, persistent, sqlite
from hpad.store.store import Backend, InMemory, Store
from hpad.telemetry import Telemetry

LONG = 500 if "HPAD_CRASH_KILLS" in os.environ else 250
"""The number of steps; `make soak` plays more."""
INTERVALS = persistent.SaveIntervals(shortest=0.0005, longest=0.005, loading=0.02)
LAZY = INTERVALS._replace(longest=86400.0, loading=0.0)
"""Saves only on request, so that the order of events depends on the seed (and hashes) only."""


class Planned(NamedTuple):
    """A step to play: `which` numbers its scenario, `replicas_after` is the count in Kubernetes after the step."""

    which: int
    hpa: HorizontalPodAutoscaler
    scenario: Scenario
    step: Step
    replicas_after: int


def steps(timeline: Path) -> list[Planned]:
    """Returns the steps in their order, those of the scenarios in turn."""
    scenarios = [decode_scenario(json.loads(line)) for line in timeline.read_text().splitlines()]
    longest = max(len(each.steps) for each in scenarios)
    turns = [
        (which, each, turn) for turn in range(longest) for which, each in enumerate(scenarios) if turn < len(each.steps)
    ]
    return [_planned(*turn) for turn in turns[:LONG]]


def _planned(which: int, played: Scenario, turn: int) -> Planned:
    known = msgspec.structs.replace(played.hpa.metadata, name=f"{played.hpa.metadata.name}-{which}", uid=f"uid-{which}")
    raw = played.steps[turn]
    specs = [step["spec"] for step in played.steps[: turn + 1] if step.get("spec")]
    spec = decode_step({**raw, "spec": specs[-1]}).spec if specs else played.hpa.spec
    step, wrote = decode_step(raw), raw["expect"].get("scaleTo")
    replicas_after = wrote if wrote is not None else 0 if step.scale is None else step.scale.spec.replicas
    return Planned(
        which,
        msgspec.structs.replace(played.hpa, metadata=known, spec=spec or played.hpa.spec),
        played,
        step,
        replicas_after,
    )


class Targets:
    """The counts of the targets in this run; a change by another client in the timeline applies here too."""

    def __init__(self) -> None:
        self._ours: dict[int, int] = {}
        self._theirs: dict[int, int] = {}

    def found(self, planned: Planned) -> Step:
        """Returns the step with the current count of its target in this run."""
        step, which = planned.step, planned.which
        if step.scale is None or step.scale_error is not None:
            return step
        recorded = step.scale.spec.replicas
        if self._theirs.get(which) != recorded:
            self._ours[which] = recorded
        if self._ours[which] == recorded:
            return step
        count = self._ours[which]
        status = msgspec.structs.replace(step.scale.status, replicas=count)
        scale = msgspec.structs.replace(step.scale.with_replicas(count), status=status)
        return msgspec.structs.replace(step, scale=scale)

    def end_step(self, planned: Planned, wrote: int | None) -> None:
        """Ends a step. `wrote` is the count that was written in it, None if none was."""
        if planned.step.scale is not None and planned.step.scale_error is None:
            self._theirs[planned.which] = planned.replicas_after
            if wrote is not None:
                self._ours[planned.which] = wrote


def written(seen: Path) -> dict[int, int]:
    """Returns the written counts by step; raises AssertionError if a step was written twice."""
    lines = [line.split() for line in seen.read_text().splitlines() if line.startswith("w ")] if seen.exists() else []
    writes = [(int(step), int(count)) for _, step, count in lines]
    assert len(writes) == len(dict(writes)), "a step was written twice"
    return dict(writes)


def first(seen: Path) -> int:
    """Returns the number of the next step."""
    if not seen.exists():
        return 0
    lines = (line.split(" ", 2) for line in seen.read_text().splitlines())
    return max((int(line[1]) + 1 for line in lines if line[0] in "wdf"), default=0)


def started(seen: Path, step: int) -> bool:
    """Whether an earlier child started the step."""
    return seen.exists() and f"t {step}" in seen.read_text().splitlines()


@contextlib.asynccontextmanager
async def opened(
    where: str, now: Clock, pulse: Pulse, intervals: persistent.SaveIntervals, trouble: crash_troubles.Trouble
) -> AsyncIterator[Store]:
    if where == "memory":
        yield InMemory()
        return
    async with contextlib.AsyncExitStack() as stack:
        if where.startswith("http"):
            api = await stack.enter_async_context(client.Client(ClusterConfig(server=where), SystemClock()))
            backend: Backend = configmaps.ConfigMaps(api, "default", "hpad-history")
        else:
            backend = sqlite.Sqlite(Path(where), SystemClock())
        store = persistent.PersistentStore(Witness(backend, pulse, trouble), now, Telemetry(), intervals)
        running = asyncio.create_task(store.run())
        yield store
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.stop()


class Life(NamedTuple):
    """The run of one child from step `begin`, which an earlier one may have `begun`; `writes` are the earlier ones."""

    plan: list[Planned]
    begin: int
    started: bool
    writes: Mapping[int, int]
    where: str
    gap: timedelta
    lazy: bool
    trouble: crash_troubles.Trouble

    async def live(self, pulse: Pulse) -> None:
        """Plays all remaining steps."""
        clock, world, targets = StepClock(), World(pulse), Targets()
        for number, planned in enumerate(self.plan[: self.begin]):
            targets.found(planned)
            targets.end_step(planned, self.writes.get(number))
        read_at = StoreClock(self.begin + 0.5 if self.started else self.begin - 0.5)
        async with opened(self.where, read_at, pulse, LAZY if self.lazy else INTERVALS, self.trouble) as store:
            reconcilers: dict[int, Reconciler] = {}
            for number, planned in enumerate(self.plan[self.begin :], start=self.begin):
                key = planned.hpa.key
                world.number, world.step, world.wrote = number, targets.found(planned), None
                world.refusals = list(world.step.scale_update_errors)
                clock.step, clock.number = world.step.time.astimezone(UTC) + self.trouble.shift, number
                if planned.which not in reconcilers:
                    reconcilers[planned.which] = reconciler(planned, clock, world, store, self.gap)
                elif self.lazy:
                    await store.flush_now(key)
                worker = Worker(Workers(1, clock, math.inf))
                await worker.take()
                await store.get_loaded(key)
                pulse.note(f"t {number}")
                following = next_of(self.plan, number)
                try:
                    done = await reconcilers[planned.which].reconcile(
                        Permit(ALONE, key, planned.hpa, lambda _, hpa=planned.hpa: hpa),
                        worker,
                        Timing(Moment.now(clock), following, 0.0),
                        Record(),
                    )
                except TooEarly:
                    targets.end_step(planned, None)
                    pulse.note(f"f {number}")
                    continue
                targets.end_step(planned, world.wrote)
                pulse.moment()
                if not self.lazy:
                    await store.flush_now(key)
                    pulse.moment()
                pulse.note(f"d {number} {json.dumps(summary(done))}")
                pulse.rest()


def next_of(plan: list[Planned], number: int) -> int:
    """Returns the number of the next step of the same HPA."""
    which = plan[number].which
    return next((later for later in range(number + 1, len(plan)) if plan[later].which == which), len(plan))


def reconciler(planned: Planned, clock: StepClock, world: World, store: Store, gap: timedelta) -> Reconciler:
    telemetry = Telemetry()
    made = Reconciler(
        options=Options(tunables=planned.scenario.tunables, patience=5.0, owned=False, gap=gap),
        clock=clock,
        cluster=world,
        metrics=world,
        store=store,
        telemetry=telemetry,
        keepers=keepers(clock, telemetry, world),
    )
    for name, picked in planned.scenario.others.items():
        made.overlap.selectors.put(Key(planned.hpa.metadata.namespace, name), picked)
    return made


def summary(done: settle.Settlement) -> list[Any]:
    """Returns the result of a step in a comparable form."""
    reasons = [[each.type, each.status, each.reason] for each in done.status.conditions]
    return [done.status.current_replicas, done.status.desired_replicas, done.error, reasons]


def fork(run: Any) -> tuple[int, int]:
    """Forks a child that runs a coroutine; returns its pid and the pipe with its signs of life."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 1
        try:
            asyncio.run(run(writing))
            status = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(status)
    os.close(writing)
    return child, reading


def killed(child: int, reading: int, seen: Path) -> bool:
    """Waits for the end of a child; returns whether it was killed. Raises SystemExit.

    Keeps the notes of the child in the file `seen`, also its last ones, but no incomplete line.
    """
    with open(reading, "rb") as signs, seen.open("ab") as kept:
        kept.writelines(sign for sign in signs if sign != b".\n" and sign.endswith(b"\n"))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    if status:
        raise SystemExit(f"a child failed: {status}")
    return False


def main(
    timeline: Path, seen: Path, where: str, seed: int, kills: int, gap: timedelta, options: frozenset[str], kind: str
) -> None:
    state.caught_up = lambda memory, now: memory  # the clocks of steps and of seconds are unrelated here
    lazy, between = "lazy" in options, "between" in options
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    plan, dice, deaths = steps(timeline), random.Random(seed), 0
    mean = len(plan) * (0.5 if between else 5 if lazy else 2) / (kills + 1)
    ended = False
    while not ended:
        last = deaths >= kills
        trouble = crash_troubles.Trouble("" if last else kind, Path(where), dice)
        moments = -1 if last else 1 + int(min(dice.expovariate(1 / mean), 4 * mean))
        late = dice.choice([0, dice.uniform(0, 0.002), dice.uniform(0, 0.01)])
        # A fast machine would reach the end before KILLS deaths.
        if lazy or between or first(seen) * kills > 0.6 * deaths * len(plan):
            late = 0.0
        pulse = functools.partial(Pulse, doom=moments, between=between, late=late)

        async def run(pipe: int, pulse: Any = pulse, trouble: crash_troubles.Trouble = trouble) -> None:
            begin = first(seen)
            life = Life(plan, begin, started(seen, begin), written(seen), where, gap, lazy, trouble)
            trouble.suffer()
            await life.live(pulse(pipe))

        born = {"trouble": trouble.kind, "spoiled": trouble.spoils, "shift": trouble.shift.total_seconds()}
        with trouble.befalls():
            with seen.open("a") as kept:
                kept.write(f"b {json.dumps(born)}\n")
            ended = not killed(*fork(run), seen)
            deaths += not ended
    print(json.dumps({"deaths": deaths, "steps": len(plan)}), flush=True)


def run_line(timeline: str, seen: str, where: str, seed: str, kills: str, *more: str) -> None:
    """Plays what a command line asks for."""
    extra = dict(argument.split("=", 1) for argument in more)
    gap = timedelta(seconds=float(extra.get("gap", 86400.0 * 365)))
    main(Path(timeline), Path(seen), where, int(seed), int(kills), gap, frozenset(extra), extra.get("trouble", ""))


if __name__ == "__main__":
    for arguments in [sys.argv[1:]] if len(sys.argv) > 1 else map(json.loads, sys.stdin):
        run_line(*arguments)
