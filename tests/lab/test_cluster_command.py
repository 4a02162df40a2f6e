"""`hpad cluster`: its output, its errors, and, where it is a process, the end of its processes."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from blockbuster import BlockBuster
from support.commands import called

pytestmark = pytest.mark.cluster

AT_LAST = 240
"""Timeout in seconds of each expected change: a busy machine needs a minute to start the command."""
MARK = f".{os.getpid()}"
"""A fraction of a second that distinguishes the sleeps of this test process from those of others on the machine."""
# The main process of a container drops its environment, a child of the other leaves its session: hpad must find both.
POD = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: stray}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    command: [env, -i, sh, -c, "sleep 7201{MARK} & sleep 7202{MARK}"]
  - name: away
    command: [sh, -c, "setsid sleep 7203{MARK} & sleep 7204{MARK}"]
"""


def sleepers() -> set[str]:
    """Returns the seconds that the running processes of the pod sleep."""
    found = set()
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[0] == b"sleep" and words[1].endswith(MARK.encode()):
                found.add(words[1].decode().removesuffix(MARK))
    return found


async def until(condition, seconds=AT_LAST):
    async with asyncio.timeout(seconds):
        while not (value := condition()):  # noqa: ASYNC110  # the condition is about processes
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
    trust = urllib.request.HTTPSHandler(context=ssl._create_unverified_context())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), trust)
    with opener.open(url + path, timeout=AT_LAST) as answer:
        return json.load(answer)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_all_processes_end_with_the_cluster(tmp_path, number):
    (tmp_path / "pod.yaml").write_text(POD)
    async with command("--kubeconfig", str(tmp_path / "kubeconfig"), str(tmp_path / "pod.yaml")) as process:
        await until(lambda: sleepers() == {"7201", "7202", "7203", "7204"})
        process.send_signal(number)
        await process.wait()
        await until(lambda: not sleepers())
        assert process.returncode == (0 if number == signal.SIGINT else -number)
        assert (tmp_path / "kubeconfig").exists() is (number == signal.SIGKILL)


async def test_the_command_prints_its_kubeconfig_and_limits_and_runs_hpad(tmp_path):
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]}}
    manifest["spec"] = {"replicas": 7, "selector": {"matchLabels": labels}, "template": template}
    hpa = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}}
    hpa["spec"] = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 3}
    hpa["spec"]["syncPeriodSeconds"] = 30  # no field of Kubernetes 1.36
    asr = {"apiVersion": "hpad.io/v1", "kind": "Autoscaler", "metadata": {"name": "asleep"}}
    target = {"metric": {"name": "orders"}, "target": {"type": "AverageValue", "averageValue": 5}}
    asr["spec"] = {"scaleTargetRef": {**hpa["spec"]["scaleTargetRef"], "name": "asleep"}, "maxReplicas": 3}
    asr["spec"] |= {"minReplicas": 0, "metrics": [{"type": "External", "external": target}]}
    (tmp_path / "web.jsonl").write_text("\n".join(map(json.dumps, (manifest, asr, hpa))))
    kubeconfig = tmp_path / "kubeconfig"
    arguments = ("--pretend", "--hpad", "--kubeconfig", str(kubeconfig), str(tmp_path / "web.jsonl"))
    async with command(*arguments, HPAD_LISTEN="none") as process:
        path = "/apis/apps/v1/namespaces/default/deployments/web"

        def replicas():
            with contextlib.suppress(OSError, ValueError):  # kubeconfig or Deployment may not exist yet
                return ask(kubeconfig, path)["spec"]["replicas"]

        async with asyncio.timeout(AT_LAST):
            while await asyncio.to_thread(replicas) != 3:  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.1)
        process.terminate()
        raw, _ = await process.communicate()
    output = raw.decode()
    assert "not a replacement for Kubernetes" in output
    assert f"kubeconfig: {kubeconfig}" in output
    names = ("deployment/web", "autoscaler/asleep", "horizontalpodautoscaler/web")
    applied = "".join(f"applied:    {name}\n" for name in names)
    dropped = f"warning:    {tmp_path / 'web.jsonl'}:3: unknown field spec.syncPeriodSeconds: dropped\n"
    assert applied + dropped in output
    assert process.returncode == 0


