"""The fields of a pod that decisions depend on, and the deletion cost that hpad may set.

hpad sets a cost together with the annotation `COST_SET`, which says what it wrote and when. A pod with this annotation
is marked. `COST_BEFORE` holds the cost that a user had set before; a pod that had none does not get it.
Source: KEP-2255; Kubernetes 1.36, pkg/apis/core/helper: GetDeletionCostFromPodAnnotations.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

import msgspec

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
COST_SET: Final = "hpad.io/deletion-cost-set"
"""The annotation that marks a pod: the cost that hpad wrote, a space, and the time (RFC 3339)."""
COST_BEFORE: Final = "hpad.io/deletion-cost-before"
_COST: Final = re.compile(r"(?P<sign>-0*|(?!0.))(?P<digits>[0-9]{1,10})", re.ASCII)
_COSTS: Final = range(-(2**31), 2**31)
_FINISHED: Final = ("Succeeded", "Failed")
"""The phases of pods that have ended."""
_IPV4: Final = 2**32


class ContainerRequests(msgspec.Struct, frozen=True, gc=False):
    """The requests of one container by resource, in milli-units: cpu "200m" is 200, memory "64Mi" is 67108864000."""

    name: str
    requests: Mapping[str, int]


class OtherRequests(msgspec.Struct, frozen=True, gc=False):
    """What may count of a pod in place of, or on top of, the requests of its spec.

    `containers` and `pod_requests` have the form of those of the pod, with the requests in force: while a resize in
    place is pending, deferred, infeasible or in progress, those that the node still applies (KEP-1287). `overhead` is
    that of the RuntimeClass of a pod with pod-level requests; {} for others.
    """

    containers: tuple[ContainerRequests, ...]
    pod_requests: Mapping[str, int] | None
    overhead: Mapping[str, int]


class PodOwner(msgspec.Struct, frozen=True, gc=False):
    """The controller of an object, by its ownerReferences. `group` is the API group of `kind`, "" for core."""

    group: str
    kind: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f'{self.kind} "{self.name}"'


class DeletionCost(msgspec.Struct, frozen=True, gc=False):
    """The annotations of a pod about its deletion cost, as text; None where there is none.

    `text` is the cost, `mark` is `COST_SET`, `before` is `COST_BEFORE`.
    """

    text: str | None = None
    mark: str | None = None
    before: str | None = None

    @property
    def users(self) -> str | None:
        """The text that a user has set; None for none. A cost that differs from what hpad wrote is a user's."""
        if self.mark is None or self.text != self.mark.partition(" ")[0]:
            return self.text
        return self.before

    @property
    def restored(self) -> str | None:
        """The text to be left without the mark. The API server accepts no invalid cost, which would count as 0."""
        return self.users if is_valid_cost(self.users) else None


class Pod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod as the API server describes it; `engine.pods` decides whether it is ready.

    `containers` are the regular containers, then the restartable init containers (sidecars), in their order.
    `pod_requests` is the result of `effective_requests` for a pod with pod-level requests (spec.resources), else None.
    `other_requests` is None where the requests of the spec are in force and there is no overhead, as with nearly all.
    `ready` is the status of the Ready condition ("True", "False", "Unknown"), None without the condition; `ready_since`
    is its last transition. `owner` is its controller, None for a pod without one; recordings, which hold only pods that
    count, do not have it. `address` is its IP address as a number, 0 while it has none; recordings do not have it.
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
    other_requests: OtherRequests | None = None
    owner: PodOwner | None = None
    address: int = 0
    deletion_cost: DeletionCost | None = None

    @property
    def is_active(self) -> bool:
        """Whether a ReplicaSet counts it: it has not finished, and is not being deleted."""
        return not self.deleted and self.phase not in _FINISHED

    @property
    def address_text(self) -> str:
        """The IP address as text, "" while it has none."""
        if not self.address:
            return ""
        return str(IPv4Address(self.address) if self.address < _IPV4 else IPv6Address(self.address))

    @property
    def users_cost(self) -> int:
        """The deletion cost that a user has set, as the ReplicaSet controller reads it."""
        return 0 if self.deletion_cost is None else cost_value(self.deletion_cost.users)

    @property
    def is_marked(self) -> bool:
        """Whether hpad has set the deletion cost."""
        return self.deletion_cost is not None and self.deletion_cost.mark is not None


