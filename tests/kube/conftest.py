"""Fixtures of these tests: a scripted API server, its client, and recorded exchanges."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop
from support.kube_caches import HPA
from support.scripted_server import QUICK, Script, SkippingClock, serving

from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.cache import Cache
from hpad.kube.client import Client
from hpad.kube.reflector import WatchScope


@pytest.fixture
def clock() -> SkippingClock:
    return SkippingClock()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Runs a coroutine to its end on a new loop of either kind: uvloop has transports, timers and TLS of its own."""

    def running(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(main, 60))

    return running


@pytest.fixture(params=["GET", "PUT"])
def method(request: pytest.FixtureRequest) -> str:
    """A method of requests that go by aiohttp, and of one over connections of hpad's own."""
    return str(request.param)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, so that no kubeconfig of the developer is found."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    script = Script()
    async with serving(script.handle) as port:
        script.url = f"http://127.0.0.1:{port}"
        yield script


@pytest.fixture
async def client(script: Script, clock: SkippingClock) -> AsyncIterator[Client]:
    async with Client(ClusterConfig(script.url), clock, timeout=60.0) as client:
        yield client


@pytest.fixture
async def cache(client: Client) -> Cache[Any]:
    """Of the HPAs that the script lists."""
    return Cache(WatchScope(client, options=QUICK), HPA)


@pytest.fixture
async def running() -> AsyncIterator[Callable[[Any], asyncio.Task[Any]]]:
    """Starts coroutines in the background; ends them with the test, and shows what they raised."""
    tasks: list[asyncio.Task[Any]] = []

    def start(coroutine: Any) -> asyncio.Task[Any]:
        tasks.append(asyncio.ensure_future(coroutine))
        return tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
