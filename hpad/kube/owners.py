"""Which pods belong to a target: those whose controller is the target, directly or through the controllers between.

Between a Deployment and its pods are ReplicaSets; a custom resource may also have Deployments and StatefulSets of its
own. These are watched from the first HPA on that selects its pods by owner. Source: KEP-5325.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from hpad.api.hpa import CrossVersionObjectReference
from hpad.api.metadata import Key
from hpad.api.pod import Pod, PodOwner
from hpad.clock import Clock
from hpad.kube import errors, paths
from hpad.kube.cache import Cache
from hpad.kube.paths import Resource
from hpad.kube.scale import WatchedTarget, watched

_GroupKind = tuple[str, str]
_FIRST_LIST: Final = 5.0
"""The seconds that all turns together wait for the first list of a kind."""
_LONGEST: Final = 4
"""The number of controllers between a target and its pods that are followed."""


def _names(*resources: Resource) -> frozenset[_GroupKind]:
    return frozenset((each.group, each.kind) for each in resources)


_OWNS_PODS: Final = _names(paths.REPLICA_SETS, paths.STATEFUL_SETS, paths.REPLICATION_CONTROLLERS)
_BETWEEN: Final[dict[_GroupKind, frozenset[_GroupKind]]] = {
    **dict.fromkeys(_OWNS_PODS, frozenset()),
    **dict.fromkeys(_names(paths.DEPLOYMENTS), _names(paths.REPLICA_SETS)),
}
"""The kinds between a target of a built-in kind and its pods."""


class Owned(NamedTuple):
    """The pods of a target. `related` are the controllers between them, and the known ones above the target."""

    pods: list[Pod]
    related: frozenset[PodOwner] = frozenset()


class PodOwners:
    """Finds the pods of targets. `follow` starts the watch of a kind of `caches`, if it is not watched yet.

    A cache is trusted until it has not been heard of for `max_staleness` seconds.
    """

    def __init__(
        self,
        caches: Mapping[_GroupKind, Cache[WatchedTarget]],
        follow: Callable[[Iterable[CrossVersionObjectReference]], None],
        clock: Clock,
        max_staleness: float = math.inf,
    ) -> None:
        self._caches = caches
        self._follow = follow
        self._clock = clock
        self._max_staleness = max_staleness
        self._until: dict[_GroupKind, float] = {}
        """By kind: the monotonic time up to which its first list is waited for."""

    async def owned(self, target: CrossVersionObjectReference, uid: str, pods: Iterable[Pod]) -> Owned:
        """Returns those of the pods that belong to the target with this uid, in their order.

        Raises ApiError where that is not known of a pod: one that is left out by mistake could cause a scale-down.
        """
        if not uid:
            raise errors.ApiError(0, "NoUid", f'the scale of {target.kind} "{target.name}" has no metadata.uid')
        between = _BETWEEN.get(watched(target), frozenset(self._caches))
        known: dict[PodOwner, tuple[PodOwner, ...] | None] = {}
        found, related = list[Pod](), set[PodOwner]()
        for pod in pods:
            owner = pod.owner
            if owner is None:
                continue
            try:
                if owner not in known:
                    known[owner] = await self._between(pod.namespace, owner, uid, between)
            except errors.ApiError as error:
                if pod.deleted:  # its controller may be gone before it; decisions leave it out as well
                    continue
                message = (
                    f'it is unknown whether the pod "{pod.name}" belongs to {target.kind} "{target.name}": {error}'
                )
                raise errors.ApiError(error.status, error.reason, message) from error
            passed = known[owner]
            if passed is not None:
                found.append(pod)
                related.update(passed)
        if found:
            related.update(self._above(Key(found[0].namespace, target.name), watched(target), uid))
        return Owned(found, frozenset(related))

    async def _between(
        self, namespace: str, owner: PodOwner, uid: str, between: frozenset[_GroupKind]
    ) -> tuple[PodOwner, ...] | None:
        """Returns the controllers from the owner to the object with this uid; None where they do not lead to it."""
        passed: list[PodOwner] = []
        while owner.uid != uid:
            if len(passed) == _LONGEST or _kind(owner) not in between:
                return None
            passed.append(owner)
            controller = (await self._read(namespace, owner)).controller
            if controller is None:
                return None
            owner = controller
        return tuple(passed)

    def _above(self, key: Key, kind: _GroupKind, uid: str) -> Iterator[PodOwner]:
        """Yields the controllers of a target, of its controller, and so on, as far as they are known."""
        for _ in range(_LONGEST):
            found = self._caches[kind].get(key) if kind in self._caches else None
            if found is None or found.uid != uid or found.controller is None:
                return
            yield found.controller
            key, kind, uid = Key(key.namespace, found.controller.name), _kind(found.controller), found.controller.uid

    async def _read(self, namespace: str, owner: PodOwner) -> WatchedTarget:
        cache = self._caches[_kind(owner)]
        if not cache.answered.is_set():
            await self._first_list(owner, cache)
        if not cache.covers(namespace):
            why = cache.trouble or f"{cache.kind.resource} are not listed yet"
            raise errors.ApiError(0, "NotWatched", why)
        if cache.staleness(self._clock.monotonic(), namespace) > self._max_staleness:
            message = f"the watch of {cache.kind.resource} has received nothing for too long"
            raise errors.ApiError(0, errors.STALE, message)
        found = cache.get(Key(namespace, owner.name))
        if found is None or found.uid != owner.uid:
            raise errors.ApiError(0, "UnknownOwner", f"its controller {owner} is not known")
        return found

    async def _first_list(self, owner: PodOwner, cache: Cache[WatchedTarget]) -> None:
        """Starts the watch of the kind of an owner, and waits for its list for a limited time."""
        self._follow((CrossVersionObjectReference(owner.kind, owner.name, f"{owner.group}/v1".lstrip("/")),))
        now = self._clock.monotonic()
        left = self._until.setdefault(_kind(owner), now + _FIRST_LIST) - now
        if left > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await cache.answered.wait()


def _kind(owner: PodOwner) -> _GroupKind:
    return owner.group, owner.kind
