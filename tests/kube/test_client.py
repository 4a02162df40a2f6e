"""Requests: which ones are repeated, and the errors of those that fail."""

import asyncio
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiohttp import web
from support import free_ports
from support.scripted_server import Script, failure, hangs, refused, resets, says, serving, streams, until

import hpad
from hpad.api.metadata import Key
from hpad.clock import SystemClock
from hpad.kube import paths
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.client import Client, Limiter
from hpad.kube.errors import ApiError

PATH = "/api/v1/namespaces/n/pods/a"


async def test_an_answer_is_bytes_and_is_counted(script, clock):
    script.on("GET", PATH, says(b'{"a":1}'))
    seen = []
    config = ClusterConfig(script.url)
    async with Client(config, clock, observe=lambda *observed: seen.append(observed[:3])) as client:
        assert await client.request("GET", PATH, params={"labelSelector": "a in (b, c)"}) == b'{"a":1}'
        assert client.requests == {("GET", "200"): 1}
    assert seen == [("GET", script.url.removeprefix("http://"), "200")]
    assert script.asked == [("GET", PATH, {"labelSelector": "a in (b, c)"})]
    assert script.headers[0]["User-Agent"] == f"hpad/{hpad.__version__}"
    assert script.headers[0]["Accept-Encoding"] == "identity"
    assert "Authorization" not in script.headers[0]
    assert "Content-Type" not in script.headers[0]


async def test_a_body_is_sent_unchanged(script, client):
    script.on("PATCH", PATH, says({}))
    await client.request("PATCH", PATH, body=b'{"x":1}', content_type="application/merge-patch+json")
    assert script.bodies == [b'{"x":1}']
    assert script.headers[0]["Content-Type"] == "application/merge-patch+json"


@pytest.mark.parametrize(
    ("name", "reason", "property_"),
    [
        ("scale/deployment_put_conflict_409", "Conflict", "conflict"),
        ("hpa/get_404", "NotFound", "not_found"),
        ("pods/list_continue_expired_410", "Expired", "gone"),
        ("hpa/status_put_invalid_422", "Invalid", None),
        ("errors/403_rbac_user", "Forbidden", None),
        ("errors/401_bad_token", "Unauthorized", None),
    ],
)
async def test_recorded_errors_keep_the_message_of_the_server(script, client, recorded, name, reason, property_):
    real = recorded(name)
    script.on("GET", PATH, says(real["body"], real["status"]))
    error = await refused(client.request("GET", PATH))
    assert (error.status, error.reason) == (real["status"], reason)
    assert str(error) == error.message == real["body"]["message"]
    assert [each for each in ("conflict", "not_found", "gone") if getattr(error, each)] == [property_] * bool(property_)


async def test_a_name_that_exists_already_is_no_conflict(script, client, recorded):
    real = recorded("hpa/create_409_already_exists")
    script.on("POST", PATH, says(real["body"], 409))
    assert not (await refused(client.request("POST", PATH, body=b"{}"))).conflict


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (404, b"404 page not found\n", "the server could not find the requested resource (get pods a)"),
        (503, b"service unavailable\n", "the server is currently unable to handle the request (get pods a)"),
        (500, b"<html>", 'an error on the server ("<html>") has prevented the request from succeeding (get pods a)'),
        (302, b"", "the server responded with the status code 302 but did not return more information (get pods a)"),
    ],
)
async def test_an_error_without_a_status_has_the_message_of_client_go(script, client, status, body, message):
    script.on("GET", PATH, says(body, status))
    error = await refused(client.request("GET", PATH))
    assert (error.status, error.message) == (status, message)


@pytest.mark.parametrize(
    ("name", "no_resource"),
    [
        ("scale/daemonset_get_404", True),
        ("scale/deployment_get_404", False),
        ("metrics/custom_404", False),
        ("metrics/podmetrics_get_404", False),
    ],
)
async def test_the_details_of_a_404_tell_a_missing_resource_from_a_missing_object(
    script, client, recorded, name, no_resource
):
    script.on("GET", PATH, says(recorded(name)["body"], 404))
    error = await refused(client.request("GET", PATH))
    assert (error.not_found, error.no_resource) == (True, no_resource)


