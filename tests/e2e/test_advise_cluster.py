"""`hpad advise` as a user runs it: the HPAs of a cluster, their past in a real Prometheus, and all that it writes."""

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from support import advice_pasts, prometheus_lab
from support.commands import called_beside
from support.past_series import PastSeries

from hpad.api import hpa as v2
from hpad.lab.cluster import Cluster
from hpad.lab.servers.prometheus import ABSENT, PrometheusServer
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.history import REPLICAS

pytestmark = [pytest.mark.prometheus, pytest.mark.skipif(not PrometheusServer.installed(), reason=ABSENT)]
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
DAYS = 3
BEGIN = (int(time.time()) // 3600 - 24 * DAYS - 1) * 3600
PASTS = {
    "web": advice_pasts.lived(
        advice_pasts.spec(CPU, name="web", low=2, high=20), advice_pasts.daily(60, 400), days=DAYS
    ),
    "tight": advice_pasts.lived(
        advice_pasts.spec(CPU, name="tight", low=1, high=3), advice_pasts.daily(60, 400), days=DAYS
    ),
}


class Ended(NamedTuple):
    """A command that has ended."""

    status: int
    output: str
    errors: str


def written(pasts: list[HpaPast]) -> str:
    """Returns the series of kube-state-metrics, once a minute."""
    series = PastSeries()
    for past in pasts:
        times = [BEGIN + round(at - past.load.times[0]) for at in past.load.times]
        columns = {
            "status_current_replicas": past.load.columns[REPLICAS],
            "status_desired_replicas": past.desired,
            "spec_min_replicas": past.minimum,
            "spec_max_replicas": past.maximum,
        }
        for name, column in columns.items():
            points = [(at, value) for at, value in zip(times, column, strict=True) if value is not None]
            series.hpa(*past.hpa.key, name, points)
        cpu = zip(times, past.load.columns["cpu"], strict=True)
        labels = {"metric_name": "cpu", "metric_target_type": "utilization"}
        series.hpa(*past.hpa.key, "status_target_metric", [(at, v) for at, v in cpu if v is not None], **labels)
    return series.text


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    yield from prometheus_lab.serve(written(list(PASTS.values())))


def document(past: HpaPast, **spec: Any) -> dict[str, Any]:
    metadata = {"name": past.hpa.key.name, "namespace": past.hpa.key.namespace}
    own = {**v2.to_builtins(past.hpa)["spec"], **spec}
    return {"apiVersion": v2.API_VERSION, "kind": v2.KIND, "metadata": metadata, "spec": own}


class Advised:
    """Runs the command against a cluster that has the HPAs, and the Prometheus that has their past."""

    def __init__(self, folder: Path, url: str) -> None:
        self._flags = ["--kubeconfig", str(folder / "kubeconfig"), "--prometheus", url]
        for flag, at in (("--from", BEGIN), ("--to", BEGIN + DAYS * 86_400)):
            self._flags += [flag, datetime.fromtimestamp(at, UTC).isoformat()]

    async def __call__(self, *arguments: str | Path) -> Ended:
        return Ended(*await called_beside("advise", *self._flags, *map(str, arguments)))


async def test_from_a_cluster_to_everything_that_is_written(server: PrometheusServer, tmp_path: Path) -> None:
    advised = Advised(tmp_path, server.url)
    async with Cluster(kubelet=False) as cluster:
        await cluster.kubeconfig(tmp_path / "kubeconfig")
        for past in PASTS.values():
            cluster.apply(document(past))
        page, patches, answers = (tmp_path / name for name in ("page.html", "patches", "answers"))
        files = ("--report", page, "--patches", patches, "--resume", answers)
        status, output, errors = await advised("-o", "json", *files)
        assert status == 0, errors
        found = json.loads(output)
        items = {item["name"]: item for item in found["items"]}
        assert items.keys() == PASTS.keys()
        for name, past in PASTS.items():
            counts = [count or 0 for count in past.load.columns[REPLICAS][:-1]]
            assert items[name]["facts"]["replicaHours"] == pytest.approx(sum(counts) / 60, rel=0.01)
            assert items[name]["readings"]["cpu"]["problem"] == ""
        assert found["items"][0]["name"] == "tight"
        assert items["tight"]["faults"][0]["fault"] == "at-maximum"
        assert "shop/tight" in await asyncio.to_thread(page.read_text)
        written = {path.name for path in patches.iterdir()}
        assert written == {f"shop.{name}.yaml" for name, item in items.items() if item["advice"] is not None}
        assert not list(answers.glob("*"))  # all is read

        changed = tmp_path / "changed.yaml"
        for maximum, expected in ((2, 1), (20, 0)):
            await asyncio.to_thread(changed.write_text, yaml.safe_dump(document(PASTS["web"], maxReplicas=maximum)))
            check = await advised("--check", changed)
            assert check.status == expected, check
        gone = await advised("--prometheus", "http://127.0.0.1:1", "--check", changed)
        assert (gone.status, gone.output) == (3, "")
        assert gone.errors.startswith("hpad: cannot be judged: ")
