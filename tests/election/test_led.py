"""HPAs are reconciled while the process leads, and no longer. Under virtual time."""

import asyncio
from typing import Any

import pytest
from support.controller import Bench, Switch, hpa
from support.lease_candidates import Candidate, Server
from support.virtual_time import in_virtual_time

from hpad.election.owner import Authority
from hpad.kube import errors


def led(owner: Authority, *names: str, **options: Any) -> Bench:
    return Bench(*(hpa(name) for name in names), owner=owner, **options)


@in_virtual_time
async def test_a_standby_reconciles_nothing_and_begins_at_once_when_it_leads() -> None:
    owner = Switch(False)
    bench = led(owner, "web", "api")
    bench.controller.start()
    await asyncio.sleep(100.1)
    assert bench.metrics.asked == []
    owner.on = True
    bench.takeover.changed()
    await asyncio.sleep(0.001)
    assert {name for _, name in bench.metrics.asked} == {"web", "api"}
    await asyncio.sleep(150)
    assert 10 <= len(bench.metrics.times("web")) - 1 <= 11
    await bench.controller.stop(5)


@in_virtual_time
async def test_reconciles_are_cancelled_when_the_process_stops_leading() -> None:
    owner = Switch(True)
    bench = led(owner, "web")

    async def slowly() -> int:
        await asyncio.sleep(5)
        return 50

    bench.metrics.values["web"] = slowly
    bench.controller.start()
    await asyncio.sleep(2)
    owner.on = False
    bench.takeover.changed()
    await asyncio.sleep(30)
    assert (bench.cluster.writes, bench.cluster.statuses, bench.cluster.events) == ([], [], [])
    owner.on = True
    bench.takeover.changed()
    await asyncio.sleep(6)
    assert bench.cluster.writes == [5]
    await bench.controller.stop(5)


@in_virtual_time
async def test_a_turn_cancelled_before_its_first_step_comes_again() -> None:
    owner = Switch(True)
    bench = led(owner, "web")
    bench.controller.start()
    for _ in range(4):
        owner.on = False
        bench.takeover.changed()
        owner.on = True
        bench.takeover.changed()
        await asyncio.sleep(0)
    await asyncio.sleep(31)
    assert len(bench.metrics.times("web")) >= 2
    await bench.controller.stop(5)


@in_virtual_time
async def test_the_series_of_hpas_of_another_leader_vanish() -> None:
    owner = Switch(True)
    bench = led(owner, "web")
    bench.controller.start()
    await asyncio.sleep(1)
    assert b'hpa_name="web"' in await bench.telemetry.exposition()
    owner.on = False
    bench.takeover.changed()
    assert b'hpa_name="web"' not in await bench.telemetry.exposition()
    await bench.controller.stop(5)


@pytest.mark.parametrize("stopped", [9.0, 12.0, 60.0, 86400.0])
@in_virtual_time
async def test_a_leader_resumed_after_a_stop_writes_nothing_on_its_old_lease(stopped: float) -> None:
    """The process is stopped between the metrics of a decision and its write, as by SIGSTOP: only time goes on."""
    server = Server()
    candidate = Candidate("a", server)
    bench = led(candidate.leader, "web")
    candidate.leader.subscribe(bench.takeover.changed)

    async def frozen() -> int:
        asyncio.get_running_loop().jump(stopped)  # type: ignore[attr-defined]  # a VirtualLoop
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


@in_virtual_time
async def test_after_a_conflict_nothing_is_written_without_leadership() -> None:
    owner = Switch(True)
    bench = led(owner, "web")
    bench.metrics.values["web"] = 50
    bench.cluster.refusals = [errors.ApiError(409, "Conflict", "the object has been modified")] * 3
    fresh = bench.cluster.fresh_scale

    async def lost_meanwhile(*arguments: Any) -> Any:
        owner.on = False
        return await fresh(*arguments)

    bench.cluster.fresh_scale = lost_meanwhile  # type: ignore[method-assign]  # leadership ends between the conflict and the next write
    bench.controller.start()
    await asyncio.sleep(1)
    assert bench.cluster.writes == [5]
    assert (bench.cluster.statuses, bench.cluster.events) == ([], [])
    await bench.controller.stop(5)
