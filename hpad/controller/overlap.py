"""Finds competing HPAs: HPAs that scale the same target, and HPAs whose targets select common pods.

Competing HPAs may not scale by metrics (condition AmbiguousSelector). Kubernetes registers the selector of an HPA when
it computes its metrics (horizontal.go: validateAndParseSelector), so that after each start of the controller the first
of two competing HPAs takes a step before the second is known. Here all HPAs of a namespace are known before any acts:

- HPAs that name the same group, kind and name compete without any request.
- The selector of a watched target is known.
- An HPA that selects its pods by owner competes with HPAs of the controllers of its target and of its pods instead.
- The scale of any other target is read by the first turn in the namespace, also after a change of the leader, or
  of a target.

HPAs compete with HPAs, Autoscalers with Autoscalers: the built-in controller does not see those. An Autoscaler leaves
its target to an HPA (`Overlap.yields_to`).

As in Kubernetes, the registered selector is the one of the last turn that computed metrics; an HPA that never did has
none.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Mapping
from typing import Final
from weakref import WeakValueDictionary

import structlog

from hpad.api.hpa import CrossVersionObjectReference, HorizontalPodAutoscaler, Scale
from hpad.api.metadata import Key
from hpad.api.pod import Pod, PodOwner
from hpad.api.selector import Operator, Selector
from hpad.clock import Clock
from hpad.engine.view import TOO_LARGE
from hpad.kube import errors
from hpad.kube.cluster import Cluster
from hpad.kube.competitors import TargetKey, target_key
from hpad.kube.scale import watched

Group = tuple[str, ...]


class _Groups:
    """HPAs by group, each HPA in at most one group. Empty groups are removed."""

    def __init__(self) -> None:
        self._groups: dict[Key, Group] = {}
        self._keys: dict[Group, tuple[Key, ...]] = {}
        """Not sets: nearly all groups have one HPA, and a set of one takes four times the memory of a tuple."""

    def keys(self, group: Group) -> tuple[Key, ...]:
        return self._keys.get(group, ())

    def neighbours(self, key: Key) -> tuple[Key, ...]:
        """Returns the HPAs of this one's group, itself included; none if it is unknown."""
        group = self._groups.get(key)
        return () if group is None else self._keys[group]

    def put(self, key: Key, group: Group) -> None:
        self.remove(key)
        self._groups[key] = group
        self._keys[group] = (*self.keys(group), key)

    def remove(self, key: Key) -> None:
        """Removes the HPA; unknown HPAs are ignored."""
        group = self._groups.pop(key, None)
        if group is None:
            return
        others = tuple(other for other in self._keys.pop(group) if other != key)
        if others:
            self._keys[group] = others


_AT_A_TIME: Final = 1000
"""Comparisons of a pod with a selector after which other tasks run, a few milliseconds of work."""
_MOST_COMPARED: Final = 500_000
_MOST_NAMED: Final = 100
_LABELS: Final = 8
"""Labels of a pod that are looked up in the time of one comparison."""


class TooManyToCompare(Exception):
    """There are too many pods and selectors to compare."""


class SelectorIndex:
    """The selectors of HPAs, indexed by one `label=value` that each requires, so that no lookup visits all HPAs.

    The index uses the requirement that the fewest other selectors use, because labels may be common to a whole
    namespace. A selector without such a requirement is indexed by namespace.
    """

    def __init__(self) -> None:
        self._selectors: dict[Key, Selector] = {}
        self._groups = _Groups()

    def put(self, key: Key, selector: Selector) -> None:
        """Registers the selector of the HPA's target."""
        known = self._selectors.get(key)
        if known is not selector and known != selector:
            self.release(key)  # before the choice of a group, which must not count this HPA
            self._selectors[key] = selector
            self._groups.put(key, self._smallest_group(key.namespace, selector))

    def release(self, key: Key) -> None:
        """Removes the HPA; unknown HPAs are ignored."""
        self._selectors.pop(key, None)
        self._groups.remove(key)

    def search(self, key: Key, pods: Iterable[Pod]) -> Generator[None, None, tuple[str, ...]]:
        """Returns the sorted names of the other HPAs of the namespace whose selectors match any of these pods.

        Of more than `_MOST_NAMED` it returns some. Yields every few milliseconds, so that other tasks can run. Raises
        TooMany where too much is to be compared: authors choose the number of pods with labels of their own, and of
        selectors that no label finds.
        """
        found: set[str] = set()
        labels: Mapping[str, str] | None = None
        compared = step = 0
        for pod in pods:
            if pod.labels is labels:  # replicas share one mapping
                continue
            labels = pod.labels
            candidates = self._candidates(key.namespace, labels)
            for other in candidates:
                if other == key or other.kind != key.kind:
                    continue
                if (selector := self._selectors.get(other)) is not None and selector.matches(labels):
                    found.add(other.name)
            if len(found) >= _MOST_NAMED:
                break
            step += 1 + len(candidates) + len(labels) // _LABELS
            if step >= _AT_A_TIME:
                compared, step = compared + step, 0
                if compared > _MOST_COMPARED:
                    raise TooManyToCompare
                yield
        return tuple(sorted(found)) if found else ()

    def _smallest_group(self, namespace: str, selector: Selector) -> Group:
        """Returns the exact requirement of the selector that the fewest others are indexed by."""
        groups = [
            (namespace, term.key, term.values[0])
            for term in selector.requirements
            if term.operator in (Operator.EQUALS, Operator.DOUBLE_EQUALS)
        ]
        return min(groups, key=lambda group: len(self._groups.keys(group)), default=(namespace,))

    def _candidates(self, namespace: str, labels: Mapping[str, str]) -> list[Key]:
        found = [*self._groups.keys((namespace,))]
        for label, value in labels.items():
            found += self._groups.keys((namespace, label, value))
        return found


