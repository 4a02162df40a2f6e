"""Random lives of an HPA, the second half; `test_early` has the first."""

import pytest
from controller import chance


@pytest.mark.parametrize("seeds", chance.chunks(half=1), ids=chance.named)
def test_no_pod_goes_early_either(seeds: range) -> None:
    chance.play_all(seeds)
