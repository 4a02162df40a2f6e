"""Competitors: other HPAs with the same target, and other clients that set replicas or write statuses."""

import functools
import operator
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from hpad.api import limits, selector
from hpad.api.hpa import CrossVersionObjectReference, HorizontalPodAutoscaler, Scale
from hpad.api.metadata import Key
from hpad.api.selector import Selector
from hpad.api.wire import Meta, labels
from hpad.clock import Clock
from hpad.engine.view import HPA, SCALE, STATUS, UNNAMED, Competitor
from hpad.kube import managed_fields, paths, watch
from hpad.kube.cache import Cache
from hpad.kube.reflector import Kind, WatchScope
from hpad.kube.scale import WatchedTarget

RECENT: Final = 300.0
"""Seconds for which a write of another client is reported; two controllers that compete write far more often."""
UNKNOWN: Final = "HPAs of the API server that scale the same targets cannot be seen"


class TargetKey(NamedTuple):
    """A target, independent of the API version and of upper and lower case in its kind."""

    namespace: str
    group: str
    kind: str
    name: str


class OtherHpa(msgspec.Struct, frozen=True, gc=False):
    """An HPA of another controller, and its target; `version` is the resourceVersion."""

    key: Key
    target_key: TargetKey
    version: str


def target_key(namespace: str, ref: CrossVersionObjectReference) -> TargetKey:
    """Returns the key of the target that a reference names."""
    return TargetKey(namespace, *_group_and_kind(ref.api_version, ref.kind), ref.name)


@functools.lru_cache(maxsize=1 << 8)
def _group_and_kind(api_version: str, kind: str) -> tuple[str, str]:
    """Returns the API group and the kind in lower case; cached, so that all HPAs share these texts."""
    return api_version.rpartition("/")[0], kind.lower()


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()


