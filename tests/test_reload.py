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
import pytest

from hpad import app, settings
from hpad.gather.swap import SourcesRefused
from hpad.kube import config
from hpad.lab.cluster import Cluster
from hpad.model.serving import Serving
from hpad.model.tunables import Tunables

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
    async with asyncio.timeout(10):
        while (cluster.get("deployments", "web") or {})["spec"]["replicas"] != wanted:  # noqa: ASYNC110  # the world
            await asyncio.sleep(0.02)


async def test_new_sources_and_another_pace_are_taken_at_once(cluster: Cluster, tmp_path: Path) -> None:
    first = told(sync_period=timedelta(minutes=10), sources=static(tmp_path / "a.yaml", 20))
    async with app.App(first, cluster_config=config.ClusterConfig(server=cluster.url)) as daemon:
        await daemon.ready()
        await replicas(cluster, 2)
        second = told(sources=static(tmp_path / "b.yaml", 20), workers=3, tunables=Tunables(tolerance=0.9))
        assert await daemon.reload(second) == []
        assert daemon.settings == second
        assert daemon.status() == "Scaling by 1 HPAs"
        static(tmp_path / "b.yaml", 40)
        await replicas(cluster, 4)  # 0.3 s later, not ten minutes
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "old sources"]


async def test_what_cannot_change_is_named_and_kept(cluster: Cluster, tmp_path: Path) -> None:
    async with app.App(told(), cluster_config=config.ClusterConfig(server=cluster.url)) as daemon:
        await daemon.ready()
        changed = told(dry_run=True, namespaces=("shop",), log_level="debug")
        assert sorted(await daemon.reload(changed)) == ["dry_run", "namespaces"]
        assert (daemon.settings.dry_run, daemon.settings.namespaces) == (False, ())
        assert daemon.settings.log_level == "debug"


async def test_one_source_that_does_not_work_leaves_everything_as_it_was(cluster: Cluster, tmp_path: Path) -> None:
    before = told(sources=static(tmp_path / "a.yaml", 20))
    async with app.App(before, cluster_config=config.ClusterConfig(server=cluster.url)) as daemon:
        await daemon.ready()
        broken = (*before.sources, settings.SourceSettings(name="new", adapter="no-such-adapter"))
        with pytest.raises(SourcesRefused, match="no-such-adapter"):
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
async def service(cluster: Cluster, folder: Path) -> AsyncIterator[Service]:
    made = Service(cluster, folder)
    made.config.write_text("listen: 127.0.0.1:0\nsync_period: 1s\nstore: memory\n")
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
    async with asyncio.timeout(40), service(cluster, tmp_path) as running:
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
    assert "the settings are not good, and stay as they were" in log
    assert "sync_period: 2 has no unit" in log
    assert "workers: 'none' is not a whole number" in log
    assert '"event":"hpad stopped"' in log


async def test_a_part_that_hangs_does_not_keep_the_others_from_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []

    def part(name: str, stop: Any) -> app.Part:
        async def start() -> None:
            """At once."""

        return app.Part(name, "", start, stop)

    async def hang() -> None:
        await asyncio.Event().wait()

    async def end() -> None:
        stopped.append("first")

    monkeypatch.setattr(app, "STOP_SECONDS", 0.1)
    daemon = app.App(told(), cluster_config=config.ClusterConfig(server="http://127.0.0.1:9"))
    daemon._started = [part("first", end), part("second", hang)]
    async with asyncio.timeout(5):
        await daemon.stop()
    assert stopped == ["first"]


async def test_certificates_are_looked_at_on_reload(cluster: Cluster, tmp_path: Path) -> None:
    """A reload reads the files of the windows, too: the token of yesterday is no good."""
    file = tmp_path / "tokens"
    serving = Serving(token_file=file)
    file.write_text("yesterday")
    async with (
        app.App(told(serving=serving), cluster_config=config.ClusterConfig(server=cluster.url)) as daemon,
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
