"""A pytest plugin: runs a test with the newest kubectl, on one of three kinds of clusters."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support import kubectl_binaries

from hpad.lab.cluster import Cluster


@pytest.fixture(params=kubectl_binaries.kubectls()[-1:])
def kubectl_path(request: pytest.FixtureRequest) -> str:
    """The newest kubectl; tests of what old ones do in another way have `kubectl_binaries.EACH`."""
    return str(request.param)


@pytest.fixture
async def kubectl(kubectl_path: str, world: Any, tmp_path: Path) -> kubectl_binaries.Kubectl:
    """A kubectl for the cluster of `world`, whose pods are ready at once."""
    await world.cluster.kubeconfig(tmp_path / "kubeconfig")
    return kubectl_binaries.Kubectl(kubectl_path, tmp_path)


@pytest.fixture
async def processes(kubectl_path: str, tmp_path: Path) -> AsyncIterator[kubectl_binaries.Kubectl]:
    """A kubectl for a cluster whose pods are processes."""
    async with Cluster(sampling_seconds=0.3) as cluster:
        await cluster.kubeconfig(tmp_path / "kubeconfig")
        yield kubectl_binaries.Kubectl(kubectl_path, tmp_path)


@pytest.fixture
async def pending(kubectl_path: str, tmp_path: Path) -> AsyncIterator[tuple[Cluster, kubectl_binaries.Kubectl]]:
    """A cluster without a kubelet, whose deleted pods stay Terminating, and a kubectl for it."""
    async with Cluster(kubelet=False) as cluster:
        await cluster.kubeconfig(tmp_path / "kubeconfig")
        yield cluster, kubectl_binaries.Kubectl(kubectl_path, tmp_path)
