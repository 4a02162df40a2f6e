"""Other writers of what hpad writes: HPAs that are not its own, and clients that set replicas or statuses."""

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
"""Seconds for which a write of another client counts: two controllers that disagree write far more often."""
UNKNOWN: Final = "HPAs of the API server that scale the same targets cannot be seen"


class TargetKey(NamedTuple):
    """A target, in whatever version of its API and spelling of its kind."""

    namespace: str
    group: str
    kind: str
    name: str


class OtherHpa(msgspec.Struct, frozen=True, gc=False):
    """An HPA that is not hpad's, narrowed to what it scales; `version` is its resourceVersion."""

    key: Key
    target_key: TargetKey
    version: str


def target_key(namespace: str, ref: CrossVersionObjectReference) -> TargetKey:
    """Where a reference points to."""
    group, kind = scale.watched(ref)
    return TargetKey(namespace, group, kind.lower(), ref.name)


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()


class _Hpa(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: codec.Meta = codec.Meta()
    spec: _Spec = _Spec()


_HPA: Final = msgspec.json.Decoder(_Hpa)


def decode(raw: bytes | msgspec.Raw, ours: Selector | None) -> tuple[OtherHpa, bool]:
    """An HPA, and whether it is one of hpad's, which those are that `ours` selects; raises codec.UndecodableError."""
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
    """The HPAs of the API server that hpad does not look after, by the target that they scale.

    `hpa_selector` selects those that it does look after; None: none of them, since its own come from files.
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
        self._by_place: dict[TargetKey, set[Key]] = {}
        kind = Kind(paths.HPAS, self._decode, lambda scaler: scaler.version)
        self.cache: Cache[OtherHpa] = Cache(client, kind, namespaces=namespaces, reflector_options=reflector_options)
        self.cache.subscribe(self._changed)

    def of(self, where: TargetKey) -> list[Key]:
        """The HPAs that scale this target, in the order of their names."""
        return sorted(self._by_place.get(where, ()))

    def _decode(self, raw: bytes | msgspec.Raw) -> codec.DecodedObject[OtherHpa]:
        scaler, ours = decode(raw, self._ours)
        nowhere = msgspec.structs.replace(scaler, target_key=TargetKey("", "", "", ""))
        return codec.DecodedObject(scaler.key, scaler.version, nowhere if ours else scaler)

    def _changed(self, key: Key, old: OtherHpa | None, new: OtherHpa | None) -> None:
        if old is not None:
            self._by_place[old.target_key].discard(key)
            if not self._by_place[old.target_key]:
                del self._by_place[old.target_key]
        if new is not None:
            self._by_place.setdefault(new.target_key, set()).add(key)


class Competitors:
    """What is known of other writers, for each HPA. `others` is None where all HPAs of the API server are hpad's.

    `alone`: no other hpad shares the work with this one, so that a count this one did not write is another client's.
    """

    def __init__(self, clock: Clock, others: OtherHpas | None, *, alone: bool = True) -> None:
        self._clock = clock
        self._others = others
        self._alone = alone
        self._written: dict[TargetKey, tuple[object, int]] = {}
        self._scaled: dict[TargetKey, tuple[str, float]] = {}
        self._reported: dict[Key, tuple[str, float]] = {}

    def of(self, hpa: HorizontalPodAutoscaler) -> tuple[Competitor, ...]:
        """Those that write the target or the status of an HPA, besides hpad."""
        where = target_key(hpa.metadata.namespace, hpa.spec.scale_target_ref)
        found = [] if self._others is None else [Competitor(HPA, str(key)) for key in self._others.of(where)]
        writes = ((SCALE, self._scaled.get(where)), (STATUS, self._reported.get(hpa.metadata.key)))
        for what, written in writes:
            if written is not None and self._clock.monotonic() - written[1] < RECENT:
                found.append(Competitor(what, written[0]))
        return tuple(found)

    def watch(self, targets: Mapping[tuple[str, str], Cache[Target]]) -> None:
        """Follow who sets the replicas of these kinds of targets, which are keyed by group and kind."""
        for (group, kind), cache in targets.items():
            cache.subscribe(functools.partial(self._target, (group, kind.lower())))

    def writing(self, where: TargetKey) -> None:
        """hpad is about to set the replicas of this target; whether it will have done so is not known yet."""
        self._written.pop(where, None)

    def written(self, where: TargetKey, scale: Scale) -> None:
        """hpad has set the replicas of this target; `scale` is what the server made of it."""
        if self._alone:
            self._written[where] = (scale.metadata.get("uid"), scale.spec.replicas)

    def seen(self, where: TargetKey, scale: Scale) -> None:
        """The target is set to this count: where hpad had set another, another client has changed it.

        That tells of targets that are not watched, and of another hpad, which has the same name in managedFields.
        """
        uid, replicas = self._written.get(where, (None, scale.spec.replicas))
        if replicas == scale.spec.replicas:
            return
        del self._written[where]
        if uid == scale.metadata.get("uid"):
            held = self._scaled.get(where)
            self._scaled[where] = (UNNAMED if held is None else held[0], self._clock.monotonic())

    def status_written(self, key: Key, manager: str) -> None:
        """Another client has written the status of this HPA just now."""
        self._reported[key] = (manager, self._clock.monotonic())

    def forget(self, hpa: HorizontalPodAutoscaler) -> None:
        """The HPA is gone, is another one of the same name, or has another target."""
        where = target_key(hpa.metadata.namespace, hpa.spec.scale_target_ref)
        self._reported.pop(hpa.metadata.key, None)
        self._written.pop(where, None)
        self._scaled.pop(where, None)

    def _target(self, at: tuple[str, str], key: Key, old: Target | None, new: Target | None) -> None:
        where = TargetKey(key.namespace, *at, key.name)
        if old is None or new is None or old.uid != new.uid:
            self._scaled.pop(where, None)
            if new is None:
                self._written.pop(where, None)
        elif _taken(old, new) or (where in self._scaled and _again(old, new)):
            self._scaled[where] = (new.owner, self._clock.monotonic())


def _taken(old: Target, new: Target) -> bool:
    """Whether another client has set the count that hpad had set last."""
    return old.owner == managed_fields.OURS and new.owner not in ("", managed_fields.OURS)


def _again(old: Target, new: Target) -> bool:
    """Whether another client has set the count once more."""
    return new.owner not in ("", managed_fields.OURS) and (new.replicas, new.owner) != (old.replicas, old.owner)
