"""Finds the resource of a kind: by aggregated discovery (KEP-3352) of all groups at once, or else by separate requests.

The separate requests are `/api/v1`, `/apis/<group>` and `/apis/<group>/<version>`.
"""

import asyncio
from typing import NamedTuple, TypeVar

import msgspec

from hpad.kube import errors, paths
from hpad.kube.client import Client

S = TypeVar("S")
_RETRY_S = 10.0  # between two requests for a kind that the server does not have
_MOST_GROUPS = 1024  # remembered groups; HPAs may name any number of groups that do not exist
_AGGREGATED = ",".join(
    [f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" for version in ("v2", "v2beta1")]
    + ["application/json"]
)
_BAD_ANSWER = "BadAnswer"
_UNSUPPORTED = frozenset({403, 404, 406})


class Found(NamedTuple):
    """The result of discovery for a kind."""

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


class _Subresource(msgspec.Struct, rename="camel"):
    subresource: str = ""


class _ResponseKind(msgspec.Struct):
    kind: str = ""


class _AggregatedEntry(msgspec.Struct, rename="camel"):
    resource: str = ""
    response_kind: _ResponseKind | None = None
    scope: str = ""
    subresources: tuple[_Subresource, ...] = ()


class _AggregatedVersion(msgspec.Struct):
    version: str = ""
    freshness: str = ""
    resources: tuple[_AggregatedEntry, ...] = ()


class _Named(msgspec.Struct):
    name: str = ""


class _AggregatedGroup(msgspec.Struct):
    metadata: _Named = msgspec.field(default_factory=_Named)
    versions: tuple[_AggregatedVersion, ...] = ()


class _Aggregated(msgspec.Struct):
    kind: str = ""
    items: tuple[_AggregatedGroup, ...] = ()


_ALL = msgspec.json.Decoder(_Aggregated)
_GROUP = msgspec.json.Decoder(_Group)
_RESOURCES = msgspec.json.Decoder(_Resources)


class Discovery:
    """Kinds by group. As in the HPA controller, the version in a reference does not matter.

    Found kinds are kept until `forget`. For a missing kind, or one without scale subresource, the group is read again
    at most every 10 seconds; concurrent reconciles share the request.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, dict[str, Found]] = {}
        self._asked: dict[str, float] = {}
        self._asking = asyncio.Lock()

    async def resolve(self, api_version: str, kind: str) -> Found:
        """The resource of a kind. Raises ApiError, with reason "NoMatch" if the server does not have the kind."""
        group = group_of(api_version)
        found = self._known.get(group, {}).get(kind)
        if found is None or not found.has_scale:
            async with self._asking:
                if self._may_ask(group):
                    await self._refresh(group)
                found = self._known.get(group, {}).get(kind)
        if found is None:
            raise errors.ApiError(404, "NoMatch", f'no matches for kind "{kind}" in group "{group}"')
        return found

    def forget(self, api_version: str) -> None:
        """Called when the server does not have a found resource any more: the group is read again on the next use."""
        if self._may_ask(group_of(api_version)):
            self._known.pop(group_of(api_version), None)

    def _may_ask(self, group: str) -> bool:
        asked = self._asked.get(group)
        return asked is None or self._client.clock.monotonic() - asked >= _RETRY_S

    async def _refresh(self, group: str) -> None:
        """Reads a group, and all others if aggregated discovery is supported."""
        found = await self._all(core=not group)
        if found is None or found.get(group, {}) is None:
            found = {group: await self._read(group)}
        now = self._client.clock.monotonic()
        for name, kinds in {group: {}, **found}.items():
            if kinds is not None:
                self._known[name] = _with_lower_case(kinds)
                self._asked.pop(name, None)
                self._asked[name] = now
        for oldest in list(self._asked)[:-_MOST_GROUPS]:
            del self._asked[oldest]
            self._known.pop(oldest, None)

    async def _all(self, *, core: bool) -> dict[str, dict[str, Found] | None] | None:
        """All groups, or the core group, of aggregated discovery; None if the server does not support it.

        A group is None if its aggregated API server does not answer: a request for that group shows the error.
        """
        try:
            body = await self._client.request("GET", "/api" if core else "/apis", accept=_AGGREGATED)
            answer = _decoded(_ALL, body)
        except errors.ApiError as error:
            if error.status in _UNSUPPORTED or error.reason == _BAD_ANSWER:
                return None
            raise
        if answer.kind != "APIGroupDiscoveryList":
            return None
        return {group.metadata.name: _kinds_of(group) for group in answer.items}

    async def _read(self, group: str) -> dict[str, Found]:
        """All kinds of a group; for a kind in several versions the preferred version, or else the first."""
        kinds: dict[str, Found] = {}
        for version in await self._versions(group):
            for kind, found in (await self._kinds(group, version)).items():
                kinds.setdefault(kind, found)
        return kinds

    async def _versions(self, group: str) -> list[str]:
        if not group:
            return ["v1"]
        try:
            body = await self._client.request("GET", f"/apis/{group}")
        except errors.ApiError as error:
            if error.not_found:
                return []
            raise
        answer = _decoded(_GROUP, body)
        names = [answer.preferred_version.version, *(each.version for each in answer.versions)]
        return [name for name in dict.fromkeys(names) if name]

    async def _kinds(self, group: str, version: str) -> dict[str, Found]:
        root = paths.Resource(group, version, "").root
        try:
            answer = _decoded(_RESOURCES, await self._client.request("GET", root))
        except errors.ApiError as error:
            if error.not_found:
                return {}
            raise
        entries = answer.resources or ()
        scaled = {entry.name.removesuffix("/scale") for entry in entries if entry.name.endswith("/scale")}
        return {
            entry.kind: Found(
                paths.Resource(group, version, entry.name, entry.kind), entry.namespaced, entry.name in scaled
            )
            for entry in entries
            if "/" not in entry.name
        }


def _kinds_of(group: _AggregatedGroup) -> dict[str, Found] | None:
    """The kinds of a group, None if it is stale; the server lists the preferred version first."""
    if any(version.freshness == "Stale" for version in group.versions):
        return None
    kinds: dict[str, Found] = {}
    for version in group.versions:
        for entry in version.resources:
            kind = entry.response_kind.kind if entry.response_kind is not None else ""
            resource = paths.Resource(group.metadata.name, version.version, entry.resource, kind)
            scaled = any(each.subresource == "scale" for each in entry.subresources)
            kinds.setdefault(kind, Found(resource, entry.scope == "Namespaced", scaled))
    return kinds


def _with_lower_case(kinds: dict[str, Found]) -> dict[str, Found]:
    """Adds each kind in lower case, as the REST mappers of Kubernetes do."""
    return {**{kind.lower(): found for kind, found in kinds.items()}, **kinds}


def group_of(api_version: str) -> str:
    """`apps/v1` -> `apps`, `v1` -> `` (the core group). Raises ApiError for an invalid apiVersion."""
    if api_version.count("/") > 1:
        message = f"invalid API version in scale target reference: unexpected GroupVersion string: {api_version}"
        raise errors.ApiError(400, "BadRequest", message)
    return api_version.rpartition("/")[0]


def _decoded(decoder: msgspec.json.Decoder[S], body: bytes) -> S:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.ApiError(0, _BAD_ANSWER, f"the answer to discovery is not understood: {error}") from error