@pytest.fixture
def ended(no_blocking_calls: BlockBuster) -> Callable[..., tuple[int, str]]:
    """Runs a command that ends by itself, in this process; returns its exit status and standard error."""
    no_blocking_calls.deactivate()  # it prints to a text in memory, and is alone on its loop

    def run(*arguments: str) -> tuple[int, str]:
        status, _, error = called("cluster", *arguments)
        return status, error

    return run


def service(seconds: int, name: str = "web") -> str:
    labels = {"app": name}
    container = {"name": "app", "command": ["sleep", f"{seconds}{MARK}"]}
    template = {"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})


async def test_a_service_reloads_its_files_and_keeps_its_objects_when_it_is_killed(tmp_path):
    state, web, other, kubeconfig = (tmp_path / name for name in ("state", "web.json", "other.json", "kubeconfig"))
    state.mkdir()
    arguments = ("--service", str(state), "--kubeconfig", str(kubeconfig), str(tmp_path))
    web.write_text(service(7301))
    other.write_text(service(7302, "other"))
    async with command(*arguments) as process:
        await until(lambda: sleepers() == {"7301", "7302"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            await asyncio.to_thread(ask, kubeconfig, "/api/v1/pods")
        with refused.value as answer:
            assert answer.code == 403
        web.write_text(service(7303))
        other.unlink()
        process.send_signal(signal.SIGHUP)
        await until(lambda: sleepers() == {"7303"})
        web.write_text(service(7304).replace('"containers"', '"volumes": [{"name": "x"}], "containers"'))
        process.send_signal(signal.SIGHUP)
        output = await read_until(process.stderr, "volumes is not supported")
        assert f"{web}:1: spec.template.spec.volumes is not supported" in output
        kept = state / "objects.json"
        await until(lambda: kept.exists() and f"7303{MARK}" in kept.read_text())
        process.kill()
        await process.wait()
        await until(lambda: not sleepers())
    async with command(*arguments) as process:
        await until(lambda: sleepers() == {"7303"})
        process.terminate()
        await process.wait()
    assert process.returncode == 0
    assert not sleepers()


ZERO = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: app}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 0
  maxReplicas: 3
  metrics: [{type: External, external: {metric: {name: tasks}, target: {type: AverageValue, averageValue: 1}}}]
  behavior: {scaleDown: {stabilizationWindowSeconds: 0}}
"""
"""A Deployment without work."""


@pytest.mark.parametrize(
    ("options", "settings"),
    [((), "feature_gates: {HPAScaleToZero: true}\n"), (("--scale-to-zero",), "")],
)
async def test_a_minimum_of_0_is_followed_with_the_gate(tmp_path, options, settings):
    (tmp_path / "numbers.yaml").write_text("tasks: 0\n")
    sources = f"sources: {{numbers: {{adapter: static, file: {tmp_path / 'numbers.yaml'}}}}}\n"
    (tmp_path / "hpad.yaml").write_text(sources + settings)
    (tmp_path / "web.yaml").write_text(ZERO)
    kubeconfig = tmp_path / "kubeconfig"
    arguments = ("--pretend", "--hpad", "--config", str(tmp_path / "hpad.yaml"), "--kubeconfig", str(kubeconfig))
    async with command(*arguments, *options, str(tmp_path / "web.yaml"), HPAD_LISTEN="none"):

        def replicas():
            with contextlib.suppress(OSError, ValueError):  # kubeconfig or Deployment may not exist yet
                return ask(kubeconfig, "/apis/apps/v1/namespaces/default/deployments/web")["spec"]["replicas"]

        async with asyncio.timeout(AT_LAST):
            while await asyncio.to_thread(replicas) != 0:  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.1)


def test_a_minimum_of_0_without_the_gate_is_refused_with_what_to_do(ended, tmp_path):
    (tmp_path / "web.yaml").write_text(ZERO)
    status, error = ended("--pretend", str(tmp_path / "web.yaml"))
    assert status == 1
    assert "spec.minReplicas: Invalid value: 0" in error
    assert error.endswith(
        "(0 needs the feature gate HPAScaleToZero: --scale-to-zero, or --hpad with settings that set it)\n"
    )


async def test_with_rbac_hpad_has_only_the_rights_of_its_user(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    identity = ("--rbac", "--as", "system:serviceaccount:hpad:hpad")
    async with command(
        "--pretend", "--hpad", *identity, "--kubeconfig", str(kubeconfig), HPAD_LISTEN="none"
    ) as process:
        refused = 'User \\"system:serviceaccount:hpad:hpad\\" cannot watch resource \\"horizontalpodautoscalers\\"'
        output = await read_until(process.stderr, refused)
        config = json.loads(kubeconfig.read_text())  # removed when the command ends
        mode = kubeconfig.stat().st_mode
        process.terminate()
    assert refused in output
    assert config["clusters"][0]["cluster"]["server"].startswith("https://127.0.0.1:")
    assert config["users"][0]["user"]["token"]
    assert mode & 0o077 == 0


async def read_until(stream, text, seconds=AT_LAST):
    """Reads a stream until it contains a text, ends, or the time is over; returns all that was read."""
    content = ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while text not in content and (line := await stream.readline()):
                content += line.decode()
    return content


@pytest.mark.parametrize("arguments", [["--as", "joe", "--hpad"], ["--as", "joe", "--rbac"]])
def test_the_option_as_requires_rbac_and_hpad(ended, arguments):
    status, error = ended(*arguments)
    assert (status, "--as names hpad's user: it needs --hpad and --rbac" in error) == (2, True)


def test_the_option_config_requires_hpad(ended, tmp_path):
    status, error = ended("--config", str(tmp_path / "hpad.yaml"))
    assert (status, "--config has hpad's settings: it needs --hpad" in error) == (2, True)


@pytest.mark.parametrize("port", ["x", "-1", "65536", "99999"])
def test_an_invalid_port_is_rejected(ended, port):
    status, error = ended(f"--port={port}")
    assert (status, f"{port!r} is not a whole number from 0 to 65535" in error) == (2, True)


def test_a_port_in_use_is_named(ended):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, error = ended("--port", str(port))
    assert status == 1
    assert error == f"hpad: the cluster cannot be started: another process listens on port {port} already\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("kind: Deployment\napiVersion: apps/v1\nmetadata: {name: x}\nspec: {}", "spec.selector: Required value"),
        ("kind: Nonsense\napiVersion: v1", 'no matches for kind "Nonsense" in version "v1"'),
        (
            "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: x}\nspec: {replicas: one}",
            "cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        ("kind: Pod\napiVersion: v1\nmetadata: x", "cannot unmarshal string into Go struct field Pod.metadata"),
        ("kind: Pod\napiVersion: 1", "apiVersion"),
        ("a: [", "x.yaml:2: not valid YAML"),
        ("- 1", "not an object"),
    ],
)
def test_an_invalid_manifest_ends_the_command_with_the_reason(ended, tmp_path, content, reason):
    (tmp_path / "x.yaml").write_text(content)
    status, error = ended(str(tmp_path / "x.yaml"))
    assert status == 1
    assert error.startswith("hpad: ")
    assert reason in error


def test_a_foreign_kubeconfig_is_not_overwritten(ended, tmp_path):
    (tmp_path / "config").write_text("kind: Config\n")
    status, error = ended("--kubeconfig", str(tmp_path / "config"))
    assert status == 1
    assert "name another file" in error
    assert (tmp_path / "config").read_text() == "kind: Config\n"
