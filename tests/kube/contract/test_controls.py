"""What an HPA sets for itself, against both API servers: modes over a takeover, schedule, tolerance, policy, period."""

import asyncio
from pathlib import Path

import pytest
from kube.contract.test_contract import HPAS
from kube.contract.test_process import Place, hpad, place, until

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
            return "HpadAnnotationsValid" not in await place.conditions()

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
