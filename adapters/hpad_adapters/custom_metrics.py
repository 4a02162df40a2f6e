"""Metrics of pods and other objects from custom.metrics.k8s.io, which prometheus-adapter and others serve.

Reference: k8s.io/metrics, API custom.metrics.k8s.io/v1beta2 (v1beta1 is spoken too).
"""

import asyncio
from collections.abc import Sequence
from typing import ClassVar
from urllib.parse import quote

import msgspec

from hpad.adapter import (
    OBJECT,
    PODS,
    AdapterError,
    Answer,
    Context,
    CrossVersionObjectReference,
    MetricValueList,
    Query,
    custom_pod_sample,
    fetch_failed,
    object_sample,
)
from hpad_adapters import lists

_API = "custom"
_GROUP = "custom.metrics.k8s.io"
_VERSIONS = (f"{_GROUP}/v1beta2", f"{_GROUP}/v1beta1")


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str = ""


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    versions: tuple[_Version, ...] = ()
    preferred_version: _Version | None = None

    @property
    def offered(self) -> list[str]:
        """Its versions as "group/version", the preferred one first."""
        named = [each.group_version for each in (self.preferred_version, *self.versions) if each is not None]
        return list(dict.fromkeys(named))


class _Groups(msgspec.Struct, frozen=True):
    groups: tuple[_Group, ...] = ()


class _Resource(msgspec.Struct, frozen=True):
    name: str = ""
    kind: str = ""


class _Resources(msgspec.Struct, frozen=True):
    resources: tuple[_Resource, ...] = ()


_GROUPS = msgspec.json.Decoder(_Groups)
_RESOURCES = msgspec.json.Decoder(_Resources)
_LIST = msgspec.json.Decoder(MetricValueList)


class CustomMetrics:
    """Pods and Object metrics of any name, one request each: the API has no list of several."""

    serves: ClassVar[frozenset[str]] = frozenset({PODS, OBJECT})
    Settings: ClassVar[type[lists.Settings]] = lists.Settings

    def __init__(self, configured: lists.Settings, context: Context) -> None:
        self._reader = lists.Reader(_API, configured, context)
        self._version: str | None = None
        self._plurals: dict[tuple[str, str], str] = {}

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """A value per selected pod, or the object's; timestamps and windows are the server's own."""
        try:
            version = await self._preferred_version() if queries else ""
        except AdapterError as error:
            return [error] * len(queries)
        return list(await asyncio.gather(*(self._one(query, version) for query in queries)))

    async def aclose(self) -> None:
        """Nothing of its own is open."""

    async def _one(self, query: Query, version: str) -> Answer:
        namespace, metric = quote(query.namespace, safe=""), quote(query.name, safe="")
        root = f"/apis/{version}/namespaces/{namespace}"
        selector = {"metricLabelSelector": "" if query.selector is None else str(query.selector)}
        try:
            if query.object is not None:
                what = await self._object(query.object)
                return object_sample((await self._reader.read(f"{root}/{what}/{metric}", selector, _LIST)).items or ())
            pods = {"labelSelector": "" if query.pods is None else str(query.pods), **selector}
            return custom_pod_sample((await self._reader.read(f"{root}/pods/*/{metric}", pods, _LIST)).items or ())
        except AdapterError as error:
            return error

    async def _object(self, reference: CrossVersionObjectReference) -> str:
        """The part of the path that names the object; a Namespace can only be the HPA's own."""
        group, slash, _ = reference.api_version.partition("/")
        group = group if slash else ""
        if reference.kind == "Namespace" and not group:
            return "metrics"
        plural = await self._plural(reference)
        return (
            f"{plural}.{group}/{quote(reference.name, safe='')}"
            if group
            else f"{plural}/{quote(reference.name, safe='')}"
        )

    async def _plural(self, reference: CrossVersionObjectReference) -> str:
        """The resource of a kind, by discovery; kept, since it does not change.

        As in Kubernetes the version in a reference does not matter, the group does.
        """
        version, slash, _ = reference.api_version.partition("/")
        group, kind = version if slash else "", reference.kind
        if (group, kind) not in self._plurals:
            self._plurals[group, kind] = await self._found(group, kind)
        return self._plurals[group, kind]

    async def _found(self, group: str, kind: str) -> str:
        for root in await self._roots(group):
            answer = await self._reader.read(root, {}, _RESOURCES)
            for each in answer.resources:
                if each.kind == kind and "/" not in each.name:
                    return each.name
        what = f"{kind}.{group}" if group else kind
        text = f'unable to map kind {what} to resource: no matches for kind "{kind}" in group "{group}"'
        raise AdapterError(fetch_failed(_API, text).message, "spec")

    async def _roots(self, group: str) -> list[str]:
        """Where the resources of a group are listed, those of its preferred version first; [] for an unknown group."""
        if not group:
            return ["/api/v1"]
        found = await self._group(group)
        return [] if found is None else [f"/apis/{version}" for version in found.offered]

    async def _group(self, name: str) -> _Group | None:
        answer = await self._reader.read("/apis", {}, _GROUPS)
        return next((each for each in answer.groups if each.name == name), None)

    async def _preferred_version(self) -> str:
        """The version that the server prefers among those spoken here; kept once there is one."""
        if self._version is None:
            group = await self._group(_GROUP)
            if group is None:
                raise fetch_failed(_API, f"no custom metrics API ({_GROUP}) registered")
            spoken = [version for version in group.offered if version in _VERSIONS]
            if not spoken:
                raise fetch_failed(_API, "no known available metric versions found")
            self._version = spoken[0]
        return self._version
