"""What an HPA sets for itself, against both API servers: modes over a takeover, schedule, tolerance, policy, period."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kube.contract.test_contract import APPS, HPAS, PODS, pod
from kube.contract.test_process import READY, WEB, Place, hpad, place, until

__all__ = ["place"]


async def annotate(place: Place, **texts: str | None) -> None:
    """Sets annotations of the HPA, `sync_period` for `hpad.io/sync-period`; None removes one."""
    named = {f"hpad.io/{name.replace('_', '-')}": text for name, text in texts.items()}
    await place.api.ask("PATCH", f"{HPAS}/web", {"metadata": {"annotations": named}})


async def apply(place: Place, **texts: str | None) -> None:
    """Sets annotations as `annotate` does, and waits until a decision has read them, which an unknown one shows."""
    mark = f"mark-{'-'.join(texts)}".replace("_", "-")
    await annotate(place, **texts, **{mark: "here"})

    async def is_read() -> bool:
        conditions = (await place.status()).get("conditions") or []
        return any(mark in each["message"] for each in conditions if each["type"] == "HpadAnnotationsValid")

    await until(is_read, True)
    await annotate(place, **{mark: None})


@pytest.mark.parametrize(("mode", "condition"), [("paused", "Paused"), ("shadow", "Shadow")])
async def test_nothing_is_written_in_a_mode_over_a_crash_and_a_takeover(
    place: Place, tmp_path: Path, mode: str, condition: str
) -> None:
    await place.wait_for(120)
    await annotate(place, mode=mode)

    async def in_mode() -> tuple[str, str] | None:
        return (await place.conditions()).get(condition)

    async with hpad(place, tmp_path / "first") as first:
        await until(in_mode, ("True", condition))
        leader = await place.holder()
        async with hpad(place, tmp_path / "second"):
            await asyncio.sleep(2)
            first.kill()

            async def taken_over() -> bool:
                return await place.holder() not in ("", leader)

            await until(taken_over, True)
            await asyncio.sleep(4)
            assert await in_mode() == ("True", condition)
            # Any write of the scale is a new generation of the Deployment.
            assert (await place.generation(), await place.replicas()) == (1, 2)
            assert await place.sizes() == []
            await annotate(place, mode="active")
            await until(place.replicas, 4)
            await until(in_mode, None)
    assert await place.generation() == 2


async def test_each_annotation_applies_and_goes(place: Place, tmp_path: Path) -> None:
    async with hpad(place, tmp_path / "log"):

        async def decided() -> bool:
            return "ScalingActive" in await place.conditions()

        await until(decided, True)
        await annotate(place, schedule="* * * * * for 1h in Europe/Berlin: min=3")
        await until(place.replicas, 3)
        await apply(place, tolerance_up="9")
        await place.wait_for(120)
        await asyncio.sleep(4)
        assert await place.replicas() == 3
        await annotate(place, tolerance_up=None)
        await until(place.replicas, 4)
        await apply(place, metric_policy="0.5*queue")
        await place.wait_for(300)
        await until(place.replicas, 5)
        await asyncio.sleep(3)
        assert await place.replicas() == 5
        await apply(place, sync_period="1h")

        async def is_at_rest() -> bool:
            await asyncio.sleep(2)
            at_rest = "HpadAnnotationsValid" not in await place.conditions()
            if not at_rest:  # each edit has a turn; if that was given up on a busy machine, the next is due in an hour
                await annotate(place, tolerance_down="9")
                await annotate(place, tolerance_down=None)
            return at_rest

        await until(is_at_rest, True)
        await place.wait_for(360)
        await asyncio.sleep(4)
        assert await place.replicas() == 5
        await annotate(place, sync_period=None)
        await until(place.replicas, 6)
        await annotate(place, mode="stopped")

        async def valid() -> tuple[str, str] | None:
            return (await place.conditions()).get("HpadAnnotationsValid")

        await until(valid, ("False", "InvalidAnnotation"))


async def test_only_pods_of_the_target_count_where_it_selects_them_by_owner(place: Place, tmp_path: Path) -> None:
    """60 of 30 doubles the ready pods: two of the Deployment by its ReplicaSet, and two of nobody with its labels."""
    queue = {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "30"}}
    await place.api.ask("PATCH", f"{HPAS}/web", {"spec": {"metrics": [{"type": "External", "external": queue}]}})
    deployment = await place.api.ask("GET", WEB)
    spec = {key: deployment["spec"][key] for key in ("replicas", "selector", "template")}
    head = {"name": "web-1", "labels": spec["template"]["metadata"]["labels"]}
    replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {**head, **owned_by(deployment)}}
    made = await place.api.ask("POST", f"{APPS}/replicasets", {**replica_set, "spec": spec})
    for number in range(2):
        await place.api.ask("PATCH", f"{PODS}/web-{number}", {"metadata": owned_by(made)})
    for number in range(2):
        await place.api.ask("POST", PODS, pod(f"lone-{number}", app="web", tier="front"))
        await place.api.ask("PATCH", f"{PODS}/lone-{number}/status", {"status": READY})
    await annotate(place, pod_selection="owner")
    async with hpad(place, tmp_path / "log"):
        await until(place.sizes, ["New size: 4"])


def owned_by(controller: Any) -> dict[str, Any]:
    """Metadata with an ownerReference to a controller of apps/v1."""
    name, uid = controller["metadata"]["name"], controller["metadata"]["uid"]
    reference = {"apiVersion": "apps/v1", "kind": controller["kind"], "name": name, "uid": uid, "controller": True}
    return {"ownerReferences": [reference]}


async def test_a_pause_ends_at_its_time_and_a_tolerance_holds_replicas(place: Place, tmp_path: Path) -> None:
    async def paused() -> bool:
        return "Paused" in await place.conditions()

    async with hpad(place, tmp_path / "log", "--horizontal-pod-autoscaler-downscale-stabilization=1s"):
        until_then = datetime.now(UTC) + timedelta(seconds=12)
        await annotate(place, paused_until=f"{until_then:%Y-%m-%dT%H:%M:%SZ}")
        await until(paused, True)
        await place.wait_for(120)
        await until(paused, False)
        await until(place.replicas, 4)
        assert datetime.now(UTC) >= until_then - timedelta(seconds=1)
        await place.settle(4)
        await apply(place, tolerance_down="0.9")
        await place.wait_for(60)
        await asyncio.sleep(4)
        assert await place.replicas() == 4
        await annotate(place, tolerance_down=None)
        await until(place.replicas, 2)
