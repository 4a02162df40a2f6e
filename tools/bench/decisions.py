"""Benchmark of the decision history: `python tools/bench/decisions.py` prints what a logged decision and a save cost.

A decision that continues an entry is the common case; the first one of an entry is encoded at the next save. The
figures are for one HPA with a CPU metric and so many pods. A save encodes and writes a new entry for each of 5,000
HPAs. `--short` logs and saves few.
"""

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from hpad.api.hpa import Scale, ScaleSpec, ScaleStatus
from hpad.api.hpa import from_builtins as decoded
from hpad.api.pod import ContainerRequests, Pod
from hpad.api.sample import PodSample, PodValue
from hpad.engine import examine, settle
from hpad.engine.turn import Reconcile, decide
from hpad.engine.view import View
from hpad.records import entry
from hpad.records.history import DecisionHistory
from tools.bench.engine import spec as with_metrics

SHORT = "--short" in sys.argv[1:]
CONTINUED = 20 if SHORT else 20_000
BEGUN = 2 if SHORT else 200
HPAS = 20 if SHORT else 5_000
SIZES = (4, 50, 1000)
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def reconciled(pods: int) -> Reconcile:
    """Returns a decision about pods with names as Kubernetes makes them, which keeps their number."""
    dice = random.Random(pods)
    names = [f"checkout-7d4b9c6f5b-{''.join(dice.choices(LETTERS, k=5))}" for _ in range(pods)]
    begun, request = START - timedelta(hours=1), (ContainerRequests("app", {"cpu": 200}),)
    found = [
        Pod(name=name, phase="Running", start_time=begun, ready="True", ready_since=begun, containers=request)
        for name in names
    ]
    one = decoded(with_metrics(1))
    hpa = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, max_replicas=2 * pods))
    scale = Scale(spec=ScaleSpec(pods), status=ScaleStatus(pods, "app=checkout"))
    view = View(hpa=hpa, now=START, scale=scale, pods=found)
    sample = PodSample({name: PodValue(dice.randint(95, 105), START, timedelta(seconds=30)) for name in names}, START)
    decision = decide(view, examine.examine(view), (sample,))
    return Reconcile(view, (sample,), decision, None, settle.settle(view, decision, None))


def logged(pods: int) -> str:
    """Returns the cost of decisions about so many pods, in microseconds and bytes."""
    one = reconciled(pods)
    decision = msgspec.structs.replace(one.decision, current=one.decision.current + 1)
    others = one, msgspec.structs.replace(one, decision=decision)  # another count is another entry
    log = DecisionHistory()
    log.add(one)
    continued = _seconds(CONTINUED, lambda turn: log.add(one))
    begun = _seconds(BEGUN, lambda turn: log.add(others[(turn + 1) % 2]))
    packed = entry.pack(one)
    encoded = _seconds(BEGUN, lambda turn: entry.pack(one))
    decided = _seconds(BEGUN, lambda turn: entry.unpack_step(packed.step))
    return (
        f"{pods} pods: {continued * 1e6:.1f} µs, {begun * 1e6:.1f} µs with a new entry; on a thread"
        f" {encoded * 1e6:.0f} µs to encode it in {sum(map(len, packed)):,} bytes, {decided * 1e6:.0f} to decide again"
    )


def _seconds(times: int, work: Callable[[int], object]) -> float:
    """Returns the mean seconds of a call."""
    began = time.perf_counter()
    for turn in range(times):
        work(turn)
    return (time.perf_counter() - began) / times


async def saved() -> str:
    """Returns the cost of a save of new entries."""
    one = reconciled(SIZES[0])
    with tempfile.TemporaryDirectory() as folder:
        log = DecisionHistory(file=Path(folder) / "decisions.db")
        for number in range(HPAS):
            metadata = msgspec.structs.replace(one.view.hpa.metadata, name=f"web-{number}")
            hpa = msgspec.structs.replace(one.view.hpa, metadata=metadata)
            log.add(msgspec.structs.replace(one, view=msgspec.structs.replace(one.view, hpa=hpa)))
        began, busy = time.perf_counter(), time.process_time()
        await log.stop()
        took, busy = time.perf_counter() - began, time.process_time() - busy
    return f"a save of {HPAS:,} new entries: {took * 1e3:.0f} ms ({busy * 1e3:.0f} ms of CPU)"


def main() -> None:
    print("decisions: " + "\n           ".join([*map(logged, SIZES), asyncio.run(saved())]))


if __name__ == "__main__":
    main()
