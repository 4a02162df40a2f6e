"""Writing the target's replica count through its scale subresource."""

from hpad.api.hpa import Scale
from hpad.clock import Clock
from hpad.controller.cluster import Cluster
from hpad.election import owner
from hpad.engine import settle
from hpad.kube import errors

ATTEMPTS = 5
_PAUSE_SECONDS = 0.01


async def scale_target(
    cluster: Cluster, clock: Clock, permit: owner.Permit, scale: Scale, replicas: int
) -> settle.Outcome:
    """Writes the replica count; after a conflict reads the scale and writes again, up to `ATTEMPTS` times.

    If another client changed the replica count meanwhile, nothing more is written and the next reconcile decides: the
    decision was made for another count. Any other refusal is final for this reconcile. ApiErrors become part of the
    outcome. Raises NotOwned or Edited if the permit ends before an attempt; no attempt before it has written anything.
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
            if scale.spec.replicas not in (decided_on, replicas):
                found = f"somebody else has set the replicas from {decided_on} to {scale.spec.replicas} meanwhile"
                return settle.Outcome(attempts=tuple(attempts), error=f"{found}; the next reconcile decides anew")
    except errors.ApiError as error:
        return settle.Outcome(attempts=tuple(attempts), error=error.message, unsure=error.passing)
