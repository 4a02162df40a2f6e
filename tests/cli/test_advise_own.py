"""`hpad advise --config`: a metric whose query stands in the settings is read by it, on a real Prometheus."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support import prometheus_lab
from support.past_series import PastSeries

from hpad.cli import main
from hpad.lab.servers.prometheus import ABSENT, PrometheusServer

pytestmark = pytest.mark.skipif(not PrometheusServer.installed(), reason=ABSENT)
STEP, COUNT = 60, 121
BEGIN = (int(time.time()) // 3600 - 5) * 3600
TIMES = [BEGIN + 30 * index for index in range(2 * COUNT)]
HPA: dict[str, Any] = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "worker", "namespace": "shop"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "worker"},
        "minReplicas": 1,
        "maxReplicas": 10,
        "metrics": [
            {
                "type": "External",
                "external": {
                    "metric": {"name": "depth", "selector": {"matchLabels": {"queue": "orders"}}},
                    "target": {"type": "AverageValue", "averageValue": "10"},
                },
            }
        ],
    },
}
CONFIG = """
sources:
  prom:
    adapter: prometheus
    url: http://127.0.0.1:9
    metrics:
      depth: {query: 'sum(jobs{namespace="<<.Namespace>>",<<.LabelMatchers>>}) by (<<.GroupBy>>)'}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    past = PastSeries()
    for name, value in (("current", 2), ("desired", 2)):
        past.hpa("shop", "worker", f"status_{name}_replicas", [(each, value) for each in TIMES])
    for name, value in (("min", 1), ("max", 10)):
        past.hpa("shop", "worker", f"spec_{name}_replicas", [(each, value) for each in TIMES])
    for namespace, queue, jobs in (("shop", "orders", 15), ("shop", "mails", 900), ("blog", "orders", 700)):
        past.add("jobs", {"namespace": namespace, "queue": queue}, [(each, jobs) for each in TIMES])
    yield from prometheus_lab.serve(past.text)


def test_the_query_of_the_settings(
    server: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hpa.yaml").write_text(json.dumps(HPA))
    (tmp_path / "hpad.yaml").write_text(CONFIG)
    begin, end = (datetime.fromtimestamp(at, UTC).isoformat() for at in (BEGIN, BEGIN + (COUNT - 1) * STEP))
    flags = ["--prometheus", server.url, "-f", str(tmp_path / "hpa.yaml"), "--from", begin, "--to", end]
    readings = {}
    for name, more in (("with", ["--config", str(tmp_path / "hpad.yaml")]), ("without", [])):
        assert main(["advise", *flags, "-o", "json", *more]) == 0
        (item,) = json.loads(capsys.readouterr().out)["items"]
        readings[name] = item["readings"]["depth"]
    assert readings["with"]["expression"] == 'sum(jobs{namespace="shop",queue="orders"}) by ()'
    assert readings["with"]["source"] == "the query of its source"
    assert "no value" in readings["without"]["problem"]
