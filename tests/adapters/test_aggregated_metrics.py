"""custom.metrics.k8s.io and external.metrics.k8s.io, as an API server with prometheus-adapter behind it answers."""

import urllib.parse
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from aiohttp import web

from hpad import clock as clocks
from hpad import testing
from hpad.adapter import AdapterError, Context, ExternalSample, ObjectSample, PodSample, PodValue
from hpad.kube import client
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.cluster import ApiReads
from hpad.sources.limits import CallLimits
from hpad.sources.source import QueriedSource
from hpad_adapters.lists import Settings
from hpad_adapters.metrics_apis import CustomMetrics, ExternalMetrics

TIME = datetime(2026, 1, 1, 12, tzinfo=UTC)
STAMP = "2026-01-01T12:00:00Z"
MINUTE = timedelta(minutes=1)
PATIENT = Settings(request_timeout="60s")
V1BETA2 = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default"


def groups(*versions: str, preferred: str | None = None) -> dict:
    spoken = [{"groupVersion": f"custom.metrics.k8s.io/{version}", "version": version} for version in versions]
    group = {"name": "custom.metrics.k8s.io", "versions": spoken}
    if preferred:
        group["preferredVersion"] = {"groupVersion": f"custom.metrics.k8s.io/{preferred}", "version": preferred}
    ingress = [{"groupVersion": f"networking.k8s.io/{version}", "version": version} for version in ("v1beta1", "v1")]
    networking = {"name": "networking.k8s.io", "versions": ingress, "preferredVersion": ingress[1]}
    return {"kind": "APIGroupList", "groups": [{"name": "apps", "versions": []}, networking, group]}


def custom(*values: tuple[str, str], **more: object) -> dict:
    items = [
        {"describedObject": {"kind": "Pod", "name": name}, "timestamp": STAMP, "value": value, **more}
        for name, value in values
    ]
    return {"kind": "MetricValueList", "items": items}


def refusal(code: int, reason: str, message: str, **more: object) -> dict:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, **more}


def external(*values: str) -> dict:
    return {"items": [{"metricName": "depth", "timestamp": STAMP, "value": value} for value in values]}


class Server:
    """Answers by path; an unknown path is a 404 with a plain text, as from the aggregation layer."""

    def __init__(self, stub, context: Context) -> None:
        self.context = context
        self.stub = stub
        self.refusals: dict[str, dict] = {}
        self.answers: dict[str, dict] = {"/apis": groups("v1beta1", "v1beta2", preferred="v1beta2")}
        stub.handler = self._handle

    @property
    def requests(self) -> list[str]:
        return [urllib.parse.unquote(request.raw_path) for request in self.stub.requests]

    async def _handle(self, request: web.Request) -> web.Response:
        if request.path in self.refusals:
            status = self.refusals[request.path]
            return web.json_response(status, status=status["code"])
        if request.path not in self.answers:
            return web.Response(status=404, text="404 page not found")
        return web.json_response(self.answers[request.path])


@pytest.fixture
async def server(stub) -> AsyncIterator[Server]:
    async with (
        client.Client(ClusterConfig(server=stub.url), clocks.SystemClock()) as api,
        testing.context("api", api=ApiReads(api)) as context,
    ):
        yield Server(stub, context)


async def test_an_external_metric_has_the_values_of_all_its_series(server):
    server.answers[f"{EXTERNAL}/depth"] = external("80", "1500m")
    adapter = ExternalMetrics(PATIENT, server.context)
    answers = await adapter.answer(
        [testing.external("depth", "queue in (a,b)"), testing.external("depth"), testing.external("depth", "")]
    )
    assert answers == [ExternalSample((80_000, 1500), TIME)] * 3
    assert sorted(server.requests) == [f"{EXTERNAL}/depth"] * 2 + [f"{EXTERNAL}/depth?labelSelector=queue in (a,b)"]


async def test_no_series_and_no_such_metric_have_the_errors_of_kubernetes(server):
    server.answers[f"{EXTERNAL}/depth"] = external()
    adapter = ExternalMetrics(PATIENT, server.context)
    nothing, unknown = await adapter.answer([testing.external("depth"), testing.external("dept")])
    assert nothing == AdapterError("no metrics returned from external metrics API")
    assert isinstance(unknown, AdapterError)
    assert unknown.message.startswith(
        "unable to fetch metrics from external metrics API: the server could not find the requested resource"
    )


