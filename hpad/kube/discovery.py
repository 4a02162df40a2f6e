"""Finds the resource of a kind: by aggregated discovery (KEP-3352) of all groups at once, or else by separate requests.

The separate requests are `/api/v1`, `/apis/<group>` and `/apis/<group>/<version>`.
"""

import asyncio
from typing import Any, NamedTuple, TypeVar

import msgspec

from hpad.kube import errors, paths, watch
from hpad.kube.client import Client

T = TypeVar("T")
_RETRY_S = 10.0  # seconds between two requests for a kind that the server does not have
_MOST_GROUPS = 1024  # remembered groups: HPAs may name any number of groups that do not exist
_AGGREGATED = ",".join(
    [f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" for version in ("v2", "v2beta1")]
    + ["application/json"]
)
_UNREADABLE = "the answer to discovery is not understood"
_UNSUPPORTED = frozenset({403, 404, 406})


class DiscoveredKind(NamedTuple):
    """A kind and its resource; `has_scale`: the resource has a scale subresource."""

    resource: paths.Resource
    namespaced: bool
    has_scale: bool


class _Version(msgspec.Struct):
    version: str = ""


class _Group(msgspec.Struct, rename="camel"):
    versions: tuple[_Version, ...] = ()
    preferred_version: _Version = msgspec.field(default_factory=_Version)


class _Entry(msgspec.Struct):
    name: str = ""
    kind: str = ""
    namespaced: bool = False


class _Resources(msgspec.Struct):
    resources: tuple[_Entry, ...] | None = ()


class _AggregatedEntry(msgspec.Struct, rename="camel"):
    resource: str = ""
    response_kind: dict[str, str] | None = None
    scope: str = ""
    subresources: tuple[dict[str, Any], ...] = ()


class _AggregatedVersion(msgspec.Struct):
    version: str = ""
    freshness: str = ""
    resources: tuple[_AggregatedEntry, ...] = ()


class _AggregatedGroup(msgspec.Struct):
    metadata: watch.Meta = watch.Meta()
    versions: tuple[_AggregatedVersion, ...] = ()


class _Aggregated(msgspec.Struct):
    kind: str = ""
    items: tuple[_AggregatedGroup, ...] = ()


_ALL = msgspec.json.Decoder(_Aggregated)
_GROUP = msgspec.json.Decoder(_Group)
_RESOURCES = msgspec.json.Decoder(_Resources)


class ApiDiscovery:
    """Kinds by group. As in the HPA controller, the version in a reference does not matter.

    Results are kept until `forget`. For a missing kind, or one without scale subresource, the group is read again at
    most every 10 seconds; concurrent reconciles share the request.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, dict[str, DiscoveredKind]] = {}
        self._read_at: dict[str, float] = {}
        self._reading = asyncio.Lock()

    async def resolve(self, api_version: str, kind: str) -> DiscoveredKind:
        """Returns the resource of a kind. Raises ApiError, with reason "NoMatch" if the server does not have it."""
        group = group_of(api_version)
        found = self._known.get(group, {}).get(kind)
        if found is None or not found.has_scale:
            async with self._reading:
                if self._may_read(group):
                    await self._refresh(group)
                found = self._known.get(group, {}).get(kind)  # or the caller before has read the group
        if found is None:
            raise errors.ApiError(404, "NoMatch", f'no matches for kind "{kind}" in group "{group}"')
        return found

    def forget(self, api_version: str) -> None:
        """Forgets the group, which is read again on the next use. Called when the server lacks a resource of it."""
        if self._may_read(group_of(api_version)):
            self._known.pop(group_of(api_version), None)

    def _may_read(self, group: str) -> bool:
        read_at = self._read_at.get(group)
        return read_at is None or self._client.clock.monotonic() - read_at >= _RETRY_S

    async def _refresh(self, group: str) -> None:
        """Reads a group, and all others if aggregated discovery is supported."""
        found = await self._all(core=not group)
        if found is None or found.get(group, {}) is None:
            found = {group: await self._read(group)}
        now = self._client.clock.monotonic()
        for name, kinds in {group: {}, **found}.items():
            if kinds is not None:
                # Kinds in lower case count as well, as for the REST mappers of Kubernetes.
                self._known[name] = {**{kind.lower(): found for kind, found in kinds.items()}, **kinds}
                self._read_at.pop(name, None)  # so that the group becomes the latest of the dict
                self._read_at[name] = now
        for oldest in list(self._read_at)[:-_MOST_GROUPS]:
            del self._read_at[oldest]
            self._known.pop(oldest, None)

    async def _all(self, *, core: bool) -> dict[str, dict[str, DiscoveredKind] | None] | None:
        """Reads all groups, or the core group, by aggregated discovery; None if the server does not support it.

        A group is None if its aggregated API server does not answer: a request for that group returns the error.
        """
        try:
            body = await self._client.request("GET", "/api" if core else "/apis", accept=_AGGREGATED)
            answer = errors.decoded(_ALL, body, _UNREADABLE)
        except errors.ApiError as error:
            if error.status in _UNSUPPORTED or error.reason == "BadAnswer":
                return None
            raise
        if answer.kind != "APIGroupDiscoveryList":
            return None
        return {group.metadata.name: _kinds_of(group) for group in answer.items}

    async def _read(self, group: str) -> dict[str, DiscoveredKind]:
        """Reads all kinds of a group; for a kind in several versions the preferred version, or else the first."""
        kinds: dict[str, DiscoveredKind] = {}
        for version in await self._versions(group):
            for kind, found in (await self._kinds(group, version)).items():
                kinds.setdefault(kind, found)
        return kinds

    async def _versions(self, group: str) -> list[str]:
        if not group:
            return ["v1"]
        answer = await self._get(f"/apis/{group}", _GROUP) or _Group()
        names = [answer.preferred_version.version, *(each.version for each in answer.versions)]
        return [name for name in dict.fromkeys(names) if name]

    async def _kinds(self, group: str, version: str) -> dict[str, DiscoveredKind]:
        answer = await self._get(paths.Resource(group, version, "").root, _RESOURCES) or _Resources()
        entries = answer.resources or ()
        scaled = {entry.name.removesuffix("/scale") for entry in entries if entry.name.endswith("/scale")}
        return {
            entry.kind: DiscoveredKind(
                paths.Resource(group, version, entry.name, entry.kind), entry.namespaced, entry.name in scaled
            )
            for entry in entries
            if "/" not in entry.name
        }

    async def _get(self, path: str, decoder: msgspec.json.Decoder[T]) -> T | None:
        """Reads a document of discovery; None if the server does not have it."""
        try:
            return errors.decoded(decoder, await self._client.request("GET", path), _UNREADABLE)
        except errors.ApiError as error:
            if error.not_found:
                return None
            raise


def _kinds_of(group: _AggregatedGroup) -> dict[str, DiscoveredKind] | None:
    """Returns the kinds of a group, None if it is stale; the server lists the preferred version first."""
    if any(version.freshness == "Stale" for version in group.versions):
        return None
    kinds: dict[str, DiscoveredKind] = {}
    for version in group.versions:
        for entry in version.resources:
            kind = (entry.response_kind or {}).get("kind", "")
            resource = paths.Resource(group.metadata.name, version.version, entry.resource, kind)
            scaled = any(each.get("subresource") == "scale" for each in entry.subresources)
            kinds.setdefault(kind, DiscoveredKind(resource, entry.scope == "Namespaced", scaled))
    return kinds


def group_of(api_version: str) -> str:
    """Returns the group: "apps" of "apps/v1", "" of "v1" (the core group). Raises ApiError for invalid text."""
    if api_version.count("/") > 1:
        message = f"invalid API version in scale target reference: unexpected GroupVersion string: {api_version}"
        raise errors.ApiError(400, "BadRequest", message)
    return api_version.rpartition("/")[0]
