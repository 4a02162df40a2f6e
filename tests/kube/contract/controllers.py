"""Runs kube-controller-manager, and hpad in the process, on a real API server."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from support import apiserver

from hpad import settings
from hpad.daemon import app
from hpad.engine.view import Gates, Tunables
from hpad.kube.auth import kubeconfig

CONTROLLER = "kube-controller-manager"


def exact(**gates: bool) -> settings.Settings:
    """Returns settings with the known defects of Kubernetes, and sources whose circuit breaker never opens."""
    tunables = Tunables(gates=Gates.replayed({"HPAConfigurableTolerance": True, **gates}))
    return msgspec.structs.replace(patient(), tunables=tunables)


def patient(**gates: bool) -> settings.Settings:
    """Returns the default settings, but for these gates and for sources whose circuit breaker never opens."""
    limits = settings.SourceLimits(rate=500.0, concurrency=32, failures=10**6)
    sources = [settings.SourceSettings(name=name, adapter=name, limits=limits) for name in settings.BUILT_IN_SOURCES]
    return settings.Settings(sources=tuple(sources), tunables=Tunables(gates=Gates(**gates)))


def controller(
    config: Path, folder: Path, period: int, flags: Sequence[str] = ()
) -> contextlib.AbstractContextManager[Any]:
    """Runs the HPA controller of kube-controller-manager with a period in seconds and further flags; blocks."""
    (port,) = apiserver.free_ports(1)
    all_flags = [
        "--controllers=horizontal-pod-autoscaler-controller",
        f"--horizontal-pod-autoscaler-sync-period={period}s",
        "--leader-elect=false",
        f"--kubeconfig={config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        "--kube-api-qps=500",
        "--kube-api-burst=500",
        *flags,
    ]
    binary = Path(os.environ["KUBEBUILDER_ASSETS"]) / CONTROLLER
    return apiserver.process([str(binary), *all_flags], folder / f"{CONTROLLER}.log")


@contextlib.asynccontextmanager
async def hpad(config: Path, base: settings.Settings, period: int, *namespaces: str) -> AsyncIterator[None]:
    """Runs hpad with a period in seconds, in all namespaces if none is named."""
    loaded = await asyncio.to_thread(kubeconfig.load_cluster_config, str(config))
    options = msgspec.structs.replace(
        base, sync_period=timedelta(seconds=period), listen=None, namespaces=namespaces or base.namespaces
    )
    async with app.App(options, cluster_config=loaded) as daemon:
        async with asyncio.timeout(30):
            await daemon.ready()
        yield
