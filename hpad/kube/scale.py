"""Reads and writes the scale of a target of any kind.

The scale of a built-in kind is read from its watched object, that of others by its scale subresource.
"""

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from hpad.api import pod_json
from hpad.api import selector as selectors
from hpad.api.bounded_cache import bounded_cache
from hpad.api.hpa import CrossVersionObjectReference, Scale, ScaleSpec, ScaleStatus
from hpad.api.metadata import Key
from hpad.api.pod import Pod, PodOwner
from hpad.api.selector_syntax import MOST_REQUIREMENTS
from hpad.api.wire import EMPTY, TEXTS, UNDECODABLE, ControlledMeta, controller_of, interned
from hpad.kube import discovery, errors, managed_fields, paths
from hpad.kube.cache import Cache
from hpad.kube.client import Allowed, Client
from hpad.kube.reflector import Kind
from hpad.kube.watch import DecodedObject

_LONGEST_SELECTOR: Final = 1 << 16
"""Bytes of the JSON of a selector that is decoded: each requirement takes 50 beside its text."""


class _OwnedMeta(ControlledMeta, frozen=True, gc=False, rename="camel"):
    managed_fields: msgspec.Raw = msgspec.Raw(b"")


class WatchedTarget(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A watched object with a scale subresource: the fields of its Scale.

    `replicas` is spec.replicas, 1 if unset; `selector` is text, as in the Scale. `owner` is the field manager that set
    the replicas last, "" if unknown. `controller` is the object that controls this one, as for a ReplicaSet.
    """

    name: str
    namespace: str
    uid: str
    resource_version: str
    creation_timestamp: str | None
    replicas: int
    status_replicas: int
    selector: str
    owner: str = ""
    controller: PodOwner | None = None

    @property
    def scale(self) -> Scale:
        """The Scale as the API server would return it; made for each turn, since 10,000 of them would take 10 MB."""
        metadata = {
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
            "creationTimestamp": self.creation_timestamp,
        }
        return Scale(
            metadata=metadata,
            spec=ScaleSpec(self.replicas),
            status=ScaleStatus(self.status_replicas, self.selector),
        )


class _TargetSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    replicas: int | None = None
    selector: msgspec.Raw = EMPTY


class _TargetStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    replicas: int = 0


class _Target(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: _OwnedMeta = _OwnedMeta()
    spec: _TargetSpec = _TargetSpec()
    status: _TargetStatus = _TargetStatus()


_TARGET = msgspec.json.Decoder(_Target)
_SELECTOR = msgspec.json.Decoder(selectors.LabelSelector | None)


def target(raw: bytes | msgspec.Raw) -> DecodedObject[WatchedTarget]:
    """Decodes a Deployment, ReplicaSet or StatefulSet; raises UNDECODABLE."""
    return _target(raw, _selector_text)


def replication_controller(raw: bytes | msgspec.Raw) -> DecodedObject[WatchedTarget]:
    """Decodes a ReplicationController, whose selector is a map of labels; raises UNDECODABLE."""
    return _target(raw, _map_text)


def _target(raw: bytes | msgspec.Raw, text: Callable[[bytes], str]) -> DecodedObject[WatchedTarget]:
    wire = _TARGET.decode(raw)
    head, replicas = wire.metadata, wire.spec.replicas
    owner = managed_fields.owner_of_replicas(head.managed_fields)
    value = WatchedTarget(
        name=head.name,
        namespace=interned(head.namespace),
        uid=head.uid,
        resource_version=head.resource_version,
        creation_timestamp=head.creation_timestamp,
        replicas=1 if replicas is None else replicas,
        status_replicas=wire.status.replicas,
        selector=text(bytes(wire.spec.selector)),
        owner=interned(managed_fields.setter(owner)),
        controller=controller_of(head),
    )
    return DecodedObject(Key(value.namespace, value.name), head.resource_version, value)


@bounded_cache(lambda raw: 2 * len(raw))
def _selector_text(raw: bytes) -> str:
    """Returns a label selector as text, as in the scale subresource."""
    return _written(_SELECTOR.decode(raw)) if len(raw) <= _LONGEST_SELECTOR else selectors.TOO_LARGE


@bounded_cache(lambda raw: 2 * len(raw))
def _map_text(raw: bytes) -> str:
    if len(raw) > _LONGEST_SELECTOR:
        return selectors.TOO_LARGE
    return _written(selectors.LabelSelector(match_labels=TEXTS.decode(raw) or {}))


def _written(selector: selectors.LabelSelector | None) -> str:
    if selector is not None and len(selector.match_labels) + len(selector.match_expressions) > MOST_REQUIREMENTS:
        return selectors.TOO_LARGE
    text = str(selectors.from_object(selector))
    return text if len(text) <= selectors.LONGEST else selectors.TOO_LARGE


_VERSION = operator.attrgetter("resource_version")
WATCHED: tuple[Kind[WatchedTarget], ...] = (
    Kind(paths.DEPLOYMENTS, target, _VERSION),
    Kind(paths.REPLICA_SETS, target, _VERSION),
    Kind(paths.STATEFUL_SETS, target, _VERSION),
    Kind(paths.REPLICATION_CONTROLLERS, replication_controller, _VERSION),
)
"""The built-in kinds with a scale subresource."""

_SPELLED = {kind.resource.kind.lower(): kind.resource.kind for kind in WATCHED}
_SCALE = msgspec.json.Decoder(Scale)


class _TemplatedSpec(msgspec.Struct, frozen=True):
    template: msgspec.Raw = msgspec.Raw(b"")


class _Templated(msgspec.Struct, frozen=True):
    spec: _TemplatedSpec = _TemplatedSpec()


class _TemplatedList(msgspec.Struct, frozen=True):
    items: tuple[_Templated, ...] = ()


_TEMPLATED = msgspec.json.Decoder(_TemplatedList)


class Scales:
    """Reads and writes scales. `caches` are the caches of the watched kinds, by group and kind.

    A cache is trusted until it has not been heard of for `max_staleness` seconds.
    """

    def __init__(
        self, client: Client, caches: Mapping[tuple[str, str], Cache[WatchedTarget]], max_staleness: float = math.inf
    ) -> None:
        self._client = client
        self._caches = caches
        self._max_staleness = max_staleness
        self._discovery = discovery.ApiDiscovery(client)

    async def read(self, namespace: str, ref: CrossVersionObjectReference) -> Scale:
        """Returns a target's scale: from its watched object, or by GET if the cache does not have the object.

        Raises ApiError with the message of Kubernetes.
        """
        return self.peek(namespace, ref) or await self.fresh(namespace, ref)

    def peek(self, namespace: str, ref: CrossVersionObjectReference) -> Scale | None:
        """Returns the scale of the watched object; None if it is unknown or too old."""
        cache = self._caches.get(watched(ref))
        if cache is None or not cache.covers(namespace, self._client.clock.monotonic() - self._max_staleness):
            return None
        target = cache.get(Key(namespace, ref.name))
        return None if target is None else target.scale

    def owner(self, namespace: str, ref: CrossVersionObjectReference) -> str:
        """Returns the manager that set the replicas of a watched target last (`managed_fields`), "" if unknown."""
        cache = self._caches.get(watched(ref))
        target = None if cache is None else cache.get(Key(namespace, ref.name))
        return "" if target is None else target.owner

    async def fresh(self, namespace: str, ref: CrossVersionObjectReference) -> Scale:
        """Returns the scale as the API server has it now. Raises ApiError."""
        path = await self._path(namespace, ref)
        try:
            body = await self._client.request("GET", path)
        except errors.ApiError as error:
            if error.no_resource:  # a CustomResourceDefinition may have dropped the version that was found
                self._discovery.forget(ref.api_version)
            raise
        scale = decode(body)
        if scale.spec.replicas:  # who has stopped a target decides whether it is woken: the watch must still tell that
            self._offer(namespace, ref, scale)
        return scale

    async def write(
        self, namespace: str, ref: CrossVersionObjectReference, scale: Scale, allowed: Allowed | None = None
    ) -> Scale:
        """Writes the scale in one attempt, with the resourceVersion in `scale.metadata`. Raises ApiError.

        A success updates the cached object at once, before the watch delivers the change.
        """
        path = await self._path(namespace, ref)
        body = await self._client.request("PUT", path, body=msgspec.json.encode(scale), allowed=allowed)
        written = decode(body)
        self._offer(namespace, ref, written, owner=managed_fields.OURS)
        return written

    async def template(self, namespace: str, ref: CrossVersionObjectReference) -> Pod | None:
        """Returns a pod of the target's template; None if the target has none. Raises ApiError.

        The target is listed by its name, not read: the right to watch its kind suffices.
        """
        resource = await self._resource(ref)
        by_name = {"fieldSelector": f"metadata.name={ref.name}"}
        body = await self._client.request("GET", resource.collection(namespace), params=by_name)
        found = errors.decoded(_TEMPLATED, body, "the answer is no list").items
        template = bytes(found[0].spec.template) if found else b""
        try:
            return pod_json.decode(template)[0] if template else None
        except UNDECODABLE as error:
            raise errors.ApiError(0, "BadAnswer", f"the template is no pod: {error}") from error

    async def _path(self, namespace: str, ref: CrossVersionObjectReference) -> str:
        resource = await self._resource(ref)
        return resource.object(Key(namespace, ref.name), "scale")

    async def _resource(self, ref: CrossVersionObjectReference) -> paths.Resource:
        """Returns the resource of a target, for a path with a namespace.

        As in Kubernetes the server has no such path for a kind without namespaces: no HPA reaches beyond its own.
        """
        cache = self._caches.get(watched(ref))
        if cache is not None:
            return cache.kind.resource
        # A kind without a scale subresource is requested as well: the condition shows the error of the server.
        return (await self._discovery.resolve(ref.api_version, ref.kind)).resource

    def _offer(self, namespace: str, ref: CrossVersionObjectReference, scale: Scale, *, owner: str = "") -> None:
        """Updates the cached object from an answer of the server, which tells who has set the replicas of a write only.

        The watch may be silent for minutes until it is noticed.
        """
        cache, key = self._caches.get(watched(ref)), Key(namespace, ref.name)
        cached = cache.get(key) if cache is not None else None
        if cache is not None and cached is not None and cached.uid == scale.metadata.get("uid", cached.uid):
            known = msgspec.structs.replace(
                cached,
                resource_version=str(scale.metadata.get("resourceVersion", "")),
                replicas=scale.spec.replicas,
                status_replicas=scale.status.replicas,
                selector=scale.status.selector,
                owner=owner or cached.owner,
            )
            cache.offer(DecodedObject(key, known.resource_version, known))


def watched(ref: CrossVersionObjectReference) -> tuple[str, str]:
    """Returns group and kind of a target; as in Kubernetes the kind may be in lower case."""
    return _group_kind(ref.api_version, ref.kind)


@functools.lru_cache(maxsize=1024)
def _group_kind(api_version: str, kind: str) -> tuple[str, str]:
    return api_version.rpartition("/")[0], _SPELLED.get(kind, kind)


def decode(body: bytes) -> Scale:
    """Decodes a Scale, with its selector as canonical text.

    Raises ApiError for anything else, and for a selector that no LabelSelector can express: client-go converts it to a
    LabelSelector and back.
    """
    scale = errors.decoded(_SCALE, body, "the answer is no Scale")
    status = msgspec.structs.replace(scale.status, selector=_canonical(scale.status.selector))
    return msgspec.structs.replace(scale, status=status)


def _canonical(text: str) -> str:
    if not text:
        return text
    try:
        parsed = selectors.parse(text)
    except selectors.SelectorTooLarge:
        return selectors.TOO_LARGE
    except selectors.SelectorError as error:
        raise _unconvertible(f'couldn\'t parse the selector string "{text}": {error}') from error
    try:
        return str(selectors.from_object(selectors.to_object(parsed)))
    except selectors.SelectorError as error:
        raise _unconvertible(str(error)) from error


def _unconvertible(problem: str) -> errors.ApiError:
    text = "received an object from a /scale endpoint which was not convertible to autoscaling Scale"
    return errors.ApiError(500, "BadSelector", f"{text}: failed to parse target selector: {problem}")
