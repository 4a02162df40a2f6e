"""Play a timeline with a store that survives, and die of kill -9 again and again.

A program of its own: the parent has everything imported and forks a child for each life, which reconciles with the real
reconciler and the real store, and is killed at a random moment: from outside, or (`lazy`) by its own hand at the moment
that the seed says, so that a run can be repeated. What the API server has seen is a file of lines that outlives them
all: "w STEP COUNT" for a scale that was written, "d STEP RESULT" for a step that is complete. The next life begins with
the first step of which the API server has seen neither. The other lines tell what became of the records, for
`crash_model` to judge by: "t STEP" when a turn begins, "f STEP" when it is put off, "b LIFE" when a life begins,
"l FOUND" when records were read, "s RECORDS" when some are about to be saved, "a FAILED" when that is over, "x all"
when the file was deleted, "h STEP HISTORY" what a decision was made with.

    python -m e2e.crashing TIMELINE WORLD STORE SEED KILLS [gap=SECONDS] [lazy=1] [between=1] [trouble=any|full|...]

TIMELINE holds a JSON line for each of the scenarios, whose steps are taken in turn; STORE is memory, a path, or the URL
of a cluster. Saves are awaited after every step; `lazy`: not before the HPA's next step, as if saved once a period.
`between`: killed between two turns only. Each scenario has times of its own, so the monotonic clock counts steps: an
HPA's next turn is planned for its next step.
"""

import asyncio
import contextlib
import json
import math
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog
from e2e import crash_troubles
from e2e.crash_world import Pulse, StepClock, StoreClock, Witness, World

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.clock import Clock, SystemClock
from hpad.controller import recovery
from hpad.controller.overlap import SelectorIndex
from hpad.controller.reconcile import Options, Reconciler
from hpad.controller.schedule import Plan, TooEarly
from hpad.controller.workers import Worker, Workers
from hpad.engine import settle
from hpad.kube import client
from hpad.kube.auth.credentials import ClusterConfig
from hpad.recording.format import Scenario, Step, decode_scenario, decode_step
from hpad.store import configmaps, persistent, sqlite
from hpad.store import memory as memory_module
from hpad.telemetry import Telemetry

LONG = 500
PACE = persistent.Pace(tick=0.0005, rest=0.005, loading=0.02)
LAZY = PACE._replace(rest=86400.0, loading=0.0)
"""Nothing is saved but what is asked for, so that the order of what happens depends on seed (and hashes) alone."""


class Planned(NamedTuple):
    """A step to play: the number of its scenario, and the count at which the original leaves the target."""

    which: int
    hpa: HorizontalPodAutoscaler
    scenario: Scenario
    step: Step
    left: int


def steps(timeline: Path) -> list[Planned]:
    """The steps in the order they come, those of the scenarios in turn."""
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
    left = wrote if wrote is not None else 0 if step.scale is None else step.scale.spec.replicas
    return Planned(
        which, msgspec.structs.replace(played.hpa, metadata=known, spec=spec or played.hpa.spec), played, step, left
    )


class Targets:
    """The targets as this run leaves them; where somebody else sets one in the timeline, it is set here, too."""

    def __init__(self) -> None:
        self._ours: dict[int, int] = {}
        self._theirs: dict[int, int] = {}

    def found(self, planned: Planned) -> Step:
        """The step with the count that its target has by now."""
        step, which = planned.step, planned.which
        if step.scale is None or step.scale_error is not None:
            return step
        told = step.scale.spec.replicas
        if self._theirs.get(which) != told:
            self._ours[which] = told
        if self._ours[which] == told:
            return step
        count = self._ours[which]
        status = msgspec.structs.replace(step.scale.status, replicas=count)
        scale = msgspec.structs.replace(step.scale.with_replicas(count), status=status)
        return msgspec.structs.replace(step, scale=scale)

    def left(self, planned: Planned, wrote: int | None) -> None:
        """The step is over; this was written in it, if anything."""
        if planned.step.scale is not None and planned.step.scale_error is None:
            self._theirs[planned.which] = planned.left
            if wrote is not None:
                self._ours[planned.which] = wrote


def written(seen: Path) -> dict[int, int]:
    """What was written, by step; raises AssertionError if it was more than once."""
    told = [line.split() for line in seen.read_text().splitlines() if line.startswith("w ")] if seen.exists() else []
    writes = [(int(step), int(count)) for _, step, count in told]
    assert len(writes) == len(dict(writes)), "a step was written twice"
    return dict(writes)


def first(seen: Path) -> int:
    """The step to go on with."""
    if not seen.exists():
        return 0
    told = (line.split(" ", 2) for line in seen.read_text().splitlines())
    return max((int(line[1]) + 1 for line in told if line[0] in "wdf"), default=0)


def begun(seen: Path, step: int) -> bool:
    """Whether an earlier life began the step."""
    return seen.exists() and f"t {step}" in seen.read_text().splitlines()


@contextlib.asynccontextmanager
async def opened(
    where: str, now: Clock, pulse: Pulse, pace: persistent.Pace, trouble: crash_troubles.Trouble
) -> AsyncIterator[memory_module.Store]:
    if where == "memory":
        yield memory_module.InMemory()
        return
    async with contextlib.AsyncExitStack() as stack:
        if where.startswith("http"):
            api = await stack.enter_async_context(client.Client(ClusterConfig(server=where), SystemClock()))
            backend: persistent.Backend = configmaps.ConfigMaps(api, "default", "hpad-history")
        else:
            backend = sqlite.Sqlite(Path(where), SystemClock())
        store = persistent.PersistentStore(Witness(backend, pulse, trouble), now, Telemetry(), pace)
        running = asyncio.create_task(store.run())
        yield store
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.stop()


