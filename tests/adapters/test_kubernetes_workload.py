"""Numbers of pods by selector, from an API server."""

from typing import Any

import msgspec
import pytest

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample
from hpad_adapters import kubernetes_workload
from hpad_adapters.kubernetes_workload import KubernetesWorkload


def pod(kubernetes: Any, name: str, *, app: str = "backend", phase: str = "Running", **where: str) -> None:
    namespace = where.pop("namespace", "default")
    metadata = {"name": name, "namespace": namespace, "labels": {"app": app, "name": name}}
    spec = {"containers": [{"name": "main", "image": "x"}], **where}
    kubernetes.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    kubernetes.cluster.set_pod_status(name, {"phase": phase}, namespace)


@pytest.fixture
async def pods(kubernetes: Any) -> Any:
    """Of the backend: two pods on one node, one on another, one without a node, and two that have ended."""
    pod(kubernetes, "a", nodeName="n1")
    pod(kubernetes, "b", nodeName="n1", phase="Pending")
    pod(kubernetes, "c", nodeName="n2", phase="Unknown")
    pod(kubernetes, "waiting", phase="Pending")
    pod(kubernetes, "done", nodeName="n3", phase="Succeeded")
    pod(kubernetes, "broken", nodeName="n3", phase="Failed")
    pod(kubernetes, "web", app="web", nodeName="n4")
    pod(kubernetes, "elsewhere", nodeName="n5", namespace="kube-system")
    return kubernetes


async def ask(kubernetes: Any, name: str, selector: str | None, **settings: Any) -> Answer:
    adapter = made(kubernetes.context, **settings)
    (answer,) = await adapter.answer([testing.external(name, selector)])
    return answer


def made(context: Any, **settings: Any) -> KubernetesWorkload:
    chosen = {"request_timeout": "60s", **settings}
    return KubernetesWorkload(msgspec.convert(chosen, KubernetesWorkload.Settings), context)


@pytest.mark.parametrize(
    ("name", "selector", "count"),
    [
        ("workload_pods", "app=backend", 4),
        ("workload_nodes", "app=backend", 2),
        ("workload_pods", "app in (backend, web)", 5),
        ("workload_pods", "app,app!=backend", 1),
        ("workload_pods", "app=gone", 0),
        ("workload_nodes", "name=waiting", 0),
    ],
)
async def test_pods_that_have_not_ended_are_counted(pods: Any, name: str, selector: str, count: int) -> None:
    answer = await ask(pods, name, selector)
    assert isinstance(answer, ExternalSample), answer
    assert answer.values == (count * 1000,)


async def test_long_lists_come_in_pages(pods: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_workload, "_PAGE", 1)
    for limit, wanted in ((4, ExternalSample), (3, AdapterError)):
        before = sum(pods.cluster.log.requests.values())
        answer = await ask(pods, "workload_pods", "app=backend", max_pods=limit)
        assert isinstance(answer, wanted), answer
        assert sum(pods.cluster.log.requests.values()) - before == limit
    assert "more than max_pods (3)" in answer.message


@pytest.mark.parametrize("selector", [None, ""])
async def test_a_selector_is_needed(pods: Any, selector: str | None) -> None:
    answer = await ask(pods, "workload_pods", selector)
    assert isinstance(answer, AdapterError)
    assert answer.blame == "spec"
    assert "needs the selector of the pods" in answer.message


async def test_both_metrics_of_a_selector_are_one_list(pods: Any) -> None:
    adapter = made(pods.context)
    queries = [testing.external(name, "app=backend") for name in ("workload_pods", "workload_nodes")]
    assert len({adapter.group(query) for query in queries}) == 1
    before = sum(pods.cluster.log.requests.values())
    answers = await adapter.answer(queries)
    assert [answer.values for answer in answers if isinstance(answer, ExternalSample)] == [(4000,), (2000,)]
    assert sum(pods.cluster.log.requests.values()) - before == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"status": 403}, "injected"),
        ({"status": 410}, "injected"),
        ({"body": "<html>"}, "something other than pods"),
        ({"body": "{}"}, "something other than pods"),
        ({"body": '{"items": [{"status": {"phase": 1}}]}'}, "something other than pods"),
        ({"delay": 60}, "did not answer within 2s"),
    ],
)
async def test_faults_of_the_api_server_are_errors(pods: Any, fault: dict[str, Any], error: str) -> None:
    pods.cluster.faults.add(path="/pods", **fault)
    answer = await ask(pods, "workload_pods", "app=backend", request_timeout="2s" if "delay" in fault else "60s")
    assert isinstance(answer, AdapterError)
    assert answer.blame == "cluster"
    assert error in answer.message or error == "injected"


async def test_hpad_without_an_api_server_says_so(context: Any) -> None:
    (answer,) = await made(context).answer([testing.external("workload_pods", "app=backend")])
    assert isinstance(answer, AdapterError)
    assert "runs without an API server" in answer.message


async def test_the_adapter_keeps_the_contract(pods: Any) -> None:
    queries = [
        testing.external("workload_pods", "app=backend"),
        testing.external("workload_nodes", "app=backend"),
        testing.external("workload_pods", "app=web"),
        testing.external("workload_pods"),
        testing.external("workload_pod", "app=web"),
    ]
    answers = await testing.check_adapter(made(pods.context), queries)
    assert [isinstance(answer, ExternalSample) for answer in answers] == [True, True, True, False, False]
    assert 'did you mean "workload_pods"' in str(answers[4])


def test_invalid_settings_are_refused() -> None:
    for settings, error in (({"max_pods": 0}, ">= 1"), ({"request_timeout": "0s"}, "request_timeout"), ({"x": 1}, "x")):
        with pytest.raises(msgspec.ValidationError, match=error):
            msgspec.convert(settings, KubernetesWorkload.Settings)


class EndlessPages:
    """An API server that always names another page."""

    async def get(self, path: str, params: Any = None) -> bytes:
        return b'{"metadata":{"continue":"more"},"items":[]}'


async def test_pages_without_end_are_an_error(context: Any) -> None:
    adapter = made(msgspec.structs.replace(context, api=EndlessPages()))
    (answer,) = await adapter.answer([testing.external("workload_pods", "app=backend")])
    assert isinstance(answer, AdapterError)
    assert "the API server always answers that there is another page" in answer.message
