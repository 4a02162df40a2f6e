"""The API server and the way to it under any weather: what is true afterwards.

Each test begins in a steady state, has its weather for some periods, and then asks for twice the pods: they have to
come, once, and nothing else may have happened meanwhile.
"""

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from e2e.conftest import PERIOD, worlds
from support import fast_time, free_ports
from support.relay import Relay

from hpad import settings
from hpad.clock import SystemClock
from hpad.kube import watch
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.auth.kubeconfig import load_cluster_config
from hpad.lab.cluster import Cluster

QUICK = watch.ReflectorOptions(
    list_timeout=2,
    shortest_watch=4,
    longest_watch=6,
    grace=1,
    longest_silence=1.0,
    initial_backoff=0.02,
    max_backoff=0.3,
)
STEADY, LATER = 4, 8
SPELL = 4 * PERIOD
Recovered = Callable[[float, str], None]


class Steady:
    """A target at its goal under a load that stays, another HPA with nothing to do, and all that happens to both."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.counts: list[int] = []
        self.others: list[int] = []
        self._written = 0

    def prepare(self, replicas: int = STEADY) -> None:
        for name, count in (("web", replicas), ("still", 2)):
            self.world.workload("Deployment", name, count)
            self.world.hpa(name)
        self.world.load("web", lambda pods: 50 * STEADY // max(pods, 1))
        self.world.load("still", 50)
        self.world.cluster.store.subscribe(self._seen)

    async def begin(self) -> None:
        """Wait until hpad has seen all pods and is content."""
        for name in ("web", "still"):
            await self.world.until(lambda name=name: self.world.condition(name, "ScalingActive")[0] == "True")
        await self.world.until(lambda: len(self.world.pods("web")) == STEADY == self.current("web"))
        self._written = self.scaled

    def current(self, name: str) -> int:
        return int(self.world.status(name).get("currentReplicas", -1))

    @property
    def scaled(self) -> int:
        """How often a scale was written."""
        writes = self.world.cluster.log.writes
        return sum(write.subresource == "scale" and write.verb == "update" and write.status == 200 for write in writes)

    async def end(self, what: str, recovered: Recovered) -> None:
        """Ask for twice the pods: they come, by one write, and nothing else was ever written."""
        assert set(self.counts) <= {STEADY}, f"{what} changed the replicas: {self.counts}"
        loop = asyncio.get_running_loop()
        began, asked = loop.time(), SystemClock().now()
        self.world.load("web", lambda pods: 50 * LATER // max(pods, 1))
        await self.world.until(lambda: self.world.replicas("deployments", "web") == LATER)
        recovered(loop.time() - began, what)
        await self.world.until(lambda: self.decided("still") > asked)
        await self.world.periods(2)
        self.check()
        await self.world.until(lambda: self.world.condition("web", "ScalingActive")[0] == "True")

    def check(self) -> None:
        """One write has brought the replicas to twice as many, nothing else was ever written, and no HPA is lost."""
        assert list(dict.fromkeys(self.counts)) in ([STEADY, LATER], [LATER])
        assert self.scaled == self._written + 1
        assert set(self.others) <= {2}
        assert {key.name for key in self.world.daemon.components.store.keys()} == {"still", "web"}  # noqa: SIM118  # no mapping

    def decided(self, name: str) -> datetime:
        """When an HPA was last decided on."""
        last = self.world.daemon.components.store.get(("default", name)).last
        return last.at if last is not None else datetime.min.replace(tzinfo=SystemClock().now().tzinfo)

    def _seen(self, change: Any) -> None:
        if change.resource.plural == "deployments" and change.type == "MODIFIED":
            seen = self.counts if change.object["metadata"]["name"] == "web" else self.others
            seen.append(int(change.object["spec"]["replicas"]))


@pytest.fixture
async def steady(world: Any) -> Steady:
    made = Steady(world)
    made.prepare()
    return made


@contextlib.asynccontextmanager
async def relayed(world: Any, tls: ssl.SSLContext | None = None) -> AsyncIterator[Relay]:
    relay = Relay(int(world.cluster.url.rpartition(":")[2]), tls)
    await relay.start()
    try:
        yield relay
    finally:
        await relay.stop()


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        ("an API server that answered 429", {"status": 429, "retry_after": 1}),
        ("an API server that answered 500", {"status": 500}),
        ("an API server that answered 504", {"status": 504}),
        ("an API server that answered slowly", {"delay": 0.3}),
        ("half answers", {"truncate": True}),
        ("connections that were reset", {"reset": True}),
        ("answers that were none", {"body": "<html>maintenance</html>"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_answers_that_are_none(steady: Steady, recovered: Recovered, what: str, fault: dict[str, Any]) -> None:
    """All requests fare alike: lists, watches, metrics, writes."""
    await steady.world.hpad(reflector_options=QUICK)
    await steady.begin()
    rule = steady.world.cluster.faults.add(times=None, **fault)
    steady.world.cluster.faults.drop_watches()
    await asyncio.sleep(SPELL)
    assert rule.hits > 0
    steady.world.cluster.faults.clear()
    await steady.end(what, recovered)


async def test_an_api_server_that_is_away(steady: Steady, recovered: Recovered) -> None:
    """Nobody listens; what is asked for meanwhile is done afterwards, once."""
    async with relayed(steady.world) as relay:
        where = ClusterConfig(server=f"http://127.0.0.1:{relay.port}")
        await steady.world.hpad(reflector_options=QUICK, cluster_config=where)
        await steady.begin()
        await relay.pause()
        await asyncio.sleep(SPELL)
        await steady.world.until(steady.world.daemon.problems)
        await relay.start()
        await steady.end("an API server that was away", recovered)
        await steady.world.until(lambda: steady.world.daemon.problems() == [])


def test_an_api_server_that_is_away_for_a_minute(recovered: Recovered) -> None:
    """All that can be set is left as it comes: a period of 15 s, the waits between attempts, what is too old."""
    fast_time.run(_away_for_a_minute(recovered))


async def _away_for_a_minute(recovered: Recovered) -> None:
    clock = fast_time.Clock()
    async with contextlib.AsyncExitStack() as stack:
        world = await stack.enter_async_context(worlds(Cluster(auto_ready=True, clock=clock)))
        world.patience *= fast_time.TIMES
        steady = Steady(world)
        steady.prepare()
        relay = await stack.enter_async_context(relayed(world))
        where = ClusterConfig(server=f"http://127.0.0.1:{relay.port}")
        period = settings.Settings().sync_period
        await world.hpad(clock=clock, cluster_config=where, sync_period=period)
        await steady.begin()
        await relay.pause()
        began = clock.monotonic()
        await clock.sleep(59)
        world.load("web", lambda pods: 50 * LATER // max(pods, 1))
        assert world.daemon.problems()
        assert world.condition("web", "ScalingActive")[0] == "True"  # nobody could be told
        await clock.sleep(1)
        assert clock.monotonic() - began >= 60
        await relay.start()
        back = clock.monotonic()
        await world.until(lambda: world.replicas("deployments", "web") == LATER)
        recovered(clock.monotonic() - back, "an API server that was away for a minute, at a period of 15 s")
        await clock.sleep(2 * period.total_seconds())
        steady.check()


async def test_an_api_server_that_comes_back_without_its_history(recovered: Recovered, world: Any) -> None:
    """On the same port, with objects of other versions and pods of other names."""
    async with contextlib.AsyncExitStack() as stack:
        port = stack.enter_context(free_ports.port())
        first = Cluster(auto_ready=True, port=port)
        await first.start()
        stack.push_async_callback(first.stop)
        world.cluster = first
        before = Steady(world)
        before.prepare()
        await world.hpad(reflector_options=QUICK)
        await before.begin()
        await first.stop()
        await asyncio.sleep(PERIOD)
        world.cluster = await stack.enter_async_context(Cluster(auto_ready=True, port=port))
        after = Steady(world)
        after.prepare()
        await after.begin()
        await after.end("an API server that came back without its history", recovered)


async def test_watches_whose_connections_are_reset(steady: Steady, recovered: Recovered) -> None:
    async with relayed(steady.world) as relay:
        where = ClusterConfig(server=f"http://127.0.0.1:{relay.port}")
        await steady.world.hpad(reflector_options=QUICK, cluster_config=where)
        await steady.begin()
        resets = 0
        while resets < 8:
            resets += relay.abort() > 0  # a busy machine may not have opened them again
            await asyncio.sleep(PERIOD / 2)
        await steady.end("watches whose connections were reset", recovered)


async def test_watches_that_fall_silent(steady: Steady, recovered: Recovered) -> None:
    """The connections stay open and bring nothing, as behind a router that forgot them: new ones take their place."""
    async with relayed(steady.world) as relay:
        where = ClusterConfig(server=f"http://127.0.0.1:{relay.port}")
        await steady.world.hpad(reflector_options=QUICK, cluster_config=where)
        await steady.begin()
        assert relay.freeze() > 0
        await steady.end("watches that fell silent", recovered)


async def test_a_version_that_has_expired(recovered: Recovered, world: Any) -> None:
    """While the watches were away so much happened that the server has forgotten where they were."""
    async with Cluster(auto_ready=True, history_limit=20) as forgetful:
        world.cluster = forgetful
        steady = Steady(world)
        steady.prepare()
        await world.hpad(reflector_options=QUICK)
        await steady.begin()
        forgetful.faults.add(path="watch=true", times=None, status=503)
        forgetful.faults.drop_watches()
        for number in range(60):
            config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}}
            forgetful.apply(config_map)
        await asyncio.sleep(SPELL)
        forgetful.faults.clear()
        await steady.end("a resourceVersion that had expired", recovered)


async def test_what_is_known_becomes_too_old(steady: Steady, recovered: Recovered) -> None:
    """Watches bring nothing, whatever is tried, lists fail, metrics come as ever: replicas are kept, the HPA says why,
    and all goes on afterwards."""
    steady.world.cluster.hub.bookmark_seconds = 0.3
    await steady.world.hpad(reflector_options=QUICK, max_staleness=timedelta(seconds=4))
    await steady.begin()
    steady.world.cluster.faults.stall_watches()
    watched = "^/(api/v1|apis/apps|apis/autoscaling)/"
    steady.world.cluster.faults.add(method="GET", path=watched, times=None, status=503)
    await steady.world.until(lambda: steady.world.condition("web", "AbleToScale")[0] == "False")
    _, reason, message = steady.world.condition("web", "AbleToScale")
    assert reason == "StaleCache"
    assert "has been heard of" in message
    steady.world.load("web", lambda pods: 10)
    await steady.world.periods(3)
    assert steady.world.replicas("deployments", "web") == STEADY
    held = 'hpad_hpa_held_back{condition="AbleToScale",hpa_name="web",namespace="default",reason="StaleCache"} 1.0'
    series = await steady.world.exposed(held)
    (staleness,) = re.findall(r'hpad_cache_staleness_seconds\{resource="pods"\} (.*)', series)
    assert float(staleness) > 4
    steady.world.load("web", lambda pods: 50 * STEADY // max(pods, 1))

    def stale() -> int:
        return sum(reason == "StaleCache" for reason, _ in steady.world.events("web"))

    await steady.world.until(stale)
    await steady.world.periods(2)
    assert stale() == 1
    steady.world.cluster.faults.clear()
    await steady.end("watches that brought nothing for too long", recovered)


class Jumping(SystemClock):
    """A wall clock that can be set; monotonic time goes on as ever."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_that_jumps(steady: Steady, recovered: Recovered, hours: int) -> None:
    """The stabilization window neither ends early (a scale-down at once) nor late: a scale-up is done at once."""
    clock = Jumping()
    steady.world.hpa("web", behavior=None)
    await steady.world.hpad(reflector_options=QUICK, clock=clock)
    await steady.begin()
    steady.world.load("web", lambda pods: 10)
    await steady.world.until(lambda: steady.world.condition("web", "AbleToScale")[1] == "ScaleDownStabilized")
    clock.ahead = timedelta(hours=hours)
    await steady.world.periods(4)
    assert steady.world.replicas("deployments", "web") == STEADY
    clock.ahead = timedelta(0)
    await steady.world.periods(2)
    await steady.end(f"a clock that jumped by {hours} h and back", recovered)


