"""Play a timeline with a store that survives, and die of kill -9 again and again.

A program of its own: the parent has everything imported and forks a child for each life, which reconciles with the real
reconciler and the real store, and is killed from outside at a random moment. What the API server has seen is a file of
lines that outlives them all: "w STEP COUNT" for a scale that was written, "d STEP RESULT" for a step that is complete.
The next life begins with the first step of which the API server has seen neither.

    python crashing.py TIMELINE WORLD STORE SEED KILLS [gap=SECONDS] [trouble=full|truncated]

TIMELINE holds a JSON line for each of the scenarios, whose steps are taken in turn; STORE is memory, a path, or the URL
of a cluster.
"""

import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import structlog

from hpad.clock import Clock, SystemClock
from hpad.control.claims import Claims
from hpad.control.reconcile import Reconciler, Ways
from hpad.control.slots import Slot
from hpad.kube import client, config, errors, history
from hpad.model import snapshot
from hpad.model.key import Key
from hpad.model.sample import Sample
from hpad.store import lasting, memory, sqlite
from hpad.telemetry import Telemetry

LONG = 500
PACE = lasting.Pace(tick=0.0005, rest=0.005, loading=0.02)


class StepClock:
    """The time of the step, and real time for waiting."""

    def __init__(self) -> None:
        self.step: datetime = datetime(2000, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.step

    def monotonic(self) -> float:
        return self.step.timestamp()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class World:
    """The target's scale as the step says; each thing that is asked or told is a moment to be killed at."""

    def __init__(self, alive: int) -> None:
        self.number = 0
        self.step: snapshot.Step
        self.refusals: list[str] = []
        self.pods = self
        self.recorder = self
        self._alive = alive

    def moment(self) -> None:
        os.write(self._alive, b".\n")

    def note(self, line: str) -> None:
        os.write(self._alive, f"{line}\n".encode())

    def select(self, namespace: str, selector: Any) -> list[Any]:
        return list(self.step.selected())

    def record(self, hpa: Any, event: Any) -> None:
        self.moment()

    async def read_scale(self, namespace: str, ref: Any) -> Any:
        self.moment()
        if self.step.scale_error is not None:
            raise errors.ApiError(404, "NotFound", self.step.scale_error)
        return self.step.scale

    fresh_scale = read_scale

    async def write_scale(self, namespace: str, ref: Any, scale: Any) -> Any:
        self.moment()
        if self.refusals:
            refusal = self.refusals.pop(0)
            conflict = refusal == "conflict"
            raise errors.ApiError(409 if conflict else 500, "Conflict" if conflict else "", refusal)
        self.note(f"w {self.number} {scale.spec.replicas}")
        self.moment()
        return scale

    async def write_status(self, hpa: Any, status: Any) -> Any:
        raise AssertionError("statuses are kept in the store here")

    async def gather(self, hpa: Any, queries: Sequence[Any], **how: Any) -> list[Sample | Any]:
        self.moment()
        return self.step.answer(queries)


def steps(timeline: Path) -> list[tuple[int, Any, Any]]:
    """(number of the scenario, its HPA and itself, step) in the order they come."""
    lines = timeline.read_text().splitlines()
    scenarios = [snapshot.decode_scenario(json.loads(line)) for line in lines]
    longest = max(len(scenario.steps) for scenario in scenarios)
    turns = [
        (number, scenario, turn)
        for turn in range(longest)
        for number, scenario in enumerate(scenarios)
        if turn < len(scenario.steps)
    ]
    found = []
    for number, scenario, turn in turns[:LONG]:
        known = msgspec.structs.replace(
            scenario.hpa.metadata, name=f"{scenario.hpa.metadata.name}-{number}", uid=f"uid-{number}"
        )
        specs = [step["spec"] for step in scenario.steps[: turn + 1] if step.get("spec")]
        spec = snapshot.decode_step({**scenario.steps[turn], "spec": specs[-1]}).spec if specs else scenario.hpa.spec
        hpa = msgspec.structs.replace(scenario.hpa, metadata=known, spec=spec)
        found.append((number, (hpa, scenario), snapshot.decode_step(scenario.steps[turn])))
    return found


def first(seen: Path) -> int:
    """The step to go on with."""
    if not seen.exists():
        return 0
    return max((int(line.split()[1]) + 1 for line in seen.read_text().splitlines()), default=0)


@contextlib.asynccontextmanager
async def opened(where: str, clock: Clock) -> AsyncIterator[memory.Store]:
    if where == "memory":
        yield memory.InMemory()
        return
    async with contextlib.AsyncExitStack() as stack:
        if where.startswith("http"):
            api = await stack.enter_async_context(client.Client(config.ClusterConfig(server=where), clock))
            shelf: lasting.Shelf = history.ConfigMaps(api, "default", "hpad-history")
        else:
            shelf = sqlite.Sqlite(Path(where), clock)
        store = lasting.Lasting(shelf, clock, Telemetry(), PACE)
        running = asyncio.create_task(store.run())
        yield store
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.stop()


async def live(plan: list[tuple[int, Any, Any]], where: str, seen: Path, alive: int, gap: timedelta) -> None:
    """Go on from where the last life ended, to the end."""
    clock = StepClock()
    world = World(alive)
    async with opened(where, SystemClock()) as store:
        reconcilers: dict[int, Reconciler] = {}
        for number in range(first(seen), len(plan)):
            which, (hpa, scenario), step = plan[number]
            clock.step, world.number, world.step = step.time.astimezone(UTC), number, step
            world.refusals = list(step.scale_update_errors)
            if which not in reconcilers:
                ways = Ways(tunables=scenario.tunables, patience=5.0, owned=False, gap=gap)
                claims = Claims()
                for name, picked in scenario.others.items():
                    claims.claim(Key(hpa.metadata.namespace, name), picked)
                reconcilers[which] = Reconciler(
                    ways=ways,
                    clock=clock,
                    world=world,
                    metrics=world,
                    store=store,
                    claims=claims,
                    telemetry=Telemetry(),
                )
            slot = Slot(asyncio.Semaphore(1))
            await slot.take()
            done = await reconcilers[which].reconcile(hpa, slot)
            world.moment()
            await store.secure(hpa.metadata.key)
            world.moment()
            reasons = [[held.type, held.status, held.reason] for held in done.status.conditions]
            current, desired = done.status.current_replicas, done.status.desired_replicas
            world.note(f"d {number} {json.dumps([current, desired, done.error, reasons])}")


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

    Signs that say something are what the API server has seen: they are kept, the killed one's last words included.
    """
    with open(reading, "rb") as signs, seen.open("ab") as kept:
        for count, sign in enumerate(signs, start=1):
            if sign != b".\n":
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


def spoil(path: Path, dice: random.Random) -> None:
    """Cut the file, and sometimes its log, short."""
    for file in (path, path.with_name(f"{path.name}-wal")):
        if file.exists() and dice.random() < 0.7:
            os.truncate(file, dice.randrange(file.stat().st_size + 1))


def fill(path: Path, dice: random.Random) -> Iterator[int]:
    """Let files grow a little, or not at all: to the file, the disk is full."""
    sizes = [file.stat().st_size for file in path.parent.glob(f"{path.name}*")]
    yield max([*sizes, 0]) + dice.choice([0, 0, 4096, 65536]) if dice.random() < 0.8 else resource.RLIM_INFINITY


def main(timeline: Path, seen: Path, where: str, seed: int, kills: int, gap: timedelta, trouble: str) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    plan, dice, deaths = steps(timeline), random.Random(seed), 0
    mean = len(plan) * 3 / (kills + 1)
    path = Path(where)
    while deaths < kills:
        limit = next(fill(path, dice)) if trouble == "full" else resource.RLIM_INFINITY
        if trouble == "truncated" and dice.random() < 0.5:
            spoil(path, dice)

        async def run(alive: int, limit: int = limit) -> None:
            if limit != resource.RLIM_INFINITY:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            await live(plan, where, seen, alive, gap)

        moments = 1 + int(min(dice.expovariate(1 / mean), 4 * mean))
        if not killed(*fork(run), seen, moments, dice.choice([0, dice.uniform(0, 0.002), dice.uniform(0, 0.01)])):
            break
        deaths += 1
    killed(*fork(lambda alive: live(plan, where, seen, alive, gap)), seen, -1, 0)
    print(json.dumps({"deaths": deaths, "steps": len(plan)}))
    return 0


if __name__ == "__main__":
    timeline, seen, where, seed, kills, *more = sys.argv[1:]
    extra = dict(argument.split("=", 1) for argument in more)
    gap = timedelta(seconds=float(extra.get("gap", 86400.0 * 365)))
    sys.exit(main(Path(timeline), Path(seen), where, int(seed), int(kills), gap, extra.get("trouble", "")))