NO_METRIC = refusal(404, "NotFound", "the server could not find the metric depth for namespaces")
NO_RESOURCE = refusal(404, "NotFound", "the server could not find the requested resource", details={})
FORBIDDEN = refusal(403, "Forbidden", 'depth.external.metrics.k8s.io is forbidden: User "hpad" cannot list resource')
AWAY = refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request")


@pytest.mark.parametrize(
    ("answer", "blame", "lasting"),
    [
        (NO_METRIC, "spec", True),
        (FORBIDDEN, "cluster", True),
        (NO_RESOURCE, "cluster", True),
        (None, "cluster", True),
        (AWAY, "cluster", False),
    ],
    ids=["no such metric", "not allowed", "no such resource", "no such API", "not available"],
)
async def test_the_error_blames_the_spec_or_the_cluster(server, answer, blame, lasting):
    paths = f"{EXTERNAL}/depth", f"{V1BETA2}/pods/*/depth"
    server.refusals = {} if answer is None else dict.fromkeys(paths, answer)
    [one] = await ExternalMetrics(PATIENT, server.context).answer([testing.external("depth")])
    [other] = await CustomMetrics(PATIENT, server.context).answer([testing.pods_metric("depth", "app=web")])
    for error, api in ((one, "external"), (other, "custom")):
        assert isinstance(error, AdapterError)
        assert (error.blame, error.lasting) == (blame, lasting)
        text = "the server could not find the requested resource" if answer is None else answer["message"]
        assert error.message.startswith(f"unable to fetch metrics from {api} metrics API: {text}")


