"""Which namespaces the caches of a member of a shard group keep: those in which it owns HPAs, or will soon."""

from collections import Counter

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.controller.cluster import HpaSource
from hpad.election.shards import Shards
from hpad.kube.cluster import Cluster


class OwnNamespaces:
    """Tells the cluster which namespaces to keep, whenever the members or the namespaces with HPAs change.

    A namespace is kept as soon as it belongs to this member, before the others have acknowledged that, so that its pods
    are known early. While this process is no member, which it is again soon, nothing changes.
    """

    def __init__(self, hpas: HpaSource, shards: Shards, cluster: Cluster) -> None:
        self._shards = shards
        self._cluster = cluster
        self._counts = Counter(hpa.metadata.namespace for hpa in hpas.values())
        self._kept: set[str] | None = None
        hpas.subscribe(self._changed)
        shards.subscribe(self._reassigned)

    def _changed(self, key: Key, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        namespace = key.namespace
        if old is None and new is not None:
            self._counts[namespace] += 1
            if self._counts[namespace] == 1 and self._shards.expects(namespace):
                self._keep({*(self._kept or ()), namespace})
        elif old is not None and new is None:
            self._counts[namespace] -= 1
            if not self._counts[namespace]:
                del self._counts[namespace]
                if self._kept is not None:
                    self._keep(self._kept - {namespace})

    def _reassigned(self) -> None:
        # Also namespaces that the watch leaves out: they may have HPAs that are not known yet.
        known = self._counts.keys() | self._cluster.hpas.exclusion.missed
        kept = set(filter(self._shards.expects, known))
        if kept or self._shards.leading:
            self._keep(kept)

    def _keep(self, namespaces: set[str]) -> None:
        if namespaces != self._kept:
            self._kept = namespaces
            self._cluster.keep(namespaces)
