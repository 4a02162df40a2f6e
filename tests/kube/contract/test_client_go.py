"""The electors of kube-controller-manager (client-go) and of hpad respect each other on one Lease."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kube.contract.conftest import Api
from support import apiserver

from hpad.election import lease
from hpad.kube.errors import ApiError
from hpad.settings.model import Election

CONTROLLER = "kube-controller-manager"
LEASE = "/apis/coordination.k8s.io/v1/{ns}/leases/shared"
DURATION, RENEW, RETRY = 4, 3, 0.5


@contextlib.asynccontextmanager
async def theirs(api: Api, folder: Path) -> AsyncIterator[Any]:
    """Runs kube-controller-manager with leader election."""
    (port,) = apiserver.free_ports(1)
    flags = [
        "--controllers=horizontal-pod-autoscaler-controller",
        "--leader-elect=true",
        "--leader-elect-resource-name=shared",
        f"--leader-elect-resource-namespace={api.namespace}",
        f"--leader-elect-lease-duration={DURATION}s",
        f"--leader-elect-renew-deadline={RENEW}s",
        f"--leader-elect-retry-period={RETRY * 1000:g}ms",
        f"--kubeconfig={api.kubeconfig}",
        "--kube-api-content-type=application/json",
        "--authentication-skip-lookup",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
    ]
    command = [str(Path(os.environ["KUBEBUILDER_ASSETS"]) / CONTROLLER), *flags]
    running = apiserver.process(command, folder / f"{port}.log")
    started = await asyncio.to_thread(running.__enter__)
    try:
        yield started
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


async def spec(api: Api) -> Any:
    try:
        return (await api.ask("GET", LEASE))["spec"]
    except ApiError:
        return {}


def moment(lease_spec: Any, name: str) -> datetime:
    """Returns a time of a Lease; all processes use this machine's clock."""
    return datetime.fromisoformat(lease_spec[name])


async def holder(api: Api) -> str:
    return str((await spec(api)).get("holderIdentity") or "")


async def until_holder(api: Api, is_expected: Callable[[str], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not is_expected(await holder(api)):  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0.2)


def is_theirs(name: str) -> bool:
    return name not in ("", "hpad")


def shared(namespace: str) -> Election:
    return Election(
        enabled=True,
        namespace=namespace,
        name="shared",
        lease_duration=timedelta(seconds=DURATION),
        renew_deadline=timedelta(seconds=RENEW),
        retry_period=timedelta(seconds=RETRY),
    )


@pytest.mark.real_kube_apiserver
async def test_neither_leads_while_the_other_does(
    api: Api, tmp_path: Path, recovered: Callable[[float, str], None], request: pytest.FixtureRequest
) -> None:
    if (reason := apiserver.missing(CONTROLLER)) is not None:
        pytest.skip(reason)
    elector = lease.Elector(api.client, shared(api.namespace), identity="hpad")
    now = asyncio.get_running_loop().time
    async with theirs(api, tmp_path) as process:
        await until_holder(api, is_theirs)
        deadline = now() + 2 * DURATION
        while now() < deadline:
            assert await elector.attempt() is None
            await asyncio.sleep(RETRY)
        assert is_theirs(elector.holder)
        transitions = (await spec(api)).get("leaseTransitions", 0)
        process.kill()
        killed, started, answered = now(), [], []
        while True:
            started.append(now())
            if await elector.attempt() is not None:
                break
            answered.append(now())
            last = moment(await spec(api), "renewTime")
            await asyncio.sleep(RETRY)
        assert (moment(await spec(api), "acquireTime") - last).total_seconds() >= DURATION
        assert started[-2] <= answered[0] + DURATION, "hpad waits for one lease duration after the last change"
        server = request.node.callspec.params["api"]
        recovered(now() - killed, f"a kube-controller-manager that led and was killed ({server} API server)")
    assert await holder(api) == "hpad"
    assert (await spec(api))["leaseTransitions"] == transitions + 1
    async with theirs(api, tmp_path):
        deadline = now() + 2 * DURATION + 4  # it takes a moment to start
        while now() < deadline:
            assert await elector.attempt() is not None
            assert await holder(api) == "hpad"
            await asyncio.sleep(RETRY)
        await elector.release()
        released = moment(await spec(api), "renewTime")
        await until_holder(api, is_theirs)
        taken = moment(await spec(api), "acquireTime")
        assert (taken - released).total_seconds() < DURATION, "a released lease is acquired before its expiry"
        assert await elector.attempt() is None
        assert (await spec(api))["leaseTransitions"] == transitions + 2
