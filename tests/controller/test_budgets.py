"""HPAs that share a budget, turn by turn: the sum of their targets never exceeds it, whatever goes wrong."""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support import virtual_time
from support.controller import Bench, Switch, annotated, hpa
from support.virtual_time import in_virtual_time

from hpad.api.hpa import AUTOSCALER, HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.api.pod import ContainerRequests, Pod
from hpad.api.sample import AdapterError
from hpad.engine.budget import BudgetMember
from hpad.engine.conditions import SCALED_TO_ZERO, SCALING_LIMITED, WITHIN_BUDGET, Condition, find
from hpad.engine.history import Memory, PendingRescale
from hpad.engine.turn import AskBudget, Reconcile
from hpad.engine.view import Gates, Tunables, View
from hpad.kube import errors
from hpad.records import replay
from hpad.records.encode import encode_head, encode_reconcile
from hpad.records.redact import Redaction
from hpad.settings.hpas import SharedBudget

GPU = SharedBudget(name="gpu", replicas=20)
AT_ONCE = {
    "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 100, "periodSeconds": 1}]},
    "scaleDown": {"stabilizationWindowSeconds": 300},
}


def sharing(name: str, priority: int = 0, **spec: Any) -> HorizontalPodAutoscaler:
    """An HPA of up to 50 replicas that grows at once, shrinks slowly, and has 10 messages per replica."""
    texts = {"budget": "gpu"} | ({"budget-priority": str(priority)} if priority else {})
    return annotated(hpa(name, **{"maxReplicas": 50, "behavior": AT_ONCE, **spec}), **texts)


def asleep(name: str) -> HorizontalPodAutoscaler:
    """One whose last replica it has taken."""
    found = (Condition(SCALED_TO_ZERO, "True", virtual_time.START, "ScaledToZero"),)
    made = sharing(name, minReplicas=0)
    return msgspec.structs.replace(made, status=HorizontalPodAutoscalerStatus(desired_replicas=0, conditions=found))


class World(Bench):
    """A bench that notes the largest sum of all targets at each change."""

    def __init__(
        self, *found: HorizontalPodAutoscaler, budgets: tuple[SharedBudget, ...] = (GPU,), **options: Any
    ) -> None:
        super().__init__(*found, budgets=budgets, **options)
        self.most = 0
        write = self.cluster.write_scale

        async def noted(*args: Any) -> Any:
            written = await write(*args)
            self.most = max(self.most, sum(self.cluster.scales.values()))
            return written

        self.cluster.write_scale = noted  # type: ignore[method-assign]

    def wants(self, **counts: int) -> None:
        """Sets the replicas that the metrics ask for, by HPA."""
        self.metrics.values.update({name: 10 * count for name, count in counts.items()})

    def has(self, **counts: int) -> None:
        """Sets the counts of targets, as another client does."""
        self.cluster.scales.update(counts)

    def condition(self, name: str, kind: str) -> Condition:
        found = self.source.get(Key("default", name))
        assert found is not None
        condition = find(found.status.conditions, kind)
        assert condition is not None, f"{name} has no condition {kind}"
        return condition


@asynccontextmanager
async def running(world: Bench) -> AsyncIterator[None]:
    world.controller.start()
    yield
    await world.controller.stop(5)


@in_virtual_time
async def test_a_higher_priority_gets_its_room_within_two_periods() -> None:
    world = World(sharing("low"), sharing("high", priority=5))
    world.wants(low=30, high=1)
    async with running(world):
        await asyncio.sleep(31)
        assert world.cluster.scales == {"low": 19, "high": 1}
        world.wants(high=12)
        await asyncio.sleep(31)
        assert world.cluster.scales == {"low": 8, "high": 12}
        world.wants(high=1)
        await asyncio.sleep(400)
    assert world.cluster.scales == {"low": 19, "high": 1}
    assert world.most == 20


@in_virtual_time
async def test_an_autoscaler_in_shadow_mode_holds_the_target_that_its_hpa_holds_once() -> None:
    tried = msgspec.structs.replace(annotated(sharing("a"), budget="gpu", mode="shadow"), kind=AUTOSCALER)
    world = World(sharing("a"), sharing("b"), tried)
    world.wants(a=12, b=8)
    async with running(world):
        await asyncio.sleep(100)
        assert world.cluster.scales == {"a": 12, "b": 8}
        assert world.store.get(tried.key).shadow == 12


