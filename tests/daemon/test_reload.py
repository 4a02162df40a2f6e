"""Settings that change under a running daemon: all of them or none; and the process around it all."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from hpad import settings
from hpad.clock import SystemClock
from hpad.daemon import app, assembly, lifecycle
from hpad.engine.view import Tunables
from hpad.kube.auth.credentials import ClusterConfig
from hpad.lab.cluster import Cluster
from hpad.settings.model import Election, Serving
from hpad.sources.manager import SourcesRejected
from hpad.store import persistent
from hpad.telemetry import Telemetry

METRIC = {
    "type": "External",
    "external": {"metric": {"name": "depth"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


def told(**changes: Any) -> settings.Settings:
    base = {"sync_period": timedelta(seconds=0.3), "listen": ("127.0.0.1", 0)}
    return settings.Settings(**{**base, **changes})


def static(path: Path, value: int) -> tuple[settings.SourceSettings, ...]:
    path.write_text(f"depth: {value}\n")
    return (settings.SourceSettings(name="file", adapter="static", settings={"file": str(path)}),)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(auto_ready=True) as made:
        container = {"name": "app", "resources": {"requests": {"cpu": "100m"}}}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        head = {"metadata": {"name": "web"}}
        made.apply({"apiVersion": "apps/v1", "kind": "Deployment", **head, "spec": spec})
        ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        hpa = {"scaleTargetRef": ref, "maxReplicas": 8, "metrics": [METRIC]}
        made.apply({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", **head, "spec": hpa})
        yield made


async def replicas(cluster: Cluster, wanted: int) -> None:
    async with asyncio.timeout(60):
        while (cluster.get("deployments", "web") or {})["spec"]["replicas"] != wanted:  # noqa: ASYNC110  # the world
            await asyncio.sleep(0.02)


async def test_new_sources_and_another_pace_are_taken_at_once(cluster: Cluster, tmp_path: Path) -> None:
    first = told(sync_period=timedelta(minutes=10), sources=static(tmp_path / "a.yaml", 20))
    async with app.App(first, cluster_config=ClusterConfig(server=cluster.url)) as daemon:
        await daemon.ready()
        await replicas(cluster, 2)
        second = told(sources=static(tmp_path / "b.yaml", 20), workers=3, tunables=Tunables(tolerance=0.9))
        assert await daemon.reload(second) == []
        assert daemon.settings == second
        assert daemon.status() == "Scaling by 1 HPA"
        static(tmp_path / "b.yaml", 40)
        await replicas(cluster, 4)  # 0.3 s later, not ten minutes
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "old sources"]


async def test_all_that_was_made_of_the_period_is_made_of_the_new_one(cluster: Cluster) -> None:
    """What rests and what is saved, beside the turns themselves."""
    first = told(sync_period=timedelta(minutes=10), election=Election(enabled=True, shards=True))
    first = msgspec.structs.replace(first, store=msgspec.structs.replace(first.store, kind="cluster"))
    async with app.App(first, cluster_config=ClusterConfig(server=cluster.url)) as daemon:
        await daemon.ready()
        new = msgspec.structs.replace(first, sync_period=timedelta(seconds=10))
        assert await daemon.reload(new) == []
        made = assembly.build(new, ClusterConfig(server=cluster.url), daemon.clock, Telemetry())
        assert made.handoff is not None
        assert daemon.components.handoff is not None
        assert daemon.components.handoff._cooldown == made.handoff._cooldown == 15 + 2 + 0.6 * 10
        assert isinstance(daemon.components.store, persistent.PersistentStore)
        assert isinstance(made.store, persistent.PersistentStore)
        assert daemon.components.store._pace == made.store._pace


async def test_what_cannot_change_is_named_and_kept(cluster: Cluster, tmp_path: Path) -> None:
    async with app.App(told(), cluster_config=ClusterConfig(server=cluster.url)) as daemon:
        await daemon.ready()
        changed = told(dry_run=True, namespaces=("shop",), log_level="debug")
        assert sorted(await daemon.reload(changed)) == ["dry_run", "namespaces"]
        assert (daemon.settings.dry_run, daemon.settings.namespaces) == (False, ())
        assert daemon.settings.log_level == "debug"


async def test_one_source_that_does_not_work_leaves_everything_as_it_was(cluster: Cluster, tmp_path: Path) -> None:
    before = told(sources=static(tmp_path / "a.yaml", 20))
    async with app.App(before, cluster_config=ClusterConfig(server=cluster.url)) as daemon:
        await daemon.ready()
        broken = (*before.sources, settings.SourceSettings(name="new", adapter="no-such-adapter"))
        with pytest.raises(SourcesRejected, match="no-such-adapter"):
            await daemon.reload(told(sources=broken, workers=1, tunables=Tunables(tolerance=0.9)))
        assert daemon.settings == before
        static(tmp_path / "a.yaml", 30)
        await replicas(cluster, 3)


class Service:
    """`hpad run` as systemd would run it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.config, self._notify = folder / "hpad.yaml", folder / "notify"
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(
            "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], "
            f"clusters: [{{name: c, cluster: {{server: '{cluster.url}'}}}}], users: [{{name: u, user: {{}}}}]}}"
        )
        self.arguments = ("run", "--config", str(self.config), "--kubeconfig", str(kubeconfig), "--log-format=json")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self._notify))
        self.socket.setblocking(False)
        self.process: asyncio.subprocess.Process
        self.said: list[str] = []

    async def start(self) -> None:
        environ = {**os.environ, "NOTIFY_SOCKET": str(self._notify), "WATCHDOG_USEC": "2000000"}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "hpad", *self.arguments, env=environ, stderr=asyncio.subprocess.PIPE
        )

    async def until(self, start: str) -> str:
        """The next thing said that begins so."""
        while True:
            said = (await asyncio.get_running_loop().sock_recv(self.socket, 4096)).decode()
            self.said.append(said)
            if said.startswith(start):
                return said

    async def end(self) -> str:
        """Its log, once it has ended."""
        assert self.process.stderr is not None
        text = (await self.process.stderr.read()).decode()
        await self.process.wait()
        return text


