"""hpad's own manifests: valid arguments, pods that a strict cluster admits, names that agree."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hpad import __version__, settings
from hpad.daemon import app
from hpad.kube.auth.credentials import ClusterConfig
from hpad.lab.cluster import Cluster
from hpad.lab.cluster.resources import BUILT_IN
from hpad.manifests import documents as files
from hpad.manifests import hpas

Json = dict[str, Any]
Documents = Callable[[str], list[Json]]
Only = Callable[..., Json]
MANIFESTS = (
    "config/rbac.yaml", "config/rbac-one-namespace.yaml", "config/deployment.yaml",
    "config/sidecar.yaml", "config/rbac-kubectl.yaml", "config/rbac-idle-first.yaml",
)  # fmt: skip
PODS = ("config/deployment.yaml", "config/sidecar.yaml")
ACCOUNTS = {"config/deployment.yaml": "config/rbac.yaml", "config/sidecar.yaml": "config/rbac-one-namespace.yaml"}
NO_SERVER = ClusterConfig(server="http://127.0.0.1:9")


def pod(only: Only, file: str) -> Json:
    spec: Json = only(file, "Deployment")["spec"]["template"]["spec"]
    return spec


def own_container(only: Only, file: str) -> Json:
    return next(each for each in pod(only, file)["containers"] if each["name"] == "hpad")


def mounted(only: Only, file: str, path: str) -> dict[str, str]:
    """The files of the ConfigMap that is mounted at a path, by their names there."""
    spec, container = pod(only, file), own_container(only, file)
    name = next(each["name"] for each in container["volumeMounts"] if each["mountPath"] == path)
    volume = next(each["configMap"] for each in spec["volumes"] if each["name"] == name)
    data = only(file, "ConfigMap", volume["name"])["data"]
    items = volume.get("items") or [{"key": key, "path": key} for key in data]
    return {item["path"]: data[item["key"]] for item in items}


@pytest.fixture
def started(only: Only, parsed: Callable[[list[str]], settings.Settings], tmp_path: Path) -> Callable[[str], Any]:
    """The settings with which the container of a manifest starts: its arguments, variables and mounted files."""

    def read(file: str) -> settings.Settings:
        container, namespace = own_container(only, file), only(file, "Deployment")["metadata"]["namespace"]
        for path, text in mounted(only, file, "/etc/hpad").items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text, encoding="utf-8")
        variables = {each["name"]: namespace for each in container.get("env", ())}
        filled = [re.sub(r"\$\((\w+)\)", lambda name: variables[name[1]], each) for each in container["args"]]
        return parsed([each.replace("/etc/hpad/", f"{tmp_path}/") for each in filled])

    return read


@pytest.mark.parametrize("file", MANIFESTS)
def test_objects_have_a_kind_and_a_name(documents: Documents, file: str) -> None:
    found = list(documents(file))
    assert found
    for each in found:
        assert each["apiVersion"]
        assert each["kind"]
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", each["metadata"]["name"])


@pytest.mark.parametrize("file", PODS)
def test_hpad_accepts_the_arguments_of_the_container(started: Callable[[str], Any], only: Only, file: str) -> None:
    read = started(file)
    container = own_container(only, file)
    host, port = read.listen
    assert host == "0.0.0.0"
    assert [each["containerPort"] for each in container["ports"]] == [port]
    assert read.election.enabled
    assert container["image"].endswith(f":{__version__}")


@pytest.mark.parametrize("file", PODS)
def test_hpad_may_write_the_lease_of_the_manifest(
    started: Callable[[str], Any], documents: Documents, file: str
) -> None:
    election = started(file).election
    rules = [
        (role["metadata"]["namespace"], rule)
        for role in documents(ACCOUNTS[file])
        if role["kind"] == "Role"
        for rule in role["rules"]
        if rule["resources"] == ["leases"]
    ]
    assert {namespace for namespace, _ in rules} == {election.namespace}
    assert [rule["resourceNames"] for _, rule in rules if "update" in rule["verbs"]] == [[election.name]]


@pytest.mark.parametrize("file", PODS)
def test_the_service_account_has_the_permissions(only: Only, file: str) -> None:
    account = only(ACCOUNTS[file], "ServiceAccount")["metadata"]
    assert pod(only, file)["serviceAccountName"] == account["name"]
    assert only(file, "Deployment")["metadata"]["namespace"] == account["namespace"]


@pytest.mark.parametrize("file", PODS)
def test_the_restricted_pod_security_profile_admits_the_pods(only: Only, file: str) -> None:
    """The profile `restricted` of the Pod Security Standards; only /tmp is writable."""
    spec = pod(only, file)
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["containers"]
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    allowed = {"configMap", "emptyDir", "projected", "secret", "downwardAPI"}
    assert {kind for volume in spec["volumes"] for kind in volume if kind != "name"} <= allowed
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    mounts = own_container(only, file)["volumeMounts"]
    assert {each["name"] for each in mounts} <= {each["name"] for each in spec["volumes"]}
    assert [each["mountPath"] for each in mounts if not each.get("readOnly")] == ["/tmp"]
    paths = sorted(each["mountPath"] for each in mounts)
    assert not [one for one in paths for other in paths if one.startswith(f"{other}/")], "mounts inside of mounts"


@pytest.mark.parametrize("file", PODS)
async def test_probes_request_paths_that_hpad_serves(only: Only, file: str) -> None:
    container = own_container(only, file)
    ports = {each["name"] for each in container["ports"]}
    probes = [value["httpGet"] for name, value in container.items() if name.endswith("Probe")]
    assert probes
    assert {each["port"] for each in probes} <= ports
    only_port = settings.Settings(listen=("127.0.0.1", 0))
    async with (
        app.App(only_port, cluster_config=NO_SERVER) as daemon,
        aiohttp.ClientSession(trust_env=False) as session,
    ):
        assert daemon.server is not None
        for probe in probes:
            async with session.get(f"{daemon.server.url}{probe['path']}") as answer:
                assert answer.status != 404


def test_one_of_two_replicas_stays_during_disruptions(only: Only) -> None:
    file = "config/deployment.yaml"
    deployment, budget, service = (only(file, kind) for kind in ("Deployment", "PodDisruptionBudget", "Service"))
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["replicas"] == 2
    assert budget["spec"]["maxUnavailable"] == 1
    for selector in (
        deployment["spec"]["selector"]["matchLabels"],
        budget["spec"]["selector"]["matchLabels"],
        service["spec"]["selector"],
        *(each["labelSelector"]["matchLabels"] for each in pod(only, file)["topologySpreadConstraints"]),
        only(file, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    ports = {each["name"] for each in own_container(only, file)["ports"]}
    assert {each["targetPort"] for each in service["spec"]["ports"]} <= ports
    assert pod(only, file)["terminationGracePeriodSeconds"] > app.DRAIN_SECONDS + app.FLUSH_SECONDS


def test_the_hpa_of_the_sidecar_is_valid_and_scales_its_deployment(started: Callable[[str], Any], only: Only) -> None:
    file = "config/sidecar.yaml"
    read = started(file)
    [document] = files.read(read.manifests / "worker.yaml")
    result = hpas.load(document)
    assert not result.errors
    loaded = result.hpa
    assert loaded is not None
    target, deployment = loaded.spec.scale_target_ref, only(file, "Deployment")
    assert (target.api_version, target.kind, target.name) == ("apps/v1", "Deployment", deployment["metadata"]["name"])
    assert loaded.metadata.namespace == deployment["metadata"]["namespace"]
    assert read.namespaces == (loaded.metadata.namespace,)
    assert loaded.spec.min_replicas >= 1
    assert "replicas" not in deployment["spec"]
    metrics = {each.external.metric.name for each in loaded.spec.metrics}
    assert metrics <= {name for source in read.sources for match in source.match for name in match.metrics}


@pytest.fixture
def served(documents: Documents) -> list[Json]:
    """The objects whose kinds the embedded cluster serves."""
    kinds = {(each.api_version, each.kind) for each in BUILT_IN}
    return [each for file in MANIFESTS for each in documents(file) if (each["apiVersion"], each["kind"]) in kinds]


async def test_a_cluster_accepts_the_manifests(served: list[Json]) -> None:
    assert {"Deployment", "Namespace"} <= {each["kind"] for each in served}
    async with Cluster(auto_ready=True) as cluster:
        for each in served:
            cluster.apply(each)
        for namespace, name, replicas in (("hpad", "hpad", 2), ("shop", "worker", 1)):
            made = cluster.get("deployments", name, namespace)
            assert made is not None
            assert made["spec"]["replicas"] == replicas
