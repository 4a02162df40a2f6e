"""Random lives of an HPA, the first half: no event makes hpad remove a pod too early or grow too fast.

Each life draws its events from a seed; `chance.RandomLife.kinds` lists them. HPAD_LIVES="SEED 1" repeats a life that
fails, HPAD_LIVES="FIRST COUNT" plays other seeds. The lives are in two files, so that two workers share them.
"""

import pytest
from controller import chance


@pytest.mark.parametrize("seeds", chance.chunks(half=0), ids=chance.named)
def test_no_pod_goes_early(seeds: range) -> None:
    chance.play_all(seeds)
