"""Reloads of a running daemon, which apply all settings or none, and the daemon as a systemd service."""

import asyncio
import contextlib
import functools
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp
import msgspec
import pytest
import yaml
from support import free_ports

from hpad import settings
from hpad.api.sample import AdapterError
from hpad.clock import SystemClock
from hpad.daemon import app, assembly, lifecycle, process
from hpad.daemon.reload import Reloader
from hpad.engine.view import Tunables
from hpad.files import stamps
from hpad.kube.auth.credentials import ClusterConfig
from hpad.lab.cluster import Cluster
from hpad.sources.replacement import SourcesRejected
from hpad.sources.source import QueriedSource
from hpad.store import persistent
from hpad.telemetry import Telemetry

METRIC = {
    "type": "External",
    "external": {"metric": {"name": "depth"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


def small_settings(**changes: Any) -> settings.Settings:
    base = {"sync_period": timedelta(seconds=0.3), "listen": ("127.0.0.1", 0)}
    return settings.Settings(**{**base, **changes})


def static(path: Path, value: int) -> tuple[settings.SourceSettings, ...]:
    path.write_text(f"depth: {value}\n")
    return (settings.SourceSettings(name="file", adapter="static", settings={"file": str(path)}),)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(auto_ready=True) as made:
        apply(made, "web")
        yield made


def apply(cluster: Cluster, name: str) -> None:
    """Creates a Deployment with an HPA."""
    container = {"name": "app", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})
    apply_hpa(cluster, name, most=8)


def apply_hpa(cluster: Cluster, name: str, most: int) -> None:
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": ref, "maxReplicas": most, "metrics": [METRIC]}
    cluster.apply(
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}, "spec": spec}
    )


async def wait_for_replicas(cluster: Cluster, count: int) -> None:
    async with asyncio.timeout(240):
        while (cluster.get("deployments", "web") or {})["spec"]["replicas"] != count:  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0.02)


def current_replicas(cluster: Cluster) -> int | None:
    """Returns status.currentReplicas of the HPA."""
    found = cluster.get("horizontalpodautoscalers", "web") or {}
    count: int | None = (found.get("status") or {}).get("currentReplicas")
    return count


async def test_a_reload_applies_new_sources_and_intervals_at_once(cluster: Cluster, tmp_path: Path) -> None:
    first = small_settings(sync_period=timedelta(minutes=10), sources=static(tmp_path / "a.yaml", 20))
    async with app.App(first, cluster_config=ClusterConfig(server=cluster.url)) as daemon:
        await daemon.ready()
        await wait_for_replicas(cluster, 2)
        second = small_settings(sources=static(tmp_path / "b.yaml", 20), workers=3, tunables=Tunables(tolerance=0.9))
        assert await daemon.reload(second) == []
        assert daemon.settings == second
        assert daemon.status() == "Scaling by 1 HPA"
        static(tmp_path / "b.yaml", 40)
        await wait_for_replicas(cluster, 4)  # 0.3 s later, not ten minutes
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "old sources"]


async def test_a_reload_applies_the_period_to_the_store(cluster: Cluster) -> None:
    """The intervals of saves depend on the period, too."""
    first = small_settings(sync_period=timedelta(minutes=10))
    first = msgspec.structs.replace(first, store=msgspec.structs.replace(first.store, kind="cluster"))
    async with app.App(first, cluster_config=ClusterConfig(server=cluster.url)) as daemon:
        await daemon.ready()
        new = msgspec.structs.replace(first, sync_period=timedelta(seconds=10))
        assert await daemon.reload(new) == []
        made = assembly.build(new, ClusterConfig(server=cluster.url), daemon.clock, Telemetry())
        assert isinstance(daemon.components.store, persistent.PersistentStore)
        assert isinstance(made.store, persistent.PersistentStore)
        assert daemon.components.store._intervals == made.store._intervals


async def test_a_reload_applies_the_refresh_of_statuses(cluster: Cluster) -> None:
    async with app.App(small_settings(), cluster_config=ClusterConfig(server=cluster.url)) as daemon:
        await daemon.ready()
        assert daemon.components.reconciler._observer.options.status_refresh == timedelta(0)
        assert await daemon.reload(small_settings(status_refresh=timedelta(minutes=1))) == []
        assert daemon.components.reconciler._observer.options.status_refresh == timedelta(minutes=1)