class Targets:
    """Which HPAs of a namespace scale the object of one group, kind and name.

    Kubernetes resolves a target by group and kind, in any version (horizontal.go: scaleForResourceMappings). The kind
    may be written in lower case.
    """

    def __init__(self) -> None:
        self._references: dict[Key, CrossVersionObjectReference] = {}
        self._groups = _Groups()

    def refer(self, key: Key, ref: CrossVersionObjectReference) -> None:
        """Registers the target of the HPA."""
        if self._references.get(key) != ref:
            self._references[key] = ref
            self._groups.put(key, target_key(key.namespace, ref))

    def release(self, key: Key) -> None:
        """Removes the HPA; unknown HPAs are ignored."""
        self._references.pop(key, None)
        self._groups.remove(key)

    def others(self, key: Key, key_kind: str) -> list[str]:
        """Returns the names of the others that scale the target of this HPA; `key_kind` is the kind in their keys."""
        neighbours = self._groups.neighbours(key)
        if len(neighbours) < 2:
            return []
        kind = self._references[key].kind
        others = [other for other in neighbours if other != key and other.kind == key_kind]
        return [other.name for other in others if _is_same_kind(self._references[other].kind, kind)]

    def scaling(self, namespace: str, owner: PodOwner, key_kind: str) -> list[str]:
        """Returns the names of the HPAs that scale a controller; `key_kind` is the kind in their keys."""
        keys = self._groups.keys(TargetKey(namespace, owner.group, owner.kind.lower(), owner.name))
        found = [key for key in keys if key.kind == key_kind]
        return [key.name for key in found if _is_same_kind(self._references[key].kind, owner.kind)]


def _is_same_kind(one: str, other: str) -> bool:
    """Whether two spellings that differ at most in case name one kind: Widget and widget do, Widget and WIDGET do not.

    An HPA that refers to a kind WIDGET where only Widget exists cannot act, so it competes with no other.
    """
    return one == other or one.islower() or other.islower()


_AT_ONCE: Final = 8
"""The number of scales that one turn reads at the same time."""