@in_virtual_time
async def test_equals_share_and_come_to_rest() -> None:
    world = World(*(sharing(name) for name in ("a", "b", "c")))
    world.wants(a=30, b=20, c=10)
    async with running(world):
        await asyncio.sleep(100)
        settled, writes = dict(world.cluster.scales), len(world.cluster.writes)
        await asyncio.sleep(600)
    assert sum(settled.values()) == 20
    assert settled["a"] > settled["b"] > settled["c"]
    assert (world.cluster.scales, len(world.cluster.writes)) == (settled, writes)


@in_virtual_time
@pytest.mark.parametrize("others", [1, 3])
async def test_at_the_start_none_grows_into_what_the_others_are_about_to_claim(others: int) -> None:
    """The first one would have 19 replicas for one period, and be cut then."""
    names = [f"hpa-{index}" for index in range(others + 1)]
    world = World(*map(sharing, names))
    world.wants(**dict.fromkeys(names, 25))
    async with running(world):
        await asyncio.sleep(100)
    part = 20 // len(names)
    assert world.cluster.scales == dict.fromkeys(names, part)
    assert max(world.cluster.writes) == part


@in_virtual_time
async def test_at_the_start_a_target_that_does_not_exist_is_waited_for_in_one_period_only() -> None:
    world = World(sharing("a"), sharing("lost"))
    world.wants(a=19)
    del world.cluster.scales["lost"]
    async with running(world):
        await asyncio.sleep(31)
    assert world.cluster.scales["a"] == 19


@in_virtual_time
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_target_that_does_not_exist_any_more_takes_nothing_of_the_budget(restarted: bool) -> None:
    world = World(sharing("a"), sharing("lost"))
    world.wants(a=1, lost=15)
    async with running(world):
        await asyncio.sleep(61)
        assert world.cluster.scales == {"a": 1, "lost": 15}
        del world.cluster.scales["lost"]
        if restarted:  # then only the status says what it had
            world.reconciler.budgets.clear()
            world.controller.take_over()
        world.wants(a=20)
        await asyncio.sleep(61)
        assert world.cluster.scales == {"a": 20}
        world.has(lost=3)  # made again: the sum is above the budget until the other one has shrunk
        await asyncio.sleep(31)
    assert world.cluster.scales == {"a": 12, "lost": 8}


@in_virtual_time
async def test_at_the_start_none_waits_while_there_is_enough_for_all() -> None:
    world = World(sharing("a", maxReplicas=12), sharing("b", maxReplicas=8))
    world.wants(a=12, b=1)
    async with running(world):
        await asyncio.sleep(15)
    assert world.cluster.scales == {"a": 12, "b": 1}


@in_virtual_time
async def test_what_holds_a_count_is_said() -> None:
    world = World(sharing("a"), sharing("b"))
    world.wants(a=15, b=15)
    await world.advance(61)
    limited, within = world.condition("a", SCALING_LIMITED), world.condition("a", WITHIN_BUDGET)
    assert (limited.status, limited.reason) == ("True", "BudgetLimit")
    assert limited.message == "the desired replica count is 15, but its budget gpu (20 replicas) has 10 for it"
    assert (within.status, within.message) == ("True", "the HPA shares the budget gpu (20 replicas)")


@in_virtual_time
async def test_turns_at_the_same_time_do_not_take_the_same_replicas() -> None:
    world = World(*(sharing(f"hpa-{index}") for index in range(6)))
    world.cluster.write_seconds = 3.0
    world.wants(**{f"hpa-{index}": 20 for index in range(6)})
    await world.advance(200)
    assert world.most == sum(world.cluster.scales.values()) == 20


@in_virtual_time
async def test_a_refused_write_gives_its_grant_back() -> None:
    world = World(sharing("a"), sharing("b", minReplicas=1))
    world.wants(a=18, b=1)
    world.cluster.refusals = [errors.ApiError(422, "Invalid", "no")]
    async with running(world):
        await asyncio.sleep(14)
        assert world.cluster.scales["a"] == 1
        world.wants(a=1, b=18)
        await asyncio.sleep(30)
    assert world.cluster.scales["b"] == 18


