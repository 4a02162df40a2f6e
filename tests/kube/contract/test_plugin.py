"""`kubectl hpad` on both API servers: how it finds hpad, and what it says where hpad cannot be reached.

No pod answers here, since a kube-apiserver connects to no loopback address.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kube.contract.conftest import Api
from support import overlays
from support.plugin import LABELS, Plugin

from hpad.kube.errors import ApiError

pytest_plugins = ("support.kubectl_fixtures",)
SERVICES, PODS, ENDPOINTS = "/api/v1/{ns}/services", "/api/v1/{ns}/pods", "/api/v1/{ns}/endpoints"
REAL_ONLY = pytest.mark.parametrize("api", [pytest.param("real", marks=pytest.mark.real_kube_apiserver)], indirect=True)


@pytest.fixture
async def hpad(api: Api, kubectl_path: str, tmp_path: Path) -> AsyncIterator[Plugin]:
    """The plugin, and a Service with hpad's label that has no endpoints; it is removed for the next test."""
    ports = [{"name": "http", "port": 8473, "targetPort": "http"}]
    body: dict[str, Any] = {"metadata": {"name": "hpad", "labels": LABELS}}
    spec = {"clusterIP": "None", "selector": LABELS, "ports": ports}
    await api.ask("POST", SERVICES, {**body, "spec": spec})
    await api.ask("POST", ENDPOINTS, body)
    yield Plugin(kubectl_path, tmp_path, api.kubeconfig)
    for path in (f"{SERVICES}/hpad", f"{ENDPOINTS}/hpad", f"{PODS}/hpad-0"):
        with contextlib.suppress(ApiError):
            await api.ask("DELETE", path, gracePeriodSeconds="0")


async def pod(api: Api, **status: Any) -> None:
    """Adds a running pod of hpad, on no node."""
    container = {"name": "hpad", "image": "hpad:1", "ports": [{"name": "http", "containerPort": 8473}]}
    metadata = {"name": "hpad-0", "labels": LABELS}
    await api.ask("POST", PODS, {"metadata": metadata, "spec": {"containers": [container]}})
    await api.ask("PATCH", f"{PODS}/hpad-0/status", {"status": {"phase": "Running", **status}})


async def test_a_service_is_found_by_its_label(hpad: Plugin, api: Api) -> None:
    found = await hpad.refused("status")
    assert found.startswith(f"kubectl-hpad: the Service {api.namespace}/hpad has no running pod: its selector is '")


async def test_a_service_is_found_by_its_name(hpad: Plugin, api: Api) -> None:
    found = await hpad.refused(f"status --service {api.namespace}/hpad")
    assert found.startswith(f"kubectl-hpad: the Service {api.namespace}/hpad has no running pod: its selector is '")
    none = await hpad.refused(f"status --service {api.namespace}/none")
    assert none == 'kubectl-hpad: kubectl get: (NotFound): services "none" not found\n'


@REAL_ONLY
async def test_the_role_of_the_manifest_is_sufficient(hpad: Plugin, api: Api) -> None:
    """The role is granted in the namespace of the test. A pod on no node is found, and cannot be reached."""
    await pod(api)
    flags = f"--service {api.namespace}/hpad --as=jane --as-group=hpad-users"
    refused = await hpad.refused(f"status {flags}")
    what = f'in API group "" in the namespace "{api.namespace}"'
    assert f'User "jane" cannot get resource "services" {what}' in refused
    roles = overlays.component("kubectl")
    assert [each["kind"] for each in roles] == ["Role", "RoleBinding"]
    for each in roles:
        each["metadata"]["namespace"] = api.namespace
        kind = f"{each['kind'].lower()}s"
        await api.ask("POST", f"/apis/rbac.authorization.k8s.io/v1/{{ns}}/{kind}", each)
    lines = (await hpad.refused(f"status {flags}")).splitlines()
    assert lines[0] == "kubectl-hpad: no hpad that decides can be reached:"
    assert lines[1].startswith(f"  - pod {api.namespace}/hpad-0: kubectl port-forward: ")
    assert "does not have a host assigned" in lines[1]
