"""Fuzzes hpad: `python -m tools.fuzz --seconds 240 [TARGET...]`, or `make fuzz SECONDS=240`.

Each target runs in its own process with an equal share of the time, as many at once as there are cores. With atheris
(the extra `fuzz`) inputs are chosen by coverage, and those that reach new code are kept in .cache/fuzz; without it,
inputs are random. An input that shows a bug is written to .cache/fuzz/crashes, and its name is printed; put it into
tests/fuzz/found with the fix.
"""

import argparse
import contextlib
import functools
import hashlib
import os
import random
import re
import subprocess
import sys
import time
from concurrent import futures
from pathlib import Path

CACHE = Path(".cache/fuzz")
_LONGEST = 1 << 16
_RUNS = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_REACHED = re.compile(r"\bcov: (\d+) .*\bcorp: (\d+)/")
_LAST_LINES = 80
_SEEDED = 100_000
"""Maximum number of inputs per target with a seed, so that most targets try the same inputs on every machine."""


def main() -> int:
    """Runs the targets; returns exit status 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description="Fuzz hpad, guided by coverage.")
    parser.add_argument("--seconds", type=int, default=240, help="for all targets together")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time (the cores)")
    parser.add_argument(
        "--seed", type=int, default=0, help=f"for the same {_SEEDED:,} inputs again, as far as time goes; 0: any"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*", help="all by default")
    args = parser.parse_args()
    if args.one:
        return _one(args.one, args.seconds, args.seed)
    from tools.fuzz import targets

    names = args.targets or list(targets.TARGETS)
    jobs = max(1, min(args.jobs, len(names)))
    share = max(1, args.seconds * jobs // len(names))
    print(f"{len(names)} targets, {share}s each, {jobs} at a time", flush=True)
    with futures.ThreadPoolExecutor(jobs) as pool:
        ended = dict(zip(names, pool.map(lambda name: _run(name, share, args.seed), names), strict=True))
    failed = [name for name, well in ended.items() if not well]
    print(f"{len(names) - len(failed)} of {len(names)} targets without a find" + (f": see {failed}" if failed else ""))
    return 1 if failed else 0


def _run(name: str, seconds: int, seed: int) -> bool:
    """Fuzzes one target in a separate process; returns whether it found no bug."""
    command = [
        *_placed(),
        sys.executable,
        "-m",
        "tools.fuzz",
        "--one",
        name,
        "--seconds",
        str(seconds),
        "--seed",
        str(seed),
    ]
    environ = {**os.environ, "PYTHONHASHSEED": str(seed) if seed else "random"}
    done = subprocess.run(
        command, check=False, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if done.returncode:
        print(f"{name}: FOUND SOMETHING\n" + "\n".join(done.stdout.splitlines()[-_LAST_LINES:]), flush=True)
        return False
    print(f"{name}: {_summary(done.stdout)}", flush=True)
    return True


@functools.cache
def _placed() -> list[str]:
    """Returns a command prefix that disables the randomization of addresses, empty if that is not allowed.

    Sets of classes and functions iterate in the order of addresses, so the inputs of a seed would differ otherwise.
    """
    placed = ["setarch", "-R"]
    try:
        subprocess.run([*placed, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return placed


def _summary(output: str) -> str:
    """Returns the summary of a run without a bug."""
    runs, reached = _RUNS.search(output), _REACHED.findall(output)
    if runs is None or not reached:
        return output.strip().rpartition("\n")[2]
    edges, kept = reached[-1]
    return f"{int(runs[1]):,} inputs, {edges} edges reached by {kept} of them, none shows a bug"


def _one(name: str, seconds: int, seed: int) -> int:
    try:
        import atheris  # type: ignore[import-not-found]  # the extra `fuzz`
    except ImportError:
        return _by_chance(name, seconds, seed)
    with atheris.instrument_imports(include=["hpad", "hpad_adapters"]):
        from tools.fuzz import budget, mutation, targets
    target = targets.TARGETS[name]
    kept, crashes, seeds = CACHE / name, CACHE / "crashes", CACHE / "seeds" / name
    for folder in (kept, crashes, seeds):
        folder.mkdir(parents=True, exist_ok=True)
    for data in (*target.seeds, *target.found):
        (seeds / _digest(data)).write_bytes(data)

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        changed: bytes = mutation.mutated(data, target.seeds, rng) if seed % 2 else atheris.Mutate(data, most)
        return changed[:most]

    options = [
        f"-seed={seed}",
        f"-max_total_time={seconds}",
        f"-max_len={_LONGEST}",
        "-timeout=30",
        "-rss_limit_mb=2048",
    ]
    options += [f"-artifact_prefix={crashes}/{name}-", "-print_final_stats=1"]
    options += [f"-runs={_SEEDED}"] if seed else []
    with target.opened() as check:
        arguments = [sys.argv[0], *options, str(kept), str(seeds)]
        atheris.Setup(arguments, lambda data: budget.limited(check, data, target.patience), custom_mutator=mutated)
        atheris.Fuzz()
    return 0


def _by_chance(name: str, seconds: int, seed: int) -> int:
    from tools.fuzz import budget, mutation, targets

    target, rng, runs = targets.TARGETS[name], random.Random(seed or None), 0
    inputs = [*target.seeds, *target.found]
    until = time.monotonic() + seconds
    with target.opened() as check:
        while time.monotonic() < until and not (seed and runs == _SEEDED):
            data = mutation.mutated(rng.choice(inputs), target.seeds, rng)
            try:
                budget.limited(check, data, target.patience)
            except Exception:
                crash = CACHE / "crashes" / f"{name}-{_digest(data)}"
                crash.parent.mkdir(parents=True, exist_ok=True)
                crash.write_bytes(data)
                print(f"{name}: {crash} shows a bug", flush=True)
                raise
            runs += 1
    print(f"{runs:,} inputs by chance, none shows a bug")
    return 0


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
