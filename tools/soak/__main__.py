"""Runs a soak test: `python -m tools.soak --minutes 30 --hpas 1000`, or `make soak MINUTES=30 HPAS=1000`.

hpad runs as a process, on an embedded cluster in another process, with faults, reloads, and HPAs that are created,
changed and deleted. Prints the development of memory, files, tasks and caches. Exit status 1 if one of them grows, an
HPA was not reconciled, or a scale was wrong.
"""

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

from tools.soak import trial


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.soak", description="Run hpad under load and faults for long."
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--hpas", type=int, default=1000)
    parser.add_argument("--period", type=float, default=15.0, help="hpad's sync period in seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for logs and settings (else a temporary one)")
    parser.add_argument("--quiet", action="store_true", help="print the report alone, no samples")
    args = parser.parse_args()
    plan = trial.Plan(seconds=60 * args.minutes, hpas=args.hpas, period=args.period, seed=args.seed)
    with contextlib.ExitStack() as stack:
        if args.keep is not None:
            args.keep.mkdir(parents=True, exist_ok=True)
        folder = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hpad-soak-")))
        say = (lambda line: None) if args.quiet else (lambda line: print(line, flush=True))
        verdict = trial.run(plan, folder, say)
    print("\n".join(verdict.report))
    print("\n".join(f"FAULT: {fault}" for fault in verdict.faults) or "all is well", flush=True)
    return 1 if verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main())
