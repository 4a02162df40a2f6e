"""The metrics APIs of Kubernetes: custom.metrics.k8s.io, external.metrics.k8s.io and metrics.k8s.io.

Reference: k8s.io/metrics, APIs custom.metrics.k8s.io/v1beta2 (v1beta1 is supported too),
external.metrics.k8s.io/v1beta1 and metrics.k8s.io, v1beta1 and v1 (KEP-5207).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeVar
from urllib.parse import quote

import msgspec

from hpad.adapter import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    PODS,
    RESOURCE,
    AdapterError,
    Answer,
    ApiReader,
    Context,
    CrossVersionObjectReference,
    ExternalMetricValueList,
    ExternalSample,
    MetricValueList,
    PodMetrics,
    PodMetricsList,
    PodSample,
    Query,
    Sample,
    custom_pod_sample,
    external_sample,
    fetch_failed,
    object_sample,
    or_error,
    pod_sample,
    shown,
)
from hpad.adapter_http import UNDECODABLE
from hpad_adapters import lists

T = TypeVar("T")
_CONCURRENCY = 16
_API = "custom"
_GROUP = "custom.metrics.k8s.io"
_VERSIONS = (f"{_GROUP}/v1beta2", f"{_GROUP}/v1beta1")
_RESOURCE_GROUP = "metrics.k8s.io"
_RESOURCE_VERSIONS = (f"{_RESOURCE_GROUP}/v1", f"{_RESOURCE_GROUP}/v1beta1")
"""Both have the same fields."""
_NOT_SERVED = "the server could not find the requested resource"
"""What the API server says of a version that it does not serve."""


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
_VALUES = msgspec.json.Decoder(MetricValueList)


def _segment(text: str) -> str:
    """Returns a name as a segment of a path; raises AdapterError for one that would name another path.

    Kubernetes refuses the same (apimachinery, pkg/api/validation/path: IsValidPathSegmentName).
    """
    if text in (".", "..") or "/" in text or "%" in text:
        raise AdapterError(f"{shown(text)} cannot be part of a path: it is . or .., or contains / or %", "spec")
    return quote(text, safe="")


class _NoListError(AdapterError):
    """The answer of an API cannot be decoded."""


class _ListReader:
    """Reads one of the APIs ("resource", "custom" or "external"), which its errors name."""

    def __init__(self, api: str, settings: lists.Settings, context: Context) -> None:
        self._api = api
        self._timeout = context.within(settings.timeout_seconds())
        self._server: ApiReader | None = context.api
        self._semaphore = asyncio.Semaphore(_CONCURRENCY)

    async def read(self, path: str, params: Mapping[str, str], decoder: msgspec.json.Decoder[T]) -> T:
        """Returns the decoded body; empty parameters are left out.

        Raises AdapterError with the text of Kubernetes and the message of the API server.
        """
        if self._server is None:
            raise fetch_failed(self._api, "hpad runs without an API server; answer this metric from another source")
        parameters = {name: value for name, value in params.items() if value}
        try:
            async with self._semaphore, asyncio.timeout(self._timeout):
                body = await self._server.get(path, parameters)
            return decoder.decode(lists.sized(body))
        except AdapterError as error:
            message = fetch_failed(self._api, error.message).message
            raise AdapterError(message, error.blame, lasting=error.lasting) from None
        except TimeoutError:
            raise fetch_failed(self._api, f"no answer within {self._timeout:g}s") from None
        except UNDECODABLE as error:
            message = fetch_failed(self._api, f"the answer is not a list of metrics: {error}").message
            raise _NoListError(message) from None


class CustomMetrics:
    """Pods and Object metrics of the API custom.metrics.k8s.io, which prometheus-adapter and others serve.

    Each metric of an object, and each metric and selector of pods, is one request, as in Kubernetes: values of pods
    have no labels, so that only the API can select them.
    """

    serves: ClassVar[frozenset[str]] = frozenset({PODS, OBJECT})
    Settings: ClassVar[type[lists.Settings]] = lists.Settings

    def __init__(self, configured: lists.Settings, context: Context) -> None:
        self._reader = _ListReader(_API, configured, context)
        self._version: str | None = None
        self._plurals: dict[tuple[str, str], str] = {}
        self._discovering = asyncio.Lock()

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a value per selected pod, or the object's; timestamps and windows are the server's own.

        Raises AdapterError if the server has no version of the API.
        """
        version = await self._preferred_version() if queries else ""
        answers = list(await asyncio.gather(*(or_error(self._one, query, version) for query in queries)))
        if any(isinstance(each, AdapterError) and _NOT_SERVED in each.message for each in answers):
            self._version = None  # after an upgrade of the metrics server it may be gone
        return answers

    async def aclose(self) -> None:
        """Does nothing: hpad closes its client of the API server."""

    async def _one(self, query: Query, version: str) -> Sample:
        namespace, metric = _segment(query.namespace), _segment(query.name)
        root = f"/apis/{version}/namespaces/{namespace}"
        selector = {"metricLabelSelector": "" if query.selector is None else str(query.selector)}
        if query.object is not None:
            # The API has a form of its own for a Namespace, which can only be that of the HPA.
            name = _segment(query.object.name)
            what = "metrics" if _is_namespace(query.object) else f"{await self._resource(query.object)}/{name}"
            return object_sample((await self._reader.read(f"{root}/{what}/{metric}", selector, _VALUES)).items or ())
        pods = {"labelSelector": "" if query.pods is None else str(query.pods), **selector}
        return custom_pod_sample((await self._reader.read(f"{root}/pods/*/{metric}", pods, _VALUES)).items or ())

    async def _resource(self, reference: CrossVersionObjectReference) -> str:
        """Returns the name of that kind in a path, such as "ingresses.networking.k8s.io"."""
        group, plural = _group_of(reference), await self._plural(reference)
        return f"{plural}.{group}" if group else plural

    async def _plural(self, reference: CrossVersionObjectReference) -> str:
        """Returns the resource of a kind, by discovery; cached, because it does not change.

        As in Kubernetes, the group of a reference counts, its version does not, and the kind may be in lower case.
        """
        group, kind = _group_of(reference), reference.kind
        async with self._discovering:
            if (group, kind) not in self._plurals:
                self._plurals[group, kind] = await self._found(group, kind)
        return self._plurals[group, kind]

    async def _found(self, group: str, kind: str) -> str:
        for root in await self._roots(group):
            answer = await self._reader.read(root, {}, _RESOURCES)
            for each in answer.resources:
                # A name with a slash is a subresource, such as ingresses/status.
                if kind in (each.kind, each.kind.lower()) and "/" not in each.name:
                    return each.name
        what = f"{kind}.{group}" if group else kind
        text = f'unable to map kind {what} to resource: no matches for kind "{kind}" in group "{group}"'
        raise AdapterError(fetch_failed(_API, text).message, "spec")

    async def _roots(self, group: str) -> list[str]:
        """Returns the paths with the resources of a group, its preferred version first; [] for an unknown group."""
        if not group:
            return ["/api/v1"]
        found = await self._group(group)
        return [] if found is None else [f"/apis/{version}" for version in found.offered]

    async def _group(self, name: str) -> _Group | None:
        answer = await self._reader.read("/apis", {}, _GROUPS)
        return next((each for each in answer.groups if each.name == name), None)

    async def _preferred_version(self) -> str:
        """Returns the server's preferred version among the supported ones; cached while it is served."""
        if self._version is None:
            group = await self._group(_GROUP)
            if group is None:
                raise fetch_failed(_API, f"no custom metrics API ({_GROUP}) registered")
            supported = [version for version in group.offered if version in _VERSIONS]
            if not supported:
                raise fetch_failed(_API, "no known available metric versions found")
            self._version = supported[0]
        return self._version


