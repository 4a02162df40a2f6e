"""A little fuzzing with each test run, always the same: the seeds, what was found once, and some hundred mutations.

`make fuzz` does it at length, guided by coverage.
"""

import random
import time

import pytest
from fuzz import budget, mutation, targets

MUTATIONS = 400
SECONDS = 1.0


@pytest.mark.parametrize("name", targets.TARGETS)
def test_nothing_unexpected_comes_of(name: str) -> None:
    target = targets.TARGETS[name]
    rng = random.Random(name)
    inputs = [b"", *target.seeds, *target.found]
    inputs += [mutation.mutated(rng.choice(inputs), target.seeds, rng) for _ in range(MUTATIONS)]
    until = time.monotonic() + SECONDS
    with target.opened() as check:
        for number, data in enumerate(inputs):
            if number > MUTATIONS // 4 and time.monotonic() > until:
                break
            try:
                budget.held(check, data, target.patience)
            except Exception as error:  # noqa: BLE001  whatever it is, it is a bug, and this its input
                pytest.fail(f"{type(error).__name__}: {error}\nfor the input {data[:2000]!r}")
