"""`hpad cluster` as a process, and what is left of it however it ends."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

OURS = f".{os.getpid()}"
"""Of a second, by which our pod's processes are known from those of whoever runs the same test on this machine."""
# The main process of the container drops its environment, one child leaves the session: both are to be found.
POD = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: stray}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    command: [env, -i, sh, -c, "sleep 7201{OURS} & sleep 7202{OURS}"]
  - name: away
    command: [sh, -c, "setsid sleep 7203{OURS} & sleep 7204{OURS}"]
"""


def sleepers() -> set[str]:
    """How many seconds the pod's processes that run now are to sleep."""
    found = set()
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[0] == b"sleep" and words[1].endswith(OURS.encode()):
                found.add(words[1].decode().removesuffix(OURS))
    return found


async def until(condition, seconds=60):
    async with asyncio.timeout(seconds):
        while not (value := condition()):  # noqa: ASYNC110  # it is about processes
            await asyncio.sleep(0.05)
    return value


@contextlib.asynccontextmanager
async def command(*arguments: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hpad", "cluster", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def ask(kubeconfig: Path, path: str) -> dict:
    url = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url + path, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_no_process_outlives_the_cluster(tmp_path, number):
    (tmp_path / "pod.yaml").write_text(POD)
    async with command("--kubeconfig", str(tmp_path / "kubeconfig"), str(tmp_path / "pod.yaml")) as process:
        await until(lambda: sleepers() == {"7201", "7202", "7203", "7204"})
        process.send_signal(number)
        await process.wait()
        await until(lambda: not sleepers())
        assert process.returncode == (0 if number == signal.SIGINT else -number)
        assert (tmp_path / "kubeconfig").exists() is (number == signal.SIGKILL)


async def test_it_says_how_to_reach_it_and_what_it_is_not_and_runs_hpad_inside(tmp_path):
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]}}
    manifest["spec"] = {"replicas": 7, "selector": {"matchLabels": labels}, "template": template}
    hpa = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}}
    hpa["spec"] = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 3}
    (tmp_path / "web.jsonl").write_text(f"{json.dumps(manifest)}\n{json.dumps(hpa)}\n")
    kubeconfig = tmp_path / "kubeconfig"
    given = ("--pretend", "--hpad", "--kubeconfig", str(kubeconfig), str(tmp_path / "web.jsonl"))
    async with command(*given, HPAD_LISTEN="none") as process:
        path = "/apis/apps/v1/namespaces/default/deployments/web"

        def replicas():
            with contextlib.suppress(OSError, ValueError):  # a kubeconfig that is being written, a Deployment to come
                return ask(kubeconfig, path)["spec"]["replicas"]

        async with asyncio.timeout(60):
            while await asyncio.to_thread(replicas) != 3:  # noqa: ASYNC110  # it is another process
                await asyncio.sleep(0.1)
        process.terminate()
        said, _ = await process.communicate()
    told = said.decode()
    assert "not a replacement for Kubernetes" in told
    assert f"kubeconfig: {kubeconfig}" in told
    assert "applied:    deployment/web\napplied:    horizontalpodautoscaler/web\n" in told
    assert process.returncode == 0


async def test_with_rbac_hpad_is_held_to_the_rights_of_whom_it_is_said_to_be(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    who = ("--rbac", "--as", "system:serviceaccount:hpad:hpad")
    async with command("--pretend", "--hpad", *who, "--kubeconfig", str(kubeconfig), HPAD_LISTEN="none") as process:
        refused = 'User \\"system:serviceaccount:hpad:hpad\\" cannot watch resource \\"horizontalpodautoscalers\\"'
        said = await told(process.stderr, refused)
        config = json.loads(kubeconfig.read_text())
        process.terminate()
    assert refused in said
    assert config["clusters"][0]["cluster"]["server"].startswith("https://127.0.0.1:")
    assert config["users"][0]["user"]["token"]
    assert kubeconfig.stat().st_mode & 0o077 == 0


async def told(stream, text, seconds=60):
    """What a stream brings until this text comes."""
    said = ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while text not in said and (line := await stream.readline()):
                said += line.decode()
    return said


async def refused(*given: str) -> tuple[int | None, str]:
    """The exit status of a call that ends by itself, and what it complained of."""
    async with asyncio.timeout(60), command(*given) as process:
        _, complained = await process.communicate()
    return process.returncode, complained.decode()


@pytest.mark.parametrize("given", [["--as", "joe", "--hpad"], ["--as", "joe", "--rbac"]])
async def test_the_user_of_hpad_needs_rbac_and_hpad(given):
    status, complained = await refused(*given)
    assert (status, "--as names hpad's user: it needs --hpad and --rbac" in complained) == (1, True)


async def test_settings_of_hpad_need_hpad(tmp_path):
    status, complained = await refused("--config", str(tmp_path / "hpad.yaml"))
    assert (status, "--config holds hpad's settings: it needs --hpad" in complained) == (1, True)


@pytest.mark.parametrize("port", ["x", "-1", "65536", "99999"])
async def test_a_port_that_is_none_is_refused(port):
    status, complained = await refused(f"--port={port}")
    assert (status, f"{port!r} is not a port" in complained) == (2, True)


async def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, complained = await refused("--port", str(port))
    assert status == 1
    assert complained == f"hpad: the cluster cannot be started: another process listens on port {port} already\n"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("kind: Deployment\napiVersion: apps/v1\nmetadata: {name: x}\nspec: {}", "spec.selector: Required value"),
        ("kind: Nonsense\napiVersion: v1", 'no matches for kind "Nonsense" in version "v1"'),
        ("a: [", "x.yaml:2: not valid YAML"),
        ("- 1", "not an object"),
    ],
)
async def test_a_manifest_that_cannot_be_applied_ends_it_with_the_reason(tmp_path, content, complaint):
    (tmp_path / "x.yaml").write_text(content)
    async with command(str(tmp_path / "x.yaml")) as process:
        _, complained = await process.communicate()
    assert process.returncode == 1
    assert complained.decode().startswith("hpad: ")
    assert complaint in complained.decode()


async def test_it_does_not_replace_a_kubeconfig_of_somebody_else(tmp_path):
    (tmp_path / "config").write_text("kind: Config\n")
    async with command("--kubeconfig", str(tmp_path / "config")) as process:
        _, complained = await process.communicate()
    assert process.returncode == 1
    assert "name another file" in complained.decode()
    assert (tmp_path / "config").read_text() == "kind: Config\n"
