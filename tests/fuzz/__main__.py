"""Fuzzing at length: `python -m fuzz --seconds 240 [TARGET...]`, or `make fuzz SECONDS=240`.

Each target gets its share of the time in a process of its own. With atheris (the extra `fuzz`) inputs are chosen by the
code they reach, and those that reach new code are kept in .cache/fuzz; without it, by chance alone. An input that shows
a bug is written to .cache/fuzz/crashes and its name printed; put it into tests/fuzz/found with the fix.
"""

import argparse
import contextlib
import hashlib
import random
import subprocess
import sys
import time
from pathlib import Path

CACHE = Path(".cache/fuzz")
_LONGEST = 1 << 16


def main() -> int:
    """Exit status 1 where a target failed."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Fuzz hpad, guided by coverage.")
    parser.add_argument("--seconds", type=int, default=240, help="for all targets together")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*", help="all by default")
    args = parser.parse_args()
    if args.one:
        return _one(args.one, args.seconds)
    from fuzz import targets

    names = args.targets or list(targets.TARGETS)
    share = max(1, args.seconds // len(names))
    failed = [name for name in names if not _run(name, share)]
    print(f"{len(names) - len(failed)} of {len(names)} targets without a find" + (f": see {failed}" if failed else ""))
    return 1 if failed else 0


def _run(name: str, seconds: int) -> bool:
    print(f"{name}: {seconds}s", flush=True)
    command = [sys.executable, "-m", "fuzz", "--one", name, "--seconds", str(seconds)]
    return subprocess.run(command, check=False).returncode == 0


def _one(name: str, seconds: int) -> int:
    try:
        import atheris  # type: ignore[import-not-found]  # the extra `fuzz`
    except ImportError:
        return _by_chance(name, seconds)
    with atheris.instrument_imports(include=["hpad", "hpad_adapters"]):
        from fuzz import budget, mutation, targets
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

    options = [f"-max_total_time={seconds}", f"-max_len={_LONGEST}", "-timeout=30", "-rss_limit_mb=2048"]
    options += [f"-artifact_prefix={crashes}/{name}-", "-print_final_stats=0", "-verbosity=0"]
    with target.opened() as check:
        arguments = [sys.argv[0], *options, str(kept), str(seeds)]
        atheris.Setup(arguments, lambda data: budget.held(check, data, target.patience), custom_mutator=mutated)
        atheris.Fuzz()
    return 0


def _by_chance(name: str, seconds: int) -> int:
    from fuzz import budget, mutation, targets

    target, rng, runs = targets.TARGETS[name], random.Random(), 0
    inputs = [*target.seeds, *target.found]
    until = time.monotonic() + seconds
    with target.opened() as check:
        while time.monotonic() < until:
            data = mutation.mutated(rng.choice(inputs), target.seeds, rng)
            try:
                budget.held(check, data, target.patience)
            except Exception:
                crash = CACHE / "crashes" / f"{name}-{_digest(data)}"
                crash.parent.mkdir(parents=True, exist_ok=True)
                crash.write_bytes(data)
                print(f"{name}: {crash} shows a bug", flush=True)
                raise
            runs += 1
    print(f"{name}: {runs} inputs, none shows a bug")
    return 0


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
