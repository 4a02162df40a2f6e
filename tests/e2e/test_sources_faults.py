"""A failing source affects only its own metrics: other HPAs keep their period, its own HPAs keep their replicas."""

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from support.metric_servers import KINDS, SLOW_SECONDS, Numbers, numbers

from hpad import clock as clocks
from hpad import settings, testing
from hpad.adapter import AdapterError, ExternalSample
from hpad.api.metadata import Key
from hpad.engine import fallback_policy
from hpad.lab.cluster.resources import DEPLOYMENTS
from hpad.sources.manager import Gatherer
from hpad.sources.plugins import Contexts

SECRET = "hunter22-t0ken"
MANY = 20
"""Of each half: more than there are workers."""
PATIENT = 40.0
"""Timeout in seconds of a healthy source on a busy machine."""
METRIC = {"http-json": "depth", "prometheus": "depth", "rabbitmq": "queue_messages"}


class StillClock(clocks.SystemClock):
    """No seconds pass by it, so that a process that stands still does not look like an adapter that blocks the loop."""

    def monotonic(self) -> float:
        return 0.0


def source(name: str, adapter: str, url: str, seconds: float = 0.7, **more: Any) -> settings.SourceSettings:
    """Returns a source of the metric `depth` (RabbitMQ: of a queue's depth) with a secret in its settings."""
    options: dict[str, dict[str, Any]] = {
        "http-json": {
            "metrics": {name: {"url": f"{url}/{name}", "path": "depth"}},
            "headers": {"Authorization": f"Bearer {SECRET}"},
        },
        "prometheus": {"url": url, "metrics": {name: {"query": "depth"}}, "bearer_token": SECRET},
        "rabbitmq": {"url": url, "username": "hpad", "password": SECRET},
    }
    return settings.SourceSettings(
        name=name, adapter=adapter, settings=options[adapter], timeout=timedelta(seconds=seconds), **more
    )


@pytest.mark.parametrize("adapter", ["http-json", "prometheus", "rabbitmq"])
@pytest.mark.parametrize("kind", KINDS)
async def test_each_fault_of_a_source_is_an_error_without_secrets(adapter: str, kind: str) -> None:
    async with numbers(kind) as bad, numbers() as good:
        sources = (source("bad", adapter, bad.url), source("good", "http-json", good.url, PATIENT))
        gatherer = Gatherer(sources, contexts=Contexts(StillClock()), period=2 * PATIENT)
        await gatherer.start()
        try:
            trouble = (
                testing.external("queue_messages", "queue=orders") if adapter == "rabbitmq" else testing.external("bad")
            )
            started = asyncio.get_running_loop().time()
            fine = asyncio.create_task(gatherer.gather([testing.external("good")], deadline=PATIENT))
            [error] = await gatherer.gather([trouble], deadline=1.8)
            [sample] = await fine
        finally:
            await gatherer.aclose()
        assert asyncio.get_running_loop().time() - started < SLOW_SECONDS  # the slow servers take longer than that
    assert isinstance(sample, ExternalSample)
    assert isinstance(error, AdapterError), error
    assert error.blame in ("source", "spec"), error
    assert error.message
    assert SECRET not in error.message
    assert len(error.message) < 600


def depth(name: str) -> list[dict[str, Any]]:
    target = {"type": "AverageValue", "averageValue": "10"}
    return [{"type": "External", "external": {"metric": {"name": name}, "target": target}}]


@contextlib.asynccontextmanager
async def two_halves(world: Any, kind: str, **more: Any) -> AsyncIterator[tuple[Numbers, Numbers]]:
    """Starts hpad with MANY HPAs on a failing source and as many on a healthy one."""
    async with numbers(kind) as bad, numbers() as good:
        for name, replicas in (("bad", 2), ("good", 1)):
            for number in range(MANY):
                world.workload("Deployment", f"{name}-{number}", replicas)
                world.hpa(f"{name}-{number}", metrics=depth(name))
        sources = (source("bad", "http-json", bad.url), source("good", "http-json", good.url, PATIENT))
        await world.hpad(sources=sources, sync_period=timedelta(seconds=2), **more)
        yield bad, good


def counts(world: Any, name: str) -> set[int]:
    deployments = world.cluster.store.objects(DEPLOYMENTS)
    return {each["spec"]["replicas"] for each in deployments if each["metadata"]["name"].startswith(f"{name}-")}


@pytest.mark.parametrize("kind", ["hang", "503"])
async def test_many_hpas_beside_as_many_on_a_failing_source(world: Any, kind: str) -> None:
    async with two_halves(world, kind) as (_, good):
        await world.until(lambda: counts(world, "good") == {3})
        good.document = {"depth": 50}
        await world.until(lambda: counts(world, "good") == {5})
        moments = await decisions(world, [f"good-{number}" for number in range(0, MANY, 4)], 3)
        for seen in moments.values():
            gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(seen)]
            assert all(gap < SLOW_SECONDS for gap in gaps), gaps
        await world.until(lambda: world.condition("bad-7", "ScalingActive")[0] == "False")
        assert counts(world, "bad") == {2}
        _, reason, message = world.condition("bad-7", "ScalingActive")
        assert reason == "FailedGetExternalMetric"
        assert "bad" in message
        states = {each.name: each.state for each in world.daemon.components.metrics.reports()}
        assert states["good"] == "ok"
        assert states["bad"] in ("open", "trial", "failing")


