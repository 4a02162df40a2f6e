"""Messages of a real hpad process that scales Deployments of the embedded cluster."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web
from e2e.test_election import QUICK
from e2e.test_zero import DEPTH, NOW, depth
from support.http_stub import serving

from hpad.lab.cluster import Cluster
from hpad.settings.notify import notify

PATH = "/services/T0/B0/s3cr3tw0rd"
CONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "lab",
    "users": [{"name": "lab", "user": {}}],
    "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
}


class Inbox:
    """A server that takes messages; `texts` are those of Slack's form, `events` the CloudEvents."""

    def __init__(self) -> None:
        self.url = ""
        self.texts: list[str] = []
        self.events: list[dict[str, Any]] = []

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read())
        if request.path == PATH:
            self.texts += body["text"].split("\n\n")
        else:
            self.events.append(body)
        return web.Response(text="ok")

    async def until(self, condition: Callable[[], Any]) -> Any:
        async with asyncio.timeout(120):
            while not (found := condition()):  # noqa: ASYNC110  # nothing signals it
                await asyncio.sleep(0.05)
        return found

    async def text(self, words: str) -> str:
        """Waits for a message with these words, and returns it."""
        found: str = await self.until(lambda: next((each for each in self.texts if words in each), ""))
        return found

    def section(self, folder: Path, **after: str) -> dict[str, Any]:
        (folder / "slack").write_text(f"{self.url}{PATH}\n")
        return {
            "cluster": "prod",
            "page": "https://hpad.example.com",
            "after": {"at_max": "1s", "failing": "1s", **after},
            "destinations": {
                "ops": {"form": "slack", "url_file": str(folder / "slack")},
                "audit": {"form": "cloudevents", "url": f"{self.url}/events", "causes": ["rescale", "at_max"]},
            },
        }


@pytest.fixture
async def inbox() -> AsyncIterator[Inbox]:
    made = Inbox()
    async with serving(made.handle) as made.url:
        yield made


@pytest.mark.cluster
async def test_a_daemon_tells_what_happens_to_its_hpas(inbox: Inbox, tmp_path: Path) -> None:
    async with Cluster(auto_ready=True) as cluster:
        _apply(cluster)
        config, log = tmp_path / "hpad.yaml", tmp_path / "log"
        (source,) = depth(tmp_path, 90)
        section = inbox.section(tmp_path)
        sources = {"file": {"adapter": "static", **source.settings}}
        base = {"sync_period": "2s", "listen": "none", "sources": sources, "record": str(tmp_path / "recordings")}
        config.write_text(yaml.safe_dump({**base, "notify": section}))
        at = tmp_path / "kubeconfig"
        at.write_text(yaml.safe_dump({**CONFIG, "clusters": [{"name": "lab", "cluster": {"server": cluster.url}}]}))
        command = [sys.executable, "-m", "hpad", "run", "--config", str(config), "--kubeconfig", str(at)]
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=output, stderr=output, env=os.environ.copy()
            )
            try:
                rescale = await inbox.text("was scaled from 1 to")
                assert rescale.startswith(":arrows_counterclockwise: [prod] default/web was scaled from 1 to ")
                assert rescale.endswith("<https://hpad.example.com/#/hpas/default/web|Open the page>")
                at_max = await inbox.text("has been at its maximum of 4 replicas")
                assert "the metrics ask for 9" in at_max
                assert "Raise maxReplicas" in at_max
                depth(tmp_path, 20)
                assert ":white_check_mark:" in await inbox.text("is no longer at its maximum")
                await asyncio.to_thread((tmp_path / "depth.yaml").unlink)
                assert "Mend what failed" in await inbox.text("has been failing since")
                # A reload: the destination for events is gone, and the others go on.
                depth(tmp_path, 20)
                assert "works again" in await inbox.text("works again")
                del section["destinations"]["audit"]
                section["cluster"] = "other"
                config.write_text(yaml.safe_dump({**base, "notify": section}))
                process.send_signal(signal.SIGHUP)
                await inbox.until(lambda: b"settings reloaded" in log.read_bytes())
                await asyncio.to_thread((tmp_path / "depth.yaml").unlink)
                await asyncio.sleep(5)
                assert sum("has been failing since" in each for each in inbox.texts) == 1  # within the hour
            finally:
                process.terminate()
                async with asyncio.timeout(60):
                    assert await process.wait() == 0
    kinds = [each["type"] for each in inbox.events]
    assert sorted(set(kinds)) == ["io.hpad.at_max.begun", "io.hpad.at_max.ended", "io.hpad.rescale.begun"]
    assert len(kinds) == len(set(kinds))
    written = [log, *(each for each in (tmp_path / "recordings").rglob("*") if each.is_file())]
    assert len(written) > 1
    assert all(b"s3cr3tw0rd" not in each.read_bytes() for each in written)


async def test_a_reload_of_the_section(inbox: Inbox, world: Any, tmp_path: Path) -> None:
    world.workload("Deployment", "web", 1)
    world.hpa("web", maxReplicas=4, metrics=DEPTH, behavior=NOW)
    daemon = await world.hpad(sources=depth(tmp_path, 40))
    await world.until(lambda: world.replicas("deployments", "web") == 4)
    assert inbox.texts == []
    section = notify(inbox.section(tmp_path))
    assert await daemon.reload(msgspec.structs.replace(daemon.settings, notify=section)) == []
    depth(tmp_path, 90)
    await inbox.text("has been at its maximum of 4 replicas")
    longer = msgspec.structs.replace(section.after, failing=timedelta(hours=2))
    section = msgspec.structs.replace(section, after=longer)
    assert await daemon.reload(msgspec.structs.replace(daemon.settings, notify=section)) == []
    assert daemon.components.notices._after.failing == timedelta(hours=2)
    assert await daemon.reload(msgspec.structs.replace(daemon.settings, notify=notify({}))) == []
    assert daemon.components.notices._known == {}
    assert 'hpad_notify_messages_total{destination="ops",result="sent"}' in await world.exposed("hpad_notify_messages")


async def test_a_new_leader_tells_what_still_holds_once_it_has_lasted_for_it(
    inbox: Inbox, world: Any, tmp_path: Path
) -> None:
    world.workload("Deployment", "web", 4)
    world.hpa("web", maxReplicas=4, metrics=DEPTH, behavior=NOW)
    section = notify(inbox.section(tmp_path, failing="1h"))  # no metric of a busy machine is told of
    fields = {"sources": depth(tmp_path, 90), "election": QUICK, "notify": section}
    first = await world.hpad(**fields)
    await inbox.text("has been at its maximum")
    second = await world.hpad(**fields)
    await world.periods(8)
    assert second.components.notices._known == {}
    assert len(inbox.texts) == 1  # the standby tells nothing
    await first.stop()
    await inbox.until(lambda: len(inbox.texts) == 2)
    assert second.components.coordinator.owner.leading
    # What the former leader knew is gone, should it lead again.
    second.components.takeover._release(())
    assert second.components.notices._known == {}


def _apply(cluster: Cluster) -> None:
    head = {"metadata": {"name": "web"}}
    container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", **head, "spec": spec})
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    hpa = {"scaleTargetRef": ref, "maxReplicas": 4, "metrics": DEPTH, "behavior": NOW}
    cluster.apply({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", **head, "spec": hpa})
