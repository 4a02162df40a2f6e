"""Faults of the API server and of the connection to it.

Each test starts in a steady state, has its fault for some periods, and then doubles the load: the replicas must double
by one write, and nothing else may have been written meanwhile.
"""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Awaitable, Callable
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
from hpad.api.metadata import Key
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
    """A target at its metric target under constant load, another HPA without any change, and the writes of both."""

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
        """Waits until hpad has seen all pods and both HPAs are active."""
        for name in ("web", "still"):
            await self.world.until(lambda name=name: self.world.condition(name, "ScalingActive")[0] == "True")
        await self.world.until(lambda: len(self.world.pods("web")) == STEADY == self.current("web"))
        self._written = self.scaled

    def current(self, name: str) -> int:
        return int(self.world.status(name).get("currentReplicas", -1))

    @property
    def scaled(self) -> int:
        """The number of writes of scales."""
        writes = self.world.cluster.log.writes
        return sum(write.subresource == "scale" and write.verb == "update" and write.status == 200 for write in writes)

    async def end(self, what: str, recovered: Recovered) -> None:
        """Doubles the load, and asserts that one write doubles the replicas and no other write happened."""
        assert set(self.counts) <= {STEADY}, f"{what} changed the replicas: {self.counts}"
        loop = asyncio.get_running_loop()
        started, doubled = loop.time(), SystemClock().now()
        self.world.load("web", lambda pods: 50 * LATER // max(pods, 1))
        await self.world.until(lambda: self.world.replicas("deployments", "web") == LATER)
        recovered(loop.time() - started, what)
        await self.world.until(lambda: self.decided("still") > doubled)
        await self.world.periods(2)
        self.check()
        await self.world.until(lambda: self.world.condition("web", "ScalingActive")[0] == "True")

    def check(self) -> None:
        """Asserts that one write has doubled the replicas, that there is no other write, and that no HPA is lost."""
        assert list(dict.fromkeys(self.counts)) in ([STEADY, LATER], [LATER])
        assert self.scaled == self._written + 1
        assert set(self.others) <= {2}
        assert {key.name for key in self.world.daemon.components.store.keys()} == {"still", "web"}  # noqa: SIM118  # the store is not a mapping

    def decided(self, name: str) -> datetime:
        """Returns the time of the last decision on an HPA."""
        last = self.world.daemon.components.store.get(Key("default", name)).last
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


async def relayed(world: Any, tls: ssl.SSLContext | None = None) -> Relay:
    """Starts a relay, which ends after an hpad that is started later: at its end hpad writes its last events."""
    relay = Relay(int(world.cluster.url.rpartition(":")[2]), tls)
    await relay.start()
    world.at_end(relay.stop)
    return relay


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
async def test_faulty_answers(steady: Steady, recovered: Recovered, what: str, fault: dict[str, Any]) -> None:
    """The fault applies to all requests: lists, watches, metrics and writes."""
    await steady.world.hpad(reflector_options=QUICK)
    await steady.begin()
    rule = steady.world.cluster.faults.add(times=None, **fault)
    steady.world.cluster.faults.drop_watches()
    await asyncio.sleep(SPELL)
    assert rule.hits > 0
    steady.world.cluster.faults.clear()
    await steady.end(what, recovered)


async def test_an_unreachable_api_server(steady: Steady, recovered: Recovered) -> None:
    """The port refuses connections; a pending rescale is done afterwards, once."""
    relay = await relayed(steady.world)
    where = ClusterConfig(server=f"http://127.0.0.1:{relay.port}")
    await steady.world.hpad(reflector_options=QUICK, cluster_config=where)
    await steady.begin()
    await relay.pause()
    await asyncio.sleep(SPELL)
    await steady.world.until(steady.world.daemon.problems)
    await relay.start()
    await steady.end("an API server that was away", recovered)
    await steady.world.until(lambda: steady.world.daemon.problems() == [])


def test_an_api_server_unreachable_for_a_minute(recovered: Recovered) -> None:
    """All settings have their defaults: a period of 15 s, backoffs, and the maximum staleness."""
    fast_time.run(_away_for_a_minute(recovered))


async def _away_for_a_minute(recovered: Recovered) -> None:
    clock = fast_time.Clock()
    async with contextlib.AsyncExitStack() as stack:
        world = await stack.enter_async_context(worlds(Cluster(auto_ready=True, clock=clock)))
        world.patience *= fast_time.TIMES
        steady = Steady(world)
        steady.prepare()
        relay = await relayed(world)
        where = ClusterConfig(server=f"http://127.0.0.1:{relay.port}")
        period = settings.Settings().sync_period
        await world.hpad(clock=clock, cluster_config=where, sync_period=period)
        await steady.begin()
        await relay.pause()
        started = clock.monotonic()
        await clock.sleep(59)
        world.load("web", lambda pods: 50 * LATER // max(pods, 1))
        assert world.daemon.problems()
        assert world.condition("web", "ScalingActive")[0] == "True"  # the status cannot be written
        await clock.sleep(1)
        assert clock.monotonic() - started >= 60
        await relay.start()
        back = clock.monotonic()
        await world.until(lambda: world.replicas("deployments", "web") == LATER)
        recovered(clock.monotonic() - back, "an API server that was away for a minute, at a period of 15 s")
        await clock.sleep(2 * period.total_seconds())
        steady.check()


async def test_an_api_server_restarted_without_its_data(recovered: Recovered, world: Any) -> None:
    """It has the same port, and objects with other resourceVersions and pods with other names."""
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


async def test_reset_watches(steady: Steady, recovered: Recovered) -> None:
    relay = await relayed(steady.world)
    where = ClusterConfig(server=f"http://127.0.0.1:{relay.port}")
    await steady.world.hpad(reflector_options=QUICK, cluster_config=where)
    await steady.begin()
    resets = 0
    while resets < 8:
        resets += relay.abort() > 0  # on a busy machine they may not be open again yet
        await asyncio.sleep(PERIOD / 2)
    await steady.end("watches whose connections were reset", recovered)


async def test_silent_watches(steady: Steady, recovered: Recovered) -> None:
    """The connections stay open without data, as behind a router that dropped them: hpad opens new ones."""
    relay = await relayed(steady.world)
    where = ClusterConfig(server=f"http://127.0.0.1:{relay.port}")
    await steady.world.hpad(reflector_options=QUICK, cluster_config=where)
    await steady.begin()
    assert relay.freeze() > 0
    await steady.end("watches that fell silent", recovered)


async def test_an_expired_resource_version(recovered: Recovered, world: Any) -> None:
    """During the interruption so many changes happen that the server no longer has the version of the watches."""
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


async def test_a_stale_cache_stops_decisions(steady: Steady, recovered: Recovered) -> None:
    """Watches are silent, lists fail, and only metrics arrive: hpad keeps the replicas and names the reason in the HPA.

    It continues afterwards.
    """
    steady.world.cluster.hub.bookmark_seconds = 0.3
    await steady.world.hpad(reflector_options=QUICK, max_staleness=timedelta(seconds=4))
    await steady.begin()
    steady.world.cluster.faults.stall_watches()
    watched = "^/(api/v1|apis/apps|apis/autoscaling)/"
    steady.world.cluster.faults.add(method="GET", path=watched, times=None, status=503)
    await steady.world.until(lambda: steady.world.condition("web", "AbleToScale")[0] == "False")
    _, reason, message = steady.world.condition("web", "AbleToScale")
    assert reason == "StaleCache"
    assert "has received nothing" in message
    steady.world.load("web", lambda pods: 10)
    await steady.world.periods(3)
    assert steady.world.replicas("deployments", "web") == STEADY
    held_back = 'hpad_hpa_held_back{condition="AbleToScale",hpa_name="web",namespace="default",reason="StaleCache"} 1.0'
    series = await steady.world.exposed(held_back)
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
    """A clock whose time of day can be set; its monotonic time is real."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_step(steady: Steady, recovered: Recovered, hours: int) -> None:
    """The stabilization window does not end early, which would scale down at once; a scale-up is done at once."""
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


async def test_an_expired_token(steady: Steady, recovered: Recovered, tmp_path: Path) -> None:
    """The file has a new token by then; open watches continue until they end."""
    token = tmp_path / "token"
    await asyncio.to_thread(token.write_text, "old")
    relay = await relayed(steady.world)
    relay.token = "old"
    url = f"http://127.0.0.1:{relay.port}"
    path = await asyncio.to_thread(kubeconfig, tmp_path / "k", url, {}, {"tokenFile": str(token)})
    await steady.world.hpad(reflector_options=QUICK, cluster_config=await loaded(path))
    await steady.begin()
    await asyncio.to_thread(token.write_text, "new")
    relay.token = "new"
    await steady.end("a token that expired", recovered)


def issued(folder: Path) -> ssl.SSLContext:
    """Creates a CA and certificates; returns the server's context, and writes the client's files to the folder."""
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


async def test_rotated_certificates(steady: Steady, recovered: Recovered, tmp_path: Path) -> None:
    """The CA and the certificates of server and client are replaced; the API server is restarted for it."""
    relay = await relayed(steady.world, await asyncio.to_thread(issued, tmp_path))
    user = {"client-certificate": "hpad.crt", "client-key": "hpad.key"}
    url, trust = f"https://127.0.0.1:{relay.port}", {"certificate-authority": "ca.crt"}
    path = await asyncio.to_thread(kubeconfig, tmp_path / "k", url, trust, user)
    await steady.world.hpad(reflector_options=QUICK, cluster_config=await loaded(path))
    await steady.begin()
    await relay.pause()
    relay.tls = await asyncio.to_thread(issued, tmp_path)
    await relay.start()
    await steady.end("certificates that were rotated", recovered)