async def decisions(world: Any, names: list[str], count: int) -> dict[str, list[Any]]:
    """Waits for at least `count` decisions on each HPA; returns their times."""
    seen: dict[str, list[Any]] = {name: [] for name in names}

    def enough() -> bool:
        for name in names:
            last = world.daemon.components.decisions.last(Key("default", name))
            if last is not None and last.view.now not in seen[name]:
                seen[name].append(last.view.now)
        return all(len(times) >= count for times in seen.values())

    await world.until(enough)
    return seen


async def test_a_recovered_source_is_queried_again(world: Any) -> None:
    async with numbers("503") as bad:
        world.workload("Deployment", "web", 2)
        world.hpa("web", metrics=depth("bad"))
        await world.hpad(sources=(source("bad", "http-json", bad.url),))
        await world.until(lambda: "keeps failing" in world.condition("web", "ScalingActive")[2])
        bad.kind = ""
        await world.until(lambda: world.replicas("deployments", "web") == 3)


async def test_a_fallback_sets_replicas_and_is_reported(world: Any) -> None:
    async with numbers("503") as bad:
        world.workload("Deployment", "web", 2)
        made = world.hpa("web", metrics=depth("bad"))
        made["metadata"]["annotations"] = {"hpad.io/fallback": "replicas:4 after 1s"}
        world.cluster.apply({key: made[key] for key in ("apiVersion", "kind", "metadata", "spec")})
        world.workload("Deployment", "other", 2)
        world.hpa("other", metrics=depth("confined"))
        confined = source("confined", "http-json", bad.url, fallback=fallback_policy.parse("replicas:5 after 1s"))
        await world.hpad(sources=(source("bad", "http-json", bad.url), confined))
        await world.until(lambda: world.replicas("deployments", "web") == 4)
        await world.until(lambda: world.replicas("deployments", "other") == 5)
        why = "answers 503", "keeps failing"  # on a slow machine it may be a timeout first
        await world.until(
            lambda: any(text in world.condition("web", "ExternalMetricFallbackActive")[2] for text in why)
        )
        assert world.condition("web", "ExternalMetricFallbackActive")[:2] == ("True", "FallbackActive")
        await world.until(lambda: any(name == "FailedGetExternalMetric" for name, _ in world.events("web")))
        bad.kind = ""
        await world.until(lambda: world.replicas("deployments", "web") == 3)
        await world.until(lambda: world.condition("web", "ExternalMetricFallbackActive")[0] == "False")


async def test_a_source_of_another_namespace_is_named_in_the_error(world: Any) -> None:
    async with numbers() as good:
        world.workload("Deployment", "web", 1)
        world.hpa("web", metrics=depth("good"))
        await world.hpad(sources=(source("good", "http-json", good.url, namespaces=("shop",)),))
        await world.until(
            lambda: (
                'source "good" is not offered to HPAs of namespace "default"'
                in world.condition("web", "ScalingActive")[2]
            )
        )
        assert good.asked == 0


def contents(folder: Path) -> list[str]:
    return [file.read_text() for file in folder.rglob("*") if file.is_file()]


async def test_no_secret_appears_in_any_output(world: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The secret is in the settings of each source, and must not appear in any output of hpad."""
    caplog.set_level(logging.DEBUG)
    logged: list[Any] = []

    def keep(logger: Any, method: str, event: Any) -> Any:
        logged.append(repr(event))
        raise structlog.DropEvent

    structlog.configure(processors=[keep], cache_logger_on_first_use=False)
    async with contextlib.AsyncExitStack() as stack:
        sources = []
        for kind in ("401", "html", "redirect", "untrusted", "down"):
            bad = await stack.enter_async_context(numbers(kind))
            for adapter in METRIC:
                name = f"{adapter}-{kind}"
                match = (settings.Match(metrics=(name,)),)
                sources.append(source(name, adapter, bad.url, match=match))
                world.workload("Deployment", name, 1)
                world.hpa(name, metrics=depth(name))
        daemon = await world.hpad(sources=tuple(sources), record=tmp_path, listen=("127.0.0.1", 0))
        await world.until(lambda: all(world.condition(each.name, "ScalingActive")[2] for each in sources))
        await world.periods(4)
        assert daemon.server is not None
        texts = []
        async with aiohttp.ClientSession() as session:
            hpa = f"/api/v1/hpas/default/{sources[0].name}"
            api = ("/api/v1/hpas", hpa, f"{hpa}/history?traces=true", f"{hpa}/decision", "/api/v1/sources")
            for path in ("/", "/metrics", "/readyz", *api):
                async with session.get(f"{daemon.server.url}{path}") as answer:
                    texts.append(await answer.text())
                    assert answer.status == 200, path
        reports = json.loads(texts[-1])["items"]
        assert {row["name"] for row in reports} >= {each.name for each in sources}
        assert 'hpad_source_state{source="http-json-401"' in texts[1]
        await daemon.stop()
    texts += [json.dumps(world.cluster.list(kind)) for kind in ("horizontalpodautoscalers", "events")]
    written = await asyncio.to_thread(contents, tmp_path)
    assert written
    assert logged
    for text in (*texts, *written, *logged, caplog.text):
        assert SECRET not in text
