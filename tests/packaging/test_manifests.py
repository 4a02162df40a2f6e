"""hpad's own manifests, as their overlays give them: pods that a strict cluster admits, names that agree."""

import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from support import kubectl_binaries, overlays

from hpad import __version__, settings
from hpad.daemon import app
from hpad.kube.auth.credentials import ClusterConfig
from hpad.lab.cluster import Cluster
from hpad.manifests import documents as files
from hpad.manifests import hpas
from tools import overlays as render

pytest_plugins = ("support.kubectl_fixtures",)
ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]
Documents = Callable[[str], list[Json]]
Only = Callable[..., Json]
FILES = {name: str(path.relative_to(ROOT)) for name, path in overlays.FILES.items()}
PODS = tuple(FILES.values())
ELECTING = tuple(file for name, file in FILES.items() if name != "shadow")
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
def started(
    only: Only, parsed: Callable[[list[str]], settings.Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Any]:
    """The settings with which the container of a manifest starts: its arguments, variables and mounted files."""

    def read(file: str) -> settings.Settings:
        container, namespace = own_container(only, file), only(file, "Deployment")["metadata"]["namespace"]
        for path, text in mounted(only, file, "/etc/hpad").items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text, encoding="utf-8")
        for variable in container["env"]:
            value = variable.get("value", namespace)
            monkeypatch.setenv(variable["name"], value.replace("/etc/hpad/", f"{tmp_path}/"))
        return parsed(container["args"])

    return read


@pytest.mark.parametrize("file", PODS)
def test_objects_have_a_kind_and_a_name(documents: Documents, file: str) -> None:
    found = list(documents(file))
    assert found
    for each in found:
        assert each["apiVersion"]
        assert each["kind"]
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", each["metadata"]["name"])


@pytest.mark.parametrize("file", PODS)
def test_hpad_accepts_the_settings_of_the_container(
    started: Callable[[str], Any], only: Only, file: str, documents: Documents
) -> None:
    read = started(file)
    container = own_container(only, file)
    [named] = documents("config/image/kustomization.yaml")[0]["images"]
    image = f"{named['newName']}:{named['newTag']}"
    host, port = read.listen
    assert host == "0.0.0.0"
    assert [each["containerPort"] for each in container["ports"]] == [port]
    assert read.election.enabled
    assert container["image"] == image


def test_the_image_tag_is_the_version(documents: Documents) -> None:
    [image] = documents("config/image/kustomization.yaml")[0]["images"]
    assert image["newTag"] == __version__


@pytest.mark.parametrize("file", ELECTING)
def test_hpad_may_write_the_lease_of_the_manifest(
    started: Callable[[str], Any], documents: Documents, file: str
) -> None:
    election = started(file).election
    rules = [
        (role["metadata"]["namespace"], rule)
        for role in documents(file)
        if role["kind"] == "Role"
        for rule in role["rules"]
        if rule["resources"] == ["leases"]
    ]
    assert {namespace for namespace, _ in rules} == {election.namespace}
    assert [rule["resourceNames"] for _, rule in rules if "update" in rule["verbs"]] == [[election.name]]


@pytest.mark.parametrize("file", PODS)
def test_the_service_account_has_the_permissions(only: Only, file: str) -> None:
    account = only(file, "ServiceAccount")["metadata"]
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


@pytest.mark.parametrize("file", [FILES["replace"], FILES["sidecar"]])
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
    file = FILES["replace"]
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
    file = FILES["sidecar"]
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


def test_in_shadow_hpad_writes_nothing_and_has_names_of_its_own(
    started: Callable[[str], Any], documents: Documents
) -> None:
    assert started(FILES["shadow"]).dry_run
    names = {(each["kind"], each["metadata"]["name"]) for each in documents(FILES["shadow"])}
    assert not names & {(each["kind"], each["metadata"]["name"]) for each in documents(FILES["hosted"])}


async def test_kubectl_applies_each_overlay(kubectl_path: str, tmp_path: Path) -> None:
    """By `apply -k` where kubectl can, else what was rendered."""
    kubectl = kubectl_binaries.Kubectl(kubectl_path, tmp_path)
    renders = render.minor(kubectl_path) >= render.OLDEST
    async with Cluster(auto_ready=True) as cluster:
        await cluster.kubeconfig(tmp_path / "kubeconfig")
        await kubectl("create namespace shop")
        for name, file in overlays.FILES.items():
            how = f"-k {render.OVERLAYS / name}" if renders else f"-f {file}"
            applied = (await kubectl(f"apply {how}")).splitlines()
            assert len(applied) == len(overlays.documents(name))
            assert await kubectl(f"diff {how}") == ""
        for namespace, name, replicas in (
            ("hpad", "hpad", 2), ("shop", "hpad", 2), ("shop", "worker", 1), ("hpad-shadow", "hpad-shadow", 1)
        ):  # fmt: skip
            made = cluster.get("deployments", name, namespace)
            assert made is not None
            assert made["spec"]["replicas"] == replicas
    if renders:
        extended = kustomization(tmp_path, "autoscalers-of-a-team", "hosted")
        text = await kubectl(f"kustomize {extended}")
        kinds = Counter(each["kind"] for each in yaml.safe_load_all(text))
        assert (kinds["ServiceMonitor"], kinds["PrometheusRule"], kinds["Role"]) == (1, 1, 2)
        assert "registry.example.com/hpad" not in text
        assert "namespace: hpad\n" not in text


def kustomization(folder: Path, namespace: str, overlay: str) -> Path:
    """Writes an overlay of a user's own: another namespace and image, and all components that can be added."""
    made = folder / "own"
    made.mkdir()
    config = os.path.relpath(ROOT / "config", made)
    rights = ("idle-first", "endpointslices", "review", "kubectl")
    body = {
        "namespace": namespace,
        "resources": [f"{config}/overlays/{overlay}"],
        "components": [*(f"{config}/rbac/{each}" for each in rights), f"{config}/monitoring"],
        "images": [{"name": "registry.example.com/hpad", "newName": "images.example.org/hpad", "newTag": "mine"}],
    }
    (made / "kustomization.yaml").write_text(yaml.safe_dump(body), encoding="utf-8")
    return made
