"""`kubectl hpad`: real kubectls, real daemons and the embedded cluster."""

import asyncio
import json
import os
import re
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.conftest import World
from support import plugin
from support.kubectl_binaries import SECONDS
from support.plugin import Plugin

from hpad.api.metadata import Key
from hpad.daemon import app
from hpad.settings.model import Election

pytest_plugins = ("support.kubectl_fixtures",)
LISTEN = {"listen": ("127.0.0.1", 0), "sync_period": timedelta(seconds=1.5)}
"""A period in which metrics arrive in time on a busy machine."""


def port(daemon: app.App) -> int:
    assert daemon.server is not None
    return int(daemon.server.url.rpartition(":")[2])


def workload(world: World, name: str = "web") -> None:
    """Applies a Deployment whose HPA keeps two replicas."""
    world.workload("Deployment", name, 2)
    world.load(name, 50)
    world.hpa(name, maxReplicas=4)


async def decided(world: World, name: str = "web") -> None:
    await world.until(lambda: (world.status(name).get("currentMetrics") or [{}])[0].get("resource"))


@pytest.fixture
async def hpad(world: World, kubectl_path: str, tmp_path: Path) -> Plugin:
    """The plugin, a daemon that has decided for the HPA `web`, and a Service that leads to it."""
    workload(world)
    plugin.pod(world.cluster, "hpad-0", port(await world.hpad(**LISTEN)))
    plugin.service(world.cluster)
    await decided(world)
    return Plugin(kubectl_path, tmp_path, await world.cluster.kubeconfig(tmp_path / "kubeconfig"))


@pytest.fixture
async def direct(hpad: Plugin, world: World) -> Plugin:
    """The plugin with the address of that daemon, for what does not depend on how it is reached."""
    return hpad.direct(f"127.0.0.1:{port(world.daemon)}")


@pytest.fixture(autouse=True)
def nothing_remains(tmp_path: Path) -> Any:
    """No child of the plugin and no file remains."""
    yield
    assert list(tmp_path.glob("kubectl-hpad-*")) == []
    running = [command_line(pid) for pid in os.listdir("/proc") if pid.isdigit()]
    assert [each for each in running if bytes(tmp_path) in each and b"kubectl" in each] == []


