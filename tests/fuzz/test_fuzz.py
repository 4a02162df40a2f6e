"""A short fuzzing run: the seeds, the inputs that once showed a bug, and 100 mutations of them, always the same.

`make fuzz` tries millions, guided by coverage.
"""

import random

import pytest

from tools.fuzz import budget, mutation, targets

MUTATIONS = 100
SLOW_MACHINE = 10.0
"""Factor of the budget of CPU time, so that the test passes on a slow machine."""


@pytest.mark.parametrize("name", targets.TARGETS)
def test_no_input_raises_an_unexpected_exception(name: str) -> None:
    target = targets.TARGETS[name]
    rng = random.Random(name)
    inputs = [b"", *target.seeds, *target.found]
    inputs += [mutation.mutated(rng.choice(inputs), target.seeds, rng) for _ in range(MUTATIONS)]
    with target.opened() as check:
        for data in inputs:
            try:
                budget.limited(check, data, SLOW_MACHINE * target.patience)
            except Exception as error:  # noqa: BLE001  any exception is a bug
                pytest.fail(f"{type(error).__name__}: {error}\nfor the input {data[:2000]!r}")