@in_virtual_time
async def test_a_write_that_may_have_been_made_counts_until_that_is_known() -> None:
    world = World(sharing("a"), sharing("b"))
    world.wants(a=1, b=1)
    async with running(world):
        await asyncio.sleep(15)
        world.wants(a=15)
        world.cluster.refusals = [errors.ApiError(0, "Timeout", "no answer")]
        await asyncio.sleep(16)
        world.metrics.values["a"] = AdapterError("down")
        world.wants(b=18)
        await asyncio.sleep(40)
        assert world.cluster.scales["b"] <= 5  # 15 of a may still come
        world.has(a=15)  # and they do
        await asyncio.sleep(60)
    assert world.most <= 20
    assert world.cluster.scales == {"a": 15, "b": 5}


@in_virtual_time
async def test_an_edit_in_the_middle_of_a_turn_leaves_no_grant_behind() -> None:
    world = World(sharing("a"), sharing("b"))

    async def slow() -> int:
        world.metrics.values["a"] = 150
        world.source.put(sharing("a", maxReplicas=2))
        return 150

    world.metrics.values["a"] = slow
    world.wants(b=18)
    await world.advance(61)
    assert world.cluster.scales == {"a": 2, "b": 18}


@in_virtual_time
async def test_a_grant_that_an_edit_has_ended_is_free_again() -> None:
    world = World(sharing("a"), sharing("b"))

    async def slow() -> int:
        world.metrics.values["a"] = 150
        world.source.put(sharing("a", maxReplicas=1))
        return 150

    world.metrics.values["a"] = slow
    world.wants(b=19)
    await world.advance(31)
    assert world.cluster.scales == {"a": 1, "b": 19}


@in_virtual_time
async def test_a_target_that_is_scaled_by_hand_stops_the_others_and_takes_nothing_from_them() -> None:
    world = World(sharing("a", priority=1), sharing("b"))
    world.wants(a=5, b=10)
    async with running(world):
        await asyncio.sleep(31)
        world.has(a=40)
        world.wants(b=15)
        await asyncio.sleep(61)
    assert world.cluster.scales == {"a": 5, "b": 15}
    assert world.cluster.writes[-2:] == [5, 15]  # first it shrinks, then the other one grows


@in_virtual_time
@pytest.mark.parametrize("mode", ["paused", "shadow"])
async def test_an_hpa_that_may_not_write_keeps_what_it_has(mode: str) -> None:
    kept = sharing("kept")
    texts = {**(kept.metadata.annotations or {}), "hpad.io/mode": mode}
    kept = msgspec.structs.replace(kept, metadata=msgspec.structs.replace(kept.metadata, annotations=texts))
    world = World(kept, sharing("b", priority=9))
    world.has(kept=12)
    world.wants(kept=2, b=30)
    await world.advance(100)
    assert world.cluster.scales == {"kept": 12, "b": 8}


@in_virtual_time
async def test_the_others_share_what_an_hpa_that_may_not_write_leaves() -> None:
    kept = sharing("kept")
    texts = {**(kept.metadata.annotations or {}), "hpad.io/mode": "paused"}
    kept = msgspec.structs.replace(kept, metadata=msgspec.structs.replace(kept.metadata, annotations=texts))
    world = World(kept, sharing("a"), sharing("b"))
    world.has(kept=12, a=7)
    world.wants(kept=2, a=8, b=8)
    await world.advance(100)
    assert world.cluster.scales == {"kept": 12, "a": 4, "b": 4}


@in_virtual_time
async def test_busy_pods_that_are_kept_are_shared_by_no_one() -> None:
    busy = sharing("busy")
    texts = {**(busy.metadata.annotations or {}), "hpad.io/keep-busy": "true"}
    busy = msgspec.structs.replace(busy, metadata=msgspec.structs.replace(busy.metadata, annotations=texts))
    world = World(busy, sharing("b"), sharing("high", priority=1))
    world.has(busy=14, b=5)
    world.metrics.work = {f"busy-{number}": 1 for number in range(14)}
    world.wants(busy=14, b=5, high=10)
    await world.advance(100)
    assert world.cluster.scales == {"busy": 14, "b": 1, "high": 5}