def command_line(pid: str) -> bytes:
    """Returns the command of a process, empty if it has ended since it was listed."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_status_shows_the_hpas_of_the_namespace(hpad: Plugin) -> None:
    """Scenario 31."""
    header, row = [line.split() for line in (await hpad.by_kubectl()("status")).splitlines()]
    assert header[:7] == ["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "DESIRED"]
    assert header[7:] == ["STATE", "HELD-BY", "LAST-SCALE", "DECIDED"]
    assert row[:8] == ["web", "Deployment/web", "cpu:", "50%/50%", "1", "4", "2", "2"]
    assert row[8:-1] == ["-", "-", "-"]
    assert row[-1].endswith("s")


async def test_status_selects_by_labels(hpad: Plugin, kubectl_path: str) -> None:
    labelled = [kubectl_path, "label", "hpa", "web", "tier=web"]
    process = await asyncio.create_subprocess_exec(*labelled, env=hpad.environment, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert b"labeled" in out
    name = "horizontalpodautoscaler.autoscaling/web\n"
    async with asyncio.timeout(SECONDS):
        while (await hpad.run("status", "-l", "tier=web", "-o", "name"))[1] != name:
            pass  # until hpad has read the label
    status, out_text, err = await hpad.run("status", "--selector", "tier!=web")
    assert (status, out_text, err) == (0, "", "kubectl-hpad: no HPAs found in namespace default\n")


async def test_status_has_the_formats_of_kubectl(direct: Plugin) -> None:
    wide = await direct("status -o wide")
    assert wide.splitlines()[0].endswith("  DECISION")
    assert "keep 2: cpu at its target (50% / 50%)" in wide
    assert await direct("status -o name") == "horizontalpodautoscaler.autoscaling/web\n"
    listed = await direct.json("status")
    assert [(each["namespace"], each["name"]) for each in listed["items"]] == [("default", "web")]
    assert yaml.safe_load(await direct("status -oyaml web"))["target"]["name"] == "web"
    assert (await direct.json("status deployment/web"))["lastDecision"]["action"] == "none"


async def test_namespaces_are_chosen_as_with_kubectl(hpad: Plugin, world: World, tmp_path: Path) -> None:
    other = {**world.cluster.get("horizontalpodautoscalers", "web"), "metadata": {"name": "api", "namespace": "shop"}}
    world.cluster.apply({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", **other})
    await world.until(lambda: world.daemon.components.hpas.get(Key("shop", "api")))
    assert await hpad("status -n shop -o name") == "horizontalpodautoscaler.autoscaling/api\n"
    assert await hpad("-n shop status -o name") == "horizontalpodautoscaler.autoscaling/api\n"
    rows = [line.split()[:2] for line in (await hpad("status -A")).splitlines()]
    assert rows == [["NAMESPACE", "NAME"], ["default", "web"], ["shop", "api"]]
    config = json.loads(hpad.kubeconfig.read_text())
    config["contexts"].append({"name": "other", "context": {**config["contexts"][0]["context"], "namespace": "shop"}})
    hpad.kubeconfig.write_text(json.dumps(config))
    assert await hpad("status --context other -o name") == "horizontalpodautoscaler.autoscaling/api\n"
    copied = tmp_path / "copied"
    copied.write_text(json.dumps({**config, "current-context": "other"}))
    assert await hpad(f"status --kubeconfig={copied} -o name") == "horizontalpodautoscaler.autoscaling/api\n"
    status, out, err = await hpad.run("status", "-n", "empty")
    assert (status, out, err) == (0, "", "kubectl-hpad: no HPAs found in namespace empty\n")


async def test_names_may_stand_before_and_after_flags(direct: Plugin, world: World) -> None:
    workload(world, "api")
    await decided(world, "api")
    expected = [f"horizontalpodautoscaler.autoscaling/{name}" for name in ("web", "api")]
    assert (await direct("status web -n default deploy/api -o name")).splitlines() == expected


async def test_a_missing_hpa_is_an_error(direct: Plugin) -> None:
    assert await direct.refused("status none") == "kubectl-hpad: no HPA none in namespace default\n"
    status, out, err = await direct.run("status", "--contxt=x")
    assert (status, out) == (2, "")
    assert err.startswith("kubectl hpad status: unknown: --contxt=x; did you mean '--context'?\n")
    status, _, err = await direct.run("status", "-A", "-n", "x")
    assert (status, err.splitlines()[0]) == (
        2,
        "kubectl hpad: -n/--namespace and -A/--all-namespaces exclude each other",
    )


async def test_sources_and_versions_are_those_of_the_daemon(direct: Plugin) -> None:
    async with asyncio.timeout(SECONDS):
        while (found := await direct.run("sources"))[0] != 0:  # on a busy machine, the source may have timed out
            assert "did not answer within" in found[1]
    assert found[1].splitlines()[1].split()[:3] == ["metrics-server", "metrics-server", "ok"]
    _, out, _ = await direct.run("sources", "-o", "json")
    assert json.loads(out)["items"][0]["name"] == "metrics-server"
    client, server = (await direct("version")).splitlines()
    assert client.startswith("Client Version: 0.1.0")
    assert server.startswith("Server Version: 0.1.0")
    assert server.endswith(", as Kubernetes 1.36")
    found = await direct.json("version")
    assert (found["client"]["version"], found["server"]["api"]) == ("0.1.0", "v1")


async def test_a_failing_source_gives_status_one(direct: Plugin, world: World) -> None:
    world.cluster.faults.add(path="metrics.k8s.io", times=None, status=500)
    await world.until(lambda: any(each.state == "failing" for each in world.daemon.components.metrics.reports()))
    status, out, err = await direct.run("sources")
    assert (status, err) == (1, "")
    assert "injected failure 500" in out
    [row] = [line for line in (await direct("status")).splitlines() if "web" in line]
    assert " failing " in row


async def test_kubectl_lists_the_plugin(hpad: Plugin) -> None:
    process = await asyncio.create_subprocess_exec(
        hpad.path / "kubectl", "plugin", "list", env=hpad.environment, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert f"{hpad.path}/kubectl-hpad" in out.decode().splitlines()


async def test_kubectl_completes_names_of_hpas(hpad: Plugin) -> None:
    """kubectl before 1.26 does not complete arguments of plugins."""
    process = await asyncio.create_subprocess_exec(
        hpad.path / "kubectl", "__complete", "hpad", "status", "w", env=hpad.environment, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    version = await asyncio.create_subprocess_exec(
        hpad.path / "kubectl", "version", "--client", env=hpad.environment, stdout=asyncio.subprocess.PIPE
    )
    is_old = b'Minor:"20"' in (await version.communicate())[0]
    assert is_old or out.decode().splitlines() == ["web", ":4"]


async def test_the_address_of_hpad_needs_no_cluster(hpad: Plugin, world: World) -> None:
    await asyncio.to_thread(hpad.kubeconfig.unlink)
    address = f"127.0.0.1:{port(world.daemon)}"
    assert await hpad(f"status --address {address} -o name") == "horizontalpodautoscaler.autoscaling/web\n"
    err = await hpad.refused("status --address 127.0.0.1:9")
    assert err.startswith("kubectl-hpad: no hpad answers on http://127.0.0.1:9/api/v1/hpas")


async def test_kubectl_says_why_a_cluster_cannot_be_reached(hpad: Plugin, world: World) -> None:
    assert (await hpad.refused("status --context none")).startswith("kubectl-hpad: kubectl get: ")
    await world.cluster.stop()
    err = await hpad.refused("status")
    assert err.startswith("kubectl-hpad: kubectl get: ")
    assert "refused" in err


@pytest.fixture
async def pair(world: World, kubectl_path: str, tmp_path: Path) -> tuple[Plugin, list[app.App]]:
    """The plugin, and a leader and a standby of hpad as pods of a Service."""
    workload(world)
    election = Election(enabled=True, namespace="default")
    leader = await world.hpad(election=election, **LISTEN)
    await decided(world)
    standby = await world.hpad(election=election, **LISTEN)
    plugin.pod(world.cluster, "hpad-0", port(standby))
    plugin.pod(world.cluster, "hpad-1", port(leader))
    plugin.service(world.cluster)
    return Plugin(kubectl_path, tmp_path, await world.cluster.kubeconfig(tmp_path / "kubeconfig")), [leader, standby]


async def test_the_leader_is_asked(pair: tuple[Plugin, list[app.App]]) -> None:
    """Scenario 31."""
    status, out, err = await pair[0].run("status", "web", "-v", "-o", "json")
    assert status == 0
    assert json.loads(out)["lastDecision"]["sentence"] == "keep 2: cpu at its target (50% / 50%)"
    assert err == "kubectl-hpad: hpad is reached by a port-forward to pod hpad/hpad-1\n"
    assert "keep 2: cpu" in await pair[0]("explain web")
    assert "keep 2: cpu" in await pair[0]("history web")


def entries(found: Any) -> Any:
    """Returns the decisions in the output of `history -o json`."""
    return found["items"] if isinstance(found, dict) else found


async def test_a_decision_is_explained_as_by_hpad_explain(direct: Plugin, world: World) -> None:
    """Scenario 31."""
    text = await direct("explain web")
    assert "default/web" in text
    assert "keep 2: cpu" in text
    found = await direct.json("explain deployment/web --pods")
    assert (found["trace"]["replicas"]["desired"], found["name"]) == (2, "web")
    assert yaml.safe_load(await direct("explain -oyaml hpa/web"))["name"] == "web"
    began = entries(await direct.json("history web"))[0]["began"]
    then = await direct.json(f"explain web --at {began}")
    assert (then["began"], then["sentence"]) == (began, "keep 2: cpu at its target (50% / 50%)")
    assert "'default/none'" in await direct.refused("explain none")
    assert "no HPA of deployment/none in namespace default" in await direct.refused("explain deploy/none")


async def test_past_decisions_are_listed(direct: Plugin, world: World) -> None:
    """Scenario 31."""
    world.load("web", 100)
    await world.until(lambda: world.replicas("deployments", "web") == 4)
    await world.until(lambda: "4" in world.daemon.components.decisions.last(Key("default", "web")).sentence[:7])
    lines = (await direct("history web")).splitlines()
    assert "keep 2: cpu at its target" in lines[1]
    assert any("scale web from 2 to 4" in line for line in lines[2:])
    assert len((await direct("history deployment/web --last 1")).splitlines()) == 2
    since = entries(await direct.json("history web --since 1h"))
    assert "scale_up" in {each["action"] for each in since}
    status, _, err = await direct.run("history", "web", "--last", "none")
    assert (status, "'none' is not a whole number from 1 to 1000" in err) == (2, True)


async def test_new_decisions_are_followed_until_ctrl_c(hpad: Plugin, world: World) -> None:
    process = await asyncio.create_subprocess_exec(
        *(hpad.path / "kubectl", "hpad", "explain", "web", "--watch"),
        env=hpad.environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(SECONDS):
            while b"keep 2" not in await process.stdout.readline():
                pass
            world.load("web", 100)
            while not re.search(rb"from 2 to 4|keep 4", await process.stdout.readline()):
                pass
    finally:
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert (process.returncode, err) == (130, b"")
