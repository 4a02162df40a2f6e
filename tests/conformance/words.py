"""The words for recorded decisions: all that hpad says about each step of the recordings, as text.

python -m tests.conformance.words --write DIR    one file of texts per part, for a comparison of two commits
python -m tests.conformance.words --renew        the digests of test_words.py, after a wanted change of a text
"""

import argparse
import gzip
import hashlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from hpad.engine import brief, holds, trace
from hpad.engine.outlook import outlook
from hpad.engine.render import lines
from hpad.engine.trace.make import make_trace
from hpad.engine.turn import Reconcile
from hpad.engine.view import Gates
from hpad.records import replay
from hpad.records.format import decode_scenario

Row = dict[str, Any]
VECTORS: Final = Path(__file__).resolve().parents[1] / "data" / "vectors"
DIGESTS: Final = Path(__file__).with_name("words.json")
PARTS: Final = {"reconcile": (8, 150), "timeline": (8, 8), "own": (4, 60)}
"""Of each file the number of parts, and of rows in a part."""
IN_FULL: Final = 5
"""Of so many steps one is explained in full with what comes next, which takes the most time."""


def said(done: Reconcile, number: int) -> Iterator[str]:
    """Yields what hpad says about a replayed step: the one place that knows how the product is asked for it."""
    yield f"cause: {brief.cause(done.decision, done.outcome)}"
    yield f"held by: {', '.join(holds.held_by(done.view, done.decision, done.outcome))}"
    yield _json(msgspec.json.encode(replay.results_of(done)))
    made = make_trace(done)
    yield _json(trace.encode(made))
    if number % IN_FULL == 0:
        yield brief.brief(done.decision, done.outcome)
        outlooks = outlook(done)
        yield _json(msgspec.json.encode(outlooks))
        yield from map(str, lines(made, outlooks, all_pods=True))


def _json(body: bytes) -> str:
    return msgspec.json.format(body, indent=1).decode()


def parts() -> list[str]:
    """Returns the names of all parts: `reconcile-0`, `reconcile-1`, and so on."""
    return [f"{name}-{index}" for name, (count, _) in PARTS.items() for index in range(count)]


def texts(part: str) -> Iterator[str]:
    """Yields the text of each step of a part."""
    for row in rows(part):
        for index, step in enumerate(replay.run(decode_scenario(row))):
            yield "\n".join([f"=== {row['id']} step {index}", *said(step, index), ""])


def digest(part: str) -> str:
    """Returns the digest of a part with the number of its steps."""
    found, count = hashlib.sha256(), 0
    for text in texts(part):
        found.update(text.encode())
        count += 1
    return f"{found.hexdigest()[:16]} of {count} steps"


def rows(part: str) -> Iterator[Row]:
    """Yields the scenarios of a part."""
    name, _, index = part.rpartition("-")
    size = PARTS[name][1]
    begin = int(index) * size
    file = "reconcile" if name == "own" else name
    with gzip.open(VECTORS / f"{file}.jsonl.gz", "rt", encoding="utf-8") as lines_of_file:
        for number, line in enumerate(islice(lines_of_file, begin, begin + size), start=begin):
            yield _dressed(json.loads(line), number) if name == "own" else json.loads(line)


def _dressed(row: Row, number: int) -> Row:
    """Returns a recorded scenario with something in it that goes beyond Kubernetes, by its number, and all gates."""
    row["controller"]["featureGates"] = msgspec.structs.asdict(Gates()) | {"HPAScaleToZero": number % 2 == 0}
    metrics = row["hpa"]["spec"].get("metrics") or ()
    for index, step in enumerate(row["steps"]):
        metrics = (step.get("spec") or {}).get("metrics", metrics)
        step |= _addition(number % len(_ADDITIONS), index, len(metrics), step)
    return row


_ADDITIONS: Final = (
    "replicas:5 after 0s", "hold", "ignore after 0s", "last-good:10m", "activation", "schedule", "policy", "paused",
    "busy", "busy", "shadow", "dry run", "competitors", "other client",
)  # fmt: skip


def _addition(which: int, index: int, metrics: int, step: Row) -> Row:
    kind = _ADDITIONS[which]
    if which < _ADDITIONS.index("schedule"):
        term = {"activation": "3"} if kind == "activation" else {"fallback": kind}
        return {"terms": [term] * metrics}
    withheld = {"reason": "DryRun", "message": "this is a dry run"}
    shown = {"reason": "Shadow", "message": "the HPA is in shadow mode"}
    pods = [pod["metadata"]["name"] for pod in step.get("pods", ())]
    zero = {"timestamp": "1970-01-01T00:00:00Z", "window": "PT0S"}
    loads = [(name, zero | {"value": 1000 * (place % 2)}) for place, name in enumerate(pods)]
    added: dict[str, Row] = {
        "schedule": {"controls": {"hpad.io/schedule": "*/20 * * * * for 10m: min=2, max=4"}},
        "policy": {"controls": {"hpad.io/metric-policy": _policy(metrics)}} if metrics else {},
        "paused": {"controls": {"hpad.io/mode": "paused" if index % 2 else "active"}},
        "busy": {"controls": {"hpad.io/keep-busy": "true"}, "work": [{"pods": dict(loads[index % 3 :])}]},
        "shadow": {"shadow": {"withheld": shown, "replicas": 2, "observed": 2, "metrics": []}},
        "dry run": {"withheld": withheld, "valuesHeld": index % 2 == 1},
        "competitors": {"competitors": [{"what": ("hpa", "scale", "status")[index % 3], "name": "other"}]},
        "other client": {"setByOther": index % 2 == 0, "zeroBy": "kubectl" if index % 3 else ""},
    }
    return added[kind]


def _policy(metrics: int) -> str:
    operands = ", ".join(f"#{index}" for index in range(metrics))
    return "0.7*#0" if metrics == 1 else f"{('avg', 'sum', 'min')[metrics % 3]}({operands})"


def main() -> None:
    """Writes texts or digests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--write", metavar="DIR", type=Path, help="write the texts of each part into this folder")
    form.add_argument("--renew", action="store_true", help="write the digests")
    parser.add_argument("parts", nargs="*", metavar="PART", help="only the texts of these parts")
    args = parser.parse_args()
    if args.renew:
        found = {part: digest(part) for part in parts()}
        DIGESTS.write_text(json.dumps(found, indent=1) + "\n")
        return
    args.write.mkdir(parents=True, exist_ok=True)
    for part in args.parts or parts():
        (args.write / f"{part}.txt").write_text("".join(texts(part)))


if __name__ == "__main__":
    main()