def _group_of(reference: CrossVersionObjectReference) -> str:
    group, slash, _ = reference.api_version.partition("/")
    return group if slash else ""


def _is_namespace(reference: CrossVersionObjectReference) -> bool:
    return reference.kind == "Namespace" and not _group_of(reference)


_SERIES = msgspec.json.Decoder(ExternalMetricValueList)


class ExternalMetrics:
    """External metrics of the API external.metrics.k8s.io, which one server per cluster serves.

    Each metric and selector is one request. The API has no list of several metrics, and a list without a selector could
    not be divided here: the selector also determines which series go into a value, or (with KEDA) which server answers.
    """

    serves: ClassVar[frozenset[str]] = frozenset({EXTERNAL})
    Settings: ClassVar[type[lists.Settings]] = lists.Settings

    def __init__(self, configured: lists.Settings, context: Context) -> None:
        self._reader = _ListReader("external", configured, context)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns the values of all series that the metric's selector matches."""
        return list(await asyncio.gather(*(or_error(self._one, query) for query in queries)))

    async def aclose(self) -> None:
        """Does nothing: hpad closes its client of the API server."""

    async def _one(self, query: Query) -> ExternalSample:
        namespace, name = _segment(query.namespace), _segment(query.name)
        path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{name}"
        selector = "" if query.selector is None else str(query.selector)
        return external_sample((await self._reader.read(path, {"labelSelector": selector}, _SERIES)).items or ())