@in_virtual_time
async def test_failing_metrics_keep_the_count_and_leave_the_rest() -> None:
    world = World(sharing("a"), sharing("b", priority=9))
    world.has(a=7)
    world.metrics.values["a"] = AdapterError("down")
    world.wants(b=30)
    await world.advance(100)
    assert world.cluster.scales == {"a": 7, "b": 13}


@in_virtual_time
async def test_a_target_at_zero_needs_no_minimum() -> None:
    world = World(sharing("asleep", minReplicas=5), sharing("b"))
    world.has(asleep=0)
    world.wants(asleep=10, b=30)
    await world.advance(61)
    assert world.cluster.scales == {"asleep": 0, "b": 20}


@in_virtual_time
async def test_a_deleted_hpa_and_one_without_the_annotation_count_no_more() -> None:
    world = World(sharing("a"), sharing("b"), sharing("c"))
    world.wants(a=8, b=8, c=30)
    async with running(world):
        await asyncio.sleep(100)
        assert sum(world.cluster.scales.values()) == 20
        world.source.drop("a")
        world.source.put(hpa("b", maxReplicas=50))
        await asyncio.sleep(31)
    assert world.cluster.scales["c"] == 20


@in_virtual_time
async def test_another_budget_takes_effect_at_once() -> None:
    world = World(sharing("a"), sharing("b"))
    world.wants(a=15, b=15)
    async with running(world):
        await asyncio.sleep(61)
        smaller = msgspec.structs.replace(GPU, replicas=10)
        world.reconciler.retune(msgspec.structs.replace(world.reconciler._observer.options, budgets=(smaller,)))
        await asyncio.sleep(31)
        assert world.cluster.scales == {"a": 5, "b": 5}
        world.reconciler.retune(msgspec.structs.replace(world.reconciler._observer.options, budgets=()))
        world.wants(a=20, b=2)
        await asyncio.sleep(16)
        found = world.condition("a", WITHIN_BUDGET)
    assert world.cluster.scales["a"] == 5
    assert (found.status, found.reason) == ("False", "BudgetUnknown")
    assert found.message == "budget gpu: the settings have no such budget; there are none"


@in_virtual_time
async def test_an_hpa_of_a_namespace_that_may_not_share_a_budget_takes_nothing_of_it() -> None:
    private = msgspec.structs.replace(GPU, namespaces=("team-*",))
    world = World(sharing("a"), budgets=(private,))
    world.wants(a=15)
    await world.advance(31)
    assert world.cluster.scales == {"a": 1}
    assert "not for HPAs of the namespace default" in world.condition("a", WITHIN_BUDGET).message


@in_virtual_time
async def test_minima_beyond_the_budget_hold() -> None:
    world = World(sharing("a", minReplicas=12), sharing("b", minReplicas=12))
    world.wants(a=15, b=15)
    await world.advance(61)
    assert world.cluster.scales == {"a": 12, "b": 12}
    found = world.condition("a", WITHIN_BUDGET)
    assert (found.status, found.reason) == ("False", "MinimaExceedBudget")
    assert "need 24 replicas; it has 20 replicas" in found.message


@in_virtual_time
async def test_a_new_leader_counts_what_the_cluster_has() -> None:
    owner = Switch(on=False)
    world = World(sharing("a"), sharing("b"), owner=owner)
    world.has(a=15, b=1)
    world.wants(a=15, b=20)
    async with running(world):
        await asyncio.sleep(20)
        owner.on = True
        world.takeover.changed()
        await asyncio.sleep(8)
        assert sum(world.cluster.scales.values()) <= 20
        await asyncio.sleep(60)
    assert world.most == 20


