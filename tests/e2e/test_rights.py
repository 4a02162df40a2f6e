"""hpad as the service account of the overlays in config/, on a cluster with authorization."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog.testing
from e2e.conftest import World, worlds
from support import kubectl_binaries, overlays

from hpad import settings
from hpad.cli import doctor
from hpad.kube.auth import kubeconfig
from hpad.kube.auth.credentials import ClusterConfig
from hpad.lab.cluster import Cluster, tls, users
from hpad.settings.model import Election, Serving

pytest_plugins = ("support.kubectl_fixtures",)
Json = dict[str, Any]
GROUP = "rbac.authorization.k8s.io"
ACCOUNT = users.service_account("hpad", "hpad")
SHARED = {
    "election": Election(enabled=True, namespace="hpad"),
    "store": settings.StoreSettings(kind="cluster", namespace="hpad"),
}


@contextlib.asynccontextmanager
async def authorized(folder: Path, manifests: list[Json]) -> AsyncIterator[tuple[World, ClusterConfig]]:
    """Starts a World with these roles, an overloaded Deployment and its HPA; also yields the account's access."""
    async with worlds(Cluster(auto_ready=True, authorization=True)) as world:
        for each in manifests:
            world.cluster.apply(each)
        world.workload("Deployment", "web", 1)
        world.load("web", 90)
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        goal = {"type": "Utilization", "averageUtilization": 45}
        metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": goal}}]
        spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2, "metrics": metrics}
        head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}}
        world.cluster.apply({**head, "spec": spec})
        file = await world.cluster.kubeconfig(folder / "kubeconfig", ACCOUNT)
        yield world, await asyncio.to_thread(kubeconfig.load_cluster_config, str(file))


def without(manifests: list[Json], verb: str, resource: str) -> list[Json]:
    """Returns the manifests without one verb on one resource."""
    changed = copy.deepcopy(manifests)
    for role in changed:
        for rule in list(role.get("rules") or []):
            if resource in rule["resources"] and verb in rule["verbs"]:
                rest = [each for each in rule["resources"] if each != resource]
                role["rules"] += [{**rule, "resources": rest}] if rest else []
                rule["resources"] = [resource]
                rule["verbs"] = [each for each in rule["verbs"] if each != verb]
                role["rules"] = [each for each in role["rules"] if each["verbs"]]
    assert changed != manifests, f"nothing grants {verb} {resource}"
    return changed


async def test_the_rights_of_the_manifest_are_sufficient(tmp_path: Path) -> None:
    async with authorized(tmp_path, overlays.rights("replace")) as (world, config):
        await world.hpad(cluster_config=config, **SHARED)
        await world.until(lambda: world.replicas("deployments", "web") == 2)
        await world.until(lambda: world.condition("web", "ScalingActive")[0] == "True")
        await world.until(lambda: any(reason == "SuccessfulRescale" for reason, _ in world.events("web")))
        await world.until(lambda: world.cluster.get("leases", "hpad", "hpad"))
        await world.until(lambda: world.cluster.get("configmaps", "hpad-history-0", "hpad"))
        findings = await checked(tmp_path)
    assert [finding.level for finding in findings if finding.check == "rights"] == ["ok"]


async def checked(folder: Path) -> list[Any]:
    """Returns the findings of `hpad doctor` as the service account."""
    options = settings.Settings(kubeconfig=str(folder / "kubeconfig"), listen=None, **SHARED)
    return await doctor.examine(lambda: options)


RIGHTS = [
    (verb, resource)
    for role in overlays.rights("replace")
    for rule in role.get("rules") or []
    if not {"custom.metrics.k8s.io", "external.metrics.k8s.io"} & set(rule["apiGroups"])
    for resource in rule["resources"]
    for verb in rule["verbs"]
]


async def test_each_missing_right_is_named(tmp_path: Path) -> None:
    manifests = overlays.rights("replace")
    async with authorized(tmp_path, manifests) as (world, _):
        for verb, resource in dict.fromkeys(RIGHTS):
            for role in without(manifests, verb, resource):
                if "rules" in role:
                    again = (
                        role["kind"].lower() + "s",
                        role["metadata"]["name"],
                        role["metadata"].get("namespace", ""),
                    )
                    world.cluster.delete(*again)
                    world.cluster.apply(role)
            says = [finding.says for finding in await checked(tmp_path) if finding.check == "rights"]
            plural = resource.removeprefix("*/")
            assert any(f"may not {verb} " in each and plural in each for each in says), (verb, resource, says)