_PODS = msgspec.json.Decoder(PodMetricsList)
_Pods = lists.LabelIndex[PodMetrics]


class MetricsServer:
    """CPU and memory of pods and containers, from the metrics API of Kubernetes (metrics-server)."""

    serves: ClassVar[frozenset[str]] = frozenset({RESOURCE, CONTAINER_RESOURCE})
    ignores_containers = True
    Settings: ClassVar[type[lists.Settings]] = lists.Settings

    def __init__(self, configured: lists.Settings, context: Context) -> None:
        self._reader = _ListReader("resource", configured, context)
        self._version = f"{_RESOURCE_GROUP}/v1beta1"

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a value per selected pod that reports; timestamps and windows are the server's own.

        One list per namespace serves all its queries; pods are selected here, by their labels in the list.
        """
        namespaces = list(dict.fromkeys(query.namespace for query in queries))
        read = await asyncio.gather(*(or_error(self._pods, namespace) for namespace in namespaces))
        found = dict(zip(namespaces, read, strict=True))
        return [await or_error(self._answer, query, found[query.namespace]) for query in queries]

    def group(self, query: Query) -> str:
        """Returns the namespace, which one list serves."""
        return query.namespace

    async def aclose(self) -> None:
        """Does nothing: hpad closes its client of the API server."""

    async def _pods(self, namespace: str) -> _Pods | None:
        """Returns the pods of a namespace; None where the server is to select them, with one list per query.

        A pod that cannot be decoded then fails no query but those that select it. Some servers leave out the labels.
        """
        try:
            pods = _Pods(await self._read(namespace), lambda item: item.metadata.labels)
        except _NoListError:
            return None
        return None if pods.unlabelled else pods

    async def _read(self, namespace: str, selector: str = "") -> Sequence[PodMetrics]:
        """Lists in the version that was served last; where it is gone, in another one that the server has."""
        version = self._version
        try:
            return await self._list(version, namespace, selector)
        except AdapterError as error:
            if _NOT_SERVED not in error.message:
                raise
            served = await self._served(version)
            if served == version:
                raise
        self._version = served
        return await self._list(served, namespace, selector)

    async def _list(self, version: str, namespace: str, selector: str) -> Sequence[PodMetrics]:
        path = f"/apis/{version}/namespaces/{quote(namespace, safe='')}/pods"
        return (await self._reader.read(path, {"labelSelector": selector}, _PODS)).items or ()

    async def _served(self, present: str) -> str:
        """Returns a version that the server has; the present one if it has none that is known here."""
        found = (await self._reader.read("/apis", {}, _GROUPS)).groups
        offered = {version for group in found if group.name == _RESOURCE_GROUP for version in group.offered}
        return next((version for version in _RESOURCE_VERSIONS if version in offered), present)

    async def _answer(self, query: Query, pods: _Pods | AdapterError | None) -> PodSample:
        if isinstance(pods, AdapterError):
            raise pods
        if query.pods is None:
            raise AdapterError(f'{query.type} metric "{query.name}" comes without a selector of pods', "bug")
        selected = await self._read(query.namespace, str(query.pods)) if pods is None else pods.select(query.pods)
        return pod_sample(selected, query.name, query.container, query.ignored_containers)