def asked(world: World, name: str) -> dict[str, tuple[int, int]]:
    """Asks for an HPA that has none. Returns what each other HPA holds and wants."""
    ledger, found = world.reconciler.budgets, world.source.get(Key("default", name))
    assert found is not None
    ledger.retune((GPU,), dry_run=False)
    for each in world.source.values():
        world.reconciler.share(each)
    own = BudgetMember(f"default/{name}", 0, 0, 0, 20, 1000)
    shares = ledger.ask(AskBudget("gpu", own, True, None), View(hpa=found, now=world.clock.now()))
    return {each.key: (each.held, each.wants) for each in shares.members}


@in_virtual_time
async def test_before_its_first_turn_an_hpa_holds_what_its_status_or_a_lost_write_says() -> None:
    late, lost = sharing("late"), sharing("lost")
    late = msgspec.structs.replace(late, status=msgspec.structs.replace(late.status, current_replicas=14))
    world = World(late, lost, sharing("seen"), sharing("b"))
    world.has(late=99, lost=2, seen=3)
    world.cluster.unwatched.add("late")  # its scale takes a request
    pending = PendingRescale(2, 6, (), (), lost.status)
    world.store.put(lost.key, Memory(uid="1", pending=pending))
    assert asked(world, "b") == {"default/late": (14, 14), "default/lost": (6, 6), "default/seen": (3, 3)}


@in_virtual_time
async def test_a_standby_forgets_what_was_wanted() -> None:
    owner = Switch()
    world = World(sharing("a"), sharing("b"), owner=owner)
    world.wants(a=15, b=15)
    async with running(world):
        await asyncio.sleep(61)
        assert asked(world, "b") == {"default/a": (10, 15)}
        owner.on = False
        world.takeover.changed()
        assert asked(world, "b") == {"default/a": (10, 10)}


@in_virtual_time
async def test_a_recording_has_what_was_shared_and_replays() -> None:
    done: list[Reconcile] = []

    class Noted:
        def note(self, reconciled: Reconcile) -> None:
            done.append(reconciled)

    world = World(sharing("other"), sharing("web"), recorder=Noted())
    world.wants(other=15, web=15)
    await world.advance(61)
    of_web = [each for each in done if each.view.key.name == "web"]
    steps = [encode_reconcile(each, new_spec=False) for each in of_web]
    assert all(step["shares"]["members"][0]["key"] == "default/other" for step in steps)
    scenario = msgspec.json.decode(msgspec.json.encode({**encode_head(of_web[0], "web"), "steps": steps}))
    replayed = replay.replay(scenario)["steps"]
    assert all(replay.agrees(ours, step["expect"]) for ours, step in zip(replayed, steps, strict=True))
    assert [step["scaleTo"] for step in replayed if step["scaleTo"] is not None]
    redaction = Redaction()
    redaction.collect(scenario)
    redacted = redaction.redact(scenario, "redacted")
    (member,) = redacted["steps"][-1]["shares"]["members"]
    assert re.fullmatch(r"n[0-9]+/n[0-9]+", member["key"])  # default/other


@in_virtual_time
@pytest.mark.parametrize("seed", range(4))
async def test_the_sum_holds_in_a_random_life(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"hpa-{index}" for index in range(8)]
    made = [
        sharing(
            name,
            chance.randrange(3),
            minReplicas=chance.choice((1, 1, 2)),
            behavior=None if chance.random() < 0.3 else AT_ONCE,
        )
        for name in names
    ]
    world = World(*made)
    world.has(**{each.metadata.name: each.spec.min_replicas or 1 for each in made})
    async with running(world):
        for _ in range(60):
            name = chance.choice(names)
            if chance.random() < 0.1:
                world.metrics.values[name] = AdapterError("down")
            else:
                world.wants(**{name: chance.randrange(25)})
            if chance.random() < 0.1:
                world.cluster.refusals = [errors.ApiError(chance.choice((0, 409, 422)), "Odd", "odd")]
            world.cluster.write_seconds = chance.choice((0, 0, 2.0))
            await asyncio.sleep(chance.uniform(1, 20))
            assert sum(world.cluster.scales.values()) <= 20
    assert world.most == 20


@in_virtual_time
async def test_cores_count_by_the_requests_of_the_pods() -> None:
    world = World(sharing("small"), sharing("large"), budgets=(SharedBudget(name="gpu", cores=10_000),))
    world.cluster.requests = {"small": 500, "large": 2000}
    world.wants(small=40, large=40)
    await world.advance(200)
    assert world.cluster.scales == {"small": 4, "large": 4}  # both want as many: 4 * 0.5 + 4 * 2 cores


