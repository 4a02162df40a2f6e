"""Lists of metrics.k8s.io whose values move from list to list, rendered from templates."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tools.bench.cluster import population
from tools.bench.cluster.population import Document, Population
from tools.bench.cluster.stub import protobuf

_TIME: Final = b"@time-in-20-bytes@@@"
_CPU: Final = tuple(b"@cpu%d-10b@" % each for each in range(4))
_MEMORY: Final = b"@memory@"


class Usage:
    """The metrics of all pods of a population."""

    def __init__(self, of: Population) -> None:
        self._population = of
        self._templates: dict[int, bytes] = {}
        self._lists: dict[int, int] = {}

    def changed(self, namespace: int) -> None:
        """Forgets the template of a namespace whose pods have changed."""
        self._templates.pop(namespace, None)

    def list(self, namespace: int, pods: Mapping[int, Sequence[int]]) -> bytes:
        """Returns the PodMetricsList of a namespace; `pods` has those of HPAs whose pods have changed, by index."""
        template = self._templates.get(namespace)
        if template is None:
            first = range(self._population.pods)
            items = [
                item
                for number in self._population.numbers(namespace)
                for item in _items(self._population, number, pods.get(number, first))
            ]
            template = self._templates[namespace] = _list(items)
        return self._filled(template, namespace)

    def of_hpa(self, number: int) -> bytes:
        """Returns the PodMetricsList of the pods of an HPA."""
        template = _list(_items(self._population, number, range(self._population.pods)))
        return self._filled(template, -1 - number)

    def protobuf(self, number: int) -> bytes:
        """Returns the PodMetricsList of the pods of an HPA in protobuf."""
        document = json.loads(self.of_hpa(number))
        return protobuf.pod_metrics_list(document, int(time.time()))

    def _filled(self, template: bytes, list_of: int) -> bytes:
        """Fills in the next values of a list."""
        made = self._lists[list_of] = self._lists.get(list_of, abs(list_of)) + 1
        body = template.replace(_TIME, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()).encode())
        for index, mark in enumerate(_CPU):
            body = body.replace(mark, b"%d" % (population.cpu_used(made) * 1_000_000 + 131_071 * (index + 1)))
        return body.replace(_MEMORY, b"%d" % population.memory_used(made))


def _items(of: Population, number: int, pods: Sequence[int]) -> Iterator[Document]:
    labels = population.template(number)["metadata"]["labels"]
    for index in pods:
        metadata = {
            "name": f"{population.name(number)}-{index}", "namespace": of.namespace(number),
            "creationTimestamp": _TIME.decode(), "labels": labels,
        }  # fmt: skip
        usage = {"cpu": f"{_CPU[index % len(_CPU)].decode()}n", "memory": f"{_MEMORY.decode()}Ki"}
        containers = [{"name": "app", "usage": usage}]
        yield {"metadata": metadata, "timestamp": _TIME.decode(), "window": "15s", "containers": containers}


def _list(items: Iterable[Document]) -> bytes:
    head = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}}
    return json.dumps({**head, "items": list(items)}, separators=(",", ":")).encode()
