"""Competitors: other HPAs with the same target, and other clients that set replicas or write statuses."""

import functools
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from hpad.api import selector
from hpad.api.hpa import CrossVersionObjectReference, HorizontalPodAutoscaler, Scale
from hpad.api.metadata import Key
from hpad.api.selector import Selector
from hpad.clock import Clock
from hpad.engine.view import HPA, SCALE, STATUS, UNNAMED, Competitor
from hpad.kube import codec, managed_fields, paths, scale
from hpad.kube.cache import Cache, Kind
from hpad.kube.client import Client
from hpad.kube.codec import Target
from hpad.kube.watch import ReflectorOptions

RECENT: Final = 300.0
"""Seconds for which a write of another client is reported; controllers that disagree write far more often."""
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
    """The key of the target that a reference names."""
    group, kind = scale.watched(ref)
    return TargetKey(namespace, group, kind.lower(), ref.name)


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()


class _Hpa(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: codec.Meta = codec.Meta()
    spec: _Spec = _Spec()


_HPA: Final = msgspec.json.Decoder(_Hpa)


def decode(raw: bytes | msgspec.Raw, ours: Selector | None) -> tuple[OtherHpa, bool]:
    """An HPA, and whether `ours` selects it, so that it is hpad's own. Raises codec.UndecodableError."""
    try:
        wire = _HPA.decode(raw)
        labels = codec.labels(wire.metadata.labels)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise codec.UndecodableError(str(error)) from error
    head = wire.metadata
    key = Key(head.namespace, head.name)
    found = OtherHpa(key, target_key(head.namespace, wire.spec.scale_target_ref), head.resource_version)
    return found, ours is not None and ours.matches(labels)


class OtherHpas:
    """The HPAs of the API server that hpad does not own, by target.

    `hpa_selector` selects the HPAs that hpad owns; None if its own HPAs come from files.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespaces: Sequence[str],
        hpa_selector: str | None,
        reflector_options: ReflectorOptions | None,
    ) -> None:
        self._ours = None if hpa_selector is None else selector.parse(hpa_selector)
        self._by_target: dict[TargetKey, set[Key]] = {}
        kind = Kind(paths.HPAS, self._decode, lambda scaler: scaler.version)
        self.cache: Cache[OtherHpa] = Cache(client, kind, namespaces=namespaces, reflector_options=reflector_options)
        self.cache.subscribe(self._changed)

    def of(self, target: TargetKey) -> list[Key]:
        """The HPAs that scale this target, sorted."""
        return sorted(self._by_target.get(target, ()))

    def _decode(self, raw: bytes | msgspec.Raw) -> codec.DecodedObject[OtherHpa]:
        scaler, ours = decode(raw, self._ours)
        no_target = msgspec.structs.replace(scaler, target_key=TargetKey("", "", "", ""))
        return codec.DecodedObject(scaler.key, scaler.version, no_target if ours else scaler)

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
        """The other writers of the target and of the status of an HPA."""
        target = target_key(hpa.metadata.namespace, hpa.spec.scale_target_ref)
        found = [] if self._others is None else [Competitor(HPA, str(key)) for key in self._others.of(target)]
        writes = ((SCALE, self._scaled.get(target)), (STATUS, self._reported.get(hpa.metadata.key)))
        for what, written in writes:
            if written is not None and self._clock.monotonic() - written[1] < RECENT:
                found.append(Competitor(what, written[0]))
        return tuple(found)

    def watch(self, targets: Mapping[tuple[str, str], Cache[Target]]) -> None:
        """Observes which client sets the replicas of these targets; keys are group and kind."""
        for (group, kind), cache in targets.items():
            cache.subscribe(functools.partial(self._target, (group, kind.lower())))

    def writing(self, target: TargetKey) -> None:
        """Called before hpad sets the replicas of this target; the write may fail."""
        self._written.pop(target, None)

    def written(self, target: TargetKey, scale: Scale) -> None:
        """Called after hpad has set the replicas of this target; `scale` is the server's answer."""
        if self._alone:
            self._written[target] = (scale.metadata.get("uid"), scale.spec.replicas)

    def seen(self, target: TargetKey, scale: Scale) -> None:
        """Called with the target's scale as read: if hpad had written another count, another client has changed it.

        This also works for targets that are not watched, and for another hpad with the same name in managedFields.
        """
        uid, replicas = self._written.get(target, (None, scale.spec.replicas))
        if replicas == scale.spec.replicas:
            return
        del self._written[target]
        if uid == scale.metadata.get("uid"):
            previous = self._scaled.get(target)
            self._scaled[target] = (UNNAMED if previous is None else previous[0], self._clock.monotonic())

    def status_written(self, key: Key, manager: str) -> None:
        """Called when another client has written the status of this HPA."""
        self._reported[key] = (manager, self._clock.monotonic())

    def forget(self, hpa: HorizontalPodAutoscaler) -> None:
        """Called when the HPA was deleted, replaced under the same name, or has another target."""
        target = target_key(hpa.metadata.namespace, hpa.spec.scale_target_ref)
        self._reported.pop(hpa.metadata.key, None)
        self._written.pop(target, None)
        self._scaled.pop(target, None)

    def _target(self, at: tuple[str, str], key: Key, old: Target | None, new: Target | None) -> None:
        target = TargetKey(key.namespace, *at, key.name)
        if old is None or new is None or old.uid != new.uid:
            self._scaled.pop(target, None)
            if new is None:
                self._written.pop(target, None)
        elif _overwritten(old, new) or (target in self._scaled and _set_again(old, new)):
            self._scaled[target] = (new.owner, self._clock.monotonic())


def _overwritten(old: Target, new: Target) -> bool:
    """Whether another client has replaced the count that hpad had set."""
    return old.owner == managed_fields.OURS and new.owner not in ("", managed_fields.OURS)


def _set_again(old: Target, new: Target) -> bool:
    """Whether another client has set the count again."""
    return new.owner not in ("", managed_fields.OURS) and (new.replicas, new.owner) != (old.replicas, old.owner)
