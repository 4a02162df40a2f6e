"""Which HPAs lay claim to which pods.

Two HPAs whose targets' selectors pick a common pod would fight over it, so neither may scale by metrics (condition
AmbiguousSelector). As in the original, a claim is the selector an HPA's target had when the HPA last computed metrics;
an HPA that never did claims nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from hpad.api.hpa import CrossVersionObjectReference
from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.api.selector import Operator, Selector

_Handle = tuple[str, str, str]


class Claims:
    """Selectors by HPA, found by one `label=value` each requires, so that no question looks at all HPAs.

    That is the one that the fewest others are found by: in many a namespace all have some label in common. A selector
    without such a requirement is found through its namespace.
    """

    def __init__(self) -> None:
        self._claims: dict[Key, Selector] = {}
        self._handles: dict[Key, _Handle] = {}
        self._by_handle: dict[_Handle, set[Key]] = defaultdict(set)

    def claim(self, key: Key, selector: Selector) -> None:
        """The HPA's target selects these pods from now on."""
        held = self._claims.get(key)
        if held == selector:
            return
        self.release(key)
        self._claims[key] = selector
        self._handles[key] = handle = self._rarest(key.namespace, selector)
        self._by_handle[handle].add(key)

    def release(self, key: Key) -> None:
        """The HPA is gone; fine if it never claimed anything."""
        if self._claims.pop(key, None) is None:
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
                if other != key and other not in found and self._claims[other].matches(labels):
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
