"""Real kubectls for tests: an old one and a current one where there are two."""

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
"""Where tests/packages.sh puts Debian's kubectl when another one is installed already."""
SECONDS = 120


def kubectls() -> list[Any]:
    """Debian's and the one on the PATH, each with a name."""
    found = {"debian": str(BESIDE)} if BESIDE.exists() else {}
    if installed := shutil.which("kubectl"):
        found["current" if found else "installed"] = installed
    missing = pytest.mark.skip(reason="no kubectl; tests/packages.sh installs Debian's as root on Debian")
    return [pytest.param(path, id=name) for name, path in found.items()] or [pytest.param("", marks=missing, id="none")]


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

    async def run(self, *arguments: str, given: str = "") -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        process = await self.start(*arguments)
        try:
            async with asyncio.timeout(SECONDS):
                out, err = await process.communicate(given.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, out.decode(), err.decode()

    async def __call__(self, line: str, *, given: str = "") -> str:
        """The output of a command line that succeeds."""
        status, out, err = await self.run(*line.split(), given=given)
        assert status == 0, f"kubectl {line}: {out}{err}"
        return out

    async def refused(self, line: str, *, given: str = "") -> str:
        """The complaint of a command line that does not succeed."""
        status, out, err = await self.run(*line.split(), given=given)
        assert status != 0, f"kubectl {line}: {out}"
        return err

    async def json(self, line: str) -> Any:
        return json.loads(await self(f"{line} -o json"))

    async def apply(self, *objects: dict[str, Any], options: str = "") -> str:
        return await self(f"apply {options} -f -", given=yaml.safe_dump_all(objects))

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
    """What a current kubectl printed of a real cluster."""
    return (recordings / "kubectl" / f"{name}.txt").read_text()


def rows(table: str) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in table.strip().splitlines()]


def labels_of(described: str) -> list[str]:
    """What a description says before its colons, and the headings of its tables, down to the events."""
    text = described.partition("\nEvents:")[0]
    return [
        re.split(r": |:$", line)[0].strip() if ":" in line else " ".join(line.split()) for line in text.splitlines()
    ]
