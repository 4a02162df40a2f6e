"""Documents of each pod of a Service: its EndpointSlices in an API server, and pods on addresses of loopback."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
import trustme
from aiohttp import web
from support.http_stub import server_tls

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample
from hpad_adapters.http_json import HttpJson

ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


class Pods:
    """A server on each address, at one port: `answers` holds numbers, None to hang, and texts for status 500."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {address: number for number, address in enumerate(ADDRESSES, 1)}
        self.hosts: list[tuple[str, str]] = []
        self.port = 0

    async def handle(self, request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        address = request.transport.get_extra_info("sockname")[0]
        self.hosts.append((address, request.headers["Host"]))
        answer = self.answers[address]
        if answer is None:
            await asyncio.Event().wait()
        return web.json_response({"n": answer}) if isinstance(answer, int) else web.Response(status=500)


@pytest.fixture
async def pods() -> AsyncIterator[Pods]:
    pods = Pods()
    runner = web.ServerRunner(web.Server(pods.handle), shutdown_timeout=0.1)
    await runner.setup()
    for address in ADDRESSES:
        await web.TCPSite(runner, address, pods.port).start()
        pods.port = runner.addresses[0][1]
    yield pods
    await runner.cleanup()


def endpoint(address: str, name: str | None = None, **conditions: bool) -> dict[str, Any]:
    reference = {"targetRef": {"kind": "Pod", "name": name}} if name else {}
    return {"addresses": [address], "conditions": conditions, **reference}


def slices(kubernetes: Any, ports: Sequence[int], endpoints: Sequence[Any], *, family: str = "IPv4") -> None:
    kubernetes.cluster.apply(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"api-{family.lower()}-{len(kubernetes.cluster.list('endpointslices'))}",
                "namespace": "shop",
                "labels": {"kubernetes.io/service-name": "api"},
            },
            "addressType": family,
            "endpoints": list(endpoints),
            "ports": [{"name": f"p{port}", "port": port} for port in ports],
        }
    )


async def ask(context: Any, url: str, combine: str = "sum", **options: Any) -> Answer:
    missing = {"missing_pods": options.pop("missing_pods")} if "missing_pods" in options else {}
    metric = {"url": url, "path": "n", "pods": combine, **missing}
    settings = msgspec.convert({"metrics": {"depth": metric}, "request_timeout": "60s", **options}, HttpJson.Settings)
    (answer,) = await HttpJson(settings, context).answer([testing.external("depth")])
    return answer


def three(kubernetes: Any, port: int) -> None:
    """The pods in two slices that share one of them."""
    slices(kubernetes, [port], [endpoint(ADDRESSES[0], "api-1", ready=True), endpoint(ADDRESSES[1], "api-2")])
    slices(kubernetes, [port], [endpoint(ADDRESSES[1], "api-2", ready=True), endpoint(ADDRESSES[2], "api-3")])


@pytest.mark.parametrize(("combine", "milli"), [("sum", 6000), ("avg", 2000), ("max", 3000), ("min", 1000)])
async def test_each_ready_pod_is_asked_once(kubernetes: Any, pods: Pods, combine: str, milli: int) -> None:
    three(kubernetes, pods.port)
    url = f"http://api.shop.svc:{pods.port}/stats"
    answer = await ask(kubernetes.context, url, combine)
    assert isinstance(answer, ExternalSample), answer
    assert answer.values == (milli,)
    assert sorted(pods.hosts) == [(address, f"api.shop.svc:{pods.port}") for address in ADDRESSES]


async def test_pods_that_are_not_ready_and_other_families_are_not_asked(kubernetes: Any, pods: Pods) -> None:
    slices(kubernetes, [pods.port], [endpoint("::1", "api-1")], family="IPv6")
    slices(kubernetes, [pods.port], [endpoint(ADDRESSES[0], "api-1"), endpoint(ADDRESSES[1], "api-2", ready=False)])
    answer = await ask(kubernetes.context, "http://api.shop/stats")  # the only port of the slice
    assert isinstance(answer, ExternalSample), answer
    assert answer.values == (1000,)


