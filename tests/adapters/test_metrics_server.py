"""metrics.k8s.io as the embedded cluster serves it."""

import asyncio
import gc
import warnings
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from hpad import testing
from hpad.adapter import AdapterError, PodSample, PodValue
from hpad_adapters.lists import Settings
from hpad_adapters.metrics_apis import MetricsServer

TIME = datetime(2026, 1, 1, 12, tzinfo=UTC)
CONTAINERS = {"app": {"cpu": "150m", "memory": "64Mi"}, "sidecar": {"cpu": "1", "memory": "1Mi"}}
WINDOW = timedelta(seconds=30)


def add_pod(kubernetes, name: str, app: str, namespace: str = "default", containers=CONTAINERS) -> None:
    spec = {"containers": [{"name": container, "image": "x"} for container in containers]}
    metadata = {"name": name, "namespace": namespace, "labels": {"app": app}}
    kubernetes.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    kubernetes.cluster.usage.set(f"{namespace}/{name}", containers, time=TIME, window=30)


@pytest.fixture
async def adapter(kubernetes) -> MetricsServer:
    add_pod(kubernetes, "web-1", "web")
    add_pod(kubernetes, "web-2", "web", containers={"app": {"cpu": "250500u", "memory": "1"}})
    add_pod(kubernetes, "db-1", "db")
    add_pod(kubernetes, "api-1", "web", "kube-system")
    return MetricsServer(Settings(request_timeout="60s"), kubernetes.context)


async def test_usage_of_the_selected_pods_in_milli_units(adapter):
    cpu, memory, sidecar = await adapter.answer(
        [
            testing.resource("cpu", "app=web"),
            testing.resource("memory", "app=db"),
            testing.container_resource("cpu", "sidecar", "app in (web)"),
        ]
    )
    assert cpu == PodSample({"web-1": PodValue(1150, TIME, WINDOW), "web-2": PodValue(251, TIME, WINDOW)}, TIME)
    assert memory == PodSample({"db-1": PodValue(65 * 2**20 * 1000, TIME, WINDOW)}, TIME)
    assert isinstance(sidecar, PodSample)
    assert dict(sidecar.values) == {"web-1": PodValue(1000, TIME, WINDOW)}


async def test_the_usage_of_ignored_containers_is_left_out_and_a_pod_without_others_has_no_value(adapter):
    plain, without, nothing = await adapter.answer(
        [
            testing.resource("cpu", "app=web"),
            testing.resource("cpu", "app=web", ignored_containers=["sidecar", "absent"]),
            testing.resource("cpu", "app=web", ignored_containers=["app"]),
        ]
    )
    assert {name: value.value for name, value in plain.values.items()} == {"web-1": 1150, "web-2": 251}
    assert {name: value.value for name, value in without.values.items()} == {"web-1": 150, "web-2": 251}
    assert {name: value.value for name, value in nothing.values.items()} == {"web-1": 1000}


async def test_one_list_per_namespace_serves_a_whole_batch(kubernetes, adapter):
    apps = ("web", "db", "web", "x")
    queries = [
        testing.resource(name, f"app={app}", namespace=namespace)
        for name in ("cpu", "memory") for app in apps for namespace in ("default", "kube-system")
    ]  # fmt: skip
    answers = await adapter.answer(queries)
    assert sum(kubernetes.cluster.log.requests.values()) == 2
    existing = {("default", "app=web"), ("default", "app=db"), ("kube-system", "app=web")}
    for query, answer in zip(queries, answers, strict=True):
        assert isinstance(answer, PodSample) == ((query.namespace, str(query.pods)) in existing)


async def test_no_pods_and_no_namespace_have_the_error_of_kubernetes(adapter):
    answers = await adapter.answer([testing.resource("cpu", "app=x"), testing.resource("cpu", "", namespace="empty")])
    assert answers == [AdapterError("no metrics returned from resource metrics API")] * 2


async def test_the_error_holds_the_message_of_the_api_server(kubernetes, adapter):
    kubernetes.cluster.faults.add(path="metrics.k8s.io", status=403)
    [answer] = await adapter.answer([testing.resource("cpu", "app=web")])
    assert answer == AdapterError("unable to fetch metrics from resource metrics API: injected failure 403", "cluster")


@pytest.mark.parametrize("body", ["", "garbage", "[]", '{"items": 5}', '{"items": [{"timestamp": "noon"}]}'])
async def test_an_invalid_list_is_an_error(kubernetes, adapter, body):
    kubernetes.cluster.faults.add(path="metrics.k8s.io", body=body, times=2)
    [answer] = await adapter.answer([testing.resource("cpu", "app=web")])
    assert isinstance(answer, AdapterError)
    assert answer.message.startswith("unable to fetch metrics from resource metrics API: the answer is not a list")


