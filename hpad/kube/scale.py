"""Reads and writes the scale subresource of any kind; reads watched objects from their caches."""

import functools
import math
import operator
from collections.abc import Mapping

import msgspec

from hpad.api import selector
from hpad.api.hpa import CrossVersionObjectReference, Scale
from hpad.api.metadata import Key
from hpad.kube import codec, discovery, errors, managed_fields, paths
from hpad.kube.cache import Cache
from hpad.kube.client import Allowed, Client
from hpad.kube.codec import DecodedObject, WatchedTarget
from hpad.kube.reflector import Kind

_VERSION = operator.attrgetter("resource_version")
WATCHED: tuple[Kind[WatchedTarget], ...] = (
    Kind(paths.DEPLOYMENTS, codec.target, _VERSION),
    Kind(paths.REPLICA_SETS, codec.target, _VERSION),
    Kind(paths.STATEFUL_SETS, codec.target, _VERSION),
    Kind(paths.REPLICATION_CONTROLLERS, codec.replication_controller, _VERSION),
)
"""The built-in kinds with a scale subresource."""

_SPELLED = {kind.resource.kind.lower(): kind.resource.kind for kind in WATCHED}
_SCALE = msgspec.json.Decoder(Scale)


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
        return self._take_answer(namespace, ref, decode(body))

    async def write(
        self, namespace: str, ref: CrossVersionObjectReference, scale: Scale, allowed: Allowed | None = None
    ) -> Scale:
        """Writes the scale in one attempt, with the resourceVersion in `scale.metadata`. Raises ApiError.

        A success updates the cached object at once, before the watch delivers the change.
        """
        path = await self._path(namespace, ref)
        body = await self._client.request("PUT", path, body=msgspec.json.encode(scale), allowed=allowed)
        return self._take_answer(namespace, ref, decode(body), written=True)

    async def _path(self, namespace: str, ref: CrossVersionObjectReference) -> str:
        cache = self._caches.get(watched(ref))
        if cache is not None:
            return cache.kind.resource.object(Key(namespace, ref.name), "scale")
        # A kind without a scale subresource is requested as well: the condition shows the error of the server.
        found = await self._discovery.resolve(ref.api_version, ref.kind)
        return found.resource.object(Key(namespace if found.namespaced else "", ref.name), "scale")

    def _take_answer(
        self, namespace: str, ref: CrossVersionObjectReference, scale: Scale, *, written: bool = False
    ) -> Scale:
        """Updates the cached object from an answer of the server; returns the answer."""
        cache, key = self._caches.get(watched(ref)), Key(namespace, ref.name)
        cached = cache.get(key) if cache is not None else None
        if cache is not None and cached is not None and cached.uid == scale.metadata.get("uid", cached.uid):
            known = msgspec.structs.replace(
                cached,
                resource_version=str(scale.metadata.get("resourceVersion", "")),
                replicas=scale.spec.replicas,
                status_replicas=scale.status.replicas,
                selector=scale.status.selector,
                owner=managed_fields.OURS if written else cached.owner,
            )
            cache.offer(DecodedObject(key, known.resource_version, known))
        return scale


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
        parsed = selector.parse(text)
    except selector.SelectorTooLarge:
        return selector.TOO_LARGE
    except selector.SelectorError as error:
        raise _unconvertible(f'couldn\'t parse the selector string "{text}": {error}') from error
    try:
        return str(selector.from_object(selector.to_object(parsed)))
    except selector.SelectorError as error:
        raise _unconvertible(str(error)) from error


def _unconvertible(problem: str) -> errors.ApiError:
    text = "received an object from a /scale endpoint which was not convertible to autoscaling Scale"
    return errors.ApiError(500, "BadSelector", f"{text}: failed to parse target selector: {problem}")
