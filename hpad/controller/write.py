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
    """Write the count; where somebody else wrote in between, read again and write the same count, five times in all.

    If it was the count that they changed, ours was decided for another one (watches may lag behind by more than a
    moment): nothing is written any more, and the next reconcile decides anew.
    Any other refusal is final for this reconcile. Never raises ApiError: the outcome tells. Raises NotOwned or Edited,
    where there is no permit any more before one of the attempts: none of those before has written anything.
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
