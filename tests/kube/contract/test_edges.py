"""`hpad run` with concurrent actions of other clients: edits, HPAs of the same target, competing writes."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp.web
import yaml
from kube.contract.conftest import Api
from kube.contract.test_contract import HPAS, hpa
from kube.contract.test_process import WEB, Place, hpad, lines, place, until

__all__ = ["place"]
Json = dict[str, Any]
WIDGETS = "/apis/oracle.example/v1/{ns}/widgets"
WIDGET = {"apiVersion": "oracle.example/v1", "kind": "Widget", "name": "w"}


def external(name: str = "queue", average: str = "30") -> list[Json]:
    target = {"type": "AverageValue", "averageValue": average}
    return [{"type": "External", "external": {"metric": {"name": name}, "target": target}}]


@contextlib.asynccontextmanager
async def source(answer: Callable[[], Awaitable[int]]) -> AsyncIterator[str]:
    """Serves a JSON number on loopback; yields its URL."""

    async def number(_: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.json_response(await answer())

    app = aiohttp.web.Application()
    app.router.add_get("/", number)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    try:
        site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def configure(place: Place, sources: Json) -> None:
    await asyncio.to_thread(place.config.write_text, yaml.safe_dump({"sources": sources}))


async def events_of(log: Path) -> list[str]:
    return [line["event"] for line in await asyncio.to_thread(lines, log)]


async def test_a_decision_made_before_an_edit_is_not_written(place: Place, tmp_path: Path) -> None:
    """The maximum is lowered while the metric that needs more is being read: the old maximum is never written."""
    edited, seen = asyncio.Event(), asyncio.Event()
    waiting = 0

    async def answer() -> int:
        nonlocal waiting
        if waiting and not edited.is_set():
            await place.api.ask("PATCH", f"{HPAS}/web", {"spec": {"maxReplicas": 3}})
            edited.set()
            await asyncio.sleep(1)  # for the watch to bring it; the answer itself has four seconds
        if edited.is_set():
            seen.set()
        return waiting

    async def active() -> tuple[str, str] | None:
        return (await place.conditions()).get("ScalingActive")

    async with source(answer) as url:
        metric = {"queue": {"url": url, "path": ""}}
        await configure(place, {"numbers": {"adapter": "http-json", "metrics": metric, "timeout": "4s"}})
        async with hpad(place, tmp_path / "log", "--sync-period=10s"):
            await until(active, ("True", "ValidMetricFound"))
            waiting = 600
            await seen.wait()
            await until(place.replicas, 3)
    assert await place.generation() == 2


async def test_two_hpas_of_one_custom_resource_compete_from_the_start(api: Api, tmp_path: Path) -> None:
    made = Place(api, tmp_path)
    await made.wait_for(600)
    await configure(made, {"numbers": {"adapter": "static", "file": str(tmp_path / "numbers.yaml")}})
    body = {"apiVersion": WIDGET["apiVersion"], "kind": "Widget", "metadata": {"name": "w"}, "spec": {"replicas": 2}}
    await api.ask("POST", WIDGETS, body)
    await api.ask("PATCH", f"{WIDGETS}/w/status", {"status": {"replicas": 2, "selector": "app=w"}})
    for name in ("one", "two"):
        spec = {"scaleTargetRef": WIDGET, "maxReplicas": 10, "metrics": external()}
        await api.ask("POST", HPAS, {**hpa(name), "spec": spec})

    async def reasons() -> list[str]:
        items = (await api.ask("GET", HPAS))["items"]
        found = [each for item in items for each in (item.get("status") or {}).get("conditions") or ()]
        return [each["reason"] for each in found if each["type"] == "ScalingActive"]

    async with hpad(made, tmp_path / "log"):
        await until(reasons, ["AmbiguousSelector", "AmbiguousSelector"])
    assert (await api.ask("GET", f"{WIDGETS}/w"))["spec"]["replicas"] == 2


async def test_a_manifest_yields_to_an_hpa_of_the_server(place: Place, tmp_path: Path) -> None:
    """The HPA of the server keeps 2; that of the manifest decides 4, and writes only after the other is deleted."""
    folder = tmp_path / "hpas"
    folder.mkdir()
    own = hpa("mine", namespace=place.api.namespace)
    own["spec"]["metrics"] = external()
    await asyncio.to_thread((folder / "mine.json").write_text, json.dumps(own))
    await place.wait_for(120)
    log = tmp_path / "log"
    async with hpad(place, log, f"--manifests={folder}"):

        async def competes() -> bool:
            return any("another writer competes" in event for event in await events_of(log))

        await until(competes, True)
        await asyncio.sleep(3)
        assert await place.generation() == 1
        await place.api.ask("DELETE", f"{HPAS}/web")
        await until(place.replicas, 4)
    logged = [event for event in await events_of(log) if "another writer competes" in event]
    assert len(logged) == 1, logged


async def test_another_client_that_sets_the_count_is_named_once(place: Place, tmp_path: Path) -> None:
    log = tmp_path / "log"
    await place.wait_for(120)
    async with hpad(place, log):
        await until(place.replicas, 4)
        scale = await place.api.ask("GET", f"{WEB}/scale")
        scale["spec"]["replicas"] = 3
        await place.api.ask("PUT", f"{WEB}/scale", scale, fieldManager="someone")

        async def logged() -> list[str]:
            return [event for event in await events_of(log) if "another writer competes" in event]

        async def count() -> int:
            return len(await logged())

        await until(count, 1)
        assert "someone" in (await logged())[0]
        await until(place.replicas, 4)
        await asyncio.sleep(3)
        assert await count() == 1


async def test_a_dry_run_writes_nothing_and_logs_its_decision(place: Place, tmp_path: Path) -> None:
    await place.wait_for(120)
    log = tmp_path / "log"
    async with hpad(place, log, "--dry-run"):

        async def decided() -> bool:
            return any("4" in event and "web" in event for event in await events_of(log))

        await until(decided, True)
        await asyncio.sleep(3)
    assert await place.generation() == 1
    assert await place.status() in ({}, {"currentMetrics": None, "desiredReplicas": 0})
    problems = [line for line in await asyncio.to_thread(lines, log) if line["level"] in ("warning", "error")]
    assert problems == []


async def test_a_paused_hpa_leaves_its_target_alone_and_then_does_not(place: Place, tmp_path: Path) -> None:
    await place.wait_for(120)
    annotation = {"metadata": {"annotations": {"hpad.io/mode": "paused"}}}
    await place.api.ask("PATCH", f"{HPAS}/web", annotation)

    async def paused() -> tuple[str, str] | None:
        return (await place.conditions()).get("Paused")

    async with hpad(place, tmp_path / "log"):
        await until(paused, ("True", "Paused"))
        await asyncio.sleep(3)
        assert await place.generation() == 1
        assert (await place.status())["desiredReplicas"] == 4
        await place.api.ask("PATCH", f"{HPAS}/web", {"metadata": {"annotations": {"hpad.io/mode": None}}})
        await until(place.replicas, 4)
        await until(paused, None)
    assert await place.generation() == 2
