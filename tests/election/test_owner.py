"""A write for an HPA that was edited, or by a former leader, is not sent, however late that turns out."""

import asyncio

import pytest
from support.controller import Switch, hpa
from support.virtual_time import until

from hpad.api.metadata import Key
from hpad.clock import SystemClock
from hpad.election import owner as ownership
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.client import Client
from hpad.lab.cluster import Cluster

WEB = Key("default", "web")
MAP = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"made"}}'
PATH = "/api/v1/namespaces/default/configmaps"
CONNECTIONS = 32


class HandClock(SystemClock):
    """A sleep ends when `over` is set."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        await self.over.wait()


@pytest.mark.parametrize("raised", [ownership.NotLeading, ownership.Edited])
async def test_a_write_that_waits_for_a_connection_is_not_sent_once_its_permit_has_ended(raised: type) -> None:
    """The same holds after a stop of the process: time passes before the first byte is sent."""
    owner, clock, web, edited = Switch(), HandClock(), hpa("web"), hpa("web", maxReplicas=3)
    current = [web]
    async with (
        Cluster(kubelet=False, controllers=False, clock=clock) as cluster,
        Client(ClusterConfig(cluster.url), SystemClock()) as client,
    ):
        slow = cluster.faults.add(path="pods", delay=0.5, times=None)
        reading = [asyncio.create_task(client.request("GET", "/api/v1/pods")) for _ in range(CONNECTIONS)]
        await until(lambda: slow.hits == CONNECTIONS)

        async def write() -> None:
            permit = ownership.Permit(owner, web.key, web, lambda _: current[0])
            await client.request("POST", PATH, body=MAP, allowed=permit.require)

        writing = asyncio.create_task(write())
        await asyncio.sleep(0.1)
        if raised is ownership.NotLeading:
            owner.on = False
        else:
            current[0] = edited
        clock.over.set()
        with pytest.raises(raised):
            await writing
        await asyncio.gather(*reading)
        assert cluster.log.count("create", "configmaps") == 0
        owner.on, current[0] = True, web
        await write()
        assert cluster.log.count("create", "configmaps") == 1
        await client.request("GET", "/api/v1/pods")
