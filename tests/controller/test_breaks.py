"""The state of an HPA after a gap: it had another owner, did not exist, or its target could not be read."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support import virtual_time
from support.controller import Bench, Switch, hpa
from support.virtual_time import in_virtual_time

from hpad.api.hpa import HorizontalPodAutoscalerStatus, Scale, ScaleSpec, ScaleStatus
from hpad.api.metadata import Key
from hpad.engine import state
from hpad.engine.history import History, Memory, PastRecommendation, PendingRescale, Rescale
from hpad.engine.view import Gates, Tunables, View
from hpad.store import persistent
from hpad.telemetry import Telemetry

WEB = Key("default", "web")
WINDOW = {"scaleDown": {"stabilizationWindowSeconds": 300}}


class Nowhere:
    """A storage backend that keeps nothing."""

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


@in_virtual_time
async def test_a_replica_that_leads_again_waits_a_full_window_before_a_scale_down() -> None:
    """The state from before the other replica led is too old to allow a scale-down."""
    owner = Switch()
    bench = Bench(hpa("web", behavior=WINDOW), owner=owner)
    bench.metrics.values["web"] = 40
    bench.controller.start()
    await asyncio.sleep(31)
    assert bench.cluster.scales["web"] == 4
    owner.on = False
    bench.takeover.changed()
    await asyncio.sleep(3600)
    bench.cluster.scales["web"] = 8  # written by the other leader
    bench.metrics.values["web"] = 20
    owner.on = True
    bench.takeover.changed()
    await asyncio.sleep(290)
    assert bench.cluster.scales["web"] == 8
    await asyncio.sleep(30)
    assert bench.cluster.scales["web"] == 2
    await bench.controller.stop(5)


@in_virtual_time
async def test_the_state_of_a_recreated_hpa_counts_as_loaded() -> None:
    """The state is kept for an hour, but turns are missing in it as after a restart."""
    clock = virtual_time.VirtualClock()
    store = persistent.PersistentStore(Nowhere(), clock, Telemetry(), persistent.SaveIntervals(0.25, 1.0))
    memory = Memory(uid="u", history=History((PastRecommendation(clock.now(), 4),)), at=clock.now())
    store.put(WEB, memory)
    assert not store.get(WEB).loaded
    store.forget(WEB)
    assert store.get(WEB).loaded
    assert store.get(WEB).history == memory.history


@in_virtual_time
async def test_a_target_unreadable_for_a_window_keeps_its_count_for_another() -> None:
    """As in an outage of the API server: old recommendations do not cover the time since."""
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


def test_pods_removed_after_a_scale_up_with_a_pending_status_count_as_a_scale_down() -> None:
    """The pending rescale has the count before it, `last_count` the count after it."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    pending = PendingRescale(5, 10, (Rescale(now, 5),), (), HorizontalPodAutoscalerStatus())
    past = History((PastRecommendation(now, 10),), (Rescale(now, 5),))
    stored = Memory(uid="1", history=past, at=now, last_count=10, pending=pending, loaded=True)
    scale = Scale(metadata={"name": "web"}, spec=ScaleSpec(7), status=ScaleStatus(7, "app=web"))
    view = View(hpa=hpa("web", behavior=WINDOW), now=now + timedelta(seconds=15), scale=scale)
    assert [rescale.change for rescale in state.resumed(stored, view, timedelta(minutes=1)).scale_downs] == [3]


@pytest.mark.parametrize(("fixed", "grown"), [(True, 3), (False, 10)])
@in_virtual_time
async def test_recommendations_for_a_former_target_do_not_limit_the_new_one(fixed: bool, grown: int) -> None:
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
        assert bench.cluster.scales["other"] == 2, "another API version names the same target"
    await bench.controller.stop(5)
