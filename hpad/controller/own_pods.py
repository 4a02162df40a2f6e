"""The pods of the target, for an HPA that selects pods by owner (`hpad.io/pod-selection: owner`)."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, Scale
from hpad.api.pod import Owner, Pod
from hpad.api.sample import AdapterError, PodSample, Sample
from hpad.controller.cluster import Cluster
from hpad.engine.examine import Proceed, Verdict
from hpad.engine.spec import VALUE, CompiledMetric
from hpad.kube import errors


class OwnPods(NamedTuple):
    """The names of the pods of a target, for an HPA that selects pods by owner; or why they are not known.

    An HPA of a controller in `related` scales the same pods.
    """

    names: frozenset[str] = frozenset()
    error: AdapterError | None = None
    related: frozenset[Owner] = frozenset()

    def of(self, verdict: Verdict, answers: Sequence[Sample | AdapterError]) -> list[Sample | AdapterError]:
        """Returns the answers without the values of other pods; the error for each metric that depends on pods."""
        metrics = verdict.metrics if isinstance(verdict, Proceed) else ()
        return [self._of(*each) for each in zip(metrics, answers, strict=True)]

    def _of(self, metric: CompiledMetric, answer: Sample | AdapterError) -> Sample | AdapterError:
        if isinstance(answer, AdapterError):
            return answer
        if self.error is not None and (metric.of_pods or metric.kind == VALUE):  # a Value counts the ready pods
            return self.error
        if not isinstance(answer, PodSample):
            return answer
        values = {name: value for name, value in answer.values.items() if name in self.names}
        return msgspec.structs.replace(answer, values=values)


async def read_own_pods(
    cluster: Cluster, hpa: HorizontalPodAutoscaler, scale: Scale, pods: Sequence[Pod]
) -> tuple[list[Pod], OwnPods]:
    """Returns those of the pods that belong to the target, none where that is not known."""
    target = hpa.spec.scale_target_ref
    try:
        owned = await cluster.owned(target, scale, pods)
    except errors.ApiError as error:
        return [], OwnPods(error=AdapterError(error.message, "cluster"))
    if not owned.pods:
        message = f'of the pods that match the selector ({len(pods)}), none belongs to {target.kind} "{target.name}"'
        return [], OwnPods(error=AdapterError(message, "spec"))
    return owned.pods, OwnPods(frozenset([pod.name for pod in owned.pods]), related=owned.related)
