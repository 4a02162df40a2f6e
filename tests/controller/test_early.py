"""Random lives of an HPA, the first half: whatever happens, no pod goes early, and nothing grows too fast.

Each life draws its troubles from a seed; `chance.Fate` lists them. A life that fails is repeated with
HPAD_LIVES="SEED 1"; HPAD_LIVES="FIRST COUNT" plays others than those that always are. The lives are in two files, so
that two workers share them.
"""

import pytest
from controller import chance


@pytest.mark.parametrize("seeds", chance.chunks(half=0), ids=chance.named)
def test_no_pod_goes_early(seeds: range) -> None:
    chance.play_all(seeds)
