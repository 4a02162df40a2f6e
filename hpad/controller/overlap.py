"""Competing HPAs: those that scale the same target, or targets that select common pods.

None of them may scale by metrics (condition AmbiguousSelector). Kubernetes registers the selector of an HPA when it
computes its metrics (horizontal.go: validateAndParseSelector), so that after each start of the controller the first of
two competing HPAs takes a step before the second is known. Here all of a namespace are known before any of them acts:

- HPAs that name the same group, kind and name compete by that alone, without any request.
- Of a target that is watched, the selector is at hand.
- Of any other target, the first turn in the namespace reads the scale; so does the first one after HPAs were taken over
  from another replica, or have another target.

Which HPAs lay claim to which pods.

Two HPAs whose targets' selectors pick a common pod would fight over it, so neither may scale by metrics (condition
AmbiguousSelector). As in the original, a claim is the selector an HPA's target had when the HPA last computed metrics;
an HPA that never did claims nothing.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final
from weakref import WeakValueDictionary

import structlog

from hpad.api.hpa import CrossVersionObjectReference, HorizontalPodAutoscaler, Scale
from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.api.selector import Operator, Selector
from hpad.controller.cluster import Cluster
from hpad.kube import errors

_Handle = tuple[str, str, str]


class SelectorIndex:
    """Selectors by HPA, found by one `label=value` each requires, so that no question looks at all HPAs.

    That is the one that the fewest others are found by: in many a namespace all have some label in common. A selector
    without such a requirement is found through its namespace.
    """

    def __init__(self) -> None:
        self._selectors: dict[Key, Selector] = {}
        self._handles: dict[Key, _Handle] = {}
        self._by_handle: dict[_Handle, set[Key]] = defaultdict(set)

    def claim(self, key: Key, selector: Selector) -> None:
        """The HPA's target selects these pods from now on."""
        held = self._selectors.get(key)
        if held == selector:
            return
        self.release(key)
        self._selectors[key] = selector
        self._handles[key] = handle = self._rarest(key.namespace, selector)
        self._by_handle[handle].add(key)

    def release(self, key: Key) -> None:
        """The HPA is gone; fine if it never claimed anything."""
        if self._selectors.pop(key, None) is None:
            return
        handle = self._handles.pop(key)
        self._by_handle[handle].discard(key)
        if not self._by_handle[handle]:
            del self._by_handle[handle]

    def rivals(self, key: Key, pods: Iterable[Pod]) -> tuple[str, ...]:
        """The names, sorted, of the other HPAs of the namespace that claim any of these pods."""
        found: set[Key] = set()
        for labels in {id(pod.labels): pod.labels for pod in pods}.values():  # replicas share theirs
            for other in self._candidates(key.namespace, labels):
                if other != key and other not in found and self._selectors[other].matches(labels):
                    found.add(other)
        return tuple(sorted(other.name for other in found))

    def _rarest(self, namespace: str, selector: Selector) -> _Handle:
        """Of the exact requirements, each of which any pod the selector picks must carry."""
        handles = [
            (namespace, term.key, term.values[0])
            for term in selector.requirements
            if term.operator in (Operator.EQUALS, Operator.DOUBLE_EQUALS)
        ]
        return min(handles, key=lambda handle: len(self._by_handle.get(handle, ())), default=(namespace, "", ""))

    def _candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterable[Key]:
        handles = [(namespace, label, value) for label, value in labels.items()]
        for handle in (*handles, (namespace, "", "")):
            yield from self._by_handle.get(handle, ())


class Targets:
    """Which HPAs of a namespace scale the object of one group, kind and name.

    The version of its API says nothing: Kubernetes resolves a target by group and kind (horizontal.go:
    scaleForResourceMappings). A kind may be written in lower case, too.
    """

    def __init__(self) -> None:
        self._references: dict[Key, CrossVersionObjectReference] = {}
        self._by_target: dict[tuple[str, str, str, str], set[Key]] = defaultdict(set)

    def refer(self, key: Key, ref: CrossVersionObjectReference) -> None:
        """The HPA scales this target from now on."""
        if self._references.get(key) != ref:
            self.release(key)
            self._references[key] = ref
            self._by_target[_place(key, ref)].add(key)

    def release(self, key: Key) -> None:
        """The HPA is gone; fine if it never was there."""
        ref = self._references.pop(key, None)
        if ref is not None:
            place = _place(key, ref)
            self._by_target[place].discard(key)
            if not self._by_target[place]:
                del self._by_target[place]

    def others(self, key: Key) -> list[str]:
        """The names of the other HPAs that scale the target of this one."""
        ref = self._references.get(key)
        if ref is None:
            return []
        alike = self._by_target[_place(key, ref)] - {key}
        return [other.name for other in alike if _is_same_kind(self._references[other].kind, ref.kind)]


def _place(key: Key, ref: CrossVersionObjectReference) -> tuple[str, str, str, str]:
    return key.namespace, ref.api_version.rpartition("/")[0], ref.kind.lower(), ref.name


def _is_same_kind(one: str, other: str) -> bool:
    """WIDGET is no kind where Widget is one, and its HPA cannot act; widget names the same as Widget."""
    return one == other or one.islower() or other.islower()


_AT_ONCE: Final = 8
"""Scales that one turn reads at a time."""