@contextlib.asynccontextmanager
async def service(
    cluster: Cluster, folder: Path, told: str = "listen: 127.0.0.1:0\nsync_period: 1s\nstore: memory\n"
) -> AsyncIterator[Service]:
    made = Service(cluster, folder)
    made.config.write_text(told)
    await made.start()
    try:
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            made.process.kill()
        await made.process.wait()
        made.socket.close()


async def test_the_life_of_a_service(cluster: Cluster, tmp_path: Path) -> None:
    """Ready, reloaded with good settings and with bad ones, then stopped: systemd hears it all, the log has why."""
    async with asyncio.timeout(120), service(cluster, tmp_path) as running:
        await running.until("READY=1")
        assert any(said.startswith("STATUS=") for said in running.said)
        for text in ("sync_period: 2s\nlisten: none\nstore: memory\n", "sync_period: 2\nworkers: none\n"):
            running.config.write_text(text)
            running.process.send_signal(signal.SIGHUP)
            await running.until("RELOADING=1\nMONOTONIC_USEC=")
            await running.until("READY=1")
        running.process.send_signal(signal.SIGTERM)
        await running.until("STOPPING=1")
        log = await running.end()
    assert running.process.returncode == 0
    assert '"changed":["sync_period"],"needs_restart":["listen"]' in log
    assert "reload rejected: the settings are invalid; the previous ones stay in force" in log
    assert "sync_period: 2 has no unit" in log
    assert "workers: 'none' is not a whole number" in log
    assert '"event":"hpad stopped"' in log


async def test_a_service_ends_when_told_while_its_credentials_are_not_there_yet(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A plugin may take a minute; systemd waits for twenty seconds, and then kills."""
    plugin, marker = tmp_path / "plugin", tmp_path / "pid"
    plugin.write_text(f"#!/bin/sh\necho $$ > {marker}.new\nmv {marker}.new {marker}\nexec sleep 600\n")
    plugin.chmod(0o700)
    told = f"{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {plugin}}}}}"
    made = Service(cluster, tmp_path)
    made.config.write_text("listen: none\nstore: memory\n")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(kubeconfig.read_text().replace("user: {}", f"user: {told}"))
    await made.start()
    try:
        async with asyncio.timeout(60):
            while not marker.exists():  # noqa: ASYNC110  # a file of another process
                await asyncio.sleep(0.02)
        made.process.terminate()
        await made.end()
        assert made.process.returncode == 0  # not 2, for a plugin that gave nothing
    finally:
        made.socket.close()
        os.kill(int(marker.read_text()), signal.SIGKILL)


async def test_another_log_level_counts_for_those_at_work_already(cluster: Cluster, tmp_path: Path) -> None:
    """Also where lines say each time whose they are: the leader's name its Lease."""
    told = "listen: none\nstore: memory\nleader_elect: true\nlog_level: {}\n"
    async with asyncio.timeout(120), service(cluster, tmp_path, told.format("error")) as running:
        await running.until("STATUS=Scaling by 1 HPA")
        running.config.write_text(told.format("info"))
        running.process.send_signal(signal.SIGHUP)
        await running.until("RELOADING=1")
        await running.until("READY=1")
        running.process.send_signal(signal.SIGTERM)
        log = await running.end()
    assert '"event":"standing for election"' not in log
    assert '"event":"stopped leading","lease":"kube-system/hpad"' in log


async def test_a_component_that_hangs_does_not_keep_others_from_stopping() -> None:
    stopped: list[str] = []

    def component(name: str, stop: Any) -> lifecycle.Component:
        return lifecycle.Component(name, stop=stop)

    async def hang() -> None:
        await asyncio.Event().wait()

    async def end() -> None:
        stopped.append("first")

    several = lifecycle.Lifecycle(SystemClock())
    await several.start([component("first", end), component("second", hang)])
    async with asyncio.timeout(60):
        await several.stop(0.1)
    assert stopped == ["first"]


async def test_certificates_are_looked_at_on_reload(cluster: Cluster, tmp_path: Path) -> None:
    """A reload reads the files of the HTTP server, too: a former token is refused."""
    file = tmp_path / "tokens"
    serving = Serving(token_file=file)
    file.write_text("yesterday")
    async with (
        app.App(told(serving=serving), cluster_config=ClusterConfig(server=cluster.url)) as daemon,
        aiohttp.ClientSession(trust_env=False) as session,
    ):
        await daemon.ready()
        assert daemon.server is not None
        file.write_text("today")
        await daemon.reload(told(serving=serving))
        for token, status in (("yesterday", 401), ("today", 200)):
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(f"{daemon.server.url}/metrics", headers=headers) as answer:
                assert answer.status == status