async def test_a_request_is_repeated_after_the_time_in_retry_after(script, client, clock):
    busy = says(failure(429, "TooManyRequests", "slow down"), 429, Retry_After="2")
    script.on("POST", PATH, busy, busy, says({}))
    await client.request("POST", PATH, body=b"{}")
    assert clock.slept == [2, 2]


async def test_a_huge_retry_after_means_ten_seconds(script, client, clock):
    busy = {**failure(429, "TooManyRequests", "slow down"), "details": {"retryAfterSeconds": 10**400}}
    script.on("GET", PATH, says(busy, 429), says(b"in"))
    assert await client.request("GET", PATH) == b"in"
    assert clock.slept == [10]


async def test_a_request_is_repeated_three_times_at_most(script, client, clock):
    script.on("GET", PATH, says(failure(429, "TooManyRequests", "slow down"), 429, Retry_After="3600"))
    error = await refused(client.request("GET", PATH))
    assert (error.status, error.retry_after, error.passing) == (429, 3600, True)
    assert len(clock.slept) == 3
    assert max(clock.slept) <= 10


@pytest.mark.parametrize("status", [500, 503, 504, 409])
async def test_other_errors_are_not_repeated(script, client, clock, status):
    script.on("GET", PATH, says(failure(status, "X", "no"), status, Retry_After="1"))
    await refused(client.request("GET", PATH))
    assert script.count(PATH) == 1
    assert not clock.slept


async def test_a_get_on_a_dropped_connection_is_sent_again(script, client):
    script.on("GET", PATH, says({}), resets, says(b"again"))
    await client.request("GET", PATH)
    assert await client.request("GET", PATH) == b"again"


async def test_a_post_on_a_dropped_connection_is_not_sent_again(script, client):
    script.on("POST", PATH, says({}), resets, says(b"again"))
    await client.request("POST", PATH, body=b"{}")
    error = await refused(client.request("POST", PATH, body=b"{}"))
    assert (error.status, error.reason) == (0, "Disconnected")
    assert script.count(PATH) == 2


async def test_a_server_that_does_not_answer_is_a_timeout(script, clock):
    script.on("GET", PATH, hangs)
    async with Client(ClusterConfig(script.url), clock, timeout=0.1) as client:
        error = await refused(client.request("GET", PATH))
        assert list(client.requests) == [("GET", "<error>")]
    assert (error.status, error.reason, error.passing) == (0, "Timeout", True)
    assert script.url in error.message


async def test_an_answer_that_breaks_off_is_an_error_without_a_status(script, client):
    async def half(request):
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        request.transport.close()
        return response

    script.on("GET", PATH, half)
    error = await refused(client.request("GET", PATH))
    assert (error.status, error.reason) == (0, "Disconnected")


@pytest.mark.parametrize("host", ["api..internal", "a" * 64 + ".internal"])
async def test_an_invalid_host_name_is_an_error(clock, host):
    async with Client(ClusterConfig(f"http://{host}:1"), clock) as client:
        error = await refused(client.request("GET", PATH))
    assert (error.status, error.message) == (0, f"http://{host}:1 cannot be reached: that is no name of a host")


async def test_a_missing_thread_for_the_name_lookup_is_an_error(script, clock):
    class Full(ThreadPoolExecutor):
        def submit(self, *_: object) -> Any:
            raise RuntimeError("can't start new thread")

    asyncio.get_running_loop().set_default_executor(Full())
    server = script.url.replace("127.0.0.1", "localhost")
    async with Client(ClusterConfig(server), clock) as client:
        error = await refused(client.request("GET", PATH))
    assert (error.status, error.message) == (0, f"no request can be sent to {server}: can't start new thread")


