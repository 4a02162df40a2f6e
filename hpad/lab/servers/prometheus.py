"""Starts a Prometheus server of Debian's package `prometheus`, with prepared data.

Port, data and configuration are private and on loopback; a Prometheus of the machine is not affected.
"""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import aiohttp

from hpad import clock
from hpad.lab.servers import ports

ABSENT = "prometheus or promtool is missing: install Debian's package prometheus"
_READY_TIMEOUT = 30.0
_POLL_SECONDS = 0.05
_EMPTY = "global: {scrape_interval: 5s}\n"


class PrometheusServer:
    """One server: use `async with`, or start() and stop(). A start takes about a second.

    - `history`: series in the OpenMetrics text format with timestamps (seconds since 1970), loaded by promtool; much
      text as a file.
    - `config`: the content of prometheus.yml.
    - `web_config`: the content of the file of --web.config.file (TLS, users).
    - `tls`: the client's TLS context, if `web_config` enables TLS.
    - `arguments`: further ones of its command line.
    """

    def __init__(
        self,
        *,
        history: str | Path = "",
        config: str = _EMPTY,
        web_config: str = "",
        tls: ssl.SSLContext | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        (self.port,) = ports.free(1)
        self._history = history
        self._config = config
        self._web_config = web_config
        self._tls = tls
        self._arguments = arguments
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def installed() -> bool:
        """Returns whether the package is installed."""
        return bool(shutil.which("prometheus") and shutil.which("promtool"))

    @property
    def url(self) -> str:
        """The base URL of the server."""
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Starts the server and waits until it is ready; raises RuntimeError with its log."""
        try:
            await asyncio.to_thread(self._launch)
            await self._until_ready()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Kills the process and removes the folder."""
        await asyncio.to_thread(self._end)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _launch(self) -> None:
        if not self.installed():
            raise RuntimeError(ABSENT)
        folder = self._folder = Path(tempfile.mkdtemp(prefix="hpad-prometheus-"))
        (folder / "prometheus.yml").write_text(self._config)
        (folder / "web.yml").write_text(self._web_config)
        if self._history:
            self._load(folder)
        command = [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--web.config.file={folder}/web.yml",
            f"--storage.tsdb.path={folder}/data",
            "--storage.tsdb.retention.time=1y",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
            *self._arguments,
        ]
        with (folder / "out.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)

    def _load(self, folder: Path) -> None:
        if isinstance(self._history, str):
            file = folder / "history.om"
            file.write_text(self._history)
        else:
            file = self._history
        # promtool reads the file once for each block, which by default has two hours.
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=486h", "--quiet"]
        command += [str(file), f"{folder}/data"]
        loaded = subprocess.run(command, capture_output=True, text=True, check=False)
        if loaded.returncode:
            raise RuntimeError(f"promtool could not load the history: {loaded.stderr[-2000:]}")

    async def _until_ready(self) -> None:
        system = clock.SystemClock()
        deadline = system.monotonic() + _READY_TIMEOUT
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
            while not await self._answers(http):
                dead = self._process is None or self._process.poll() is not None
                if dead or system.monotonic() > deadline:
                    raise RuntimeError(await asyncio.to_thread(self._failure, dead))
                await system.sleep(_POLL_SECONDS)

    async def _answers(self, http: aiohttp.ClientSession) -> bool:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with http.get(f"{self.url}/-/ready", ssl=self._tls or True) as response:
                return response.status in (200, 401)  # 401: `web_config` requires a user, and the server is up
        return False

    def _failure(self, dead: bool) -> str:
        what = "ended" if dead else f"was not ready within {_READY_TIMEOUT:.0f} s"
        log = (self._folder / "out.log").read_text(errors="replace")[-2000:] if self._folder else ""
        return f"prometheus {what}: {log}"

    def _end(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
