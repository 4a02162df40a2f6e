"""hpad behind an authorizer with the rules of config/rbac: no request is refused, and each rule is used.

The authorizer reads requests as the API server does (k8s.io/apiserver, pkg/endpoints/request/requestinfo.go) and rules
as RBAC does (pkg/registry/rbac/validation and the API reference of rbac.authorization.k8s.io/v1).
"""

import argparse
import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml
from aiohttp import web
from support import kubeconfigs, overlays

from hpad import settings
from hpad.cli import advise_hpas
from hpad.daemon import app
from hpad.engine.view import Tunables
from hpad.kube.auth.credentials import ClusterConfig
from hpad.lab import autoscaler
from hpad.lab.cluster import Cluster, Resource, ScalePaths
from hpad.settings.model import Election

Json = dict[str, Any]
RABBITS = Resource("example.com", ("v1",), "rabbits", "Rabbit", scale=ScalePaths(selector=".status.selector"))
IMPATIENT = Tunables(cpu_initialization_period=timedelta(0), initial_readiness_delay=timedelta(0))
ROLES = {"ClusterRole": {"hpad", "hpad-shadow"}, "Role": {"hpad", "hpad-replicas"}}
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
DISCOVERY = ("/api", "/apis", "/version", "/openapi", "/livez", "/readyz", "/healthz")
"""Paths that the ClusterRole system:discovery grants to all users, with everything below them."""


