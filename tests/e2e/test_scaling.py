"""Workloads follow their load: what the world looks like afterwards, seen through the API."""

from typing import Any


async def test_php_apache_grows_with_its_load_and_shrinks_after_it(world: Any) -> None:
    """Scenario 2: 305 % of a goal of 50 % at one replica is seven; without load it is one again."""
    world.workload("Deployment", "php-apache", 1, cpu="200m")
    world.load("php-apache", lambda pods: 610 // max(pods, 1))
    world.hpa("php-apache", goal=50)
    await world.hpad()
    await world.until(lambda: world.replicas("deployments", "php-apache") == 7)
    await world.until(lambda: len(world.pods("php-apache")) == 7)
    why = "cpu resource utilization (percentage of request) above target"
    await world.until(lambda: ("SuccessfulRescale", f"New size: 7; reason: {why}") in world.events("php-apache"))
    world.load("php-apache", 0)
    await world.until(lambda: world.replicas("deployments", "php-apache") == 1)
    await world.until(lambda: world.status("php-apache").get("currentReplicas") == 1)
    await world.until(
        lambda: ("SuccessfulRescale", "New size: 1; reason: All metrics below target") in world.events("php-apache")
    )
