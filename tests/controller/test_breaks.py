"""What is remembered of an HPA after a time in which it was not ours, or not there."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support import virtual_time
from support.controller import Bench, hpa

from hpad.api.hpa import HorizontalPodAutoscalerStatus, Scale, ScaleSpec, ScaleStatus
from hpad.api.metadata import Key
from hpad.controller import recovery
from hpad.election.owner import Owner
from hpad.engine.history import History, PastRecommendation, Rescale
from hpad.engine.view import Gates, Tunables, View
from hpad.store import persistent
from hpad.store.memory import Memory, PendingRescale
from hpad.telemetry import Telemetry

WEB = Key("default", "web")
WINDOW = {"scaleDown": {"stabilizationWindowSeconds": 300}}


class Switch(Owner):
    """An owner of everything, or of nothing."""

    def __init__(self) -> None:
        self.on = True

    def owns(self, key: Key) -> bool:
        return self.on


class Nowhere:
    """A shelf that keeps nothing."""

    name = "nowhere"

    def group(self, key: Key) -> Key:
        return key

    async def load(self) -> tuple[list[tuple[Key, bytes]], str | None]:
        return [], None

    async def save(self, changes: Any) -> dict[Key, str]:
        return {}

    async def quarantine(self, keys: Any) -> None:
        pass

    def emptied(self) -> bool:
        return False

    async def size(self) -> int:
        return 0

    async def close(self) -> None:
        pass


def test_who_leads_again_waits_a_whole_window_before_taking_pods_away() -> None:
    """What was remembered when another took over is too old to say anything, and must not pass for agreement."""

    async def main() -> None:
        owner = Switch()
        bench = Bench(hpa("web", behavior=WINDOW), owner=owner)
        bench.metrics.values["web"] = 40
        bench.controller.start()
        await asyncio.sleep(31)
        assert bench.cluster.scales["web"] == 4
        owner.on = False
        bench.controller.reassign()
        await asyncio.sleep(3600)
        bench.cluster.scales["web"] = 8  # by whoever led meanwhile
        bench.metrics.values["web"] = 20
        owner.on = True
        bench.store.refresh()
        bench.controller.reassign()
        await asyncio.sleep(290)
        assert bench.cluster.scales["web"] == 8
        await asyncio.sleep(30)
        assert bench.cluster.scales["web"] == 2
        await bench.controller.stop(5)

    virtual_time.run(main())


def test_an_hpa_that_was_gone_and_comes_back_says_so() -> None:
    """A memory is kept for an hour, but not as if it had gone on all the time."""

    async def main() -> None:
        clock = virtual_time.VirtualClock()
        store = persistent.PersistentStore(Nowhere(), clock, Telemetry(), persistent.Pace(0.25, 1.0))
        memory = Memory(uid="u", history=History((PastRecommendation(clock.now(), 4),)), at=clock.now())
        store.put(WEB, memory)
        assert not store.get(WEB).loaded
        store.forget(WEB)
        assert store.get(WEB).loaded
        assert store.get(WEB).history == memory.history

    virtual_time.run(main())


def test_a_target_that_could_not_be_read_for_a_window_is_held_for_another() -> None:
    """As while the API server was away: old recommendations say nothing of the time since, and must not pass for it."""

    async def main() -> None:
        bench = Bench(hpa("web", behavior=WINDOW))
        bench.metrics.values["web"] = 40
        bench.controller.start()
        await asyncio.sleep(31)
        assert bench.cluster.scales.pop("web") == 4
        await asyncio.sleep(600)
        bench.cluster.scales["web"] = 8
        bench.metrics.values["web"] = 20
        await asyncio.sleep(290)
        assert bench.cluster.scales["web"] == 8
        await asyncio.sleep(45)
        assert bench.cluster.scales["web"] == 2
        await bench.controller.stop(5)

    virtual_time.run(main())


def test_pods_that_vanished_after_a_growth_whose_status_is_owed_count_as_a_scale_down() -> None:
    """What is begun says where it began; what was left says where it ended."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    pending = PendingRescale(5, 10, (Rescale(now, 5),), (), HorizontalPodAutoscalerStatus())
    past = History((PastRecommendation(now, 10),), (Rescale(now, 5),))
    held = Memory(uid="1", history=past, at=now, last_count=10, pending=pending, loaded=True)
    scale = Scale(metadata={"name": "web"}, spec=ScaleSpec(7), status=ScaleStatus(7, "app=web"))
    seen = View(hpa=hpa("web", behavior=WINDOW), now=now + timedelta(seconds=15), scale=scale)
    assert [fall.change for fall in recovery.resumed(held, seen, timedelta(minutes=1)).scale_downs] == [3]


@pytest.mark.parametrize(("fixed", "grown"), [(True, 3), (False, 10)])
def test_another_target_is_not_held_to_counts_recommended_for_the_one_before(fixed: bool, grown: int) -> None:
    async def main() -> None:
        gates = Gates(HPATargetHistory=fixed)
        bench = Bench(hpa("web"), tunables=Tunables(gates=gates))
        bench.cluster.scales.update(web=10, other=3)
        bench.metrics.values["web"] = 100
        bench.source.put(hpa("web", behavior=None))
        bench.controller.start()
        await asyncio.sleep(31)
        bench.metrics.values["web"] = 20
        ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}
        bench.source.put(hpa("web", behavior=None, scaleTargetRef=ref))
        await asyncio.sleep(60)
        assert bench.cluster.scales == {"web": 10, "other": grown}
        bench.source.put(hpa("web", behavior=None, scaleTargetRef={**ref, "apiVersion": "apps/v2"}))
        await asyncio.sleep(200)
        assert bench.cluster.scales["other"] == grown
        if fixed:
            await asyncio.sleep(60)
            assert bench.cluster.scales["other"] == 2, "another version of its API is no other target"
        await bench.controller.stop(5)

    virtual_time.run(main())