@pytest.mark.parametrize(
    ("combine", "milli"), [("sum", (1000 + 3000) * 3 // 2), ("avg", 2000), ("max", 3000), ("min", 1000)]
)
async def test_a_pod_that_fails_is_an_error_or_counts_as_the_average(
    kubernetes: Any, pods: Pods, combine: str, milli: int
) -> None:
    three(kubernetes, pods.port)
    pods.answers[ADDRESSES[1]] = "broken"
    url = f"http://api.shop.svc.cluster.local:{pods.port}/stats"
    refused = await ask(kubernetes.context, url, combine)
    assert isinstance(refused, AdapterError)
    where = f"pod api-2 (http://127.0.0.2:{pods.port}/stats)"
    assert refused.message == f'metric "depth": 1 of 3 pods failed; the first: {where} answers 500'
    answer = await ask(kubernetes.context, url, combine, missing_pods="average")
    assert isinstance(answer, ExternalSample), answer
    assert answer.values == (milli,)


async def test_half_of_the_pods_must_answer(kubernetes: Any, pods: Pods) -> None:
    three(kubernetes, pods.port)
    pods.answers |= {ADDRESSES[0]: "broken", ADDRESSES[1]: "broken"}
    refused = await ask(kubernetes.context, f"http://api.shop:{pods.port}/", "avg", missing_pods="average")
    assert isinstance(refused, AdapterError)
    assert "2 of 3 pods failed" in refused.message


async def test_the_certificate_is_that_of_the_service(kubernetes: Any, tmp_path: Any) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca")
    served = Pods()
    runner = web.ServerRunner(web.Server(served.handle), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, ADDRESSES[0], 0, ssl_context=server_tls(authority, "api.shop.svc")).start()
    try:
        port = runner.addresses[0][1]
        slices(kubernetes, [port], [endpoint(ADDRESSES[0])])
        answer = await ask(kubernetes.context, f"https://api.shop.svc:{port}/stats", ca=str(tmp_path / "ca"))
        assert isinstance(answer, ExternalSample), answer
    finally:
        await runner.cleanup()


async def test_no_pods_are_an_error_and_not_zero(kubernetes: Any) -> None:
    absent = await ask(kubernetes.context, "http://api.shop:8080/")
    slices(kubernetes, [8080, 9090], [endpoint(ADDRESSES[0], ready=False)])
    unready = await ask(kubernetes.context, "http://api.shop:8080/")
    for answer in (absent, unready):
        assert isinstance(answer, AdapterError)
        assert answer.message == 'Service "api" of namespace shop has no ready pods, or does not exist'


@pytest.mark.parametrize(
    ("url", "error"),
    [
        (
            "http://api.shop:80/",
            "port 80 of the url is none of its pods; write the port of the pods, not of the Service",
        ),
        ("http://api.shop/", "no port in the url; write the port of the pods"),
    ],
)
async def test_a_port_that_no_pod_has_is_an_error(kubernetes: Any, url: str, error: str) -> None:
    slices(kubernetes, [8080, 9090], [endpoint(ADDRESSES[0])])
    answer = await ask(kubernetes.context, url)
    assert isinstance(answer, AdapterError)
    assert error in answer.message
    assert answer.message.endswith(": 8080, 9090")
    assert answer.blame == "spec"


async def test_more_pods_than_the_limit_are_an_error(kubernetes: Any, pods: Pods) -> None:
    three(kubernetes, pods.port)
    answer = await ask(kubernetes.context, f"http://api.shop:{pods.port}/", max_pods=2)
    assert isinstance(answer, AdapterError)
    assert "more than max_pods (2)" in answer.message
    assert pods.hosts == []


async def test_faults_of_the_api_server(kubernetes: Any, context: Any) -> None:
    kubernetes.cluster.faults.add(path="endpointslices", status=403)
    refused = await ask(kubernetes.context, "http://api.shop:8080/")
    assert isinstance(refused, AdapterError)
    assert refused.blame == "cluster"
    without = await ask(context, "http://api.shop:8080/")
    assert isinstance(without, AdapterError)
    assert "runs without an API server" in without.message


async def test_garbage_of_the_api_server(kubernetes: Any) -> None:
    kubernetes.cluster.faults.add(path="endpointslices", body="[]")
    answer = await ask(kubernetes.context, "http://api.shop:8080/")
    assert isinstance(answer, AdapterError)
    assert "something other than EndpointSlices" in answer.message


async def test_pods_that_hang_fail_in_one_request_timeout(kubernetes: Any, pods: Pods) -> None:
    three(kubernetes, pods.port)
    pods.answers |= dict.fromkeys(ADDRESSES)
    async with asyncio.timeout(60):
        answer = await ask(kubernetes.context, f"http://api.shop:{pods.port}/", request_timeout="1s")
    assert isinstance(answer, AdapterError)
    assert "did not answer within 1s" in answer.message


async def test_the_contract_holds_with_pods(kubernetes: Any, pods: Pods) -> None:
    three(kubernetes, pods.port)
    metrics = {
        "sum": {"url": f"http://api.shop:{pods.port}/", "path": "n", "pods": "sum"},
        "gone": {"url": f"http://none.shop:{pods.port}/", "path": "n", "pods": "sum"},
    }
    settings = msgspec.convert({"metrics": metrics, "request_timeout": "60s"}, HttpJson.Settings)
    adapter = HttpJson(settings, kubernetes.context)
    answers = await testing.check_adapter(adapter, [testing.external("sum"), testing.external("gone")])
    assert [isinstance(answer, ExternalSample) for answer in answers] == [True, False]