@in_virtual_time
async def test_without_a_pod_the_template_says_what_a_replica_costs() -> None:
    budgets = (SharedBudget(name="gpu", cores=10_000),)
    gates = Tunables(downscale_stabilization=timedelta(0), gates=Gates(HPAScaleToZero=True))
    for template, count in ((None, 0), (Pod(name="t", containers=(ContainerRequests("app", {"cpu": 2500}),)), 4)):
        world = World(asleep("asleep"), budgets=budgets, tunables=gates)
        world.has(asleep=0)
        world.cluster.templates = {} if template is None else {"asleep": template}
        world.wants(asleep=30)
        await world.advance(100)
        assert world.cluster.scales == {"asleep": count}
        found = world.condition("asleep", WITHIN_BUDGET)
        assert (found.reason == "BudgetUnknown") is (template is None)


@in_virtual_time
async def test_at_the_start_what_is_asleep_claims_its_part_of_the_cores_too() -> None:
    """Its first turn finds what a replica costs; the first HPA would have all 20 cores until then."""
    names = [f"hpa-{index}" for index in range(4)]
    gates = Tunables(downscale_stabilization=timedelta(0), gates=Gates(HPAScaleToZero=True))
    budgets = (SharedBudget(name="gpu", cores=20_000),)
    world = World(*map(asleep, names), budgets=budgets, tunables=gates)
    world.has(**dict.fromkeys(names, 0))
    template = Pod(name="t", containers=(ContainerRequests("app", {"cpu": 1000}),))
    world.cluster.templates = dict.fromkeys(names, template)
    world.wants(**dict.fromkeys(names, 25))
    await world.advance(100)
    assert world.cluster.scales == dict.fromkeys(names, 5)
    assert max(world.cluster.writes) == 5


@in_virtual_time
async def test_the_series_of_a_budget() -> None:
    world = World(sharing("a"), sharing("b"))
    world.wants(a=15, b=15)
    await world.advance(61)
    text = (await world.telemetry.exposition()).decode()
    found = [line for line in text.splitlines() if line.startswith("hpad_budget_")]
    labels = '{budget="gpu",unit="replicas"}'
    assert found == [
        f"hpad_budget_amount{labels} 20.0",
        f"hpad_budget_held{labels} 20.0",
        f"hpad_budget_wanted{labels} 30.0",
    ]


async def _reaches(world: World, count: int) -> bool:
    """Waits a second. Returns whether `high` has so many replicas."""
    await asyncio.sleep(1)
    return world.cluster.scales["high"] >= count


@in_virtual_time
async def test_an_hpa_that_grows_in_steps_is_one_period_late_and_not_one_for_each_step() -> None:
    steps = {
        "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 3, "periodSeconds": 1}]}
    }
    times: dict[bool, int] = {}
    for short in (False, True):
        world = World(sharing("low"), sharing("high", priority=5, behavior=steps))
        world.wants(low=19 if short else 1, high=1)
        async with running(world):
            await asyncio.sleep(61)
            assert world.cluster.scales["low"] == (19 if short else 1)
            world.wants(high=16)
            seconds = [second for second in range(300) if await _reaches(world, 16)]
            times[short] = seconds[0]
        assert world.most <= 20
    assert times[True] - times[False] <= 16


@in_virtual_time
async def test_a_dry_run_shares_the_budget_among_its_shadows() -> None:
    done: dict[str, int] = {}

    class Noted:
        def note(self, reconciled: Reconcile) -> None:
            done[reconciled.view.key.name] = reconciled.decision.desired
            assert sum(done.values()) <= 20

    world = World(sharing("a"), sharing("b"), sharing("c", priority=1), recorder=Noted(), dry_run=True)
    world.wants(a=15, b=1, c=1)
    async with running(world):
        await asyncio.sleep(61)
        world.wants(b=15, c=4)
        await asyncio.sleep(200)
    assert (sum(done.values()), done["c"], world.cluster.writes) == (20, 4, [])