async def test_a_reload_returns_and_keeps_settings_that_need_a_restart(cluster: Cluster, tmp_path: Path) -> None:
    async with app.App(small_settings(), cluster_config=ClusterConfig(server=cluster.url)) as daemon:
        await daemon.ready()
        serving = settings.Settings().serving
        changed = small_settings(
            dry_run=True,
            namespaces=("shop",),
            log_level="debug",
            serving=msgspec.structs.replace(serving, review=True),
        )
        assert await daemon.reload(changed) == ["namespaces", "listen_review", "dry_run"]
        assert daemon.problems() == ["changed settings need a restart: namespaces, listen_review, dry_run"]
        assert (daemon.settings.dry_run, daemon.settings.namespaces) == (False, ())
        assert daemon.settings.log_level == "debug"


async def test_a_reload_with_a_broken_source_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    before = small_settings(sources=static(tmp_path / "a.yaml", 20))
    async with app.App(before, cluster_config=ClusterConfig(server=cluster.url)) as daemon:
        await daemon.ready()
        broken = (*before.sources, settings.SourceSettings(name="new", adapter="no-such-adapter"))
        with pytest.raises(SourcesRejected, match="no-such-adapter"):
            await daemon.reload(small_settings(sources=broken, workers=1, tunables=Tunables(tolerance=0.9)))
        assert daemon.settings == before
        static(tmp_path / "a.yaml", 30)
        await wait_for_replicas(cluster, 3)


class _Read:
    """Settings that note which of their fields are read."""

    def __init__(self) -> None:
        self.fields: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.fields.add(name)
        return getattr(settings.Settings(), name)


def test_a_reload_reads_each_setting_that_is_marked_as_reloadable() -> None:
    read: Any = _Read()
    components = mock.Mock(store=mock.Mock(spec=persistent.PersistentStore))
    assembly.apply(read, components)
    assembly.gatherer(read, mock.Mock(), SystemClock(), Telemetry())
    by_command = {"log_level", "log_format"}  # hpad.cli.run: _log_as_set
    by_version = {"names_zero"}
    assert read.fields | by_command | by_version >= app.RELOADABLE


class Service:
    """`hpad run` with the environment that systemd gives it."""

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
        self.notifications: list[str] = []

    async def start(self) -> None:
        environ = {**os.environ, "NOTIFY_SOCKET": str(self._notify), "WATCHDOG_USEC": "2000000"}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "hpad", *self.arguments, env=environ, stderr=asyncio.subprocess.PIPE
        )

    async def until(self, start: str) -> None:
        """Waits for a notification that begins so."""
        while not self.notifications or not self.notifications[-1].startswith(start):
            data = await asyncio.get_running_loop().sock_recv(self.socket, 4096)
            self.notifications.append(data.decode())

    async def end(self) -> str:
        """Waits until the process has ended, and returns its log."""
        assert self.process.stderr is not None
        text = (await self.process.stderr.read()).decode()
        await self.process.wait()
        return text


@contextlib.asynccontextmanager
async def service(
    cluster: Cluster, folder: Path, text: str | None = "listen: 127.0.0.1:0\nsync_period: 1s\nstore: memory\n"
) -> AsyncIterator[Service]:
    """Runs hpad with the configuration `text`; None: the file is there already."""
    made = Service(cluster, folder)
    if text is not None:
        made.config.write_text(text)
    await made.start()
    try:
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            made.process.kill()
        await made.process.wait()
        made.socket.close()


async def test_systemd_is_notified_of_start_reloads_and_stop(cluster: Cluster, tmp_path: Path) -> None:
    """Start, a reload with valid settings, one with invalid settings, and stop."""
    async with asyncio.timeout(240), service(cluster, tmp_path) as running:
        await running.until("READY=1")
        assert any(each.startswith("STATUS=") for each in running.notifications)
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


