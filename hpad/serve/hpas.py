"""What people and programs may see of each HPA: JSON-like builtins, one row an HPA, sorted by namespace and name."""

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol

from hpad.api import hpa as hpas
from hpad.store.memory import Store


class HpaSource(Protocol):
    def values(self) -> Iterable[hpas.HorizontalPodAutoscaler]: ...


async def rows(source: HpaSource, store: Store, *, dry_run: bool = False) -> list[dict[str, Any]]:
    """One row for each HPA of the source. Made in a thread: many of them must not hold up the loop."""
    found = sorted(source.values(), key=lambda hpa: hpa.metadata.key)
    return await asyncio.to_thread(lambda: [row(hpa, store, dry_run=dry_run) for hpa in found])


def row(hpa: hpas.HorizontalPodAutoscaler, store: Store, *, dry_run: bool = False) -> dict[str, Any]:
    """`replicas`, `conditions` and `currentMetrics` are those of the status; `lastDecision` may be null.

    `dryRun`: hpad writes nothing, so that status and decision are what they would be.
    """
    key, spec = hpa.metadata.key, hpa.spec
    memory = store.get(key)
    status = memory.status or hpa.status
    last = memory.last
    return {
        "namespace": key.namespace,
        "name": key.name,
        "dryRun": dry_run,
        "target": {"kind": spec.scale_target_ref.kind, "name": spec.scale_target_ref.name},
        "minReplicas": spec.min_replicas if spec.min_replicas is not None else 1,
        "maxReplicas": spec.max_replicas,
        "metrics": hpas.to_builtins(spec.metrics or ()),
        "currentReplicas": status.current_replicas,
        "desiredReplicas": status.desired_replicas,
        "currentMetrics": hpas.to_builtins(status.current_metrics or ()),
        "conditions": hpas.to_builtins(status.conditions),
        "lastScaleTime": hpas.to_builtins(status.last_scale_time),
        "lastDecision": None
        if last is None
        else {"time": hpas.to_builtins(last.at), "sentence": last.sentence, "error": last.error},
    }
