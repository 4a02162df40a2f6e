"""Benchmark of `hpad check`: `python tools/bench/check.py` prints the seconds for a file of a thousand HPAs.

`--short` uses a file of ten.
"""

import contextlib
import io
import json
import sys
import tempfile
import time
from pathlib import Path

from hpad.cli import main
from tools.bench import engine

SHORT = "--short" in sys.argv[1:]
HPAS = 10 if SHORT else 1_000


def run() -> None:
    """Checks a file of valid HPAs, one JSON document per line."""
    head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hpas.jsonl"
        path.write_text("".join(json.dumps({**head, **engine.HPA}) + "\n" for _ in range(HPAS)))
        started = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            status = main(["check", str(path)])
        seconds = time.perf_counter() - started
    assert status == 0, "the HPAs are valid"
    print(f"check: {HPAS:,} HPAs in {seconds:.2f} s")


if __name__ == "__main__":
    run()
