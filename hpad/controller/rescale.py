"""Writes the replica count of a target, also against other writers of its scale."""

from hpad.api.hpa import Scale
from hpad.clock import Clock
from hpad.controller.cluster import Cluster
from hpad.election.owner import Permit
from hpad.engine import settle
from hpad.kube import errors

ATTEMPTS = 5
"""The largest number of attempts to write a scale (client-go, util/retry/util.go: DefaultRetry)."""
_PAUSE_SECONDS = 0.01


async def scale_target(cluster: Cluster, clock: Clock, permit: Permit, scale: Scale, replicas: int) -> settle.Outcome:
    """Writes the replica count; after a conflict reads the scale and writes again, up to `ATTEMPTS` times.

    If another client changed the replica count meanwhile, nothing more is written. Any other refusal is final for this
    reconcile. ApiErrors become part of the outcome. Raises NotLeading or Edited if the permit ends before an
    attempt; no attempt before it has written anything.
    """
    namespace, target = permit.hpa.metadata.namespace, permit.hpa.spec.scale_target_ref
    attempts: list[int] = []
    decided_on = scale.spec.replicas
    try:
        while True:
            try:
                attempts.append(replicas)
                await cluster.write_scale(namespace, target, scale.with_replicas(replicas), permit.require)
                return settle.Outcome(attempts=tuple(attempts), error=None)
            except errors.ApiError as error:
                if not error.conflict or len(attempts) == ATTEMPTS:
                    raise
            await clock.sleep(_PAUSE_SECONDS)
            scale = await cluster.fresh_scale(namespace, target)
            # Kubernetes overwrites that count, although the decision was made for another one.
            if scale.spec.replicas not in (decided_on, replicas):
                change = f"another client has set the replicas from {decided_on} to {scale.spec.replicas} meanwhile"
                return settle.Outcome(attempts=tuple(attempts), error=f"{change}; the next reconcile decides again")
    except errors.ApiError as error:
        return settle.Outcome(attempts=tuple(attempts), error=error.message, unsure=error.passing)
