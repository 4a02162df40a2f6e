"""The trace of each recorded reconcile holds every number of its decision: Kubernetes' count follows from it alone."""

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec
import pytest
from conformance.scenarios import MANY
from support import recompute

from hpad.api.hpa import without_status
from hpad.decisions.stretch import kept
from hpad.engine import trace
from hpad.engine.outlook import outlook
from hpad.engine.render import lines
from hpad.engine.trace.evidence import Evidence, make_trace
from hpad.engine.view import Gates
from hpad.recording import replay
from hpad.recording.format import decode_scenario

Vectors = Callable[[str], Iterator[dict[str, Any]]]


def traced(step: replay.Replayed) -> bytes:
    """Returns the JSON of the trace of a replayed step."""
    evidence = Evidence(step.view, step.answers, step.decision, step.outcome, step.settlement)
    made = make_trace(kept(evidence, without_status(step.view.hpa)))  # as the decision history keeps it
    body = trace.encode(made)
    assert trace.decode(body) == made
    outlooks = outlook(made)
    assert all(each.text for each in outlooks)
    head, *rest = map(str, lines(made, outlooks))
    assert head.startswith("HPA:  ")
    assert rest
    assert not any("\n" in each for each in rest)
    return body


EACH = 4
"""Of so many rows one is tried: a trace takes many times as long as its decision, which is compared for all rows."""


@pytest.mark.parametrize("name", ["reconcile", "timeline"])
def test_recorded_counts_follow_from_the_json_of_the_trace(vectors: Vectors, name: str) -> None:
    total, wrong = 0, []
    for row in islice(vectors(name), 0, None, EACH):
        for index, step in enumerate(replay.run(decode_scenario(row))):
            total += 1
            body, attempts = traced(step), row["steps"][index]["expect"]["scaleUpdateAttempts"]
            expected = attempts[0] if attempts else step.view.replicas
            found = recompute.desired(json.loads(body))
            if found != expected:
                wrong.append(f"{row['id']} step {index}: {expected} recorded, {found} from {body.decode()}")
    assert total > 1000
    if wrong:
        pytest.fail("\n".join([f"{len(wrong)} of {total} counts differ", *wrong[:MANY]]))


def test_the_count_follows_from_the_trace_with_all_gates_of_the_daemon(vectors: Vectors) -> None:
    gates = msgspec.structs.asdict(Gates())
    wrong = []
    for row in islice(vectors("reconcile"), 1, None, EACH):
        row["controller"]["featureGates"] = gates | {"HPAScaleToZero": True}
        for index, step in enumerate(replay.run(decode_scenario(row))):
            body = traced(step)
            found = recompute.desired(json.loads(body))
            if found != step.decision.desired:
                wrong.append(f"{row['id']} step {index}: {step.decision.desired}, {found} from {body.decode()}")
    assert not wrong, "\n".join([f"{len(wrong)} counts differ", *wrong[:MANY]])
