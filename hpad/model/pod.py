"""A pod, as far as decisions read it."""

from collections.abc import Mapping
from datetime import datetime

import msgspec


class ContainerRequests(msgspec.Struct, frozen=True, gc=False):
    """What one container asks for: resource name -> milli-units (cpu "200m" is 200, memory "64Mi" is 67108864000)."""

    name: str
    requests: Mapping[str, int]


class Pod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a pod says of itself; what it counts as is for `engine.measure` to judge.

    `containers` are the regular containers, then the restartable init containers (sidecars), in their order.
    `pod_requests` are the pod-level requests (spec.resources), None where there are none.
    `ready` is the status of the Ready condition ("True", "False", "Unknown"), None where there is no such condition;
    `ready_since` its last transition.
    """

    name: str
    namespace: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    phase: str = ""
    deleted: bool = False
    start_time: datetime | None = None
    ready: str | None = None
    ready_since: datetime | None = None
    containers: tuple[ContainerRequests, ...] = ()
    pod_requests: Mapping[str, int] | None = None