class Overlap:
    """Registers HPAs and their targets, and finds competing ones. `selectors` are those of the targets."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self.selectors = SelectorIndex()
        self._targets = Targets()
        self._unread: dict[str, dict[Key, CrossVersionObjectReference]] = defaultdict(dict)
        """By namespace: HPAs whose targets are not watched, and were not read yet."""
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._log = structlog.get_logger("hpad.overlap")

    def register(self, hpa: HorizontalPodAutoscaler) -> None:
        """Registers the HPA and its target, also if another replica reconciles the HPA. Costs no request.

        Whether such an HPA last computed metrics is not known here; it is assumed while its target has replicas.
        """
        # Not the key of the compiled spec: a start would compile all specs in one step of the event loop.
        key, ref = hpa.key, hpa.spec.scale_target_ref
        self._targets.refer(key, ref)
        scale = self._cluster.peek_scale(key.namespace, ref)
        if scale is None:
            self._unread[key.namespace][key] = ref
        else:
            self._register(key, scale)

    def refresh(self, hpa: HorizontalPodAutoscaler) -> None:
        """Updates the selector of a watched target; nothing is read for other targets."""
        scale = self._cluster.peek_scale(hpa.metadata.namespace, hpa.spec.scale_target_ref)
        if scale is not None:
            self._register(hpa.key, scale)

    def release(self, key: Key) -> None:
        """Removes the HPA; unknown HPAs are ignored."""
        self.selectors.release(key)
        self._targets.release(key)
        self._mark_read(key)

    def is_complete(self, hpa: Key) -> bool:
        """Whether all other HPAs of the namespace are known; this one may act only then."""
        # Its own target is read by its turn in any case.
        unread = self._unread.get(hpa.namespace)
        return not unread or not unread.keys() - {hpa}

    async def complete(self, hpa: Key) -> errors.ApiError | None:
        """Reads the unknown targets of the namespace. Returns an error if the caches are too old to decide.

        One turn of the namespace reads while others wait; scales already read stay known if it is cancelled. A scale
        that cannot be read delays no other HPA, because its own HPA cannot act either. If the API of a kind does not
        answer, all targets of that kind are skipped.
        """
        async with self._reading.setdefault(hpa.namespace, asyncio.Lock()):
            # HPAs that were deleted or read meanwhile leave the table, so each round takes a new list.
            while chosen := [key for key in self._unread.get(hpa.namespace, ()) if key != hpa][:_AT_ONCE]:
                for stale in await asyncio.gather(*(self._read(key, hpa.kind) for key in chosen)):
                    if stale is not None:
                        return stale
        return None

    def seen(self, key: Key, ref: CrossVersionObjectReference, scale: Scale | None) -> None:
        """Registers the target of the HPA, and the scale that its own turn has read; None if it could not be read."""
        self._targets.refer(key, ref)
        if scale is not None and key in self._unread.get(key.namespace, ()):
            self._register(key, scale)

    def yields_to(self, key: Key) -> list[str]:
        """Returns the names of the HPAs that an Autoscaler leaves its target to; none for an HPA."""
        return self._targets.others(key, "") if key.kind else []

    def register_selector(self, key: Key, scale: Scale | None) -> None:
        """Registers the selector of an HPA whose turn needs metrics."""
        selector = None if scale is None else scale.pod_selector
        if selector is not None:
            self.selectors.put(key, selector)

    async def others(
        self, key: Key, scale: Scale | None, pods: Collection[Pod], related: Iterable[PodOwner] = ()
    ) -> tuple[str, ...]:
        """Returns the sorted names of the HPAs of the namespace that compete with this one.

        They select any of the pods, or scale the same target or one of the `related` objects. Raises errors.ApiError
        where that takes too long.
        """
        found = await self._selecting(key, pods)
        # Kubernetes compares HPAs by their pods, so without replicas none competes
        # (horizontal.go: hpasControllingPodsUnderSelector).
        if scale is None or not scale.spec.replicas:
            return found
        same = self._targets.others(key, key.kind)
        for owner in related:
            same += self._targets.scaling(key.namespace, owner, key.kind)
        return tuple(sorted({*found, *same})) if same else found

    async def _selecting(self, key: Key, pods: Collection[Pod]) -> tuple[str, ...]:
        """Returns the names of the other HPAs that select any of the pods; other tasks run meanwhile."""
        steps = self.selectors.search(key, pods)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                found: tuple[str, ...] = done.value
                return found
            except TooManyToCompare:
                text = f"{len(pods):,} pods of different labels and the selectors of other HPAs are too much to compare"
                raise errors.ApiError(0, TOO_LARGE, text) from None
            await self._clock.sleep(0)

    async def _read(self, key: Key, kind: str) -> errors.ApiError | None:
        """Reads one scale and registers it. Returns the error if the caches are too old to decide for this `kind`."""
        ref = self._unread.get(key.namespace, {}).get(key)
        if ref is None:
            return None
        scale, failure = None, None
        try:
            scale = await self._cluster.read_scale(key.namespace, ref, kind)
        except errors.ApiError as error:
            failure = error
        if failure is not None and failure.stale:
            return failure
        if self._unread.get(key.namespace, {}).get(key) is not ref:  # deleted, or it has another target
            return None
        self._register(key, scale)
        if failure is not None and failure.passing:
            self._skip_kind(key.namespace, ref, failure)
        return None

    def _skip_kind(self, namespace: str, ref: CrossVersionObjectReference, error: errors.ApiError) -> None:
        """Skips all targets of a kind whose API does not answer: each read could take a whole request timeout."""
        alike = [key for key, other in self._unread.get(namespace, {}).items() if watched(other) == watched(ref)]
        for key in alike:
            self._mark_read(key)
        self._log.warning(
            "scales cannot be read: HPAs that select common pods may not be noticed before their own turns",
            target_namespace=namespace,
            kind=ref.kind,
            hpas=len(alike) + 1,
            error=error.message,
        )

    def _register(self, key: Key, scale: Scale | None) -> None:
        self._mark_read(key)
        # At zero, metrics are computed only after ScaledToZero (horizontal.go: shouldComputeMetricsForZeroReplicas).
        if scale is not None and scale.spec.replicas:
            self.register_selector(key, scale)

    def _mark_read(self, key: Key) -> None:
        unread = self._unread.get(key.namespace, {})
        unread.pop(key, None)
        if not unread:
            self._unread.pop(key.namespace, None)