async def test_the_signal_that_saved_decisions_in_earlier_builds_does_not_end_the_daemon(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with asyncio.timeout(240), service(cluster, tmp_path) as running:
        await running.until("READY=1")
        for number in (signal.SIGUSR1, signal.SIGTERM):
            running.process.send_signal(number)
        assert '"event":"hpad stopped"' in await running.end()
    assert running.process.returncode == 0


async def test_a_daemon_that_waits_for_credentials_stops_on_sigterm(cluster: Cluster, tmp_path: Path) -> None:
    """A credential plugin may take a minute; systemd kills the process after twenty seconds."""
    plugin, marker = tmp_path / "plugin", tmp_path / "pid"
    plugin.write_text(f"#!/bin/sh\necho $$ > {marker}.new\nmv {marker}.new {marker}\nexec sleep 600\n")
    plugin.chmod(0o700)
    user = f"{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {plugin}}}}}"
    made = Service(cluster, tmp_path)
    made.config.write_text("listen: none\nstore: memory\n")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(kubeconfig.read_text().replace("user: {}", f"user: {user}"))
    await made.start()
    try:
        async with asyncio.timeout(240):
            while not marker.exists():  # noqa: ASYNC110  # a file of another process
                await asyncio.sleep(0.02)
        made.process.terminate()
        await made.end()
        assert made.process.returncode == 0  # not 2, as for a plugin that fails
    finally:
        made.socket.close()
        os.kill(int(marker.read_text()), signal.SIGKILL)


async def test_a_new_log_level_applies_to_existing_loggers(cluster: Cluster, tmp_path: Path) -> None:
    """Also to loggers with bound fields, such as the Lease of the leader."""
    text = "listen: none\nstore: memory\nleader_elect: true\nlog_level: {}\n"
    async with asyncio.timeout(240), service(cluster, tmp_path, text.format("error")) as running:
        await running.until("STATUS=Scaling by 1 HPA")
        running.config.write_text(text.format("info"))
        running.process.send_signal(signal.SIGHUP)
        await running.until("RELOADING=1")
        await running.until("READY=1")
        running.process.send_signal(signal.SIGTERM)
        log = await running.end()
    assert '"event":"standing for election"' not in log
    assert '"event":"stopped leading","lease":"kube-system/hpad"' in log


async def test_a_component_that_hangs_does_not_keep_the_others_from_stopping() -> None:
    stopped: list[str] = []

    def component(name: str, stop: Any) -> lifecycle.Component:
        return lifecycle.Component(name, stop=stop)

    async def hang() -> None:
        await asyncio.Event().wait()

    async def end() -> None:
        stopped.append("first")

    several = lifecycle.Lifecycle(SystemClock())
    await several.start([component("first", end), component("second", hang)])
    async with asyncio.timeout(240):
        await several.stop(0.1)
    assert stopped == ["first"]


HPAS = 10


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def instances() -> int:
    """Returns the number of metric sources and of HTTP sessions that exist."""
    gc.collect()
    return sum(isinstance(each, QueriedSource | aiohttp.ClientSession) for each in gc.get_objects())


async def test_a_hundred_reloads_under_load_lose_no_turn_and_leave_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """With each reload an HPA is edited, which makes a turn due at once: each is decided, with an answer."""
    names = [f"web-{number}" for number in range(HPAS)]
    for name in names:
        apply(cluster, name)
    numbers, file = tmp_path / "numbers.yaml", tmp_path / "hpad.yaml"
    numbers.write_text("depth: 20\n")

    def write(number: int) -> None:
        """Changes one source of two in each second reload, the period in each twentieth; each tenth is invalid."""
        other = {"adapter": "static", "file": str(numbers), "match": {"metrics": ["other"]}}
        of_hpas = {
            **other,
            "match": {"metrics": ["depth"]},
            "timeout": f"{30 + number // 2 % 2}s",
            "limits": {"fresh": "0s"},
        }
        period = f"{60000 + number // 20}ms" if number % 10 else "soon"
        content = {"listen": "127.0.0.1:0", "sync_period": period, "sources": {"numbers": of_hpas, "other": other}}
        file.write_text(yaml.safe_dump(content))

    write(1)
    read = functools.partial(settings.load, file, {}, {})
    files, first = await asyncio.to_thread(lambda: (stamps([str(file)]), read()))
    opened = open_files()
    rejected = 0
    async with app.App(first, cluster_config=ClusterConfig(server=cluster.url)) as daemon, asyncio.timeout(240):
        await daemon.ready()
        reloader = Reloader(daemon, read, files, applied=lambda settings: None, notifier=process.Notifier({}))
        running = instances()
        recent = daemon.components.recent
        for number in range(1, 101):
            write(number)
            apply_hpa(cluster, names[number % HPAS], 10 + number)
            await reloader.reload()
            rejected += len(daemon.rejected)
        decided: dict[str, int | None] = {}
        while decided != {name: 10 + 100 - (100 - index) % HPAS for index, name in enumerate(names)}:
            await asyncio.sleep(0.05)
            turns = [done for done in recent.all() if done.view.hpa.metadata.name in names]
            decided = {done.view.hpa.metadata.name: done.view.hpa.spec.max_replicas for done in turns}
        assert not [answer for done in turns for answer in done.answers if isinstance(answer, AdapterError)]
        assert rejected == 10
    assert instances() <= running
    async with asyncio.timeout(240):
        while open_files() != opened:  # noqa: ASYNC110  # the cluster closes its ends of connections later
            await asyncio.sleep(0.05)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "old sources"]