async def test_a_slow_namespace_fails_only_its_own_metrics(kubernetes, adapter):
    limited = MetricsServer(Settings(request_timeout="5s"), kubernetes.context)
    kubernetes.cluster.faults.add(path="kube-system", delay=60)
    slow, good = await limited.answer(
        [testing.resource("cpu", "app=web", namespace="kube-system"), testing.resource("cpu", "app=web")]
    )
    assert slow == AdapterError("unable to fetch metrics from resource metrics API: no answer within 5s")
    assert isinstance(good, PodSample)


async def test_the_server_selects_pods_if_its_lists_have_no_labels(kubernetes, adapter):
    item = '{"metadata": {"name": "web-1"}, "timestamp": "2026-01-01T12:00:00Z", "window": "30s", "containers": []}'
    kubernetes.cluster.faults.add(path="metrics.k8s.io", body=f'{{"items": [{item}]}}')
    [answer] = await adapter.answer([testing.resource("cpu", "app=db")])
    assert isinstance(answer, PodSample)
    assert set(answer.values) == {"db-1"}


async def test_a_pod_that_cannot_be_decoded_fails_only_the_queries_that_select_it(context):
    class Odd(Served):
        async def get(self, path: str, params=None) -> bytes:
            body = await super().get(path, params)
            return body if params == {"labelSelector": "app=web"} else body.replace(b'"30s"', b"null")

    adapter = MetricsServer(Settings(), msgspec.structs.replace(context, api=Odd("v1beta1")))
    sound, odd = await adapter.answer([testing.resource("cpu", "app=web"), testing.resource("cpu", "app=odd")])
    assert sound == PodSample({"web-1": PodValue(150, TIME, WINDOW)}, TIME)
    assert isinstance(odd, AdapterError)
    assert "the answer is not a list of metrics" in odd.message


async def test_the_error_without_an_api_server():
    async with testing.context("metrics-server") as context:
        [answer] = await MetricsServer(Settings(), context).answer([testing.resource("cpu", "app=web")])
    assert isinstance(answer, AdapterError)
    assert "hpad runs without an API server" in answer.message


async def test_the_adapter_keeps_the_contract(adapter):
    queries = [
        testing.resource("cpu", "app=web"),
        testing.container_resource("memory", "sidecar", "app=web"),
        testing.resource("cpu", "app=x"),
        testing.resource("cpu", "app=web", namespace="kube-system"),
        testing.resource("cpu", "app=web", ignored_containers=["sidecar"]),
    ]
    answers = await testing.check_adapter(adapter, queries)
    assert [type(answer) for answer in answers] == [PodSample, PodSample, AdapterError, PodSample, PodSample]


class Served:
    """An API server that serves metrics.k8s.io in some versions only."""

    def __init__(self, *versions: str) -> None:
        self.versions = versions
        self.asked: list[str] = []

    async def get(self, path: str, params=None) -> bytes:
        self.asked.append(path)
        if path == "/apis":
            listed = [{"groupVersion": f"metrics.k8s.io/{version}"} for version in self.versions]
            return msgspec.json.encode({"groups": [{"name": "metrics.k8s.io", "versions": listed}]})
        if path.split("/")[3] not in self.versions:
            raise AdapterError("the server could not find the requested resource", "cluster")
        usage = [{"name": "app", "usage": {"cpu": "150m"}}]
        item = {"metadata": {"name": "web-1", "labels": {"app": "web"}}, "containers": usage}
        return msgspec.json.encode({"items": [{**item, "timestamp": "2026-01-01T12:00:00Z", "window": "30s"}]})


async def test_the_version_that_the_server_has_is_read_after_an_upgrade_and_back(context):
    server = Served("v1beta1")
    adapter = MetricsServer(Settings(), msgspec.structs.replace(context, api=server))
    query = testing.resource("cpu", "app=web")
    sample = PodSample({"web-1": PodValue(150, TIME, WINDOW)}, TIME)
    assert await adapter.answer([query]) == [sample]
    assert server.asked == ["/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"]
    for versions in (("v1",), ("v1", "v1beta1"), ("v1beta1",)):
        server.versions = versions
        assert await adapter.answer([query]) == [sample]
    assert server.asked.count("/apis") == 2


async def test_a_server_without_the_api_is_asked_for_its_versions_and_the_error_stays(context):
    server = Served("v2")
    adapter = MetricsServer(Settings(), msgspec.structs.replace(context, api=server))
    [answer] = await adapter.answer([testing.resource("cpu", "app=web")])
    assert isinstance(answer, AdapterError)
    assert "could not find the requested resource" in answer.message
    assert server.asked == ["/apis/metrics.k8s.io/v1beta1/namespaces/default/pods", "/apis"]


async def test_a_call_that_is_cancelled_before_its_requests_begin_leaves_no_coroutine(context):
    """So it ends if the process stands still for longer than the timeout."""
    server = Served("v1beta1")
    adapter = MetricsServer(Settings(), msgspec.structs.replace(context, api=server))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call = asyncio.ensure_future(adapter.answer([testing.resource("cpu", "app=web")]))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        gc.collect()
    assert [str(each.message) for each in found] == []
    assert server.asked == []
