"""Announces to metric sources the queries that the other HPAs of a namespace will probably ask.

One call to a source answers the queries that wait and those that it expects soon, which are those that came a period
before. In the first period after a start, and after a change of the leader, it would expect none: each
tick would cause a call of its own, ten lists of the metrics of a namespace instead of one or a few.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection
from typing import Final

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.api.sample import HPAIdentity
from hpad.controller.cluster import Cluster, Metrics
from hpad.election.owner import Permit
from hpad.engine import annotations, examine

_AT_ONCE: Final = 200
"""HPAs per turn of their namespace: about ten milliseconds of work."""


class Announcements:
    """The HPAs, by namespace, whose queries have still to be announced to the sources."""

    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._waiting: defaultdict[str, dict[Key, None]] = defaultdict(dict)

    def add(self, keys: Collection[Key]) -> None:
        """Notes HPAs that are going to have their first turns."""
        for key in keys:
            self._waiting[key.namespace][key] = None

    def discard(self, key: Key) -> None:
        """Forgets an HPA; others than those that were added are ignored."""
        others = self._waiting.get(key.namespace)
        if others is None:
            return
        others.pop(key, None)
        if not others:
            del self._waiting[key.namespace]

    def make(self, permit: Permit, own: annotations.Reader) -> None:
        """Announces queries of the namespace before the first turn of the permit's HPA."""
        waiting, current = self._waiting.get(permit.key.namespace), permit.current
        if waiting is None or permit.key not in waiting or current is None:
            return
        for key in list(itertools.islice(waiting, _AT_ONCE)):
            self.discard(key)
            hpa = current(key)
            if hpa is not None and permit.owner.leading and not own.reads_files(hpa):
                self._announce(hpa, own)
        self.discard(permit.key)

    def _announce(self, hpa: HorizontalPodAutoscaler, own: annotations.Reader) -> None:
        scale = self._cluster.peek_scale(hpa.metadata.namespace, hpa.spec.scale_target_ref)
        pods = None if scale is None or not scale.spec.replicas else scale.pod_selector
        controls = own.of(hpa).controls
        if pods is not None and controls.sync_period is None:
            self._metrics.announce(examine.queries(hpa, pods, controls.ignored_containers), HPAIdentity.of(hpa))
