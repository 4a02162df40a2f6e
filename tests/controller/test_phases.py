"""The phases in the life of an HPA: every allowed change, every refused one, and what a deletion leaves."""

import asyncio
import itertools

import pytest
from support import virtual_time
from support.controller import Bench, hpa

from hpad.api.metadata import Key
from hpad.controller.schedule import TRANSITIONS, Change, Phase, Record

WEB = Key("default", "web")
IDLE = (Phase.UNKNOWN, Phase.WAITING, Phase.COOLING_DOWN, Phase.NOT_OWNED)
ALLOWED = {
    (Phase.RUNNING, Change.COMPLETE): Phase.WAITING,
    (Phase.RUNNING, Change.COOL_DOWN): Phase.COOLING_DOWN,
    (Phase.RUNNING, Change.DISOWN): Phase.NOT_OWNED,
    (Phase.RUNNING, Change.VANISH): Phase.GONE,
    (Phase.RUNNING, Change.DELETE): Phase.DELETED,
    (Phase.DELETED, Change.COMPLETE): Phase.WAITING,
    (Phase.DELETED, Change.COOL_DOWN): Phase.COOLING_DOWN,
    (Phase.DELETED, Change.DISOWN): Phase.NOT_OWNED,
    (Phase.DELETED, Change.VANISH): Phase.GONE,
    (Phase.DELETED, Change.DELETE): Phase.DELETED,
    (Phase.GONE, Change.DELETE): Phase.GONE,
}


@pytest.mark.parametrize(("phase", "change"), list(itertools.product(Phase, Change)), ids=lambda each: each.name)
def test_each_phase_allows_its_changes_and_refuses_all_others(phase: Phase, change: Change) -> None:
    expected = ALLOWED.get((phase, change))
    if phase in IDLE and change in (Change.START, Change.DELETE):
        expected = Phase.RUNNING if change is Change.START else Phase.GONE
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


def test_a_deleted_hpa_leaves_no_record_even_when_its_turn_was_under_way() -> None:
    async def hang() -> int:
        await asyncio.sleep(5)
        return 10

    async def main() -> tuple[list[Phase], int]:
        bench = Bench(hpa("web"))
        bench.metrics.values["web"] = hang
        records, phases = bench.controller._records, []
        bench.controller.start()
        await asyncio.sleep(1)
        phases.append(records[WEB].phase)
        bench.source.drop("web")
        phases.append(records[WEB].phase)
        await asyncio.sleep(1)
        await bench.controller.stop(5)
        return phases, len(records)

    assert virtual_time.run(main()) == ([Phase.RUNNING, Phase.DELETED], 0)


def test_an_hpa_of_a_deleted_ones_name_has_its_first_turn_after_the_cancelled_one() -> None:
    async def main() -> tuple[Phase, int]:
        bench = Bench(hpa("web"))

        async def slow() -> int:
            await asyncio.sleep(5)
            return 10

        bench.metrics.values["web"] = slow
        bench.controller.start()
        await asyncio.sleep(1)
        bench.source.drop("web")
        bench.source.put(hpa("web"))
        await asyncio.sleep(1)
        phase, turns = bench.controller._records[WEB].phase, len(bench.metrics.times("web"))
        await bench.controller.stop(0)
        return phase, turns

    assert virtual_time.run(main()) == (Phase.RUNNING, 2)
