"""How the answers to a recorded scenario are held against what Kubernetes did."""

from collections.abc import Iterable
from typing import Any

from hpad.lab import replay

MANY = 10
"""How many differences a failed test shows."""


def agrees(ours: Any, expected: Any) -> bool:
    """Equal in value and type; "*" stands for anything (but null)."""
    if expected == "*":
        return ours is not None
    if isinstance(expected, dict):
        return (
            isinstance(ours, dict)
            and ours.keys() == expected.keys()
            and all(agrees(ours[k], expected[k]) for k in ours)
        )
    if isinstance(expected, list):
        return isinstance(ours, list) and len(ours) == len(expected) and all(map(agrees, ours, expected))
    return type(ours) is type(expected) and bool(ours == expected)


def differences(rows: Iterable[dict[str, Any]]) -> tuple[int, list[str]]:
    """The number of reconciles of all scenarios, and one text for each that came out otherwise."""
    total, wrong = 0, []
    for row in rows:
        answered = replay.replay(row)
        assert answered["id"] == row["id"]
        assert len(answered["steps"]) == len(row["steps"])
        for index, (step, ours) in enumerate(zip(row["steps"], answered["steps"], strict=True)):
            total += 1
            odd = [name for name, value in step["expect"].items() if not agrees(ours[name], value)]
            if odd or ours.keys() != step["expect"].keys():
                texts = [f"  {name}: expected {step['expect'][name]}\n  {name}: ours     {ours[name]}" for name in odd]
                wrong.append("\n".join([f"{row['id']} step {index}", *texts]))
    return total, wrong
