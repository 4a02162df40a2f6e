"""Deployments that share a budget on the embedded cluster: no write ever takes more than the budget has."""

from pathlib import Path
from typing import Any

import msgspec
from e2e.conftest import worlds
from e2e.test_zero import DEPTH, NOW, ON, depth

from hpad.lab.cluster import Cluster
from hpad.settings.hpas import SharedBudget

AT_ONCE = {"scaleUp": {"policies": [{"type": "Pods", "value": 100, "periodSeconds": 1}]}, **NOW}


def sharing(world: Any, name: str, priority: int = 0, **spec: Any) -> None:
    """Applies the HPA of a Deployment, which shares the budget `gpu`."""
    made = world.hpa(name, **{"maxReplicas": 50, "behavior": AT_ONCE, **spec})
    made["metadata"]["annotations"] = {"hpad.io/budget": "gpu", "hpad.io/budget-priority": str(priority)}
    world.cluster.apply({key: made[key] for key in ("apiVersion", "kind", "metadata", "spec")})


def noting(world: Any, *names: str) -> list[int]:
    """Returns a list to which each write of a scale adds the sum of all targets after it."""
    found, write = list[int](), world.daemon.components.cluster.write_scale

    async def noted(*args: Any) -> Any:
        written = await write(*args)
        found.append(sum(world.replicas("deployments", name) for name in names))
        return written

    world.daemon.components.cluster.write_scale = noted
    return found


async def test_a_higher_priority_takes_over_and_no_write_exceeds_the_budget(world: Any) -> None:
    def held(*names: str) -> tuple[int, ...]:
        return tuple(world.replicas("deployments", name) for name in names)

    for name in ("low", "other", "high"):
        world.workload("Deployment", name, 1)
        world.load(name, lambda pods: 2000 // max(pods, 1))
    sharing(world, "low")
    sharing(world, "other")
    await world.hpad(budgets=(SharedBudget(name="gpu", replicas=20),))
    sums = noting(world, "low", "other")
    await world.until(lambda: held("low", "other") == (10, 10) and sums[-1:] == [20])  # noted after the write
    # Both want 40 of 20, and keep what they have.
    written = len(sums)
    await world.periods(10)
    assert (len(sums), max(sums)) == (written, 20)
    sums = noting(world, "low", "other", "high")
    world.workload("Deployment", "high", 0)
    sharing(world, "high", 5)
    await world.periods(2)
    assert held("high") == (0,)  # it was set to zero, and needs nothing
    world.workload("Deployment", "high", 1)
    await world.until(lambda: held("high", "low", "other") == (18, 1, 1))
    assert all(after <= max(20, before) for before, after in zip([21, *sums], sums, strict=False))
    await world.until(lambda: world.condition("low", "ScalingLimited")[:2] == ("True", "BudgetLimit"))
    await world.until(
        lambda: world.condition("low", "ScalingLimited")[2].endswith("its budget gpu (20 replicas) has 1 for it")
    )
    # A larger amount takes effect while hpad runs.
    larger = msgspec.structs.replace(world.daemon.settings, budgets=(SharedBudget(name="gpu", replicas=58),))
    assert await world.daemon.reload(larger) == []
    # The first one rests within the tolerance of 40 if others had their turns before.
    await world.until(lambda: held("high") >= (37,) and sum(held("high", "low", "other")) == 58)
    assert 'hpad_budget_held{budget="gpu",unit="replicas"} 58.0' in await world.exposed("hpad_budget_held")


async def test_the_template_of_a_sleeping_target_says_what_it_costs(tmp_path: Path) -> None:
    async with worlds(Cluster(auto_ready=True, scale_to_zero=True)) as world:
        world.workload("Deployment", "web", 1, cpu="1500m")
        sharing(world, "web", minReplicas=0, metrics=DEPTH, behavior=NOW)
        await world.hpad(sources=depth(tmp_path, 0), tunables=ON, budgets=(SharedBudget(name="gpu", cores=4000),))
        await world.until(lambda: world.replicas("deployments", "web") == 0)
        await world.until(lambda: world.condition("web", "ScaledToZero")[0] == "True")
        world.daemon.components.reconciler.budgets.clear()  # as after a restart
        depth(tmp_path, 300)
        await world.until(lambda: world.replicas("deployments", "web") == 2)
        await world.until(lambda: "(4 cores) has 2 for it" in world.condition("web", "ScalingLimited")[2])
