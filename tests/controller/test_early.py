"""Random lives of an HPA: no event makes hpad remove a pod too early or grow too fast.

Each life draws its events from a seed; `chance.RandomLife.kinds` lists them. HPAD_LIVES="SEED 1" repeats a life that
fails, HPAD_LIVES="FIRST COUNT" plays other seeds, and `make soak` plays more.
"""

import pytest
from controller import chance


@pytest.mark.parametrize("seeds", chance.chunks(), ids=chance.named)
def test_no_pod_goes_early(seeds: range) -> None:
    chance.play_all(seeds)
