"""Each script of `make bench`, in its short form: a documented command must not rot. No figure is judged here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import browser

from hpad.lab.servers import prometheus, rabbitmq

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted((ROOT / "tools" / "bench").glob("*.py"))
SERVERS = {
    "advise": (prometheus.PrometheusServer, prometheus.ABSENT),
    "prometheus": (prometheus.PrometheusServer, prometheus.ABSENT),
    "rabbitmq": (rabbitmq.RabbitMQServer, rabbitmq.ABSENT),
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_bench_runs_to_its_end(script: Path) -> None:
    if script.stem == "page" and browser.command() is None:
        pytest.skip(browser.ABSENT)
    server, absent = SERVERS.get(script.stem, (None, ""))
    if server is not None and not server.installed():
        pytest.skip(absent)
    done = subprocess.run(
        [sys.executable, "-m", f"tools.bench.{script.stem}", "--short"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "tests"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(script.stem), done.stdout
