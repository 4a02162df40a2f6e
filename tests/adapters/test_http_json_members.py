"""Documents of each pod of a target, by the addresses of a query: one value per pod, and none where it is not known."""

from typing import Any

import msgspec
import pytest
from adapters.test_http_json_pods import Pods, pods
from aiohttp import web

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, Member, PodSample, Query
from hpad_adapters.http_json import HttpJson

__all__ = ["pods"]  # a fixture
MEMBERS = (Member("a", "127.0.0.1"), Member("b", "127.0.0.2"), Member("c", "127.0.0.3"))


def source(port: int, context: Context, **settings: Any) -> HttpJson:
    metric = {"url": f"http://pod:{port}/jobs", "path": "n", "pods": "each"}
    total = {"url": f"http://127.0.0.1:{port}/jobs", "path": "n"}
    options = {"metrics": {"jobs": metric, "total": total}, "request_timeout": "30s", **settings}
    return HttpJson(msgspec.convert(options, HttpJson.Settings), context)


def by_pod(*members: Member, name: str = "jobs") -> Query:
    return testing.by_pod(testing.pods_metric(name, "app=web"), members)


def values(answer: Answer) -> dict[str, int]:
    assert isinstance(answer, PodSample), answer
    return {name: value.value for name, value in sorted(answer.values.items())}


async def test_each_pod_is_asked_at_its_address(pods: Pods, context: Context) -> None:
    pods.answers = {"127.0.0.1": 0, "127.0.0.2": 7, "127.0.0.3": 1}
    plain = testing.external("total")
    queries = [
        by_pod(*MEMBERS),
        plain,
        by_pod(*MEMBERS[:1]),
        testing.pods_metric("jobs", "app=web"),
        by_pod(name="total"),
    ]
    found = await testing.check_adapter(source(pods.port, context), queries)
    assert values(found[0]) == {"a": 0, "b": 7000, "c": 1000}
    assert getattr(found[1], "values", None) == (0,)
    assert values(found[2]) == {"a": 0}
    assert isinstance(found[3], AdapterError)
    assert "one value per pod, for hpad.io/busy-metric alone" in found[3].message
    assert isinstance(found[4], AdapterError)
    assert found[4].blame == "spec"


async def test_a_pod_that_fails_has_no_value(pods: Pods, context: Context) -> None:
    pods.answers["127.0.0.1"] = "broken"
    members = (*MEMBERS, Member("pending"))
    [found] = await source(pods.port, context).answer([by_pod(*members)])
    assert values(found) == {"b": 2000, "c": 3000}


async def test_a_pod_that_hangs_delays_the_answer_by_the_timeout_alone(pods: Pods, context: Context) -> None:
    pods.answers["127.0.0.3"] = None
    [found] = await source(pods.port, context, request_timeout="6s").answer([by_pod(*MEMBERS)])
    assert values(found).keys() == {"a", "b"}


@pytest.mark.parametrize("members", [MEMBERS, (Member("a"),)])
async def test_without_any_answer_it_is_an_error(pods: Pods, context: Context, members: tuple[Member, ...]) -> None:
    pods.answers = dict.fromkeys(pods.answers, "broken")
    [found] = await source(pods.port, context).answer([by_pod(*members)])
    assert isinstance(found, AdapterError)
    expected = "pod a (http://127.0.0.1" if members[0].address else "no pod has an address"
    assert expected in found.message


async def test_garbage_is_no_value(stub: Any, context: Context) -> None:
    port = int(stub.url.rpartition(":")[2])
    stub.answers("<html>")
    [found] = await source(port, context).answer([by_pod(*MEMBERS[:1])])
    assert isinstance(found, AdapterError)

    async def other(request: web.BaseRequest) -> web.Response:
        return web.json_response({"m": 1})

    stub.handler = other
    [found] = await source(port, context).answer([by_pod(*MEMBERS[:1])])
    assert isinstance(found, AdapterError)
    assert 'there is no number at "n"' in found.message


def test_the_host_is_pod() -> None:
    metric = {"url": "http://api.shop:80/jobs", "path": "n", "pods": "each"}
    with pytest.raises(msgspec.ValidationError, match='has not the host "pod"'):
        msgspec.convert({"metrics": {"jobs": metric}}, HttpJson.Settings)