def kubeconfig(path: Path, server: str, cluster: dict[str, str], user: dict[str, str]) -> str:
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return str(path)


def loaded(path: str) -> Awaitable[ClusterConfig]:
    return asyncio.to_thread(load_cluster_config, path)


async def test_a_token_that_expires(steady: Steady, recovered: Recovered, tmp_path: Path) -> None:
    """The file holds a new one by then; watches that are open go on until they end."""
    token = tmp_path / "token"
    await asyncio.to_thread(token.write_text, "old")
    async with relayed(steady.world) as relay:
        relay.token = "old"
        url = f"http://127.0.0.1:{relay.port}"
        path = await asyncio.to_thread(kubeconfig, tmp_path / "k", url, {}, {"tokenFile": str(token)})
        await steady.world.hpad(reflector_options=QUICK, cluster_config=await loaded(path))
        await steady.begin()
        await asyncio.to_thread(token.write_text, "new")
        relay.token = "new"
        await steady.end("a token that expired", recovered)


def issued(folder: Path) -> ssl.SSLContext:
    """A new authority and new certificates: the server's context, and the client's files in the folder."""
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(server)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    mine = authority.issue_cert("hpad@example.org")
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    mine.private_key_pem.write_to_path(str(folder / "hpad.key"))
    mine.cert_chain_pems[0].write_to_path(str(folder / "hpad.crt"))
    return server


async def test_certificates_that_are_rotated(steady: Steady, recovered: Recovered, tmp_path: Path) -> None:
    """Authority, server and client all get new ones; the API server is restarted for it."""
    async with relayed(steady.world, await asyncio.to_thread(issued, tmp_path)) as relay:
        user = {"client-certificate": "hpad.crt", "client-key": "hpad.key"}
        url, trust = f"https://127.0.0.1:{relay.port}", {"certificate-authority": "ca.crt"}
        path = await asyncio.to_thread(kubeconfig, tmp_path / "k", url, trust, user)
        await steady.world.hpad(reflector_options=QUICK, cluster_config=await loaded(path))
        await steady.begin()
        await relay.pause()
        relay.tls = await asyncio.to_thread(issued, tmp_path)
        await relay.start()
        await steady.end("certificates that were rotated", recovered)