class _Hpa(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: Meta = Meta()
    spec: _Spec = _Spec()


_HPA: Final = msgspec.json.Decoder(_Hpa)


def decode(raw: bytes | msgspec.Raw, ours: Selector | None) -> tuple[OtherHpa, bool]:
    """Decodes an HPA; also returns whether `ours` selects it. Raises UNDECODABLE."""
    hpa = _HPA.decode(raw)
    metadata = hpa.metadata
    target = target_key(metadata.namespace, limits.reference(hpa.spec.scale_target_ref))
    key = Key(metadata.namespace, metadata.name)
    return OtherHpa(key, target, metadata.resource_version), ours is not None and ours.matches(labels(metadata.labels))


class OtherHpas:
    """The HPAs of the API server that hpad does not own, by target.

    `hpa_selector` selects the HPAs that hpad owns; None if its own HPAs come from files.
    """

    def __init__(self, scope: WatchScope, hpa_selector: str | None) -> None:
        self._ours = None if hpa_selector is None else selector.parse(hpa_selector)
        self._by_target: dict[TargetKey, set[Key]] = {}
        self.cache = Cache(scope, Kind(paths.HPAS, self._decode, operator.attrgetter("version")))
        self.cache.subscribe(self._changed)

    def of(self, target: TargetKey) -> list[Key]:
        """Returns the HPAs that scale this target, sorted."""
        return sorted(self._by_target.get(target, ()))

    def _decode(self, raw: bytes | msgspec.Raw) -> watch.DecodedObject[OtherHpa]:
        hpa, is_ours = decode(raw, self._ours)
        if is_ours:  # kept without its target: a change of its labels may make it another controller's HPA
            hpa = msgspec.structs.replace(hpa, target_key=TargetKey("", "", "", ""))
        return watch.DecodedObject(hpa.key, hpa.version, hpa)

    def _changed(self, key: Key, old: OtherHpa | None, new: OtherHpa | None) -> None:
        if old is not None:
            self._by_target[old.target_key].discard(key)
            if not self._by_target[old.target_key]:
                del self._by_target[old.target_key]
        if new is not None:
            self._by_target.setdefault(new.target_key, set()).add(key)


class Competitors:
    """The known other writers of each HPA's target and status. `others` is None if hpad owns all HPAs.

    `alone`: there is no other hpad replica, so a count that this one did not write comes from another client.
    """

    def __init__(self, clock: Clock, others: OtherHpas | None, *, alone: bool = True) -> None:
        self._clock = clock
        self._others = others
        self._alone = alone
        self._written: dict[TargetKey, tuple[object, int]] = {}
        self._scaled: dict[TargetKey, tuple[str, float]] = {}
        self._reported: dict[Key, tuple[str, float]] = {}

    def of(self, hpa: HorizontalPodAutoscaler) -> tuple[Competitor, ...]:
        """Returns the other writers of the target and of the status of an HPA."""
        if self._others is None and not (self._scaled or self._reported):
            return ()
        target = target_key(hpa.metadata.namespace, hpa.spec.scale_target_ref)
        found = [] if self._others is None else [Competitor(HPA, str(key)) for key in self._others.of(target)]
        writes = ((SCALE, self._scaled.get(target)), (STATUS, self._reported.get(hpa.key)))
        for written_object, write in writes:
            if write is not None and self._clock.monotonic() - write[1] < RECENT:
                found.append(Competitor(written_object, write[0]))
        return tuple(found)

    def watch(self, targets: Mapping[tuple[str, str], Cache[WatchedTarget]]) -> None:
        """Observes which client sets the replicas of these targets; keys are group and kind."""
        for (group, kind), cache in targets.items():
            cache.subscribe(functools.partial(self._target_changed, (group, kind.lower())))

    def writing(self, target: TargetKey) -> None:
        """Forgets hpad's last count. Called before hpad sets the replicas of this target."""
        self._written.pop(target, None)  # if the answer is lost, hpad cannot distinguish its own count from another

    def written(self, target: TargetKey, scale: Scale) -> None:
        """Remembers hpad's count. Called after hpad has set the replicas; `scale` is the server's answer."""
        if self._alone:
            self._written[target] = (scale.metadata.get("uid"), scale.spec.replicas)

    def read(self, target: TargetKey, scale: Scale) -> None:
        """Notes another writer if the target's scale, as read, differs from the count that hpad wrote last.

        This also works for targets that are not watched, and for another hpad with the same name in managedFields.
        """
        uid, replicas = self._written.get(target, (None, scale.spec.replicas))
        if replicas == scale.spec.replicas:
            return
        del self._written[target]
        if uid == scale.metadata.get("uid"):
            previous = self._scaled.get(target)
            self._scaled[target] = (UNNAMED if previous is None else previous[0], self._clock.monotonic())

    def status_written_by(self, key: Key, manager: str) -> None:
        """Remembers another client that has written the status of this HPA."""
        self._reported[key] = (manager, self._clock.monotonic())

    def release(self, hpa: HorizontalPodAutoscaler) -> None:
        """Drops the other writers of an HPA that was deleted or replaced, or that has a new target."""
        target = target_key(hpa.metadata.namespace, hpa.spec.scale_target_ref)
        self._reported.pop(hpa.key, None)
        self._written.pop(target, None)
        self._scaled.pop(target, None)

    def _target_changed(
        self, kind: tuple[str, str], key: Key, old: WatchedTarget | None, new: WatchedTarget | None
    ) -> None:
        target = TargetKey(key.namespace, *kind, key.name)
        if old is None or new is None or old.uid != new.uid:
            self._scaled.pop(target, None)
            if new is None:
                self._written.pop(target, None)
        elif new.owner not in ("", managed_fields.OURS):
            set_again = target in self._scaled and (new.replicas, new.owner) != (old.replicas, old.owner)
            if set_again or old.owner == managed_fields.OURS:
                self._scaled[target] = (new.owner, self._clock.monotonic())
