"""The admin of a namespace installs hpad there: an API server lets users grant only rights that they have."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kube.contract.conftest import Api, started
from support import apiserver, overlays

from hpad.clock import SystemClock
from hpad.kube.auth.kubeconfig import load_cluster_config
from hpad.kube.client import Client
from hpad.kube.errors import ApiError

CONTROLLER = "kube-controller-manager"
ROOT = Path(__file__).resolve().parents[3]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
pytestmark = pytest.mark.real_kube_apiserver


@pytest.fixture
async def administrator(tmp_path: Path) -> AsyncIterator[Api]:
    """The administrator of an API server with the roles of config/crd, and the controller that aggregates roles."""
    if (reason := apiserver.missing(CONTROLLER)) is not None:
        pytest.skip(reason)
    async with contextlib.AsyncExitStack() as stack:
        running = await asyncio.to_thread(stack.enter_context, apiserver.start(tmp_path))
        await asyncio.to_thread(stack.enter_context, _aggregating(tmp_path, running.kubeconfig))
        api = await stack.enter_async_context(started(running.kubeconfig))
        for role in yaml.safe_load_all((ROOT / "config" / "crd" / "roles.yaml").read_text("utf-8")):
            await api.ask("POST", f"{RBAC}/clusterroles", role)
        yield api


def _aggregating(folder: Path, kubeconfig: Path) -> contextlib.AbstractContextManager[Any]:
    (port,) = apiserver.free_ports(1)
    flags = [
        "--controllers=clusterrole-aggregation-controller",
        "--leader-elect=false",
        f"--kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
    ]
    binary = Path(os.environ["KUBEBUILDER_ASSETS"]) / CONTROLLER
    return apiserver.process([str(binary), *flags], folder / f"{CONTROLLER}.log")


@contextlib.asynccontextmanager
async def admin_of_namespace(administrator: Api, folder: Path) -> AsyncIterator[Api]:
    """Connects as an account that has the ClusterRole admin of Kubernetes in the namespace."""
    accounts = "/api/v1/{ns}/serviceaccounts"
    await administrator.ask("POST", accounts, {"metadata": {"name": "ann"}})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
    subject = {"kind": "ServiceAccount", "name": "ann", "namespace": administrator.namespace}
    binding = {"metadata": {"name": "ann"}, "roleRef": reference, "subjects": [subject]}
    await administrator.ask("POST", f"{RBAC}/{{ns}}/rolebindings", binding)
    issued = await administrator.ask("POST", f"{accounts}/ann/token", {"spec": {}})
    content = json.loads(administrator.kubeconfig.read_text("utf-8"))
    content["users"][0]["user"] = {"token": issued["status"]["token"]}
    kubeconfig = folder / "kubeconfig-of-ann"
    kubeconfig.write_text(json.dumps(content), encoding="utf-8")
    config = await asyncio.to_thread(load_cluster_config, str(kubeconfig))
    async with Client(config, SystemClock(), timeout=60.0) as client:
        ann = Api(client, kubeconfig)
        ann.namespace = administrator.namespace
        yield ann


@pytest.mark.parametrize("overlay", ["namespace", "sidecar"])
async def test_the_admin_of_a_namespace_may_grant_the_rights_of_hpad_there(
    administrator: Api, tmp_path: Path, overlay: str
) -> None:
    documents = [each for each in overlays.documents(overlay) if each["kind"] in ("Role", "RoleBinding")]
    assert {each["metadata"]["name"] for each in documents} == {"hpad", "hpad-replicas"}
    async with admin_of_namespace(administrator, tmp_path) as ann:
        for document in documents:
            await granted(ann, document)


async def granted(ann: Api, document: dict[str, Any]) -> None:
    """Creates a Role or RoleBinding, once the roles are aggregated; raises ApiError if it is refused for 15 seconds."""
    document["metadata"]["namespace"] = ann.namespace
    for left in range(30, -1, -1):
        try:
            return await ann.ask("POST", f"{RBAC}/{{ns}}/{document['kind'].lower()}s", document)
        except ApiError:
            if not left:
                raise
            await asyncio.sleep(0.5)
