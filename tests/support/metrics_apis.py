"""Serves the three metrics APIs as an aggregated API server does, with values set by a test."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import trustme
from aiohttp import web

Json = dict[str, Any]
RESOURCE, CUSTOM, EXTERNAL = "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"
VERSIONS = {RESOURCE: "v1beta1", CUSTOM: "v1beta2", EXTERNAL: "v1beta1"}


class Load:
    """The values; a metric without a value is missing. The value of a pod is that of its label `app`.

    - `usage`: CPU by app, then by container.
    - `memory`: of each container, by app; 32Mi where nothing is said.
    - `pods`: by app and metric.
    - `objects`: by resource, name and metric.
    - `external`: by metric.
    - `failing`: API groups that answer 503.
    """

    def __init__(self) -> None:
        self.usage: dict[str, dict[str, str]] = {}
        self.memory: dict[str, str] = {}
        self.pods: dict[tuple[str, str], str] = {}
        self.objects: dict[tuple[str, str, str], str] = {}
        self.external: dict[str, str] = {}
        self.failing: set[str] = set()


@contextlib.asynccontextmanager
async def serving(load: Load, pods: Callable[[], Sequence[Json]]) -> AsyncIterator[int]:
    """Serves the values over TLS for the pods; yields the port on loopback."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    app = web.Application()
    app.router.add_get("/apis/{group}/{version}", _resources)
    answers = _Answers(load, pods)
    root = "/apis/{group}/{version}/namespaces/{namespace}"
    app.router.add_get("/apis/metrics.k8s.io/{version}/pods", answers.usage)
    app.router.add_get("/apis/metrics.k8s.io/{version}/namespaces/{namespace}/pods", answers.usage)
    app.router.add_get(f"{root}/{{metric}}", answers.external)
    app.router.add_get(f"{root}/pods/*/{{metric}}", answers.of_pods)
    app.router.add_get(f"{root}/{{resource}}/{{name}}/{{metric}}", answers.of_object)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def _resources(request: web.Request) -> web.Response:
    group, version = request.match_info["group"], request.match_info["version"]
    listed = [{"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}]
    found = listed if group == RESOURCE else []
    body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}", "resources": found}
    return web.json_response(body)


class _Answers:
    def __init__(self, load: Load, pods: Callable[[], Sequence[Json]]) -> None:
        self._load = load
        self._pods = pods

    async def usage(self, request: web.Request) -> web.Response:
        if RESOURCE in self._load.failing:
            return _unavailable()
        items = []
        for pod in self._chosen(request):
            app = pod["metadata"]["labels"]["app"]
            containers, memory = self._load.usage.get(app, {}), self._load.memory.get(app, "32Mi")
            head = {name: pod["metadata"][name] for name in ("name", "namespace", "labels")}
            used = [{"name": name, "usage": {"cpu": cpu, "memory": memory}} for name, cpu in containers.items()]
            if used:
                items.append({"metadata": head, "timestamp": _now(), "window": "30s", "containers": used})
        return _list("PodMetricsList", RESOURCE, items)

    async def external(self, request: web.Request) -> web.Response:
        if EXTERNAL in self._load.failing:
            return _unavailable()
        metric = request.match_info["metric"]
        if metric not in self._load.external:
            return _refusal(404, "NotFound", f"the server could not find the metric {metric}")
        value = self._load.external[metric]
        items = [{"metricName": metric, "metricLabels": {}, "timestamp": _now(), "value": value}]
        return _list("ExternalMetricValueList", EXTERNAL, items)

    async def of_pods(self, request: web.Request) -> web.Response:
        if CUSTOM in self._load.failing:
            return _unavailable()
        metric = request.match_info["metric"]
        items = [
            _value("Pod", pod["metadata"]["name"], metric, value)
            for pod in self._chosen(request)
            if (value := self._load.pods.get((pod["metadata"]["labels"]["app"], metric))) is not None
        ]
        if not items:
            return _refusal(404, "NotFound", f"the server could not find the metric {metric} for pods")
        return _list("MetricValueList", CUSTOM, items)

    async def of_object(self, request: web.Request) -> web.Response:
        if CUSTOM in self._load.failing:
            return _unavailable()
        resource, name, metric = (request.match_info[part] for part in ("resource", "name", "metric"))
        value = self._load.objects.get((resource, name, metric))
        if value is None:
            return _refusal(404, "NotFound", f"the server could not find the metric {metric} for {resource}")
        return _list("MetricValueList", CUSTOM, [_value(resource, name, metric, value)])

    def _chosen(self, request: web.Request) -> list[Json]:
        """Returns the pods of the namespace and of the label selector, which has equalities only."""
        selector, namespace = request.query.get("labelSelector", ""), request.match_info.get("namespace")
        labels = dict(term.split("=", 1) for term in selector.split(",") if term)
        found = [pod for pod in self._pods() if labels.items() <= pod["metadata"]["labels"].items()]
        return [pod for pod in found if namespace in (None, pod["metadata"]["namespace"])]


def _value(kind: str, name: str, metric: str, value: str) -> Json:
    described = {"kind": kind, "name": name, "apiVersion": "v1"}
    return {"describedObject": described, "metric": {"name": metric}, "timestamp": _now(), "value": value}


def _list(kind: str, group: str, items: list[Json]) -> web.Response:
    body = {"kind": kind, "apiVersion": f"{group}/{VERSIONS[group]}", "metadata": {}, "items": items}
    return web.json_response(body)


def _unavailable() -> web.Response:
    return _refusal(503, "ServiceUnavailable", "the metrics API is down")


def _refusal(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
    return web.json_response({**body, "reason": reason, "message": message}, status=code)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