def mount(folder: Path, version: int, **texts: str) -> None:
    """Writes the files as the kubelet updates a mounted ConfigMap: all at once, by the replacement of one link."""
    new = folder / f"..{version}"
    new.mkdir()
    for name, text in texts.items():
        (new / name).write_text(text)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    (folder / "..data_tmp").symlink_to(new.name)
    (folder / "..data_tmp").rename(folder / "..data")


async def test_a_mounted_configmap_takes_effect_and_an_invalid_one_does_not(cluster: Cluster, tmp_path: Path) -> None:
    """The configuration, the tokens of the port and the rules of a source; `status` and a series show the rejection."""
    rules = yaml.safe_dump({"externalRules": [{"seriesQuery": "depth", "metricsQuery": "sum(<<.Series>>)"}]})
    prom = f"{{adapter: prometheus, url: 'http://127.0.0.1:9', rules_file: {tmp_path}/rules}}"
    with free_ports.port() as port:
        text = (
            f"store: memory\nlisten: 127.0.0.1:{port}\nlisten_token_file: {tmp_path}/tokens\nsources: {{p: {prom}}}\n"
        )
        mount(tmp_path, 1, rules=rules, tokens="old\n", **{"hpad.yaml": text})

        async def get(path: str, token: str) -> str:
            headers = {"Authorization": f"Bearer {token}"}
            async with (
                aiohttp.ClientSession(trust_env=False) as session,
                session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as answer,
            ):
                return await answer.text() if answer.status == 200 else ""

        async def until(path: str, part: str, token: str) -> str:
            while part not in (found := await get(path, token)):  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.1)
            return found

        async with asyncio.timeout(240), service(cluster, tmp_path, None) as running:
            await running.until("READY=1")
            broken = rules.replace("<<.Series>>", "<<.Nothing>>")
            mount(tmp_path, 2, rules=broken, tokens="new\n", **{"hpad.yaml": text + "workers: 3\n"})
            series = await until("/metrics", "hpad_settings_rejected 1.0", "new")
            assert 'hpad_settings_reloads_total{result="rejected"} 1.0' in series
            status = await get("/api/v1/status", "new")
            assert f"{tmp_path}/rules: externalRules[0]" in status
            mount(tmp_path, 3, rules=rules, tokens="new\n", **{"hpad.yaml": text + "workers: 3\nnamespaces: [a]\n"})
            await until("/metrics", "hpad_settings_rejected 0.0", "new")
            assert "changed settings need a restart: namespaces" in await get("/api/v1/status", "new")
            assert await get("/metrics", "old") == ""
            running.process.send_signal(signal.SIGTERM)
            log = await running.end()
    assert running.process.returncode == 0
    assert log.count("reload rejected") == 1
    assert '"event":"settings reloaded","changed":["workers","sources"],"needs_restart":["namespaces"]' in log
