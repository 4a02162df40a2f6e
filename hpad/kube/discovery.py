"""Finds the resource of a kind by discovery: `/api/v1`, or `/apis/<group>` and `/apis/<group>/<version>`.

Aggregated discovery (KEP-3352) would answer for all groups at once, but servers before 1.27 do not have it, and the
targets of HPAs have one or two groups of custom resources.
"""

import asyncio
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from hpad.kube import errors, paths
from hpad.kube.client import Client

T = TypeVar("T")
_RETRY_S = 10.0  # seconds between two requests for a kind that the server does not have
_MOST_GROUPS = 1024  # remembered groups: HPAs may name any number of groups that do not exist
_UNREADABLE = "the answer to discovery is not understood"


class DiscoveredKind(NamedTuple):
    """A kind and its resource; `has_scale`: the resource has a scale subresource."""

    resource: paths.Resource
    has_scale: bool


class _Version(msgspec.Struct):
    version: str = ""


class _Group(msgspec.Struct, rename="camel"):
    versions: tuple[_Version, ...] = ()
    preferred_version: _Version = msgspec.field(default_factory=_Version)


class _Entry(msgspec.Struct):
    name: str = ""
    kind: str = ""


class _Resources(msgspec.Struct):
    resources: tuple[_Entry, ...] | None = ()


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
        kinds = await self._read(group)
        # Kinds in lower case count as well, as for the REST mappers of Kubernetes.
        self._known[group] = {**{kind.lower(): found for kind, found in kinds.items()}, **kinds}
        self._read_at.pop(group, None)  # so that the group becomes the latest of the dict
        self._read_at[group] = self._client.clock.monotonic()
        for oldest in list(self._read_at)[:-_MOST_GROUPS]:
            del self._read_at[oldest]
            self._known.pop(oldest, None)

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
        answer = await self._get(f"/apis/{quote(group, safe='')}", _GROUP) or _Group()  # authors of HPAs choose it
        names = [answer.preferred_version.version, *(each.version for each in answer.versions)]
        return [name for name in dict.fromkeys(names) if name]

    async def _kinds(self, group: str, version: str) -> dict[str, DiscoveredKind]:
        answer = await self._get(paths.Resource(group, version, "").root, _RESOURCES) or _Resources()
        entries = answer.resources or ()
        scaled = {entry.name.removesuffix("/scale") for entry in entries if entry.name.endswith("/scale")}
        return {
            entry.kind: DiscoveredKind(paths.Resource(group, version, entry.name, entry.kind), entry.name in scaled)
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


def group_of(api_version: str) -> str:
    """Returns the group: "apps" of "apps/v1", "" of "v1" (the core group). Raises ApiError for invalid text."""
    if api_version.count("/") > 1:
        message = f"invalid API version in scale target reference: unexpected GroupVersion string: {api_version}"
        raise errors.ApiError(400, "BadRequest", message)
    return api_version.rpartition("/")[0]
