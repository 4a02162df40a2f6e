"""Lists of metrics.k8s.io whose values move from list to list, rendered from templates."""

import json
import time
from typing import Final

from tools.bench.cluster import population
from tools.bench.cluster.population import Population

_TIME: Final = b"@time-in-20-bytes@@@"
_CPU: Final = tuple(b"@cpu%d-10b@" % each for each in range(4))
_MEMORY: Final = b"@memory@"
_STEP, _SPAN, _LEVEL = 5, 17, 92
"""Millicores: each list has `_LEVEL` and (list number * `_STEP`) modulo `_SPAN` more, so that a value comes again only
after 17 lists, and all are within the tolerance of 10 % around the target of 100 millicores."""


class Usage:
    """The metrics of all pods of a population. `pods` of an HPA that was scaled may be set by its number."""

    def __init__(self, of: Population) -> None:
        self._population = of
        self._templates: dict[int, bytes] = {}
        self._lists: dict[int, int] = {}

    def changed(self, namespace: int) -> None:
        """Forgets the template of a namespace whose pods have changed."""
        self._templates.pop(namespace, None)

    def list(self, namespace: int, pods: dict[int, int]) -> bytes:
        """Returns the PodMetricsList of a namespace; `pods` has the counts of the HPAs that were scaled."""
        template = self._templates.get(namespace)
        if template is None:
            template = self._templates[namespace] = self._template(namespace, pods)
        made = self._lists[namespace] = self._lists.get(namespace, namespace) + 1
        level = _LEVEL + made * _STEP % _SPAN
        body = template.replace(_TIME, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()).encode())
        for index, mark in enumerate(_CPU):
            body = body.replace(mark, b"%d" % (level * 1_000_000 + 131_071 * (index + 1)))
        return body.replace(_MEMORY, b"%d" % (60_000 + 100 * (level - _LEVEL)))

    def _template(self, namespace: int, pods: dict[int, int]) -> bytes:
        items = []
        for number in self._population.numbers(namespace):
            labels = population.template(number)["metadata"]["labels"]
            for index in range(pods.get(number, self._population.pods)):
                metadata = {
                    "name": f"{population.name(number)}-{index}", "namespace": population.namespace(namespace),
                    "creationTimestamp": _TIME.decode(), "labels": labels,
                }  # fmt: skip
                usage = {"cpu": f"{_CPU[index % len(_CPU)].decode()}n", "memory": f"{_MEMORY.decode()}Ki"}
                containers = [{"name": "app", "usage": usage}]
                item = {"metadata": metadata, "timestamp": _TIME.decode(), "window": "15s", "containers": containers}
                items.append(item)
        head = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}
        return json.dumps(head, separators=(",", ":")).encode()
