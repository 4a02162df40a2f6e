"""A Prometheus with ten minutes of samples until NOW, the pods that it measures, and a clock that stands at NOW."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import aiohttp
import pytest

from hpad.adapter import AdapterError
from hpad.api import selector
from hpad.lab.servers.prometheus import ABSENT, PrometheusServer

NOW = int(time.time())
STEP = 15
NEWEST_OF_WINDOWED = NOW - 20

PODS = {
    ("shop", "web-1"): {"app": "web"},
    ("shop", "web-2"): {"app": "web"},
    ("shop", "cart-1"): {"app": "cart"},
    ("shop", "idle-1"): {"app": "idle"},
    ("blog", "web-9"): {"app": "web"},
}
REQUESTS_PER_SECOND = {"web-1": 5, "web-2": 10, "cart-1": 100, "web-9": 1}
ODD = 'a"b\\c\'d`e\n{}[5m],x=~".*"} or vector(1) # .+*?()|^$'


class FrozenClock:
    """A clock whose time of day is always NOW."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(NOW, UTC)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class PodsApi:
    """Lists PODS as an API server does; `requests` records the paths and parameters."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Mapping[str, str]]] = []

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        self.requests.append((path, params or {}))
        _, api, version, _, namespace, what = path.split("/")
        if (api, version, what) != ("api", "v1", "pods"):
            raise AdapterError(f"404: {path}", "cluster")
        selected = selector.parse((params or {}).get("labelSelector", ""))
        items = [
            {"metadata": {"name": name, "labels": labels}}
            for (where, name), labels in PODS.items()
            if where == namespace and selected.matches(labels)
        ]
        return json.dumps({"kind": "PodList", "items": items, "metadata": {}}).encode()


def serve(written: str | None = None, **options: str) -> Iterator[PrometheusServer]:
    """Runs a server with these samples, by default those of `history`, for a fixture."""
    if not PrometheusServer.installed():
        pytest.skip(ABSENT)
    server = PrometheusServer(history=history() if written is None else written, **options)
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


async def evaluated(server: PrometheusServer, expression: str, at: int = NOW) -> list[float]:
    """Returns the values of an expression at a time."""
    asked = {"query": expression, "time": str(at)}
    async with aiohttp.ClientSession() as http, http.get(f"{server.url}/api/v1/query", params=asked) as response:
        return [float(each["value"][1]) for each in (await response.json())["data"]["result"]]


def history() -> str:
    """Returns ten minutes of samples that end at NOW."""
    lines = ["# TYPE http_requests counter"]
    for namespace, pod in PODS:
        if pod in REQUESTS_PER_SECOND:
            labels = f'namespace="{namespace}",pod="{pod}",verb="GET"'
            lines += _line("http_requests_total", labels, lambda age, pod=pod: (600 - age) * REQUESTS_PER_SECOND[pod])
    lines += _gauges()
    lines += ["# TYPE container_cpu_usage_seconds counter"]
    for pod, container, cores in (("web-1", "app", 0.2), ("web-1", "sidecar", 0.5), ("web-2", "app", 0.4)):
        labels = f'namespace="shop",pod="{pod}",container="{container}"'
        lines += _line("container_cpu_usage_seconds_total", labels, lambda age, cores=cores: (600 - age) * cores)
    lines += ["# TYPE windowed gauge"]
    for index in range(20):
        # 100 at the newest sample, 99 one step before
        lines.append(f'windowed{{namespace="shop",pod="web-1"}} {100 - index} {NEWEST_OF_WINDOWED - index * STEP}')
    return "\n".join([*_by_time(lines), "# EOF", ""])


def steady(past: int = 120, **queues: int) -> str:
    """Returns constant depths of queues since `past` seconds ago, for two hours, for tests that use the real clock.

    NOW is the time of collection of the tests, which may be long before a test starts.
    """
    now = int(time.time())
    lines = [
        f'queue_depth{{namespace="shop",queue="{queue}"}} {depth} {now + age}'
        for queue, depth in queues.items()
        for age in range(-past, 7200, 60)
    ]
    return "\n".join(["# TYPE queue_depth gauge", *lines, "# EOF", ""])


def _gauges() -> list[str]:
    lines = ["# TYPE queue_depth gauge"]
    for queue, value in (("orders", "80"), ("mails", "7"), ("nan", "NaN"), ("inf", "+Inf"), ("zero", "0")):
        lines += _line("queue_depth", f'namespace="shop",queue="{queue}"', lambda age, value=value: value)
    for shard, value in (("a", "3"), ("b", "4.5")):
        lines += _line(
            "queue_depth", f'namespace="shop",queue="sharded",shard="{shard}"', lambda age, value=value: value
        )
    lines += [f'queue_depth{{namespace="shop",queue="old"}} 5 {NOW - 540}']
    odd = ODD.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    lines += _line("queue_depth", f'namespace="blog",queue="{odd}"', lambda age: 42)
    lines += ["# TYPE ingress_requests gauge"]
    for ingress, value in (("main.route", 2000), ("mainXroute", 9)):
        lines += _line("ingress_requests", f'namespace="shop",ingress="{ingress}"', lambda age, value=value: value)
    lines += ["# TYPE container_memory_working_set_bytes gauge"]
    for pod, size in (("web-1", 1 << 20), ("web-2", 3 << 20)):
        labels = f'namespace="shop",pod="{pod}",container="app"'
        lines += _line("container_memory_working_set_bytes", labels, lambda age, size=size: size)
    return lines


def _line(name: str, labels: str, value: object) -> list[str]:
    assert callable(value)
    return [f"{name}{{{labels}}} {value(age)} {NOW - age}" for age in range(600, -1, -STEP)]


def _by_time(lines: list[str]) -> list[str]:
    """Sorts the samples of each series by time, and keeps the order of the series."""
    series: dict[str, list[tuple[int, str]]] = {}
    order: list[str] = []
    for line in lines:
        key = line if line.startswith("#") else line.rsplit(" ", 2)[0]
        if key not in series:
            order.append(key)
        series.setdefault(key, []).append((0 if line.startswith("#") else int(line.rsplit(" ", 1)[1]), line))
    return [line for key in order for _, line in sorted(series[key])]