@pytest.mark.parametrize(
    ("verb", "resource", "message"),
    [
        (
            "update",
            "*/scale",
            'cannot update resource "deployments/scale" in API group "apps" in the namespace "default"',
        ),
        ("list", "pods", 'cannot list resource "pods" in API group "metrics.k8s.io" in the namespace "default"'),
    ],
)
async def test_a_missing_right_is_reported_in_events(tmp_path: Path, verb: str, resource: str, message: str) -> None:
    manifests = overlays.rights("replace")
    if resource == "pods":  # only the pods of metrics.k8s.io
        role = next(each for each in manifests if each["kind"] == "ClusterRole")
        role["rules"] = [rule for rule in role["rules"] if rule["apiGroups"] != ["metrics.k8s.io"]]
    else:
        manifests = without(manifests, verb, resource)
    async with authorized(tmp_path, manifests) as (world, config):
        await world.hpad(cluster_config=config, **SHARED)
        user = 'User "system:serviceaccount:hpad:hpad"'
        await world.until(lambda: any(f"{user} {message}" in text for _, text in world.events("web")))
        assert world.replicas("deployments", "web") == 1


@pytest.mark.parametrize(
    ("verb", "resource"),
    [("watch", "horizontalpodautoscalers"), ("update", "horizontalpodautoscalers/status"), ("update", "leases")],
)
async def test_a_missing_right_is_logged(tmp_path: Path, verb: str, resource: str) -> None:
    with structlog.testing.capture_logs() as logs:
        async with authorized(tmp_path, without(overlays.rights("replace"), verb, resource)) as (world, config):
            await world.hpad(ready=False, cluster_config=config, **SHARED)
            message = f'cannot {verb} resource "{resource}" in API group'
            await world.until(lambda: any(message in str(line) for line in logs))


async def test_a_user_without_rights_reads_neither_page_nor_api(tmp_path: Path) -> None:
    """The ClusterRole system:discovery lets every user get /api/* of the API server."""
    manifests = overlays.rights("replace") + overlays.component("review")
    async with (
        authorized(tmp_path, manifests) as (world, config),
        aiohttp.ClientSession(trust_env=False) as session,
    ):
        subject = {"apiGroup": GROUP, "kind": "User", "name": "ann"}
        reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "hpad-reader"}
        head = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "ann"}}
        world.cluster.apply({**head, "roleRef": reference, "subjects": [subject]})
        listening = {"listen": ("127.0.0.1", 0), "serving": Serving(review=True)}
        daemon = await world.hpad(cluster_config=config, **listening, **SHARED)
        assert daemon.server is not None
        statuses: dict[str, list[int]] = {"joe": [], "ann": []}
        for name, found in statuses.items():
            headers = {"Authorization": f"Bearer {world.cluster.token(users.named(name))}"}
            for path in ("/", "/api/v1/hpas", "/api/v1/status", "/metrics"):
                async with session.get(f"{daemon.server.url}{path}", headers=headers) as response:
                    found.append(response.status)
    assert statuses == {"joe": [403, 403, 403, 403], "ann": [200, 200, 200, 403]}


@pytest.mark.parametrize("reviewing", [True, False])
async def test_access_reviews_need_their_rights(tmp_path: Path, reviewing: bool) -> None:
    manifests = overlays.rights("replace") + (overlays.component("review") if reviewing else [])
    async with (
        authorized(tmp_path, manifests) as (world, config),
        aiohttp.ClientSession(trust_env=False) as session,
    ):
        listening = {"listen": ("127.0.0.1", 0), "serving": Serving(review=True)}
        daemon = await world.hpad(cluster_config=config, **listening, **SHARED)
        assert daemon.server is not None
        url = f"{daemon.server.url}/metrics"
        statuses = []
        for user in (users.service_account("monitoring", "prometheus-k8s"), users.named("joe")):
            headers = {"Authorization": f"Bearer {world.cluster.token(user)}"}
            async with session.get(url, headers=headers) as response:
                statuses.append(response.status)
        async with session.get(url, headers={"Authorization": "Bearer unknown"}) as response:
            statuses.append(response.status)
    assert statuses == ([200, 403, 401] if reviewing else [503, 503, 503])


