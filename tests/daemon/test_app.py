"""The daemon as one object: starts in order, stops in reverse, leaves no tasks, never blocks its loop."""

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
from hpad.records.format import RecordingError
from hpad.serve.server import ServeError
from hpad.store import persistent
from hpad.store.store import StoreError
from hpad.telemetry.controller import QueueSeries

NO_SERVER = ClusterConfig(server="http://127.0.0.1:9")


def small_settings(**changes: Any) -> settings.Settings:
    return settings.Settings(**{"sync_period": timedelta(seconds=0.5), "listen": ("127.0.0.1", 0), **changes})


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(auto_ready=True) as made:
        yield made


def tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}


async def test_a_stopped_daemon_leaves_no_tasks(cluster: Cluster) -> None:
    before = tasks()
    stop = asyncio.Event()
    daemon = app.App(small_settings(), cluster_config=ClusterConfig(server=cluster.url))
    async with asyncio.timeout(240), daemon:
        waiting = asyncio.create_task(daemon.wait(stop))
        await daemon.ready()
        stop.set()
        await waiting
    assert {name for name in tasks() - before if not name.startswith("Task-")} == set()


async def test_the_server_listens_before_the_cluster_answers() -> None:
    async with (
        app.App(small_settings(), cluster_config=NO_SERVER) as daemon,
        aiohttp.ClientSession(trust_env=False) as session,
    ):
        assert daemon.server is not None
        async with session.get(f"{daemon.server.url}/livez") as answer:
            assert answer.status == 200
        async with session.get(f"{daemon.server.url}/readyz") as answer:
            assert answer.status == 503
            assert "waiting for the cluster" in await answer.text()
        async with session.get(f"{daemon.server.url}/api/v1/hpas") as answer:
            assert (await answer.json())["items"] == []


HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
"""


@pytest.mark.parametrize(("dry_run", "doing"), [(False, "Scaling by 1 HPA"), (True, "Deciding for 1 HPA")])
async def test_page_and_api_show_the_mode(cluster: Cluster, dry_run: bool, doing: str, tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(HPA)
    running = app.App(
        small_settings(dry_run=dry_run, manifests=tmp_path), cluster_config=ClusterConfig(server=cluster.url)
    )
    async with running as daemon, aiohttp.ClientSession(trust_env=False) as session, asyncio.timeout(240):
        await daemon.ready()
        assert daemon.server is not None
        async with session.get(f"{daemon.server.url}/api/v1/hpas") as answer:
            rows = (await answer.json())["items"]
        async with session.get(f"{daemon.server.url}/api/v1/hpas/default/web") as answer:
            rows.append(await answer.json())
        async with session.get(f"{daemon.server.url}/api/v1/status") as answer:
            status = await answer.json()
    assert [row["dryRun"] for row in rows] == [dry_run] * 2
    assert status["doing"] == doing
    assert status["facts"][:2] == ["no leader election", f"HPAs of the manifests in {tmp_path}"]
    assert status["dryRun"] is dry_run


async def test_a_failed_start_stops_what_was_started(tmp_path: Path) -> None:
    before = tasks()
    with socket.create_server(("127.0.0.1", 0)) as other:
        daemon = app.App(small_settings(listen=("127.0.0.1", other.getsockname()[1])), cluster_config=NO_SERVER)
        with pytest.raises(ServeError):
            await daemon.start()
    assert tasks() == before
    (tmp_path / "file").write_text("")
    daemon = app.App(small_settings(record=tmp_path / "file"), cluster_config=NO_SERVER)
    with pytest.raises(RecordingError, match="cannot record to"):
        await daemon.start()
    assert tasks() == before
    store = settings.StoreSettings(kind="sqlite", path=tmp_path / "file" / "history.db")
    daemon = app.App(small_settings(store=store), cluster_config=NO_SERVER)
    with pytest.raises(StoreError, match=r"^store: "):
        await daemon.start()
    assert tasks() == before


async def test_a_failed_background_task_ends_the_daemon_with_its_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a daemon without its controller would look alive."""

    async def fail(self: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(app.App, "_run_controller", fail)
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(240), app.App(small_settings(), cluster_config=NO_SERVER) as daemon:
            await daemon.wait(asyncio.Event())


async def test_a_failed_controller_ends_the_daemon_with_its_exception(
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
    daemon = app.App(small_settings(), cluster_config=ClusterConfig(server=cluster.url))
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(240), daemon:
            await daemon.wait(asyncio.Event())


async def test_a_problem_with_a_file_name_that_is_not_utf_8_is_shown(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.yaml")).write_text("kind: [")
    logs.configure("info", "json")
    try:
        async with app.App(
            small_settings(manifests=tmp_path), cluster_config=ClusterConfig(server=cluster.url)
        ) as daemon:
            async with asyncio.timeout(240):
                await daemon.ready()
            assert daemon.server is not None
            path = f"{daemon.server.url}/api/v1/status"
            async with aiohttp.ClientSession(trust_env=False) as session, session.get(path) as answer:
                assert answer.status == 200
                assert any(r"/\udcff.yaml:" in problem for problem in (await answer.json())["problems"])
    finally:
        structlog.reset_defaults()


async def test_a_failing_store_is_a_problem_that_names_the_consequence(cluster: Cluster, tmp_path: Path) -> None:
    store = settings.StoreSettings(kind="sqlite", path=tmp_path / "history.db")
    async with app.App(small_settings(store=store), cluster_config=ClusterConfig(server=cluster.url)) as daemon:
        await daemon.ready()
        assert isinstance(daemon.components.store, persistent.PersistentStore)
        daemon.components.store.trouble = "the disk is full"
        assert "a restart would lose the state of the HPAs: the disk is full" in daemon.problems()


async def test_the_event_loop_is_never_blocked(cluster: Cluster, tmp_path: Path) -> None:
    """A recording, a scrape and a rescale, under a guard that raises an exception at any blocking call."""
    container = {"name": "app", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    selector = {"matchLabels": {"app": "web"}}
    spec = {"replicas": 5, "selector": selector, "template": template}
    head = {"metadata": {"name": "web"}}
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", **head, "spec": spec})
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    hpa = {"scaleTargetRef": ref, "maxReplicas": 3}
    cluster.apply({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", **head, "spec": hpa})
    blocker = blockbuster.BlockBuster("hpad")
    daemon = app.App(small_settings(record=tmp_path / "records"), cluster_config=ClusterConfig(server=cluster.url))
    blocker.activate()
    try:
        async with daemon, asyncio.timeout(240):
            await daemon.ready()
            while (cluster.get("deployments", "web") or {})["spec"]["replicas"] != 3:  # noqa: ASYNC110  # nothing signals it
                await asyncio.sleep(0.02)
            await daemon.telemetry.exposition()
            await asyncio.sleep(1)
    finally:
        blocker.deactivate()
    assert "hpad_bugs_total 0.0" in (await daemon.telemetry.exposition()).decode()
    assert len(list((tmp_path / "records").iterdir())) == 1
