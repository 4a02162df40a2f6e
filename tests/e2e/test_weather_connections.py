"""Faults of the connection to the API server: refused, reset, silent, and with other credentials. See `e2e.steady`."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import trustme
import yaml
from e2e.conftest import PERIOD, worlds
from e2e.steady import LATER, QUICK, Recovered, Steady
from support import fast_time
from support.relay import Relay

from hpad import settings
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.auth.kubeconfig import load_cluster_config
from hpad.lab.cluster import Cluster

SPELL = 4 * PERIOD


async def relayed(world: Any, tls: ssl.SSLContext | None = None) -> Relay:
    """Starts a relay, which ends after an hpad that is started later: at its end hpad writes its last events."""
    relay = Relay(int(world.cluster.url.rpartition(":")[2]), tls)
    await relay.start()
    world.at_end(relay.stop)
    return relay


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
    await steady.world.until(relay.freeze)
    await steady.end("watches that fell silent", recovered)


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
