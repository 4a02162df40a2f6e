"""Tells metric sources which queries the other HPAs of a namespace are going to ask.

One call to a source answers the queries that wait and those that it expects soon, which are those that came a period
before. In the first period after a start, and after HPAs were gained from another replica, it would expect none: each
tick would cause a call of its own, ten lists of the metrics of a namespace instead of one.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Final

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.api.sample import HPAIdentity
from hpad.controller.cluster import Cluster, Metrics
from hpad.engine import annotations, examine

_AT_ONCE: Final = 200
"""HPAs per turn of their namespace: a few milliseconds of work."""


class Foresight:
    """The HPAs, by namespace, whose queries the sources do not know yet."""

    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._unknown: defaultdict[str, dict[Key, None]] = defaultdict(dict)

    def add(self, keys: Collection[Key]) -> None:
        """Notes HPAs that are going to have their first turns."""
        for key in keys:
            self._unknown[key.namespace][key] = None

    def tell(
        self,
        namespace: str,
        current: Callable[[Key], HorizontalPodAutoscaler | None],
        own: annotations.Reader,
    ) -> None:
        """Tells the sources of HPAs of the namespace, before a turn of one of them; does nothing once all are known."""
        unknown = self._unknown.get(namespace)
        if unknown is None:
            return
        for key in list(itertools.islice(unknown, _AT_ONCE)):
            del unknown[key]
            hpa = current(key)
            if hpa is not None and not own.reads_files(hpa):
                self._expect(hpa, own)
        if not unknown:
            del self._unknown[namespace]

    def _expect(self, hpa: HorizontalPodAutoscaler, own: annotations.Reader) -> None:
        scale = self._cluster.peek_scale(hpa.metadata.namespace, hpa.spec.scale_target_ref)
        pods = None if scale is None or not scale.spec.replicas else scale.pod_selector
        controls = own.of(hpa).controls
        if pods is not None and controls.sync_period is None:
            self._metrics.expect(examine.queries(hpa, pods, controls.ignored_containers), HPAIdentity.of(hpa))