async def test_a_refused_connection_is_an_error(clock):
    with free_ports.port() as port:
        async with Client(ClusterConfig(f"http://127.0.0.1:{port}"), clock) as client:
            error = await refused(client.request("GET", PATH))
    assert error.status == 0
    assert error.message == f"http://127.0.0.1:{port} cannot be reached: Connection refused"


async def test_a_stream_checks_the_status_before_it_yields(script, client):
    script.on("GET", PATH, says(b"<html>busy</html>", 503))
    chunks = client.stream(PATH, {}, 30)
    with pytest.raises(ApiError, match="currently unable"):
        await anext(chunks)


async def test_a_silent_stream_ends_in_a_timeout(script, client):
    script.on("GET", PATH, streams(b"one", then="hang"))
    chunks = client.stream(PATH, {}, 4.0)
    assert await anext(chunks) == b"one"
    with pytest.raises(ApiError) as caught:
        await anext(chunks)
    assert caught.value.reason == "Timeout"


async def test_streams_do_not_use_the_connections_of_requests(script, client):
    script.on("GET", "/api/v1/pods", streams(b"x", then="hang"))
    script.on("GET", PATH, says(b"ok"))

    async def listen():
        async for _ in client.stream("/api/v1/pods", {}, 30):
            pass

    listeners = [asyncio.ensure_future(listen()) for _ in range(40)]
    await until(lambda: script.count("/api/v1/pods") == 40)
    assert await client.request("GET", PATH) == b"ok"
    for each in listeners:
        each.cancel()
    await asyncio.gather(*listeners, return_exceptions=True)


async def test_the_certificate_is_checked_for_the_configured_server_name(authority, clock):
    server, script = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), Script()
    authority.issue_cert("api.internal").configure_cert(server)
    script.on("GET", PATH, says(b"secure"))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with serving(script.handle, tls=server) as port:
        url = f"https://127.0.0.1:{port}"
        async with Client(ClusterConfig(url, ssl=trusting, tls_server_name="api.internal"), clock) as client:
            assert await client.request("GET", PATH) == b"secure"
        async with Client(ClusterConfig(url, ssl=trusting), clock) as client:
            assert (await refused(client.request("GET", PATH))).reason == "Certificate"
        async with Client(ClusterConfig(url, ssl=ssl.create_default_context()), clock) as client:
            error = await refused(client.request("GET", PATH))
    assert error.reason == "Certificate"
    assert "not accepted" in error.message


@pytest.mark.parametrize(
    ("path", "described"),
    [
        ("/api/v1/pods", "get pods"),
        ("/api/v1/namespaces/n/pods", "get pods"),
        ("/api/v1/namespaces/n", "get namespaces n"),
        ("/apis/apps/v1/namespaces/n/deployments/d", "get deployments.apps d"),
        ("/apis/apps/v1/namespaces/n/deployments/d/scale", "get deployments d"),
        ("/apis/external.metrics.k8s.io/v1beta1/namespaces/n/a%3Ab", "get a:b.external.metrics.k8s.io"),
        ("/apis/apps/v1", ""),
        ("/apis/apps", ""),
        ("/version", ""),
        ("/", ""),
    ],
)
def test_a_path_is_described_as_in_client_go(path, described):
    assert paths.described("GET", path) == described


def test_names_in_paths_are_escaped():
    assert paths.PODS.object(Key("n", "a/../b?c")) == "/api/v1/namespaces/n/pods/a%2F..%2Fb%3Fc"


