"""docs/celery.md as pasted: its application, its Deployment with an HPA, and its configuration, on both brokers."""

import asyncio
import contextlib
import json
import os
import re
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import redis_lab

from hpad.lab.servers import ports

pytest.importorskip("celery", reason="needs celery from PyPI")
pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 180.0
SECONDS = 12
"""Of a task: one worker leaves enough for five, also if hpad stands still for two minutes."""
BROKERS = [
    pytest.param("shared_broker", id="rabbitmq", marks=pytest.mark.rabbitmq),
    pytest.param("redis", marks=[pytest.mark.redis, redis_lab.needs_redis]),
]


def block(kind: str, pattern: str) -> str:
    """Returns the block of the document in which the pattern occurs."""
    text = (ROOT / "docs/celery.md").read_text("utf-8")
    every = re.findall(rf"^```{kind}\n(.*?)^```", text, re.M | re.S)
    [found] = [each for each in every if re.search(pattern, each, re.M)]
    return str(found)


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Yields BROKER_URL and the line of the configuration, as the document says, of a broker."""
    line = "rabbitmq: " + block("yaml", "username: guest").partition("rabbitmq: ")[2].partition("\n")[0]
    if request.param == "shared_broker":
        server = request.getfixturevalue("shared_broker").server
        assert "localhost:15672" in line
        yield f"amqp://localhost:{server.amqp_port}", line.replace("15672", str(server.management_port))
        return
    [port] = ports.free(1)
    document = (ROOT / "docs/celery.md").read_text("utf-8")
    [line] = re.findall(r"the line is `(redis: [^`]*)`", document)
    with redis_lab.started(redis_lab.Server(tmp_path / "redis", port, {})):
        assert "localhost:6379" in line
        yield f"redis://localhost:{port}/0", line.replace("6379", str(port))


class Cluster:
    """`hpad cluster` as a program, with the files of the document in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the command of the document, without the page, whose port may be taken."""
        command = ["-m", "hpad", "cluster", "--hpad", "--config", "hpad.yaml", "--kubeconfig", "lab.json", "mail.yaml"]
        environment = {**self._environment, "HPAD_LISTEN": "none"}
        with (self._folder / "log").open("wb") as log:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable, *command, cwd=self._folder, env=environment, stdout=log, stderr=log
            )
        try:
            yield
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()

    async def send(self, url: str) -> None:
        """Sends the tasks of the document, longer ones."""
        [script] = re.findall(r"python -c '(import shop; .*?)'", (ROOT / "docs/celery.md").read_text("utf-8"))
        assert "delay(4)" in script
        script = script.replace("delay(4)", f"delay({SECONDS})")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, cwd=self._folder, env={**self._environment, "BROKER_URL": url}
        )
        assert await process.wait() == 0

    async def pods(self, right: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Waits until the statuses of the containers fulfil the condition; none may restart, nor the cluster end."""
        end = time.monotonic() + PATIENCE
        while not right(found := await asyncio.to_thread(self._statuses)):
            log = (self._folder / "log").read_text()
            assert not any(each["restartCount"] for each in found), log
            assert self._process is not None
            assert self._process.returncode is None, log
            assert time.monotonic() < end, f"{found}\n{log}"
            await asyncio.sleep(0.5)

    def _statuses(self) -> list[dict[str, Any]]:
        try:
            server = json.loads((self._folder / "lab.json").read_text())["clusters"][0]["cluster"]["server"]
            with urllib.request.urlopen(f"{server}/api/v1/namespaces/default/pods", timeout=60) as answer:
                items = json.load(answer)["items"]
        except (OSError, ValueError):
            return []
        return [status for item in items for status in item["status"].get("containerStatuses", [])]


async def test_workers_of_the_document_follow_their_queue(broker: tuple[str, str], tmp_path: Path) -> None:
    url, line = broker
    manifest = block("yaml", "^kind: Deployment")
    assert "/tmp/shop" in manifest
    assert "amqp://localhost" in manifest
    manifest = manifest.replace("/tmp/shop", str(tmp_path)).replace("amqp://localhost", url)
    configured = re.sub(r"rabbitmq: .*", lambda _: line, block("yaml", "username: guest"))
    files = {"shop.py": block("python", "^import os"), "mail.yaml": manifest, "hpad.yaml": configured}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    cluster = Cluster(tmp_path)
    async with cluster.running():
        await cluster.pods(lambda found: len(found) == 1 and found[0]["ready"])
        await cluster.send(url)
        await cluster.pods(lambda found: len(found) >= 5 and all(each["ready"] for each in found))
    assert "scale mail from 1 to 5" in (tmp_path / "log").read_text()
