"""The daemon as one object: starts in order, stops in reverse, leaves nothing behind, never blocks its loop."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import blockbuster
import pytest
import structlog

from hpad import settings
from hpad.daemon import app, logs
from hpad.kube.auth.credentials import ClusterConfig
from hpad.lab.cluster import Cluster
from hpad.recording.format import RecordingError
from hpad.serve.server import ServeError
from hpad.store import persistent
from hpad.store.memory import StoreError
from hpad.telemetry.controller import QueueSeries

NOBODY = ClusterConfig(server="http://127.0.0.1:9")


def told(**changes: Any) -> settings.Settings:
    return settings.Settings(**{"sync_period": timedelta(seconds=0.5), "listen": ("127.0.0.1", 0), **changes})


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(auto_ready=True) as made:
        yield made


def tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}


async def test_a_whole_life_leaves_no_task_behind(cluster: Cluster) -> None:
    before = tasks()
    stop = asyncio.Event()
    daemon = app.App(told(), cluster_config=ClusterConfig(server=cluster.url))
    running = asyncio.create_task(daemon.run(stop))
    async with asyncio.timeout(60):
        await daemon.ready()
    stop.set()
    await running
    assert {name for name in tasks() - before if not name.startswith("Task-")} == set()


async def test_the_server_listens_before_the_cluster_answers() -> None:
    async with app.App(told(), cluster_config=NOBODY) as daemon, aiohttp.ClientSession(trust_env=False) as session:
        assert daemon.server is not None
        async with session.get(f"{daemon.server.url}/livez") as answer:
            assert answer.status == 200
        async with session.get(f"{daemon.server.url}/readyz") as answer:
            assert answer.status == 503
            assert "waiting for the cluster" in await answer.text()
        async with session.get(f"{daemon.server.url}/api/hpas") as answer:
            assert await answer.json() == []


async def test_what_fails_to_start_takes_back_what_was_started(tmp_path: Path) -> None:
    before = tasks()
    with socket.create_server(("127.0.0.1", 0)) as held:
        daemon = app.App(told(listen=("127.0.0.1", held.getsockname()[1])), cluster_config=NOBODY)
        with pytest.raises(ServeError):
            await daemon.start()
    assert tasks() == before
    (tmp_path / "file").write_text("")
    daemon = app.App(told(record=tmp_path / "file"), cluster_config=NOBODY)
    with pytest.raises(RecordingError, match="cannot record to"):
        await daemon.start()
    assert tasks() == before
    home = settings.StoreSettings(kind="sqlite", path=tmp_path / "file" / "history.db")
    daemon = app.App(told(store=home), cluster_config=NOBODY)
    with pytest.raises(StoreError, match=r"^store: "):
        await daemon.start()
    assert tasks() == before


async def test_a_background_task_that_fails_ends_the_daemon_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in the shell must not leave a daemon that looks alive."""

    async def fail(self: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(app.App, "_run_controller", fail)
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(60):
            await app.App(told(), cluster_config=NOBODY).run(asyncio.Event())


async def test_a_controller_that_fails_ends_the_daemon_loudly(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, seconds: float) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(QueueSeries, "waited", fail)
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    cluster.apply({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": ref, "maxReplicas": 3},
    })  # fmt: skip
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(60):
            await app.App(told(), cluster_config=ClusterConfig(server=cluster.url)).run(asyncio.Event())


async def test_a_file_whose_name_is_no_text_is_a_trouble_like_any_other(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.yaml")).write_text("kind: [")
    logs.configure("info", "json")
    try:
        async with app.App(told(manifests=tmp_path), cluster_config=ClusterConfig(server=cluster.url)) as daemon:
            async with asyncio.timeout(60):
                await daemon.ready()
            assert daemon.server is not None
            async with aiohttp.ClientSession(trust_env=False) as session, session.get(daemon.server.url) as answer:
                assert answer.status == 200
                assert r"/\udcff.yaml:" in await answer.text()
    finally:
        structlog.reset_defaults()


async def test_a_state_that_cannot_be_saved_is_named_as_what_it_means(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistent.PersistentStore, "trouble", property(lambda store: "the disk is full"))
    store = settings.StoreSettings(kind="sqlite", path=tmp_path / "history.db")
    async with app.App(told(store=store), cluster_config=ClusterConfig(server=cluster.url)) as daemon:
        assert "a restart would lose the state of the HPAs: the disk is full" in daemon.problems()


async def test_nothing_blocks_the_loop(cluster: Cluster, tmp_path: Path) -> None:
    """A life with a record, a scrape and a scaling, under a guard that raises at any blocking call."""
    container = {"name": "app", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    selector = {"matchLabels": {"app": "web"}}
    spec = {"replicas": 5, "selector": selector, "template": template}
    head = {"metadata": {"name": "web"}}
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", **head, "spec": spec})
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    hpa = {"scaleTargetRef": ref, "maxReplicas": 3}
    cluster.apply({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", **head, "spec": hpa})
    guard = blockbuster.BlockBuster("hpad")
    daemon = app.App(told(record=tmp_path / "records"), cluster_config=ClusterConfig(server=cluster.url))
    guard.activate()
    try:
        async with daemon, asyncio.timeout(60):
            await daemon.ready()
            while (cluster.get("deployments", "web") or {})["spec"]["replicas"] != 3:  # noqa: ASYNC110  # the state of the world
                await asyncio.sleep(0.02)
            await daemon.telemetry.exposition()
            await asyncio.sleep(1)
    finally:
        guard.deactivate()
    assert "hpad_bugs_total 0.0" in (await daemon.telemetry.exposition()).decode()
    assert len(list((tmp_path / "records").iterdir())) == 1