async def test_a_proxy_of_the_environment_is_not_used_by_the_client(script, clock, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    script.on("GET", PATH, says(b"direct"))
    async with Client(ClusterConfig(script.url), clock) as client:
        assert await client.request("GET", PATH) == b"direct"


async def test_a_proxy_of_the_configuration_is_used(clock):
    seen = []

    async def proxy(request):
        seen.append(str(request.url))
        return web.Response(text="via")

    async with serving(proxy) as port:
        config = ClusterConfig("http://api.invalid:80", proxy=f"http://127.0.0.1:{port}")
        async with Client(config, clock) as client:
            assert await client.request("GET", PATH) == b"via"
    assert seen == [f"http://api.invalid{PATH}"]
    async with Client(config, clock) as client:
        error = await refused(client.request("GET", PATH))
    assert error.message == "the proxy before http://api.invalid:80 cannot be reached: Connection refused"


async def test_a_closed_client_stays_closed(script, clock):
    client = Client(ClusterConfig(script.url), clock)
    await client.aclose()
    assert (await refused(client.request("GET", PATH))).reason == "Closed"
    assert not script.asked


async def test_the_limiter_spreads_requests(script, clock):
    """3 at once, then 2 a second: four more take two seconds."""
    script.on("GET", PATH, says(b"x"))
    async with Client(ClusterConfig(script.url), clock, limiter=Limiter(clock, 2.0, 3)) as client:
        began = clock.monotonic()
        await asyncio.gather(*(client.request("GET", PATH) for _ in range(7)))
        took = clock.monotonic() - began
        assert sum(clock.slept) <= 2.0 <= took + 1e-6  # what requests take themselves need not be slept
        clock.skipped += 100
        clock.slept.clear()
        await asyncio.gather(*(client.request("GET", PATH) for _ in range(3)))
    assert clock.slept == []


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("announced", [True, False])
async def test_an_answer_that_is_too_large_is_not_read(script, clock, status, announced):
    sent = 0

    async def endless(request):
        nonlocal sent
        response = web.StreamResponse(status=status, headers={"Content-Length": str(2**30)} if announced else {})
        await response.prepare(request)
        while True:
            await response.write(b"x" * 2**16)
            sent += 2**16

    script.on("GET", PATH, endless)
    async with Client(ClusterConfig(script.url), clock, largest=2**20) as client:
        error = await refused(client.request("GET", PATH))
        assert (error.status, error.reason, error.passing) == (0, "TooLarge", False)
        assert error.message == f"the answer to GET {PATH} is larger than 1 MiB: not read"
        assert sent < 2**25  # what fits into buffers on the way
        script.replace("GET", PATH, says(b"x" * 2**20))
        assert len(await client.request("GET", PATH)) == 2**20
        script.replace("GET", PATH, says(b"x" * (2**20 + 1)))
        assert (await refused(client.request("GET", PATH))).reason == "TooLarge"


async def test_a_stream_reads_as_one_chunk_what_arrives_in_a_pause(script):
    pausing, sent = asyncio.Event(), asyncio.Event()

    class Pauses(SystemClock):
        async def sleep(self, seconds):
            assert seconds == 7
            pausing.set()
            await sent.wait()

    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one")
        await pausing.wait()
        for part in (b"two", b"three"):
            await response.write(part)
        sent.set()
        return response

    script.on("GET", PATH, answer)
    async with Client(ClusterConfig(script.url), Pauses()) as client:
        assert [chunk async for chunk in client.stream(PATH, {}, 30, 7)] == [b"one", b"twothree"]


async def test_a_stream_has_no_size_limit(script, clock):
    script.on("GET", f"{PATH}?watch", streams(*[b"x" * 2**16] * 32))
    async with Client(ClusterConfig(script.url), clock, largest=2**10) as client:
        chunks = [chunk async for chunk in client.stream(PATH, {"watch": "true"}, 5)]
    assert sum(map(len, chunks)) == 2**21


async def test_the_number_of_concurrent_requests_is_limited(script, clock):
    answering = asyncio.Event()

    async def answer(request):
        await answering.wait()
        return await says({})(request)

    script.on("GET", PATH, answer)
    async with Client(ClusterConfig(script.url), clock, timeout=30) as client, asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(client.request("GET", PATH))
        await until(lambda: script.count(PATH) == 32)
        await asyncio.sleep(0.2)
        assert script.count(PATH) == 32
        answering.set()
    assert script.count(PATH) == 100
