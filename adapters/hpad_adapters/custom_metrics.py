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
        """The resource of a kind, by discovery; kept, since it does not change."""
        version, kind = reference.api_version or "v1", reference.kind
        if (version, kind) not in self._plurals:
            root = "/apis" if "/" in version else "/api"
            answer = await self._reader.read(f"{root}/{version}", {}, _RESOURCES)
            found = [each.name for each in answer.resources if each.kind == kind and "/" not in each.name]
            if not found:
                raise fetch_failed(_API, f'no matches for kind "{kind}" in version "{version}"')
            self._plurals[version, kind] = found[0]
        return self._plurals[version, kind]

    async def _preferred_version(self) -> str:
        """The version that the server prefers among those spoken here; kept once there is one."""
        if self._version is None:
            answer = await self._reader.read("/apis", {}, _GROUPS)
            group = next((each for each in answer.groups if each.name == _GROUP), None)
            if group is None:
                raise fetch_failed(_API, f"no custom metrics API ({_GROUP}) registered")
            offered = [each.group_version for each in (group.preferred_version, *group.versions) if each is not None]
            spoken = [version for version in offered if version in _VERSIONS]
            if not spoken:
                raise fetch_failed(_API, "no known available metric versions found")
            self._version = spoken[0]
        return self._version
