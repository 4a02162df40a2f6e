"""Recorded scenarios, some of them with what goes beyond Kubernetes, and all that hpad says about a step of one."""

import gzip
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from hpad.engine import holds
from hpad.engine.outlook import outlook
from hpad.engine.render import lines
from hpad.engine.trace.make import make_trace
from hpad.engine.turn import Reconcile
from hpad.engine.view import Gates
from hpad.records import replay

Row = dict[str, Any]
VECTORS: Final = Path(__file__).resolve().parents[1] / "data" / "vectors"
PARTS: Final = {"reconcile": (8, 150), "timeline": (8, 8), "own": (4, 60)}
"""Of each file the number of parts, and of rows in a part."""
IN_FULL: Final = 5
"""Of so many steps one is explained in full with what comes next, which takes the most time."""


def said(done: Reconcile, number: int) -> Iterator[str]:
    """Yields what hpad says about a replayed step: the one place that knows how the product is asked for it."""
    yield f"cause: {holds.cause(done.decision, done.outcome)}"
    yield f"held by: {', '.join(holds.held_by(done.view, done.decision, done.outcome))}"
    yield _json(msgspec.json.encode(replay.results_of(done)))
    made = make_trace(done)
    yield _json(msgspec.json.encode(made))
    if number % IN_FULL == 0:
        yield holds.brief(done.decision, done.outcome)
        outlooks = outlook(done)
        yield _json(msgspec.json.encode(outlooks))
        yield from map(str, lines(made, outlooks, all_pods=True))


def _json(body: bytes) -> str:
    return msgspec.json.format(body, indent=1).decode()


def parts() -> list[str]:
    """Returns the names of all parts: `reconcile-0`, `reconcile-1`, and so on."""
    return [f"{name}-{index}" for name, (count, _) in PARTS.items() for index in range(count)]


def rows(part: str, step: int) -> Iterator[Row]:
    """Yields each step-th scenario of a part."""
    name, _, index = part.rpartition("-")
    size = PARTS[name][1]
    begin = int(index) * size
    file = "reconcile" if name == "own" else name
    with gzip.open(VECTORS / f"{file}.jsonl.gz") as lines:
        for number, line in islice(enumerate(lines), begin, begin + size, step):
            row = msgspec.json.decode(line)
            yield _dressed(row, number) if name == "own" else row


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
        "busy": {
            "controls": {"hpad.io/keep-busy": "true"},
            "work": [{"pods": dict(loads[index % 3 :]), "mostBusy": index % 4}],
        },
        "shadow": {"shadow": {"withheld": shown, "replicas": 2, "observed": 2, "metrics": []}},
        "dry run": {"withheld": withheld, "valuesHeld": index % 2 == 1},
        "competitors": {"competitors": [{"what": ("hpa", "scale", "status")[index % 3], "name": "other"}]},
        "other client": {"setByOther": index % 2 == 0, "zeroBy": "kubectl" if index % 3 else ""},
    }
    return added[kind]


def _policy(metrics: int) -> str:
    operands = ", ".join(f"#{index}" for index in range(metrics))
    return "0.7*#0" if metrics == 1 else f"{('avg', 'sum', 'min')[metrics % 3]}({operands})"