class HurriedClock(clocks.SystemClock):
    """The system's clock, `ahead` seconds later."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@pytest.mark.parametrize(
    ("answer", "calls", "state"), [(NO_METRIC, 4, "ok"), (None, 3, "open")], ids=["no such metric", "no such API"]
)
async def test_a_metric_that_does_not_exist_opens_no_circuit_breaker(server, answer, calls, state):
    server.refusals = {} if answer is None else {f"{EXTERNAL}/depth": answer}
    clock = HurriedClock()
    source = QueriedSource(
        "api",
        ExternalMetrics(PATIENT, server.context),
        clock=clock,
        log=structlog.get_logger(),
        observer=lambda *_: None,
        limits=CallLimits(fresh=0.0, retries=2, failures=3, rest=15.0),
    )
    for _ in range(4):
        clock.ahead += 8.0
        assert isinstance(await source.ask(testing.external("depth")), AdapterError)
    assert len([path for path in server.requests if path.startswith(EXTERNAL)]) == calls
    assert source.report("external-metrics").state == state
    await source.aclose()


async def test_a_custom_metric_of_pods(server):
    server.answers[f"{V1BETA2}/pods/*/pps"] = custom(("web-1", "1k"), ("web-2", "10500m"))
    adapter = CustomMetrics(PATIENT, server.context)
    [answer] = await adapter.answer([testing.pods_metric("pps", "app=web", "verb=GET")])
    assert answer == PodSample(
        {"web-1": PodValue(1_000_000, TIME, MINUTE), "web-2": PodValue(10_500, TIME, MINUTE)}, TIME
    )
    assert server.requests == ["/apis", f"{V1BETA2}/pods/*/pps?labelSelector=app=web&metricLabelSelector=verb=GET"]


async def test_the_window_is_that_of_the_server(server):
    server.answers[f"{V1BETA2}/pods/*/pps"] = custom(("web-1", "1"), windowSeconds=90)
    [answer] = await CustomMetrics(PATIENT, server.context).answer([testing.pods_metric("pps", "app=web")])
    assert isinstance(answer, PodSample)
    assert answer.values["web-1"].window == timedelta(seconds=90)


@pytest.mark.parametrize(
    ("kind", "api_version", "path"),
    [
        ("Ingress", "networking.k8s.io/v1", "ingresses.networking.k8s.io/main/rps"),
        ("Ingress", "networking.k8s.io/v9", "ingresses.networking.k8s.io/main/rps"),
        ("Service", "v1", "services/main/rps"),
        ("service", "v1", "services/main/rps"),
        ("Namespace", "v1", "metrics/rps"),
    ],
)
async def test_a_metric_of_an_object(server, kind, api_version, path):
    server.answers["/apis/networking.k8s.io/v1"] = {
        "resources": [{"name": "ingresses/status", "kind": "Ingress"}, {"name": "ingresses", "kind": "Ingress"}]
    }
    server.answers["/api/v1"] = {"resources": [{"name": "services", "kind": "Service"}]}
    server.answers[f"{V1BETA2}/{path}"] = custom(("main", "2k"))
    adapter = CustomMetrics(PATIENT, server.context)
    query = testing.object_metric("rps", kind, "main", "verb=GET", api_version=api_version)
    assert await adapter.answer([query]) == [ObjectSample(2_000_000, TIME)]
    assert server.requests[-1] == f"{V1BETA2}/{path}?metricLabelSelector=verb=GET"


@pytest.mark.parametrize("name", ["..", ".", "../../other/metrics", "a/b", "%2e%2e", "a%2Fb"])
async def test_a_name_that_would_name_another_path_is_refused(server, name):
    """As in the client of Kubernetes."""
    server.answers["/api/v1"] = {"resources": [{"name": "services", "kind": "Service"}]}
    queries = [
        testing.pods_metric(name, "app=web"),
        testing.object_metric(name, "Service", "main"),
        testing.object_metric(name, "Service", "other"),
        testing.object_metric("rps", "Service", name),
    ]
    answers = await CustomMetrics(PATIENT, server.context).answer(queries)
    answers += await ExternalMetrics(PATIENT, server.context).answer([testing.external(name)])
    assert [isinstance(answer, AdapterError) and answer.blame for answer in answers] == ["spec"] * 5
    assert all("cannot be part of a path" in answer.message for answer in answers)
    assert not [path for path in server.requests if "namespaces" in path]


SERVICES = {"resources": [{"name": "services", "kind": "Service"}]}


async def test_each_object_is_read_by_itself(server):
    server.answers["/api/v1"] = SERVICES
    server.answers |= {
        f"{V1BETA2}/services/{name}/rps": custom((name, value)) for name, value in (("a", "1"), ("b", "2"))
    }
    missing = refusal(404, "NotFound", "the server could not find the metric rps for services none")
    server.refusals[f"{V1BETA2}/services/none/rps"] = missing
    adapter = CustomMetrics(PATIENT, server.context)
    a, b, none = await adapter.answer([testing.object_metric("rps", "Service", name) for name in ("a", "b", "none")])
    assert (a, b) == (ObjectSample(1_000, TIME), ObjectSample(2_000, TIME))
    assert none.message.endswith("the server could not find the metric rps for services none")
    assert none.blame == "spec"


async def test_discovery_is_cached(server):
    server.answers["/api/v1"] = {"resources": [{"name": "services", "kind": "Service"}]}
    server.answers[f"{V1BETA2}/services/main/rps"] = custom(("main", "1"))
    adapter = CustomMetrics(PATIENT, server.context)
    for _ in range(3):
        await adapter.answer([testing.object_metric("rps", "Service", "main")])
    assert server.requests.count("/apis") == 1
    assert server.requests.count("/api/v1") == 1


@pytest.mark.parametrize(
    ("offered", "preferred", "used"),
    [
        (("v1beta1",), None, "v1beta1"),
        (("v1beta1", "v1beta2"), "v1beta1", "v1beta1"),
        (("v1", "v1beta2"), "v1", "v1beta2"),
    ],
)
async def test_the_preferred_version_of_the_server_is_used(server, offered, preferred, used):
    server.answers["/apis"] = groups(*offered, preferred=preferred)
    server.answers[f"/apis/custom.metrics.k8s.io/{used}/namespaces/default/pods/*/pps"] = custom(("web-1", "1"))
    [answer] = await CustomMetrics(PATIENT, server.context).answer([testing.pods_metric("pps", "app=web")])
    assert isinstance(answer, PodSample)


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ({"groups": []}, "no custom metrics API (custom.metrics.k8s.io) registered"),
        (groups("v3"), "no known available metric versions found"),
    ],
)
async def test_without_the_api_the_error_is_that_of_kubernetes(server, groups, text):
    server.answers["/apis"] = groups
    adapter = CustomMetrics(PATIENT, server.context)
    with pytest.raises(AdapterError) as caught:
        await adapter.answer([testing.pods_metric("pps", "app=web"), testing.object_metric("x", "Service", "a")])
    assert caught.value == AdapterError(f"unable to fetch metrics from custom metrics API: {text}")


async def test_an_api_that_is_added_later_is_found(server):
    server.answers["/apis"] = {"groups": []}
    adapter = CustomMetrics(PATIENT, server.context)
    with pytest.raises(AdapterError):
        await adapter.answer([testing.pods_metric("pps", "app=web")])
    server.answers["/apis"] = groups("v1beta2")
    server.answers[f"{V1BETA2}/pods/*/pps"] = custom(("web-1", "1"))
    [answer] = await adapter.answer([testing.pods_metric("pps", "app=web")])
    assert isinstance(answer, PodSample)


async def test_a_version_that_is_no_longer_served_is_replaced_by_one_that_is(server):
    old, query = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default", testing.pods_metric("pps", "app=web")
    server.answers = {"/apis": groups("v1beta1"), f"{old}/pods/*/pps": custom(("web-1", "1"))}
    adapter = CustomMetrics(PATIENT, server.context)
    await adapter.answer([query])
    server.answers = {"/apis": groups("v1beta2"), f"{V1BETA2}/pods/*/pps": custom(("web-1", "2"))}
    [before] = await adapter.answer([query])
    [after] = await adapter.answer([query])
    assert isinstance(before, AdapterError)
    assert isinstance(after, PodSample)


@pytest.mark.parametrize(
    ("api_version", "text"),
    [
        ("example.com/v1", 'Widget.example.com to resource: no matches for kind "Widget" in group "example.com"'),
        ("v1", 'Widget to resource: no matches for kind "Widget" in group ""'),
    ],
)
async def test_a_kind_that_does_not_exist(server, api_version, text):
    server.answers["/api/v1"] = {"resources": [{"name": "services", "kind": "Service"}]}
    query = testing.object_metric("rps", "Widget", "main", api_version=api_version)
    [answer] = await CustomMetrics(PATIENT, server.context).answer([query])
    assert answer == AdapterError(f"unable to fetch metrics from custom metrics API: unable to map kind {text}", "spec")


async def test_several_values_for_one_object_and_none_for_pods_are_errors(server):
    server.answers["/api/v1"] = {"resources": [{"name": "services", "kind": "Service"}]}
    server.answers[f"{V1BETA2}/services/main/rps"] = custom(("main", "1"), ("main", "2"))
    server.answers[f"{V1BETA2}/pods/*/pps"] = {"items": None}
    several, none = await CustomMetrics(PATIENT, server.context).answer(
        [testing.object_metric("rps", "Service", "main"), testing.pods_metric("pps", "app=web")]
    )
    assert "the custom metrics API server returned 2 results when we asked for exactly one" in several.message
    assert none == AdapterError("no metrics returned from custom metrics API")


NO_VALUE = {"metricName": "depth", "describedObject": {"kind": "Pod", "name": "web-1"}, "timestamp": STAMP}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"items": [{"value": "many"}]},
        {"items": [NO_VALUE]},
        {"items": [{**NO_VALUE, "value": "5"}, {**NO_VALUE, "value": None}]},
        {"items": 5},
        [],
    ],
)
async def test_an_invalid_list_is_an_error(server, body):
    server.answers[f"{EXTERNAL}/depth"] = body
    server.answers[f"{V1BETA2}/pods/*/depth"] = body
    [one] = await ExternalMetrics(PATIENT, server.context).answer([testing.external("depth")])
    [other] = await CustomMetrics(PATIENT, server.context).answer([testing.pods_metric("depth", "app=web")])
    assert isinstance(one, AdapterError)
    assert isinstance(other, AdapterError)


async def test_both_adapters_keep_the_contract(server):
    server.answers[f"{EXTERNAL}/depth"] = external("80")
    server.answers[f"{V1BETA2}/pods/*/pps"] = custom(("web-1", "1"))
    server.answers["/api/v1"] = {"resources": [{"name": "services", "kind": "Service"}]}
    server.answers[f"{V1BETA2}/services/main/rps"] = custom(("main", "1"))
    await testing.check_adapter(
        ExternalMetrics(PATIENT, server.context), [testing.external("depth"), testing.external("nothing")]
    )
    await testing.check_adapter(
        CustomMetrics(PATIENT, server.context),
        [
            testing.pods_metric("pps", "app=web"),
            testing.object_metric("rps", "Service", "main"),
            testing.object_metric("rps", "Widget", "main"),
        ],
    )
