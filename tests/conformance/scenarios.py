"""Compares the results of a recorded scenario with those of Kubernetes."""

from collections.abc import Iterable
from typing import Any

from hpad.records import replay

MANY = 10
"""The number of differences that a failed test shows."""


def differences(rows: Iterable[dict[str, Any]]) -> tuple[int, list[str]]:
    """Returns the number of reconciles of all scenarios, and one text per difference."""
    total, wrong = 0, []
    for row in rows:
        answered = replay.replay(row)
        assert answered["id"] == row["id"]
        assert len(answered["steps"]) == len(row["steps"])
        for index, (step, ours) in enumerate(zip(row["steps"], answered["steps"], strict=True)):
            total += 1
            odd = [name for name, value in step["expect"].items() if not replay.agrees(ours[name], value)]
            if odd or ours.keys() != step["expect"].keys():
                texts = [f"  {name}: expected {step['expect'][name]}\n  {name}: ours     {ours[name]}" for name in odd]
                wrong.append("\n".join([f"{row['id']} step {index}", *texts]))
    assert total, "there are no scenarios"
    return total, wrong
