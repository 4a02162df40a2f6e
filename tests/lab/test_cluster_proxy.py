"""The subresource `proxy` of pods and services."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from support import free_ports, http_server

from hpad.lab.cluster import users

Backend = Callable[..., Awaitable[int]]
PODS = "/api/v1/namespaces/shop/pods"
SERVICES = "/api/v1/namespaces/shop/services"


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Backend]:
    """Starts servers that answer with what they received; returns the port."""
    async with AsyncExitStack() as stack:

        async def start(name: str, *, tls: bool = False) -> int:
            async def echo(request: web.Request) -> web.Response:
                if request.path == "/moved":
                    return web.Response(status=302, headers={"Location": "/elsewhere"})
                seen = {"name": name, "path": request.raw_path, "headers": dict(request.headers)}
                return web.json_response(seen, status=int(request.query.get("status", "200")), headers={"Of": name})

            application = web.Application()
            application.router.add_route("*", "/{path:.*}", echo)
            runner = web.AppRunner(application, access_log=None)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            context = None
            if tls:
                context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                context.load_cert_chain(*http_server.write_certificate(tmp_path, trustme.CA()))
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
            await site.start()
            return int(runner.addresses[0][1])

        yield start


def pod(name: str, port: int, *, ready: bool = True, phase: str = "Running") -> dict[str, Any]:
    container = {"name": "app", "image": "app:1", "ports": [{"name": "web", "containerPort": port}]}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"containers": [container]},
        "status": {"phase": phase, "conditions": conditions},
    }


def service(target: str | int, **spec: Any) -> dict[str, Any]:
    ports = [{"name": "http", "port": 80, "targetPort": target}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"app": "web"}, "ports": ports, **spec},
    }


async def test_a_pod_gets_the_path_with_its_query_but_no_credentials(start, backend: Backend) -> None:
    client, port = await start(kubelet=False), await backend("a")
    client.cluster.apply(pod("a", port))
    path = "/api/v1/hpas/x%2Fy?search=a%26b&watch=1"
    status, body = await client.ask("GET", f"{PODS}/a:{port}/proxy{path}", Authorization="Bearer secret", Own="kept")
    assert status == 200
    assert body["path"] == path
    assert body["headers"]["Own"] == "kept"
    assert "Authorization" not in body["headers"]


@pytest.mark.parametrize("name", ["a", "a:{port}", "http:a:{port}"])
async def test_a_pod_is_named_with_or_without_scheme_and_port(start, backend: Backend, name: str) -> None:
    client, port = await start(kubelet=False), await backend("a")
    client.cluster.apply(pod("a", port))
    assert (await client.get(f"{PODS}/{name.format(port=port)}/proxy/x"))["name"] == "a"
    assert (await client.get(f"{PODS}/{name.format(port=port)}/proxy"))["path"] == "/"


async def test_the_certificate_of_a_pod_is_not_verified(start, backend: Backend) -> None:
    client, port = await start(kubelet=False), await backend("a", tls=True)
    client.cluster.apply(pod("a", port))
    assert (await client.get(f"{PODS}/https:a:{port}/proxy/x"))["name"] == "a"


async def test_status_and_headers_of_the_pod_are_passed_on(start, backend: Backend) -> None:
    client, port = await start(kubelet=False), await backend("a")
    client.cluster.apply(pod("a", port))
    url = client.cluster.url + f"{PODS}/a:{port}/proxy"
    async with client.session.get(f"{url}/?status=418") as found:
        assert (found.status, found.headers["Of"]) == (418, "a")
    async with client.session.get(f"{url}/moved", allow_redirects=False) as found:
        assert (found.status, found.headers["Location"]) == (302, "/elsewhere")


@pytest.mark.parametrize("target", ["web", None])
@pytest.mark.parametrize("name", ["web:80", "web:http", "http:web:80"])
async def test_a_service_leads_to_its_ready_pods(start, backend: Backend, target: str | None, name: str) -> None:
    client = await start(kubelet=False)
    ports = {each: await backend(each) for each in "ab"}
    client.cluster.apply(pod("a", ports["a"]))
    client.cluster.apply(pod("b", ports["b"], ready=False))
    client.cluster.apply(service(target or ports["a"]))
    for _ in range(4):
        assert (await client.get(f"{SERVICES}/{name}/proxy/x"))["name"] == "a"


async def test_the_pods_of_a_service_take_turns_also_those_not_ready_if_it_publishes_them(
    start, backend: Backend
) -> None:
    client = await start(kubelet=False)
    client.cluster.apply(pod("a", await backend("a")))
    client.cluster.apply(pod("b", await backend("b"), ready=False))
    client.cluster.apply(service("web", publishNotReadyAddresses=True))
    found = [(await client.get(f"{SERVICES}/web:80/proxy/x"))["name"] for _ in range(4)]
    assert sorted(found) == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        (f"{SERVICES}/none:80/proxy/", 404, 'services "none" not found'),
        (f"{PODS}/none:80/proxy/", 404, 'pods "none" not found'),
        (f"{SERVICES}/web:81/proxy/", 503, 'no service port 81 found for service "web"'),
        (f"{SERVICES}/web:other/proxy/", 503, 'no endpoints available for service "web:other"'),
        (f"{SERVICES}/web:80/proxy/", 503, 'no endpoints available for service "web:80"'),
        (f"{SERVICES}/empty:80/proxy/", 503, 'no endpoints available for service "empty"'),
        (f"{PODS}/ftp:a:80/proxy/", 400, 'invalid pod request "ftp:a:80"'),
        (f"{PODS}/a:b:c:80/proxy/", 400, 'invalid pod request "a:b:c:80"'),
        (f"{PODS}/pending:80/proxy/", 400, "address not allowed"),
        ("/apis/apps/v1/namespaces/shop/deployments/web/proxy/", 404, "could not find the requested resource"),
    ],
)
async def test_errors_have_the_words_of_kubernetes(start, path: str, status: int, message: str) -> None:
    client = await start(kubelet=False)
    client.cluster.apply(pod("a", 1, ready=False))
    client.cluster.apply(pod("pending", 1, phase="Pending"))
    client.cluster.apply(service("web"))
    client.cluster.apply(
        {**service("web", selector={"app": "none"}), "metadata": {"name": "empty", "namespace": "shop"}}
    )
    answered, body = await client.ask("GET", path)
    assert (answered, body["kind"]) == (status, "Status")
    assert message in body["message"]


async def test_a_pod_that_does_not_answer_is_unavailable(start) -> None:
    client = await start(kubelet=False)
    with free_ports.port() as port:
        client.cluster.apply(pod("a", port))
        status, body = await client.ask("GET", f"{PODS}/a:{port}/proxy/")
    assert (status, body["reason"]) == (503, "ServiceUnavailable")
    assert body["message"].startswith("error trying to reach service: ")


async def test_only_get_is_passed_on(start, backend: Backend) -> None:
    client, port = await start(kubelet=False), await backend("a")
    client.cluster.apply(pod("a", port))
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert (await client.ask(method, f"{PODS}/a:{port}/proxy/x", "{}"))[0] == 405


async def test_rules_name_the_pod_as_the_request_does(start, backend: Backend) -> None:
    client, port = await start(kubelet=False, authorization=True), await backend("a")
    client.cluster.apply(pod("a", port))
    jane = {"Authorization": f"Bearer {client.cluster.token(users.named('jane'))}"}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "r", "namespace": "shop"}}
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods/proxy"], "resourceNames": [f"a:{port}"]}
    client.cluster.apply({**head, "kind": "Role", "rules": [rule]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    subjects = [{"kind": "User", "name": "jane"}]
    client.cluster.apply({**head, "kind": "RoleBinding", "roleRef": reference, "subjects": subjects})
    assert (await client.ask("GET", f"{PODS}/a:{port}/proxy/x", **jane))[0] == 200
    status, body = await client.ask("GET", f"{PODS}/http:a:{port}/proxy/x", **jane)
    assert status == 403
    assert body["message"] == (
        f'pods "http:a:{port}" is forbidden: User "jane" cannot get resource "pods/proxy" in API group "" in the '
        'namespace "shop"'
    )


async def test_a_stream_is_passed_on_while_it_lasts(start) -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await asyncio.Event().wait()
        return response

    client = await start(kubelet=False)
    application = web.Application()
    application.router.add_get("/", stream)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    client.cluster.apply(pod("a", port))
    async with client.session.get(client.cluster.url + f"{PODS}/a:{port}/proxy/") as found:
        assert await found.content.readline() == b"first\n"
    await runner.cleanup()
