"""The phases of an HPA: all allowed and refused changes, and an HPA deleted during its turn."""

import asyncio
import itertools

import pytest
from support.controller import Bench, hpa
from support.references import containers
from support.virtual_time import in_virtual_time

from hpad.api.metadata import Key
from hpad.controller.planning import TRANSITIONS, Phase, PhaseChange, Record

WEB = Key("default", "web")
IDLE = (Phase.UNKNOWN, Phase.WAITING, Phase.COOLING_DOWN, Phase.STANDBY)
ALLOWED = {
    (Phase.RUNNING, PhaseChange.COMPLETE): Phase.WAITING,
    (Phase.RUNNING, PhaseChange.COOL_DOWN): Phase.COOLING_DOWN,
    (Phase.RUNNING, PhaseChange.STAND_BY): Phase.STANDBY,
    (Phase.RUNNING, PhaseChange.VANISH): Phase.GONE,
    (Phase.RUNNING, PhaseChange.DELETE): Phase.DELETED,
    (Phase.DELETED, PhaseChange.COMPLETE): Phase.WAITING,
    (Phase.DELETED, PhaseChange.COOL_DOWN): Phase.COOLING_DOWN,
    (Phase.DELETED, PhaseChange.STAND_BY): Phase.STANDBY,
    (Phase.DELETED, PhaseChange.VANISH): Phase.GONE,
    (Phase.DELETED, PhaseChange.DELETE): Phase.DELETED,
    (Phase.GONE, PhaseChange.DELETE): Phase.GONE,
}


@pytest.mark.parametrize(("phase", "change"), list(itertools.product(Phase, PhaseChange)), ids=lambda each: each.name)
def test_each_phase_allows_its_changes_and_refuses_all_others(phase: Phase, change: PhaseChange) -> None:
    expected = ALLOWED.get((phase, change))
    if phase in IDLE and change in (PhaseChange.START, PhaseChange.DELETE):
        expected = Phase.RUNNING if change is PhaseChange.START else Phase.GONE
    record = Record(phase)
    if expected is None:
        with pytest.raises(KeyError):
            record.change(change)
        assert record.phase is phase
    else:
        assert record.change(change) is expected


def test_every_phase_can_be_reached_and_only_the_last_one_is_final() -> None:
    reached = {Phase.UNKNOWN, *TRANSITIONS.values()}
    assert reached == set(Phase)
    left = {phase for (phase, _), after in TRANSITIONS.items() if after is not phase}
    assert left == set(Phase) - {Phase.GONE}


async def never() -> None:
    """A metric without an answer."""
    await asyncio.sleep(3600)


@in_virtual_time
async def test_an_hpa_deleted_during_its_turn_leaves_no_record() -> None:
    bench = Bench(hpa("other"))
    bench.controller.start()
    await asyncio.sleep(1)
    before = containers(bench.controller)
    bench.metrics.values["web"], bench.cluster.scales["web"] = never, 1
    bench.source.put(hpa("web"))
    await asyncio.sleep(1)
    during = containers(bench.controller)
    assert len(bench.controller.running()) == 1
    assert any(size > before[path] for path, size in during.items() if path in before)
    bench.source.drop("web")
    await asyncio.sleep(1)
    assert bench.controller.running() == []
    after = containers(bench.controller)
    assert {path: size for path, size in after.items() if size > before.get(path, 0)} == {}
    await bench.controller.stop(5)


@in_virtual_time
async def test_a_recreated_hpa_has_its_first_turn_after_the_cancelled_one() -> None:
    bench = Bench(hpa("web"))
    bench.metrics.values["web"] = never
    bench.controller.start()
    await asyncio.sleep(1)
    bench.source.drop("web")
    bench.source.put(hpa("web"))
    await asyncio.sleep(1)
    assert len(bench.controller.running()) == 1
    assert len(bench.metrics.times("web")) == 2
    await bench.controller.stop(0)
