"""`kubectl hpad` on a cluster with authorization, and with daemons that ask for tokens or serve TLS."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import trustme
from e2e.conftest import World, worlds
from support import kubectl_binaries, overlays, plugin
from support.plugin import Plugin

from hpad.kube.auth import kubeconfig
from hpad.lab.cluster import Cluster, tls, users
from hpad.settings.model import Serving

pytest_plugins = ("support.kubectl_fixtures",)
JANE = users.named("jane", "hpad-users")
NAME = "horizontalpodautoscaler.autoscaling/web\n"
CALM = timedelta(seconds=1.5)
"""A period in which metrics arrive in time on a busy machine."""
Json = dict[str, Any]


@contextlib.asynccontextmanager
async def started(folder: Path, kubectl: str, **settings: Any) -> AsyncIterator[tuple[World, Plugin]]:
    """Starts a cluster with authorization and a daemon that has decided; the plugin runs as the user jane."""
    files = await tls.made(folder)
    async with worlds(Cluster(auto_ready=True, authorization=True, tls=files)) as world:
        file = await world.cluster.kubeconfig(folder / "daemon")
        config = await asyncio.to_thread(kubeconfig.load_cluster_config, str(file))
        world.workload("Deployment", "web", 2)
        world.load("web", 50)
        world.hpa("web", maxReplicas=4)
        daemon = await world.hpad(cluster_config=config, listen=("127.0.0.1", 0), sync_period=CALM, **settings)
        assert daemon.server is not None
        scheme, _, address = daemon.server.url.partition("://")
        plugin.pod(world.cluster, "hpad-0", int(address.rpartition(":")[2]), scheme=scheme.upper())
        plugin.service(world.cluster)
        await world.until(lambda: (world.status("web").get("currentMetrics") or [{}])[0].get("resource"))
        yield world, Plugin(kubectl, folder, await world.cluster.kubeconfig(folder / "kubeconfig", JANE))


def grant(world: World, rules: Sequence[Json] | None = None) -> None:
    """Applies config/rbac/kubectl, with other rules if they are given."""
    for each in overlays.component("kubectl"):
        if each["kind"] == "Role" and rules is not None:
            each["rules"] = list(rules)
        world.cluster.apply(each)


@kubectl_binaries.EACH
async def test_the_rights_of_the_manifest_are_sufficient(tmp_path: Path, kubectl_path: str) -> None:
    async with started(tmp_path, kubectl_path) as (world, hpad):
        grant(world)
        assert await hpad.by_kubectl()("status -o name") == NAME


async def test_without_rights_each_missing_one_is_named(tmp_path: Path, kubectl_path: str) -> None:
    async with started(tmp_path, kubectl_path) as (world, hpad):
        err = await hpad.refused("status")
        assert err.startswith(
            "kubectl-hpad: there is no Service or pod with the label app.kubernetes.io/name=hpad that "
        )
        assert "you may not list services in all namespaces, list services in namespace default, " in err
        grant(world, [{"apiGroups": [""], "resources": ["services", "pods"], "verbs": ["get", "list"]}])
        lines = (await hpad.refused("status")).splitlines()
        assert lines[0] == "kubectl-hpad: no hpad that decides can be reached:"
        assert lines[1].startswith("  - pod hpad/hpad-0: ")
        assert 'cannot create resource "pods/portforward"' in lines[1]


async def test_impersonation_is_passed_on_to_kubectl(tmp_path: Path, kubectl_path: str) -> None:
    async with started(tmp_path, kubectl_path) as (world, hpad):
        grant(world)
        await world.cluster.kubeconfig(hpad.kubeconfig)
        assert "you may not list services in all namespaces" in await hpad.refused("status --as=joe --as-group=devs")
        assert await hpad("status --as=joe --as-group=devs --as-group=hpad-users -o name") == NAME


class Secure:
    """The files of an hpad that serves TLS and asks for a token."""

    def __init__(self, folder: Path, name: str = "hpad.hpad.svc") -> None:
        authority = trustme.CA()
        self.authority, self.tokens, self.wrong = folder / "hpad-ca.crt", folder / "tokens", folder / "wrong"
        authority.cert_pem.write_to_path(str(self.authority))
        leaf = authority.issue_cert(name)
        certificate, key = folder / "hpad.crt", folder / "hpad.key"
        leaf.cert_chain_pems[0].write_to_path(str(certificate))
        leaf.private_key_pem.write_to_path(str(key))
        self.tokens.write_text("a-secret-token\n")
        self.wrong.write_text("a-wrong-token\n")
        self.serving = Serving(certificate=certificate, private_key=key, token_file=self.tokens)


async def test_an_hpad_that_asks_for_a_token_is_reached_by_port_forward(tmp_path: Path, kubectl_path: str) -> None:
    files = Secure(tmp_path)
    async with started(tmp_path, kubectl_path, serving=files.serving) as (world, hpad):
        grant(world)
        secured = f"--cacert {files.authority} --service hpad/hpad"
        assert await hpad(f"status -o name {secured} --token-file {files.tokens}") == NAME
        without = (await hpad.refused(f"status {secured}")).splitlines()
        assert without[-1].endswith("pod hpad/hpad-0 answered 401 Unauthorized: authenticate with --token-file")
        wrong = await hpad.refused(f"status {secured} --token-file {files.wrong}")
        assert "answered 401 Unauthorized" in wrong
        assert "a-wrong-token" not in wrong


async def test_the_certificate_of_hpad_is_verified(tmp_path: Path, kubectl_path: str) -> None:
    files = Secure(tmp_path, "other.example.com")
    async with started(tmp_path, kubectl_path, serving=files.serving) as (world, hpad):
        grant(world)
        secured = f"--service hpad/hpad --token-file {files.tokens}"
        assert "name its authorities with --cacert" in await hpad.refused(f"status {secured}")
        named = await hpad.refused(f"status {secured} --cacert {files.authority}")
        assert "Hostname mismatch, certificate is not valid for 'hpad.hpad.svc'" in named
        assert (
            await hpad(f"status {secured} --cacert {files.authority} --server-name other.example.com -o name") == NAME
        )


async def test_a_token_is_sent_only_to_an_hpad_that_the_user_names(tmp_path: Path, kubectl_path: str) -> None:
    files = Secure(tmp_path)
    async with started(tmp_path, kubectl_path, serving=files.serving) as (world, hpad):
        grant(world)
        err = await hpad.refused(f"status --token-file {files.tokens} --cacert {files.authority}", status=2)
        assert err.startswith("kubectl-hpad: --token-file: name hpad's Service with --service NAMESPACE/NAME: ")
        assert world.cluster.log.count("create", "pods", "portforward") == 0