class Life(NamedTuple):
    """One life: it goes on with step `begin`, which an earlier one has begun or not; earlier ones wrote `writes`."""

    plan: list[Planned]
    begin: int
    begun: bool
    writes: Mapping[int, int]
    where: str
    gap: timedelta
    lazy: bool
    trouble: crash_troubles.Trouble

    async def live(self, pulse: Pulse) -> None:
        """To the end."""
        clock, world, targets = StepClock(), World(pulse), Targets()
        for number, planned in enumerate(self.plan[: self.begin]):
            targets.found(planned)
            targets.left(planned, self.writes.get(number))
        read_at = StoreClock(self.begin + 0.5 if self.begun else self.begin - 0.5)
        async with opened(self.where, read_at, pulse, LAZY if self.lazy else PACE, self.trouble) as store:
            reconcilers: dict[int, Reconciler] = {}
            for number, planned in enumerate(self.plan[self.begin :], start=self.begin):
                key = planned.hpa.metadata.key
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
                plan = Plan(next_of(self.plan, number), 0.0)
                try:
                    done = await reconcilers[planned.which].reconcile(planned.hpa, worker, plan=plan)
                except TooEarly:
                    targets.left(planned, None)
                    pulse.note(f"f {number}")
                    continue
                targets.left(planned, world.wrote)
                pulse.moment()
                if not self.lazy:
                    await store.flush_now(key)
                    pulse.moment()
                pulse.note(f"d {number} {json.dumps(summary(done))}")
                pulse.rest()


def next_of(plan: list[Planned], number: int) -> int:
    """The next step of the same HPA."""
    which = plan[number].which
    return next((later for later in range(number + 1, len(plan)) if plan[later].which == which), len(plan))


def reconciler(
    planned: Planned, clock: StepClock, world: World, store: memory_module.Store, gap: timedelta
) -> Reconciler:
    selectors = SelectorIndex()
    for name, picked in planned.scenario.others.items():
        selectors.claim(Key(planned.hpa.metadata.namespace, name), picked)
    return Reconciler(
        options=Options(tunables=planned.scenario.tunables, patience=5.0, owned=False, gap=gap),
        clock=clock,
        cluster=world,
        metrics=world,
        store=store,
        selectors=selectors,
        telemetry=Telemetry(),
        recorder=world,
    )


def summary(done: settle.Settlement) -> list[Any]:
    """What came of a step, to be compared."""
    reasons = [[held.type, held.status, held.reason] for held in done.status.conditions]
    return [done.status.current_replicas, done.status.desired_replicas, done.error, reasons]


def fork(run: Any) -> tuple[int, int]:
    """A child that runs it, and the end of a pipe on which it gives signs of life."""
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


def killed(child: int, reading: int, seen: Path, moments: int, seconds: float) -> bool:
    """Kill it a little after so many signs of life; False if it came to its end before. Raises if it failed.

    Signs that say something are what the API server has seen: they are kept, the killed one's last words included (but
    no half ones).
    """
    with open(reading, "rb") as signs, seen.open("ab") as kept:
        for count, sign in enumerate(signs, start=1):
            if sign != b".\n" and sign.endswith(b"\n"):
                kept.write(sign)
            if count == moments:
                time.sleep(seconds)
                os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    if status:
        raise SystemExit(f"a life failed: {status}")
    return False


def main(
    timeline: Path, seen: Path, where: str, seed: int, kills: int, gap: timedelta, options: frozenset[str], kind: str
) -> int:
    recovery.caught_up = lambda memory, now: memory  # the two clocks here have nothing to do with each other
    lazy, between = "lazy" in options, "between" in options
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    plan, dice, deaths = steps(timeline), random.Random(seed), 0
    mean = len(plan) * (0.5 if between else 5 if lazy else 3) / (kills + 1)
    ended = False
    while not ended:
        last = deaths >= kills
        trouble = crash_troubles.Trouble("" if last else kind, Path(where), dice)
        moments = -1 if last else 1 + int(min(dice.expovariate(1 / mean), 4 * mean))
        late = dice.choice([0, dice.uniform(0, 0.002), dice.uniform(0, 0.01)])
        if first(seen) * kills > 0.6 * deaths * len(plan):  # a fast machine would be at the end before so many deaths
            late = 0.0

        async def run(pipe: int, moments: int = moments, trouble: crash_troubles.Trouble = trouble) -> None:
            begin = first(seen)
            life = Life(plan, begin, begun(seen, begin), written(seen), where, gap, lazy, trouble)
            trouble.suffer()
            await life.live(Pulse(pipe, moments if lazy or between else -1, between=between))

        born = {"trouble": trouble.kind, "spoiled": trouble.spoils, "shift": trouble.shift.total_seconds()}
        with trouble.befalls():
            with seen.open("a") as kept:
                kept.write(f"b {json.dumps(born)}\n")
            ended = not killed(*fork(run), seen, -1 if lazy or between else moments, late)
            deaths += not ended
    print(json.dumps({"deaths": deaths, "steps": len(plan)}))
    return 0


if __name__ == "__main__":
    timeline, seen, where, seed, kills, *more = sys.argv[1:]
    extra = dict(argument.split("=", 1) for argument in more)
    gap = timedelta(seconds=float(extra.get("gap", 86400.0 * 365)))
    paths = (Path(timeline), Path(seen), where)
    sys.exit(main(*paths, int(seed), int(kills), gap, frozenset(extra), extra.get("trouble", "")))
