"""What pods ask for: the hundred percent of a Utilization goal."""

from collections.abc import Sequence

from hpad.api.pod import Pod
from hpad.engine.measure.usage import Unmeasurable


def requests(pods: Sequence[Pod], resource: str, container: str) -> dict[str, int]:
    """Pod name -> requested milli-units, of one container or ("") of the whole pod.

    A pod's own requests (KEP-2837) go before those of its containers. Raises Unmeasurable, naming the first container
    that requests nothing: without a request there is no percentage of it.
    """
    if container:
        return {pod.name: _of_container(pod, resource, container) for pod in pods}
    return {pod.name: _of_pod(pod, resource) for pod in pods}


def _of_pod(pod: Pod, resource: str) -> int:
    if pod.pod_requests is not None:
        asked = pod.pod_requests.get(resource)
        if asked is None:
            raise Unmeasurable(f"missing pod-level request for {resource} in Pod {pod.name}")
        return asked
    total = 0
    for container in pod.containers:
        asked = container.requests.get(resource)
        if asked is None:
            raise _missing(resource, container.name, pod)
        total += asked
    return total


def _of_container(pod: Pod, resource: str, name: str) -> int:
    for container in pod.containers:
        if container.name == name:
            asked = container.requests.get(resource)
            if asked is None:
                raise _missing(resource, name, pod)
            return asked
    raise Unmeasurable(f"container {name} not found in Pod {pod.name}")


def _missing(resource: str, container: str, pod: Pod) -> Unmeasurable:
    return Unmeasurable(f"missing request for {resource} in container {container} of Pod {pod.name}")