class Access(NamedTuple):
    """A request in the terms of an authorizer; `name` and `subresource` may be empty."""

    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str

    @property
    def full(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def access_of(method: str, path: str, watch: bool) -> Access | None:
    """Returns None for a path that is not a resource, such as discovery."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1] if len(parts) > 1 else "", parts[3:])
    if parts[0] not in ("api", "apis") or not rest:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        rest = rest[2:] if len(rest) > 2 and rest[2] not in ("status", "finalize") else rest
    resource, name, subresource = (*rest, "", "")[:3]
    reading = "get" if name else "watch" if watch else "list"
    return Access(VERBS.get(method, reading), group, resource, subresource, namespace, name)


def allows(rule: Json, access: Access) -> bool:
    names = rule.get("resourceNames")
    return (
        ("*" in rule["verbs"] or access.verb in rule["verbs"])
        and ("*" in rule["apiGroups"] or access.group in rule["apiGroups"])
        and any(one in ("*", access.full, f"*/{access.subresource}") for one in rule["resources"])
        and (names is None or access.name in names)
    )


class Gatekeeper:
    """A proxy to an API server that passes requests that the rules allow; it answers the metrics APIs itself.

    It has no streaming lists (KEP-3157), as servers before 1.32, so that the verb list is needed.

    `rules` are pairs of a namespace ("" for all) and a rule. `used` has the number of the rule, verb and resource of
    each passed request, `refused` the requests that no rule allows.
    """

    def __init__(self, upstream: str, rules: list[tuple[str, Json]]) -> None:
        self._upstream = upstream
        self._rules = rules
        self.used: set[tuple[int, str, str]] = set()
        self.refused: list[Access | str] = []
        self.url = ""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Gatekeeper"]:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            async with aiohttp.ClientSession(trust_env=False, auto_decompress=False) as self._session:
                yield self
                await runner.cleanup()
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        access = access_of(request.method, request.path, request.query.get("watch") in ("1", "true"))
        if not self._allowed(request, access):
            self.refused.append(access or f"{request.method} {request.path}")
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}
            return web.json_response({**status, "message": f"{access} is forbidden"}, status=403)
        if "sendInitialEvents" in request.query:
            return web.json_response(
                {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422}, status=422
            )
        if access is not None and access.group in ("custom.metrics.k8s.io", "external.metrics.k8s.io"):
            return web.json_response(metrics(access))
        return await self._forward(request)

    def _allowed(self, request: web.Request, access: Access | None) -> bool:
        if access is None:
            return request.method == "GET" and request.path.startswith(DISCOVERY)
        for number, (namespace, rule) in enumerate(self._rules):
            if namespace in ("", access.namespace) and allows(rule, access):
                self.used.add((number, access.verb, access.full))
                return True
        return False

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name != "Host"}
        if request.path == "/apis":
            headers["Accept"] = "application/json"  # groups are added below, to the plain form of discovery
        url = f"{self._upstream}{request.raw_path}"
        async with self._session.request(
            request.method, url, headers=headers, data=await request.read() or None
        ) as answer:
            if request.path == "/apis":
                return web.json_response(with_metrics_groups(await answer.json()))
            passed = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]})
            await passed.prepare(request)
            with contextlib.suppress(ConnectionError, aiohttp.ClientError):
                async for chunk in answer.content.iter_any():
                    await passed.write(chunk)
            return passed


def with_metrics_groups(groups: Json) -> Json:
    version = {"groupVersion": "custom.metrics.k8s.io/v1beta2", "version": "v1beta2"}
    extra = {"name": "custom.metrics.k8s.io", "versions": [version], "preferredVersion": version}
    return {**groups, "groups": [*groups["groups"], extra]}


def metrics(access: Access) -> Json:
    """Returns a list of one value for any metric."""
    group = access.group.partition(".")[0]
    moment = "2026-01-01T00:00:00Z"
    if group == "external":
        item: Json = {"metricName": access.resource, "metricLabels": {}, "timestamp": moment, "value": "30"}
    else:
        described = {"kind": "Service", "namespace": access.namespace, "name": access.name, "apiVersion": "v1"}
        item = {
            "describedObject": described,
            "metric": {"name": access.subresource},
            "timestamp": moment,
            "value": "30",
        }
    return {"kind": "MetricValueList", "apiVersion": f"{access.group}/v1", "metadata": {}, "items": [item]}


def hpa(name: str, kind: str, metric: Json, api_version: str = "apps/v1") -> Json:
    """Returns an HPA; `of_kind` makes an Autoscaler of it."""
    spec = {
        "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": name},
        "minReplicas": 2,  # above the present count, so that a scale is written
        "maxReplicas": 5,
        "metrics": [metric],
    }
    head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    return {**head, "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def of_kind(hpa: Json, kinds: str) -> Json:
    """Returns the HPA, or an Autoscaler with its spec."""
    return hpa if kinds == "hpas" else {**hpa, "apiVersion": "hpad.io/v1", "kind": "Autoscaler"}


def populate(cluster: Cluster) -> list[Json]:
    """Applies workloads of all kinds; returns an HPA of the same name for each, which is not applied."""
    metric_target = {"type": "AverageValue", "averageValue": "10"}
    service = {"apiVersion": "v1", "kind": "Service", "name": "front"}
    resource = {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "10"}}
    hpas = [
        hpa("web", "Deployment", {"type": "Resource", "resource": resource}),
        hpa("set", "StatefulSet", {"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": metric_target}}),
        hpa(
            "replica",
            "ReplicaSet",
            {"type": "External", "external": {"metric": {"name": "depth"}, "target": metric_target}},
        ),
        hpa(
            "rc",
            "ReplicationController",
            {
                "type": "Object",
                "object": {"metric": {"name": "hits"}, "target": metric_target, "describedObject": service},
            },
            "v1",
        ),
        hpa("rabbit", "Rabbit", {"type": "Resource", "resource": resource}, "example.com/v1"),
    ]
    for each in hpas:
        target = each["spec"]["scaleTargetRef"]
        name, labels = target["name"], {"app": target["name"]}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
        plain = target["kind"] in ("ReplicationController", "Rabbit")
        body = {"replicas": 1, "selector": labels if plain else {"matchLabels": labels}, "template": template}
        made = {"apiVersion": target["apiVersion"], "kind": target["kind"], "spec": body}
        status = {"replicas": 1, "selector": f"app={name}"} if target["kind"] == "Rabbit" else {}
        cluster.apply({**made, "metadata": {"name": name, "namespace": "shop"}, "status": status})
    return hpas


@contextlib.asynccontextmanager
async def scaled_workloads(
    rules: list[tuple[str, Json]], *, manifests: Path | None = None, kinds: str = "hpas", **changes: Any
) -> AsyncIterator[tuple[Cluster, Gatekeeper]]:
    """Starts hpad with these settings and permissions; yields once it has scaled all workloads of a cluster."""
    async with Cluster(auto_ready=True, kinds=[RABBITS]) as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hpad"}})
        hpas = populate(cluster)
        for each in overlays.documents("hosted"):
            if each["kind"] == "CustomResourceDefinition":
                cluster.apply(each)
        for each in hpas:
            if manifests is None:
                cluster.apply(of_kind(each, kinds))
            else:
                (manifests / f"{each['metadata']['name']}.json").write_text(json.dumps(each), encoding="utf-8")
        async with Gatekeeper(cluster.url, rules).open() as gate:
            intervals = {"sync_period": timedelta(seconds=1), "tunables": IMPATIENT}
            all_settings = settings.Settings(listen=None, manifests=manifests, kinds=kinds, **intervals, **changes)
            async with app.App(all_settings, cluster_config=ClusterConfig(server=gate.url)) as daemon:
                async with asyncio.timeout(240):
                    await daemon.ready()
                    while not all(scaled(cluster, each) for each in hpas):  # noqa: ASYNC110  # nothing signals it
                        await asyncio.sleep(0.05)
                yield cluster, gate


def scaled(cluster: Cluster, hpa: Json) -> bool:
    """Returns whether the target has the minimum of the HPA."""
    target = hpa["spec"]["scaleTargetRef"]
    found = cluster.get(f"{target['kind'].lower()}s", target["name"], "shop")
    return found is not None and found["spec"]["replicas"] == hpa["spec"]["minReplicas"]


def granted_by(overlay: str, *components: str) -> list[tuple[str, Json]]:
    """Returns the rules of an overlay's roles, each with its namespace, "" for all."""
    every = overlays.rights(overlay, *components)
    roles = [each for each in every if each["metadata"]["name"] in ROLES.get(each["kind"], ())]
    return [(role["metadata"].get("namespace", ""), rule) for role in roles for rule in role["rules"]]


SCOPES = [
    pytest.param(granted_by("replace"), "hpas", (), "hpad", id="all-namespaces"),
    pytest.param(granted_by("namespace"), "autoscalers", ("shop",), "shop", id="one-namespace"),
]


@pytest.mark.parametrize(("rules", "kinds", "namespaces", "own"), SCOPES)
async def test_the_permissions_suffice_and_each_is_used(
    rules: list[tuple[str, Json]], kinds: str, namespaces: tuple[str, ...], own: str
) -> None:
    built_in = tuple(
        settings.SourceSettings(name=name, adapter=name)
        for name in ("custom-metrics", "external-metrics")
        if name not in settings.BUILT_IN_SOURCES
    )
    election, store = Election(enabled=True, namespace=own), settings.StoreSettings(kind="cluster", namespace=own)
    shared = {"election": election, "store": store}
    granted = {(number, verb) for number, (_, rule) in enumerate(rules) for verb in rule["verbs"]}
    named = {(number, one) for number, (_, rule) in enumerate(rules) for one in rule["resources"] if "*" not in one}
    async with scaled_workloads(rules, kinds=kinds, namespaces=namespaces, sources=built_in, **shared) as (
        cluster,
        gate,
    ):

        def unused() -> set[tuple[int, str]]:
            verbs, resources = ({(number, each[part]) for number, *each in gate.used} for part in (0, 1))
            return (granted - verbs) | (named - resources)

        await until(lambda: written(cluster) and not unused())
        assert gate.refused == []
    assert written(cluster)
    assert unused() == set(), "rules by number, and their verbs and resources that hpad does not use"


@pytest.mark.parametrize("sees_others", [True, False])
async def test_with_hpas_from_files_hpas_of_the_cluster_are_read_only_to_detect_competitors(
    tmp_path: Path, sees_others: bool
) -> None:
    every = granted_by("sidecar")
    rules = [pair for pair in every if sees_others or pair[1]["resources"] != ["horizontalpodautoscalers"]]
    assert len(every) - len(rules) == (0 if sees_others else 1)
    async with scaled_workloads(rules, namespaces=("shop",), manifests=tmp_path) as (_, gate):
        await until(lambda: sees_others or gate.refused)
        refused = {each if isinstance(each, str) else each.full for each in gate.refused}
        assert refused == (set() if sees_others else {"horizontalpodautoscalers"})


def written(cluster: Cluster) -> bool:
    """Returns whether an event was patched, the Lease renewed and the state saved again."""
    writes = (("patch", "events"), ("update", "leases"), ("update", "configmaps"))
    return all(cluster.log.count(*each) for each in writes)


async def until(condition: Callable[[], object]) -> None:
    """Waits until a condition is true, at most four minutes; the caller asserts it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(240):
            while not condition():  # noqa: ASYNC110  # nothing signals it
                await asyncio.sleep(0.05)


def test_each_rule_says_what_it_is_for(root: Path) -> None:
    files = sorted((root / "config" / "rbac").glob("*/*.yaml"))
    assert len(files) > 10
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if re.match(r"  - apiGroups: \[[^r]|- op: (add|test)", line):
                explained = lines[number - 1].lstrip().startswith("# ")
                covered = lines[number - 3].startswith("  - apiGroups:")  # two rules may share a comment, which says so
                assert explained or covered, f"{file}:{number + 1}"


def test_one_namespace_gets_the_same_rights_as_all() -> None:
    """But for its ConfigMaps: where others have theirs, hpad's are named."""

    def rights(rules: list[tuple[str, Json]]) -> list[str]:
        return sorted(json.dumps(rule) for _, rule in rules if rule["resources"] != ["configmaps"])

    assert rights(granted_by("namespace")) == rights(granted_by("hosted"))
    assert {namespace for namespace, _ in granted_by("namespace")} == {"shop"}


def verbs(overlay: str, resource: str) -> set[str]:
    return {verb for _, rule in granted_by(overlay) if resource in rule["resources"] for verb in rule["verbs"]}


def test_beside_the_built_in_controller_hpas_are_only_read() -> None:
    reading = {"list", "watch"}
    for overlay in ("hosted", "namespace"):
        assert verbs(overlay, "horizontalpodautoscalers") == verbs(overlay, "autoscalers") == reading
        assert verbs(overlay, "horizontalpodautoscalers/status") == set()
        assert verbs(overlay, "autoscalers/status") == {"update"}
    assert {verb for _, rule in granted_by("shadow") for verb in rule["verbs"]} == {"get", *reading}


@pytest.mark.parametrize("overlay", overlays.FILES)
def test_bindings_bind_what_is_there(overlay: str) -> None:
    read = overlays.documents(overlay)
    made = {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in read}
    bindings = [each for each in read if each["kind"].endswith("Binding")]
    assert bindings
    for each in bindings:
        role, own = each["roleRef"], each["metadata"].get("namespace", "")
        assert (role["kind"], "" if role["kind"] == "ClusterRole" else own, role["name"]) in made
        for subject in each["subjects"]:
            assert (subject["kind"], subject["namespace"], subject["name"]) in made


@pytest.fixture
def guided() -> list[tuple[str, Json]]:
    """The rules of the ClusterRole in docs/advise.md."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "advise.md").read_text("utf-8")
    (text,) = re.findall(r"^```yaml\n([^`]*?kind: ClusterRole[^`]*?)^```$", page, re.M)
    return [("", rule) for rule in yaml.safe_load(text)["rules"]]


async def test_the_role_of_the_guide_suffices_to_list_hpas_for_advice(
    guided: list[tuple[str, Json]], tmp_path: Path
) -> None:
    cpu = {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "10"}}
    async with Cluster(kubelet=False) as cluster, Gatekeeper(cluster.url, guided).open() as gate:
        cluster.apply(autoscaler.definition())
        cluster.apply(hpa("web", "Deployment", {"type": "Resource", "resource": cpu}))
        parser = argparse.ArgumentParser()
        advise_hpas.add_arguments(parser)
        args = parser.parse_args(["--kubeconfig", kubeconfigs.kubeconfig(tmp_path / "kubeconfig", server=gate.url)])
        known = await asyncio.to_thread(advise_hpas.found, args, settings.Settings())
    assert [str(each.key) for each in known.hpas] == ["shop/web"]
    assert not known.notes
    assert not gate.refused
    granted = {(number, verb) for number, (_, rule) in enumerate(guided) for verb in rule["verbs"]}
    assert {(number, verb) for number, verb, _ in gate.used} == granted
