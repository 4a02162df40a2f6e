"""A little fuzzing with each test run: the seeds, what was found once, and 1,000 mutations of them, always the same.

`make fuzz` does it at length, guided by coverage.
"""

import random

import pytest

from tools.fuzz import budget, mutation, targets

MUTATIONS = 1_000
SLOW_MACHINE = 10.0
"""What a run that must not depend on the machine stretches the budget of CPU time by."""


@pytest.mark.parametrize("name", targets.TARGETS)
def test_nothing_unexpected_comes_of(name: str) -> None:
    target = targets.TARGETS[name]
    rng = random.Random(name)
    inputs = [b"", *target.seeds, *target.found]
    inputs += [mutation.mutated(rng.choice(inputs), target.seeds, rng) for _ in range(MUTATIONS)]
    with target.opened() as check:
        for data in inputs:
            try:
                budget.held(check, data, SLOW_MACHINE * target.patience)
            except Exception as error:  # noqa: BLE001  whatever it is, it is a bug, and this its input
                pytest.fail(f"{type(error).__name__}: {error}\nfor the input {data[:2000]!r}")