def effective_requests(
    own: Mapping[str, int] | None,
    containers: Iterable[Mapping[str, int]],
    initial: Iterable[tuple[bool, Mapping[str, int]]],
) -> Mapping[str, int] | None:
    """Returns the requests, in milli-units, of a pod with pod-level requests (KEP-2837); None where it has none.

    The overhead of a RuntimeClass is no part of them.

    Resources without a pod-level request come from the containers: the sum of regular and restartable init
    containers, or the peak of an init container if that is more. `initial` gives for each init container, in their
    order, whether it is restartable. Source: Kubernetes 1.36, component-helpers, resource/helpers.go: PodRequests.
    """
    supported = [name for name in own or {} if name in ("cpu", "memory") or name.startswith("hugepages-")]
    if own is None or not supported:
        return None
    total: Counter[str] = Counter()
    for requests in containers:
        total.update(requests)
    sidecars: Counter[str] = Counter()
    peak: dict[str, int] = {}
    for restartable, requests in initial:
        # An init container runs beside the sidecars that were started before it.
        together = Counter(sidecars)
        together.update(requests)
        if restartable:
            total.update(requests)
            sidecars = together
        _raise_to(peak, together)
    _raise_to(total, peak)
    for name in supported:
        total[name] = own[name]
    return dict(total)


class AppliedRequests(NamedTuple):
    """The requests in the status of a pod: those of its containers by name, and those of the whole pod."""

    containers: Mapping[str, Mapping[str, int]]
    whole: Mapping[str, int]


def other_requests(
    own: Mapping[str, int] | None,
    regular: Sequence[ContainerRequests],
    initial: Sequence[tuple[bool, ContainerRequests]],
    applied: AppliedRequests,
    overhead: Mapping[str, int],
) -> OtherRequests | None:
    """Returns the requests of a pod in force, and its overhead; None where neither differs from the spec.

    `own`, `regular`, `initial` are the requests of the spec, as in `effective_requests`.
    """
    now = [_in_force(each, applied) for each in regular]
    first = [(restartable, _in_force(each, applied)) for restartable, each in initial]
    found = together(None if own is None else _applied(own, applied.whole), now, first)
    overhead = {} if found[1] is None else overhead
    if not overhead and found == together(own, regular, initial):
        return None
    return OtherRequests(*found, overhead)


def together(
    own: Mapping[str, int] | None,
    regular: Sequence[ContainerRequests],
    initial: Sequence[tuple[bool, ContainerRequests]],
) -> tuple[tuple[ContainerRequests, ...], Mapping[str, int] | None]:
    """Returns `containers` and `pod_requests` of a Pod; the arguments are as in `other_requests`."""
    parts = [each.requests for each in regular], [(restartable, each.requests) for restartable, each in initial]
    sidecars = [each for restartable, each in initial if restartable]
    return (*regular, *sidecars), effective_requests(own, *parts)


def _in_force(container: ContainerRequests, applied: AppliedRequests) -> ContainerRequests:
    requests = _applied(container.requests, applied.containers.get(container.name, {}))
    return container if requests is container.requests else ContainerRequests(container.name, requests)


def _applied(requests: Mapping[str, int], actual: Mapping[str, int]) -> Mapping[str, int]:
    """Returns the requests with the amounts that the node applies, where it says them."""
    if all(actual.get(name, amount) == amount for name, amount in requests.items()):
        return requests
    return {name: actual.get(name, amount) for name, amount in requests.items()}


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    # Not the operator | of Counter, which drops requests of 0: a request of 0 differs from none.
    for name, amount in least.items():
        total[name] = max(amount, total.get(name, amount))


def set_by_hpad(found: DeletionCost | None, cost: int, at: datetime) -> DeletionCost:
    """Returns the annotations of a pod with these ones after hpad has set its cost."""
    mark = f"{cost} {at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return DeletionCost(str(cost), mark, None if found is None else found.users)


def cost_of_annotations(annotations: Mapping[str, str]) -> DeletionCost | None:
    """Returns the deletion cost in the annotations of a pod; None where there is none."""
    found = [annotations.get(name) for name in (DELETION_COST, COST_SET, COST_BEFORE)]
    return DeletionCost(*found) if any(text is not None for text in found) else None


def cost_annotations(cost: DeletionCost) -> dict[str, str | None]:
    """Returns each annotation that a deletion cost consists of, None for one that is not there."""
    return {DELETION_COST: cost.text, COST_SET: cost.mark, COST_BEFORE: cost.before}


def cost_value(text: str | None) -> int:
    """Returns the cost as the ReplicaSet controller reads it: 0 for none and for an invalid one."""
    return _cost_number(text) or 0


def is_valid_cost(text: str | None) -> bool:
    """Whether the API server accepts this cost."""
    return _cost_number(text) is not None


def _cost_number(text: str | None) -> int | None:
    """Returns a 32-bit integer. A plus sign, and leading zeros of one that is not negative, make it invalid."""
    found = None if text is None else _COST.fullmatch(text)
    if found is None:
        return None
    number = int(found["digits"]) * (-1 if found["sign"] else 1)
    return number if number in _COSTS else None
