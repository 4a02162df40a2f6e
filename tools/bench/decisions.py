"""Benchmark of the decision history: `python tools/bench/decisions.py` prints what a logged decision and a save cost.

A decision that continues an entry is the common case; one that begins an entry makes and packs a trace. The figures
are for one HPA with a CPU metric and so many pods. A save writes a new entry for each of 5,000 HPAs. `--short` logs and
saves few.
"""

import asyncio
import random
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from hpad.api.hpa import Scale, ScaleSpec, ScaleStatus
from hpad.api.hpa import from_builtins as decoded
from hpad.api.metadata import Key
from hpad.api.pod import ContainerRequests, Pod
from hpad.api.sample import PodSample, PodValue
from hpad.clock import SystemClock
from hpad.decisions import compact
from hpad.decisions.archive import DEFAULT
from hpad.decisions.compact import Stored
from hpad.decisions.file import FileArchive
from hpad.decisions.log import DecisionLog
from hpad.engine import decide, examine, settle
from hpad.engine.trace.make import make_trace
from hpad.engine.turn import Reconcile
from hpad.engine.view import View
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
    decision = decide.decide(view, examine.examine(view), (sample,))
    return Reconcile(view, (sample,), decision, None, settle.settle(view, decision, None))


def logged(pods: int) -> str:
    """Returns the cost of decisions about so many pods, in microseconds and bytes."""
    one = reconciled(pods)
    decision = msgspec.structs.replace(one.decision, current=one.decision.current + 1)
    others = one, msgspec.structs.replace(one, decision=decision)  # another count is another entry
    log = DecisionLog()
    log.add(one)
    began = time.perf_counter()
    for _ in range(CONTINUED):
        log.add(one)
    continued = (time.perf_counter() - began) / CONTINUED
    began = time.perf_counter()
    for turn in range(BEGUN):
        log.add(others[(turn + 1) % 2])
    begun = (time.perf_counter() - began) / BEGUN
    size = len(compact.pack_trace(make_trace(one, None, compact.MOST_PODS)))
    return f"{pods} pods: {continued * 1e6:.1f} µs, {begun * 1e6:.0f} µs with a new entry, whose trace has {size} bytes"


async def saved() -> str:
    """Returns the cost of a save of new entries."""
    with tempfile.TemporaryDirectory() as folder:
        archive = FileArchive(Path(folder) / "decisions.db", SystemClock(), DEFAULT)
        await archive.load()
        for number in range(HPAS):
            archive.put(Key("team", f"web-{number}"), Stored(number, number, number, bytes(75), random.randbytes(260)))
        began, busy = time.perf_counter(), time.process_time()
        await archive.save()
        took, busy = time.perf_counter() - began, time.process_time() - busy
        await archive.close()
    return f"a save of {HPAS:,} new entries: {took * 1e3:.0f} ms ({busy * 1e3:.0f} ms of CPU)"


def main() -> None:
    print("decisions: " + "\n           ".join([*map(logged, SIZES), asyncio.run(saved())]))


if __name__ == "__main__":
    main()