async def test_kubectl_creates_roles_and_reviews_access(kubectl_path: str, tmp_path: Path) -> None:
    kubectl = kubectl_binaries.Kubectl(kubectl_path, tmp_path)
    async with Cluster(kubelet=False, authorization=True, tls=await tls.made(tmp_path)) as cluster:
        await cluster.kubeconfig(tmp_path / "kubeconfig")
        assert (await kubectl.run("auth", "can-i", "list", "pods", "--as=jane"))[1].strip() == "no"
        status, _, error = await kubectl.run("get", "pods", "--as=jane")
        assert (status, 'pods is forbidden: User "jane" cannot list resource "pods"' in error) == (1, True)
        await kubectl("create role reader --verb=get,list --resource=pods")
        await kubectl("create rolebinding reader --role=reader --user=jane")
        assert (await kubectl("auth can-i list pods --as=jane")).strip() == "yes"
        assert (await kubectl("get pods -o name --as=jane")) == ""
        listed = await kubectl("auth can-i --list --as=jane")
        assert any(line.split()[0] == "pods" and "[get list]" in line for line in listed.splitlines() if line.strip())


async def one_namespace(folder: Path, hpas: int, **options: Any) -> list[Any]:
    """Returns the findings of `hpad doctor` as the account of one namespace, with a number of HPAs."""
    return await judged(folder, ("shop", "hpad"), overlays.rights("namespace", "status-hpas"), hpas, **options)


async def judged(folder: Path, account: tuple[str, str], manifests: list[Json], hpas: int, **options: Any) -> list[Any]:
    """Returns the findings of `hpad doctor` on the rights of an account, a namespace and a name."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    async with Cluster(authorization=True) as cluster:
        for each in manifests:
            cluster.apply(each)
        for number in range(hpas):
            head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
            meta = {"name": f"web-{number}", "namespace": "shop"}
            metrics = [
                {"type": "External", "external": {"metric": {"name": "x"}, "target": {"type": "Value", "value": 1}}}
            ]
            cluster.apply(
                {**head, "metadata": meta, "spec": {"scaleTargetRef": target, "maxReplicas": 2, "metrics": metrics}}
            )
        file = await cluster.kubeconfig(folder / "kubeconfig", users.service_account(*account))
        defaults = {
            "kubeconfig": str(file),
            "listen": None,
            "election": Election(enabled=True, namespace=account[0]),
            "store": settings.StoreSettings(kind="cluster", namespace=account[0]),
        }
        read = settings.Settings(**{**defaults, **options})
        return [finding for finding in await doctor.examine(lambda: read) if finding.check == "rights"]


async def test_a_dry_run_needs_no_right_to_write(tmp_path: Path) -> None:
    shadow = overlays.rights("shadow")
    found = await judged(tmp_path, ("hpad-shadow", "hpad-shadow"), shadow, 1, dry_run=True)
    assert [finding.level for finding in found] == ["ok"]


@pytest.mark.parametrize("hpas", [0, 1, 128])
async def test_the_rights_for_one_namespace_are_sufficient_there(tmp_path: Path, hpas: int) -> None:
    found = await one_namespace(tmp_path, hpas, namespaces=("shop",))
    assert [(finding.level, finding.says.partition(" all ")[0]) for finding in found] == [("ok", "hpad has")]


async def test_a_config_map_missing_in_the_role_is_named(tmp_path: Path) -> None:
    """129 HPAs need three ConfigMaps; hpad reads two more, and the Role names only one of them."""
    (finding,) = await one_namespace(tmp_path, 129, namespaces=("shop",))
    assert finding.level == "warning"
    assert finding.says.startswith("may not get configmaps hpad-history-4 in namespace shop: ")
    assert "config/rbac/one-namespace" in finding.do


async def test_the_advice_on_rights_for_reviews_names_the_file_that_grants_them(tmp_path: Path) -> None:
    serving = {"listen": ("127.0.0.1", 0), "serving": Serving(review=True)}
    reviews = await one_namespace(tmp_path, 0, namespaces=("shop",), **serving)
    assert [finding.says.split(": ")[0] for finding in reviews] == [
        "may not create tokenreviews.authentication.k8s.io in all namespaces",
        "may not create subjectaccessreviews.authorization.k8s.io in all namespaces",
    ]
    assert {finding.do for finding in reviews} == {"grant it as config/rbac/review does"}


async def test_rights_for_one_namespace_suggest_the_flag(tmp_path: Path) -> None:
    (finding,) = await one_namespace(tmp_path, 0)
    assert finding.level == "error"
    assert finding.says.startswith("hpad's rights are for namespace shop only")
    assert "--namespace shop" in finding.do
