"""Random lives of an HPA: whatever happens, no pod goes earlier than it would have, and nothing grows faster.

Each life draws its troubles from a seed; `chance.Fate` lists them. A life that fails is repeated with
HPAD_LIVES="SEED 1"; HPAD_LIVES="FIRST COUNT" plays others than those that always are.
"""

import os

import pytest
import virtual
from control import chance

from hpad.store import validity

FIRST, COUNT = (int(number) for number in os.environ.get("HPAD_LIVES", "1 1000").split())
CHUNK = 50


@pytest.fixture(autouse=True)
def quiet() -> None:
    chance.silence()


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, CHUNK))
def test_no_pod_goes_early(first: int) -> None:
    downs = 0
    for seed in range(first, min(first + CHUNK, FIRST + COUNT)):
        fate = chance.Fate(seed)
        virtual.run(fate.play())
        assert fate.found == [], f"seed {seed}: {fate.found[0]}; before: {fate.log[-6:]}"
        downs += sum(write.after < write.before for write in fate.world.writes)
    assert COUNT < CHUNK or downs > CHUNK, "targets are scaled down at all"


def test_the_lives_would_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were everything that is recalled taken as whole, a few lives would tell."""
    monkeypatch.setattr(validity.Validity, "is_whole", lambda self, at, now: True)
    found = []
    for seed in range(1, 40):
        fate = chance.Fate(seed)
        virtual.run(fate.play())
        found += fate.found
    assert found