class Overlap:
    """Registers HPAs, and finds those that compete. `selectors` are the selectors of their targets."""

    def __init__(self, cluster: Cluster, selectors: SelectorIndex) -> None:
        self._cluster = cluster
        self._selectors = selectors
        self._targets = Targets()
        self._unread: dict[str, dict[Key, CrossVersionObjectReference]] = defaultdict(dict)
        """By namespace: HPAs whose targets are not watched, and were not read yet."""
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._log = structlog.get_logger("hpad.overlap")

    def register(self, hpa: HorizontalPodAutoscaler) -> None:
        """Take the HPA's target to be scaled by it, from now on or (where it may be another's turn) for all we know.

        Costs no request. What an HPA last computed metrics for is not known here; that it does so is taken for granted
        while its target has replicas.
        """
        key, ref = hpa.metadata.key, hpa.spec.scale_target_ref
        self._targets.refer(key, ref)
        scale = self._cluster.peek_scale(key.namespace, ref)
        if scale is None:
            self._unread[key.namespace][key] = ref
        else:
            self._take(key, scale)

    def refresh(self, hpa: HorizontalPodAutoscaler) -> None:
        """As `register`, but of a target that is not watched only what is known already: nothing is read for it."""
        scale = self._cluster.peek_scale(hpa.metadata.namespace, hpa.spec.scale_target_ref)
        if scale is not None:
            self._take(hpa.metadata.key, scale)

    def release(self, key: Key) -> None:
        """The HPA is gone; fine if it never was registered."""
        self._selectors.release(key)
        self._targets.release(key)
        self._read(key)

    def is_complete(self, hpa: Key) -> bool:
        """Whether all other HPAs of the namespace are known: only then may this one act."""
        return not self._unread.get(hpa.namespace, {}).keys() - {hpa}

    async def complete(self, hpa: Key) -> errors.ApiError | None:
        """Make it so, or return why it cannot be: what is known of the cluster is too old.

        One turn reads for all that wait; what it has read stays, should it be cut short. A scale that cannot be read
        holds nothing up: its HPA cannot act, either. Neither does a whole kind of targets whose API does not answer.
        """
        async with self._reading.setdefault(hpa.namespace, asyncio.Lock()):
            while chosen := [key for key in self._unread.get(hpa.namespace, ()) if key != hpa][:_AT_ONCE]:
                for stale in await asyncio.gather(*(self._ask(key) for key in chosen)):
                    if stale is not None:
                        return stale
        return None

    def seen(self, hpa: HorizontalPodAutoscaler, scale: Scale | None) -> None:
        """The HPA's own turn has read its target's scale (None: it could not)."""
        key = hpa.metadata.key
        self._targets.refer(key, hpa.spec.scale_target_ref)
        if scale is not None and key in self._unread.get(key.namespace, ()):
            self._take(key, scale)

    def claim(self, key: Key, scale: Scale | None) -> None:
        """The HPA has got as far as its metrics, for the pods of this scale."""
        picked = None if scale is None else scale.pod_selector
        if picked is not None:
            self._selectors.claim(key, picked)

    def others(self, key: Key, scale: Scale | None, pods: Iterable[Pod]) -> tuple[str, ...]:
        """The names, sorted, of the HPAs of the namespace that compete with this one, which has that target.

        While there are no replicas none of them competes by its target: in Kubernetes it takes a pod.
        """
        found = set(self._selectors.rivals(key, pods))
        if scale is not None and scale.spec.replicas:
            found.update(self._targets.others(key))
        return tuple(sorted(found))

    async def _ask(self, key: Key) -> errors.ApiError | None:
        """Read one; the error where what is known of the cluster is too old to ask for it."""
        ref = self._unread.get(key.namespace, {}).get(key)
        if ref is None:
            return None
        scale, failure = None, None
        try:
            scale = await self._cluster.read_scale(key.namespace, ref)
        except errors.ApiError as error:
            failure = error
        if failure is not None and failure.stale:
            return failure
        if self._unread.get(key.namespace, {}).get(key) is not ref:  # the HPA is gone, or has another target
            return None
        self._take(key, scale)
        if failure is not None and failure.passing:
            self._leave_out(key.namespace, ref, failure)
        return None

    def _leave_out(self, namespace: str, ref: CrossVersionObjectReference, error: errors.ApiError) -> None:
        """Wait for no target of a kind whose API does not answer: each might take as long as a request may."""
        alike = [key for key, other in self._unread.get(namespace, {}).items() if _kind(other) == _kind(ref)]
        for key in alike:
            self._read(key)
        self._log.warning(
            "scales cannot be read: HPAs that select common pods may not be noticed before their own turns",
            target_namespace=namespace,
            kind=ref.kind,
            hpas=len(alike) + 1,
            error=error.message,
        )

    def _take(self, key: Key, scale: Scale | None) -> None:
        self._read(key)
        if scale is not None and scale.spec.replicas:
            self.claim(key, scale)

    def _read(self, key: Key) -> None:
        unread = self._unread.get(key.namespace, {})
        unread.pop(key, None)
        if not unread:
            self._unread.pop(key.namespace, None)


def _kind(ref: CrossVersionObjectReference) -> tuple[str, str]:
    return ref.api_version.rpartition("/")[0], ref.kind
