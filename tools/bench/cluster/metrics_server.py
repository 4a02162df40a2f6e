"""A metrics server behind the aggregation layer of a real API server, with the moving values of the stub.

The original asks for the pods of one HPA at a time, in protobuf, as metrics-server serves it. hpad asks for all pods of
a namespace in JSON.
"""

from collections import Counter
from typing import Any, Final
from urllib.parse import parse_qs

from tools.bench.cluster import child, population
from tools.bench.cluster.population import Population
from tools.bench.cluster.stub.generic import refusal
from tools.bench.cluster.stub.http import Answer, Channel, Request
from tools.bench.cluster.stub.listen import listen, tls
from tools.bench.cluster.stub.objects import compact
from tools.bench.cluster.stub.protobuf import MEDIA_TYPE
from tools.bench.cluster.stub.usage import Usage

ROOT: Final = "/apis/metrics.k8s.io/v1beta1"
_SELECTED: Final = "app="


class Metrics:
    """Answers lists of pod metrics, and the discovery that the aggregation layer asks for."""

    def __init__(self, of: Population) -> None:
        self.requests: Counter[str] = Counter()
        self._usage = Usage(of)

    def handle(self, _: Channel, request: Request) -> Answer:
        rest = request.path.removeprefix(ROOT).strip("/").split("/")
        if not request.path.startswith(ROOT):
            return refusal(404, "NotFound", "the server could not find the requested resource")
        if rest == [""]:
            return Answer(_resources())
        if len(rest) != 3 or rest[::2] != ["namespaces", "pods"]:
            return refusal(404, "NotFound", "the server could not find the requested resource")
        self.requests["list pods.metrics.k8s.io"] += 1
        namespace = population.index_of(rest[1])
        selector = parse_qs(request.query).get("labelSelector", [""])[0]
        if not selector:
            return Answer(self._usage.list(namespace, {}))
        number = population.index_of(selector.removeprefix(_SELECTED))
        if MEDIA_TYPE in request.head:
            return Answer(self._usage.protobuf(number), media_type=MEDIA_TYPE)
        return Answer(self._usage.of_hpa(number))


def _resources() -> bytes:
    pods = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1"}
    return compact({**head, "resources": [pods]})


async def serve(population: Population, options: dict[str, Any]) -> None:
    """Serves on loopback with the files `certificate` and `key`."""
    metrics = Metrics(population)
    server, url = await listen(metrics.handle, tls(options["certificate"], options["key"]), set())

    def counts() -> bytes:
        return compact({"requests": dict(metrics.requests), "reconciled": 0})

    async with server:
        await child.obey(url, {"counts": counts})


if __name__ == "__main__":
    child.main(serve)
