"""A Prometheus whose data is loaded part by part, as promtool reads a whole file again for each two hours in it."""

import concurrent.futures
import contextlib
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from hpad.lab.servers import ports
from tools.bench.advised import fleet
from tools.bench.advised.fleet import Past

_BLOCK: Final = 7_200
"""Seconds of a block of Prometheus; blocks begin at multiples of it."""
_READY_SECONDS: Final = 120
_QUIET_SECONDS: Final = 90
"""Prometheus looks for blocks to merge each minute."""


def load(pasts: Sequence[Past], begin: int, samples: int, folder: Path) -> None:
    """Writes the past into `folder`, a data directory. Raises CalledProcessError. Blocks for minutes."""
    end = begin + samples * fleet.INTERVAL
    first = 0
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        before: concurrent.futures.Future[None] | None = None
        while first < samples:
            time_of = begin + first * fleet.INTERVAL
            until = min((time_of // _BLOCK + 1) * _BLOCK, end)
            last = -(-(until - begin) // fleet.INTERVAL)
            file = folder.parent / f"{first}.om"
            with file.open("w", encoding="utf-8") as out:
                for known in pasts:
                    out.writelines(fleet.lines(known, begin, first, last))
                out.write("# EOF\n")
            if before is not None:
                before.result()
            before = pool.submit(_loaded, file, folder)
            first = last
        if before is not None:
            before.result()


def _loaded(file: Path, folder: Path) -> None:
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(file), str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    file.unlink()


@contextlib.contextmanager
def running(folder: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """Runs a Prometheus with the data directory; yields its process and URL."""
    (port,) = ports.free(1)
    config = folder.parent / "prometheus.yml"
    config.write_text("global: {scrape_interval: 1m}\n", encoding="utf-8")
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}", "--log.level=warn"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=1y"]
    with (folder.parent / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(f"{url}/-/ready")
        yield process, url
    finally:
        process.kill()
        process.wait()


def compact(folder: Path) -> None:
    """Lets Prometheus merge the blocks, as those of a server that has run for a week are. Blocks for minutes."""
    with running(folder) as (_, _):
        quiet, before = 0.0, -1
        while quiet < _QUIET_SECONDS:
            time.sleep(1)
            now = len(list(folder.glob("*/meta.json")))
            quiet, before = (quiet + 1 if now == before else 0.0), now


def _wait(url: str) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, urllib.error.URLError), urllib.request.urlopen(url, timeout=2):
            return
        time.sleep(0.2)
    raise TimeoutError(f"{url}: not ready within {_READY_SECONDS} s")
