"""Runs the plugin `kubectl hpad` with real kubectls against daemons on the embedded cluster."""

import asyncio
import copy
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from support import commands
from support.kubectl_binaries import SECONDS

from hpad.cli import kubectl as program
from hpad.lab.cluster import Cluster

LABELS = {"app.kubernetes.io/name": "hpad", "app.kubernetes.io/component": "controller"}


class Plugin:
    """A folder on the PATH with one kubectl and the plugin, and a kubeconfig.

    The plugin runs in this process, and starts kubectl for all that it needs from the cluster.
    """

    def __init__(self, kubectl: str, folder: Path, kubeconfig: Path) -> None:
        self.path = folder / "bin"
        self.path.mkdir(exist_ok=True)
        if kubectl:
            (self.path / "kubectl").symlink_to(kubectl)
        for name in ("kubectl-hpad", "kubectl_complete-hpad"):
            (self.path / name).symlink_to(Path(sys.executable).parent / name)
        self._folder = folder
        self._address = ""
        self._by_kubectl = False
        self.kubeconfig = kubeconfig

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.path}:{os.defpath}",
            "HOME": str(self._folder),
            "KUBECONFIG": str(self.kubeconfig),
            "TMPDIR": str(self._folder),
        }

    def direct(self, address: str) -> "Plugin":
        """Returns a plugin that asks this address, in the namespace default, without any kubectl."""
        made = copy.copy(self)
        made._address = address
        return made

    def by_kubectl(self) -> "Plugin":
        """Returns the plugin as a user runs it: kubectl starts it as a process."""
        made = copy.copy(self)
        made._by_kubectl = True
        return made

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """Runs `kubectl hpad ARGUMENTS`; returns exit status, standard output and standard error."""
        if self._by_kubectl:
            return await self._run_by_kubectl(*arguments)
        direct = ("-n", "default", "--address", self._address) if self._address else ()
        with mock.patch.dict(os.environ, self.environment):
            return await commands.called_beside(*direct, *arguments, main=_main)

    async def _run_by_kubectl(self, *arguments: str) -> tuple[int, str, str]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(shutil.which("kubectl", path=str(self.path)) or "kubectl", "hpad", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env=self.environment,
        )
        try:
            async with asyncio.timeout(SECONDS):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, out.decode(), err.decode()

    async def __call__(self, line: str) -> str:
        """Runs a command line that succeeds and writes nothing to standard error; returns its output."""
        status, out, err = await self.run(*line.split())
        assert (status, err) == (0, ""), f"kubectl hpad {line}: {out}{err}"
        return out

    async def json(self, line: str) -> Any:
        return json.loads(await self(f"{line} -o json"))

    async def refused(self, line: str, status: int = 1) -> str:
        """Runs a command line that fails with this exit status; returns its error output."""
        found, out, err = await self.run(*line.split())
        assert (found, out) == (status, ""), f"kubectl hpad {line}: {out}{err}"
        return err


def _main(arguments: Sequence[str]) -> int:
    """The plugin without its handlers of signals, which only the main thread may set."""
    return program.program.run(program._PROGRAM, lambda: program._parse(arguments))


def pod(cluster: Cluster, name: str, port: int, *, namespace: str = "hpad", scheme: str = "HTTP", **more: Any) -> None:
    """Adds a pod of hpad to the cluster, whose port is one of this machine."""
    container = {
        "name": "hpad",
        "image": "hpad:1",
        "ports": [{"name": "http", "containerPort": port}],
        "livenessProbe": {"httpGet": {"path": "/livez", "port": "http", "scheme": scheme}},
    }
    metadata = {"name": name, "namespace": namespace, "labels": LABELS, **more}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})


def service(cluster: Cluster, *, name: str = "hpad", namespace: str = "hpad", **port: Any) -> None:
    """Adds the Service of config/base to the cluster."""
    ports = [{"name": "http", "port": 8473, "targetPort": "http", **port}]
    metadata = {"name": name, "namespace": namespace, "labels": LABELS}
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": LABELS, "ports": ports}
    cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
