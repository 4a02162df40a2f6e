"""What is done for HPAs while somebody leads, and no longer. Under virtual time."""

import asyncio
from typing import Any

import pytest
from support import virtual_time
from support.controller import Bench, hpa
from support.lease_candidates import Candidate, Server

from hpad.election.owner import Owner
from hpad.kube import errors


class Switch:
    """An owner by hand."""

    def __init__(self, on: bool) -> None:
        self.on = on

    def owns(self, key: Any) -> bool:
        return self.on


def led(owner: Owner, *names: str, **options: Any) -> Bench:
    return Bench(*(hpa(name) for name in names), owner=owner, **options)


def test_who_stands_by_reconciles_nothing_and_begins_at_once_when_it_leads() -> None:
    async def main() -> None:
        owner = Switch(False)
        bench = led(owner, "web", "api")
        bench.controller.start()
        await asyncio.sleep(100.1)
        assert bench.metrics.asked == []
        owner.on = True
        bench.handoff.changed()
        await asyncio.sleep(0.001)
        assert {name for _, name in bench.metrics.asked} == {"web", "api"}
        await asyncio.sleep(150)
        assert 10 <= len(bench.metrics.times("web")) - 1 <= 11
        await bench.controller.stop(5)

    virtual_time.run(main())


def test_losing_the_lead_cuts_short_what_is_under_way() -> None:
    async def main() -> None:
        owner = Switch(True)
        bench = led(owner, "web")

        async def slowly() -> int:
            await asyncio.sleep(5)
            return 50

        bench.metrics.values["web"] = slowly
        bench.controller.start()
        await asyncio.sleep(2)
        owner.on = False
        bench.handoff.changed()
        await asyncio.sleep(30)
        assert (bench.cluster.writes, bench.cluster.statuses, bench.cluster.events) == ([], [], [])
        owner.on = True
        bench.handoff.changed()
        await asyncio.sleep(6)
        assert bench.cluster.writes == [5]
        await bench.controller.stop(5)

    virtual_time.run(main())


def test_a_turn_cut_short_before_its_first_step_comes_again() -> None:
    async def main() -> None:
        owner = Switch(True)
        bench = led(owner, "web")
        bench.controller.start()
        for _ in range(4):
            owner.on = False
            bench.handoff.changed()
            owner.on = True
            bench.handoff.changed()
            await asyncio.sleep(0)
        await asyncio.sleep(31)
        assert len(bench.metrics.times("web")) >= 2
        await bench.controller.stop(5)

    virtual_time.run(main())


def test_series_of_hpas_that_another_leads_vanish() -> None:
    async def main() -> None:
        owner = Switch(True)
        bench = led(owner, "web")
        bench.controller.start()
        await asyncio.sleep(1)
        assert b'hpa_name="web"' in await bench.telemetry.exposition()
        owner.on = False
        bench.handoff.changed()
        assert b'hpa_name="web"' not in await bench.telemetry.exposition()
        await bench.controller.stop(5)

    virtual_time.run(main())


@pytest.mark.parametrize("stopped", [9.0, 12.0, 60.0, 86400.0])
def test_a_leader_resumed_after_a_stop_writes_nothing_on_its_old_mandate(stopped: float) -> None:
    """The process is stopped between a decision's metrics and its write, as by SIGSTOP: time goes on, nothing runs."""

    async def main() -> None:
        server = Server()
        candidate = Candidate("a", server)
        bench = led(candidate.leader, "web")
        candidate.leader.subscribe(bench.handoff.changed)

        async def frozen() -> int:
            asyncio.get_running_loop().jump(stopped)  # type: ignore[attr-defined]  # a loop of ours
            successor = {**server.lease["spec"], "holderIdentity": "b"}  # type: ignore[index]  # it is there by now
            server.commit({**server.lease, "spec": successor})  # type: ignore[dict-item]  # and is taken over
            return 100

        bench.metrics.values["web"] = frozen
        bench.controller.start()
        candidate.start()
        await asyncio.sleep(stopped + 0.5)
        assert bench.metrics.asked != []
        if stopped > 10:
            assert (bench.cluster.writes, bench.cluster.statuses, bench.cluster.events) == ([], [], [])
        await asyncio.sleep(3)
        assert not candidate.leads
        await bench.controller.stop(5)
        await candidate.stop()

    virtual_time.run(main())


def test_a_conflict_does_not_carry_a_write_beyond_the_mandate() -> None:
    async def main() -> None:
        owner = Switch(True)
        bench = led(owner, "web")
        bench.metrics.values["web"] = 50
        bench.cluster.refusals = [errors.ApiError(409, "Conflict", "the object has been modified")] * 3
        fresh = bench.cluster.fresh_scale

        async def lost_meanwhile(*given: Any) -> Any:
            owner.on = False
            return await fresh(*given)

        bench.cluster.fresh_scale = lost_meanwhile  # type: ignore[method-assign]  # something happens meanwhile
        bench.controller.start()
        await asyncio.sleep(1)
        assert bench.cluster.writes == [5]
        assert (bench.cluster.statuses, bench.cluster.events) == ([], [])
        await bench.controller.stop(5)

    virtual_time.run(main())
