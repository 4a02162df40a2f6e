"""Runs real kubectls: Debian's, which is old, and the one on the PATH."""

import asyncio
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ROOT / ".cache" / "kubectl-debian" / "usr" / "bin" / "kubectl"
"""Debian's kubectl, where tests/packages.sh unpacks it if another kubectl is installed already."""
SECONDS = 120


def kubectls() -> list[Any]:
    """Returns test parameters with the paths of the kubectls, the newest last."""
    found = {"debian": str(BESIDE)} if BESIDE.exists() else {}
    if installed := shutil.which("kubectl"):
        found["current" if found else "installed"] = installed
    missing = pytest.mark.skip(reason="no kubectl; tests/packages.sh installs Debian's as root on Debian")
    return [pytest.param(path, id=name) for name, path in found.items()] or [pytest.param("", marks=missing, id="none")]


EACH = pytest.mark.parametrize("kubectl_path", kubectls(), indirect=True)
"""Runs a test with each kubectl."""


@dataclass(frozen=True)
class Kubectl:
    """Runs one kubectl against one cluster."""

    path: str
    home: Path

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        environment = {"PATH": os.defpath, "HOME": str(self.home), "KUBECONFIG": str(self.home / "kubeconfig")}
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            self.path, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=self.home
        )

    async def run(self, *arguments: str, input_text: str = "") -> tuple[int, str, str]:
        """Runs a command with `input_text` as its input; returns exit status, standard output and standard error."""
        process = await self.start(*arguments)
        try:
            async with asyncio.timeout(SECONDS):
                out, err = await process.communicate(input_text.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, out.decode(), err.decode()

    async def __call__(self, line: str, *, input_text: str = "") -> str:
        """Runs a command line that succeeds; returns its output."""
        status, out, err = await self.run(*line.split(), input_text=input_text)
        assert status == 0, f"kubectl {line}: {out}{err}"
        return out

    async def refused(self, line: str, *, input_text: str = "") -> str:
        """Runs a command line that fails; returns its error output."""
        status, out, err = await self.run(*line.split(), input_text=input_text)
        assert status != 0, f"kubectl {line}: {out}"
        return err

    async def json(self, line: str) -> Any:
        return json.loads(await self(f"{line} -o json"))

    async def apply(self, *objects: dict[str, Any], options: str = "") -> str:
        return await self(f"apply {options} -f -", input_text=yaml.safe_dump_all(objects))

    async def names(self, kind: str = "pods") -> set[str]:
        return {item["metadata"]["name"] for item in (await self.json(f"get {kind}"))["items"]}


def nginx(replicas: int, image: str) -> dict[str, Any]:
    labels = {"app": "nginx"}
    container = {"name": "nginx", "image": image, "ports": [{"containerPort": 80}]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "nginx"}, "spec": body}


def recorded_text(recordings: Path, name: str) -> str:
    """Returns the recorded output of a current kubectl on a real cluster."""
    return (recordings / "kubectl" / f"{name}.txt").read_text()


def rows(table: str) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in table.strip().splitlines()]


def labels_of(described: str) -> list[str]:
    """Returns the labels and table headings of a `describe`, without its events."""
    text = described.partition("\nEvents:")[0]
    return [
        re.split(r": |:$", line)[0].strip() if ":" in line else " ".join(line.split()) for line in text.splitlines()
    ]
