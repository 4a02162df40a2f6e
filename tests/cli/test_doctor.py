"""`hpad doctor` with a fake API server, with and without problems."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import trustme
from aiohttp import web
from support.scripted_server import says, serving

from hpad import settings
from hpad.adapter import AdapterError
from hpad.cli import doctor, main
from hpad.cli.doctor_checks import Finding
from hpad.daemon import assembly
from hpad.kube.auth.kubeconfig import load_cluster_config
from hpad.lab.cluster import Cluster
from hpad.lab.servers import ports
from hpad.settings.model import Election, Serving
from hpad.sources import plugins
from hpad_adapters import static

HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
OWN_LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/hpad"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class ApiServer:
    """The part of an API server that the checks use: version, clock, HPAs, Lease and access reviews."""

    def __init__(self) -> None:
        self.url = ""
        self.version = "v1.36.0"
        self.issuer: str | None = None
        self.skew = timedelta(0)
        self.denied: set[tuple[str, str]] = set()
        self.hpas: list[dict[str, Any]] = []
        self.autoscalers: list[dict[str, Any]] | None = None
        """None: their kind is not installed."""
        self.renewed: datetime | None = None
        self.leads_since: datetime | None = None
        self.led_until: datetime | None = None
        """None: it still leads."""
        self.reviews = True
        self.missing = "not here"
        """The message of a 404."""
        self.pause = 0.0
        """Seconds before it lists the resources of a group."""

    async def answer(self, request: web.Request) -> web.Response:
        body = await self.body(request)
        date = format_datetime(datetime.now(UTC) + self.skew, usegmt=True)
        if body is None:
            status = {"kind": "Status", "status": "Failure", "message": self.missing, "reason": "NotFound", "code": 404}
            return web.json_response(status, status=404, headers={"Date": date})
        return web.json_response(body, headers={"Date": date})

    async def body(self, request: web.Request) -> Any:
        match request.path:
            case "/version":
                return {"gitVersion": self.version}
            case "/apis/hpad.io/v1" if self.autoscalers is not None:
                return {"kind": "APIResourceList", "resources": []}
            case "/apis/hpad.io/v1/autoscalers" if self.autoscalers is not None:
                return {"items": self.autoscalers, "metadata": {"resourceVersion": "1"}}
            case "/.well-known/openid-configuration" if self.issuer is not None:
                return {"issuer": self.issuer}
            case "/apis/autoscaling/v2":
                await asyncio.sleep(self.pause)
                return {"kind": "APIResourceList", "resources": []}
            case path if path == HPAS:
                start = int(request.query.get("continue", "0"))
                end = start + int(request.query["limit"])
                more = {"continue": str(end)} if end < len(self.hpas) else {}
                return {"items": self.hpas[start:end], "metadata": {"resourceVersion": "1", **more}}
            case path if path == LEASE and self.renewed is not None:
                return {"spec": {"renewTime": self.renewed.isoformat()}}
            case path if path == OWN_LEASE and self.leads_since is not None:
                renewed = self.led_until or datetime.now(UTC)
                times = {"acquireTime": self.leads_since.isoformat(), "renewTime": renewed.isoformat()}
                return {"spec": {"holderIdentity": "hpad-0", **times}}
            case path if path == REVIEWS and self.reviews:
                review = await request.json()
                attributes = review["spec"]["resourceAttributes"]
                full = "/".join(filter(None, (attributes["resource"], attributes.get("subresource"))))
                return {**review, "status": {"allowed": (attributes["verb"], full) not in self.denied}}
        return None


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    made = ApiServer()
    runner = web.AppRunner(web.Application(), access_log=None)
    runner.app.router.add_route("*", "/{path:.*}", made.answer)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = "http://{}:{}".format(*runner.addresses[0])
    yield made
    await runner.cleanup()


def write_kubeconfig(folder: Path, url: str) -> Path:
    file = folder / "kubeconfig"
    cluster, user = {"name": "c", "cluster": {"server": url}}, {"name": "u", "user": {"token": "secret-token"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    head = {"apiVersion": "v1", "kind": "Config", "current-context": "c"}
    file.write_text(json.dumps({**head, "clusters": [cluster], "users": [user], "contexts": [context]}))
    return file


async def found(folder: Path, url: str, **changes: Any) -> list[Finding]:
    configured = settings.Settings(kubeconfig=str(write_kubeconfig(folder, url)), **changes)
    async with asyncio.timeout(60):
        return await doctor.examine(lambda: configured)


def bad(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level in ("warning", "error")]


def hpa(manager: str, ago: timedelta, **spec: Any) -> dict[str, Any]:
    entry = {"manager": manager, "operation": "Update", "subresource": "status"}
    time = (datetime.now(UTC) - ago).isoformat(timespec="seconds").replace("+00:00", "Z")
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "metadata": {"name": "web", "namespace": "shop", "uid": "1", "managedFields": [{**entry, "time": time}]},
        "spec": {"scaleTargetRef": ref, "maxReplicas": 3, **spec},
        "status": {},
    }


async def test_no_problems(server: ApiServer, tmp_path: Path) -> None:
    server.hpas = [hpa("hpad", timedelta(seconds=10)), hpa("kube-controller-manager", timedelta(hours=1))]
    findings = await found(tmp_path, server.url)
    assert bad(findings) == []
    assert {"configuration", "server", "clock", "rights", "controllers", "store"} <= {each.check for each in findings}


async def test_a_missing_right_is_reported_with_its_consequence(server: ApiServer, tmp_path: Path) -> None:
    server.denied = {("list", "pods"), ("update", "deployments/scale"), ("list", "deployments")}
    missing = [finding for finding in await found(tmp_path, server.url) if finding.check == "rights"]
    assert [(each.level, each.says.partition(":")[0]) for each in missing] == [
        ("error", "may not list pods in all namespaces"),
        ("note", "may not list deployments.apps in all namespaces"),
        ("warning", "may not update deployments/scale.apps in all namespaces"),
        ("warning", "may not list pods.metrics.k8s.io in all namespaces"),
    ]
    assert all("config/rbac" in each.do for each in missing)


async def test_a_server_without_access_reviews(server: ApiServer, tmp_path: Path) -> None:
    server.reviews = False
    (finding,) = bad(await found(tmp_path, server.url))
    assert (finding.check, finding.level) == ("rights", "warning")


@pytest.mark.parametrize(("ahead", "level"), [(0, "ok"), (10, "warning"), (-10, "warning"), (120, "error")])
async def test_different_clocks(server: ApiServer, tmp_path: Path, ahead: int, level: str) -> None:
    server.skew = timedelta(seconds=ahead)
    (finding,) = [finding for finding in await found(tmp_path, server.url) if finding.check == "clock"]
    assert finding.level == level
    assert ("behind" in finding.says) == (ahead > 0)


@pytest.mark.parametrize(("version", "levels"), [("v1.22.17", ["ok", "warning"]), ("v1.23.0", ["ok"])])
async def test_an_old_kubernetes(server: ApiServer, tmp_path: Path, version: str, levels: list[str]) -> None:
    server.version = version
    findings = [finding for finding in await found(tmp_path, server.url) if finding.check == "server"]
    assert [finding.level for finding in findings] == levels
    assert ("is older than hpad supports" in findings[-1].says) == ("warning" in levels)


async def test_a_slow_answer_does_not_count_as_a_clock_difference(server: ApiServer, tmp_path: Path) -> None:
    """Only the first request compares the clocks."""
    server.pause = 2.5
    assert bad(await found(tmp_path, server.url)) == []


@pytest.mark.parametrize("by_variable", [False, True])
async def test_a_kubeconfig_that_is_named_is_to_be_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("users: []\n")
    if by_variable:
        monkeypatch.setenv("KUBECONFIG", str(file))
    configured = settings.Settings(kubeconfig=None if by_variable else str(file))
    [finding] = [each for each in await doctor.examine(lambda: configured) if each.check == "server"]
    assert (finding.says.partition(":")[0], finding.do) == (str(file), "correct it there")


async def test_files_of_the_port_that_cannot_be_used_are_errors(server: ApiServer, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("")
    findings = await found(tmp_path, server.url, serving=Serving(token_file=tokens))
    assert [each.says for each in findings if each.check == "configuration"] == [
        f"listen_token_file: {tokens}: has 0 tokens, not 1 to 64, one per line"
    ]


async def test_another_writer_of_the_same_hpas_is_reported(server: ApiServer, tmp_path: Path) -> None:
    server.hpas = [hpa("kube-controller-manager", timedelta(seconds=20))]
    (finding,) = bad(await found(tmp_path, server.url))
    assert (finding.check, finding.level) == ("controllers", "error")
    assert "kube-controller-manager writes the status of shop/web, last at " in finding.says
    assert "-horizontal-pod-autoscaler-controller" in finding.do


@pytest.mark.parametrize(
    ("kinds", "installed", "denied", "levels"),
    [
        ("both", False, set(), {"ok"}),
        ("autoscalers", False, set(), {"error"}),
        ("hpas", False, set(), set()),
        ("both", True, {"list", "watch", "update"}, {"ok", "warning"}),
        ("autoscalers", True, {"list", "watch", "update"}, {"ok", "error"}),
        ("hpas", True, {"list", "watch", "update"}, set()),
    ],
)
async def test_the_kind_autoscaler_and_the_rights_for_it(
    server: ApiServer, tmp_path: Path, kinds: str, installed: bool, denied: set[str], levels: set[str]
) -> None:
    server.autoscalers = [] if installed else None
    server.denied = {(verb, f"autoscalers{'/status' if verb == 'update' else ''}") for verb in denied}
    shown = await found(tmp_path, server.url, kinds=kinds)
    refused = [each for each in shown if each.check == "rights" and " autoscalers" in each.says]
    assert {each.level for each in shown if each.check == "kind" or each in refused} == levels
    assert len(refused) == (len(denied) if kinds != "hpas" else 0)


async def test_with_autoscalers_alone_hpas_are_left_to_their_controller(server: ApiServer, tmp_path: Path) -> None:
    server.hpas, server.autoscalers = [hpa("kube-controller-manager", timedelta(seconds=2))], []
    server.denied = {("update", "horizontalpodautoscalers/status")}
    assert bad(await found(tmp_path, server.url, kinds="autoscalers")) == []


@pytest.mark.parametrize("kinds", ["both", "autoscalers"])
@pytest.mark.parametrize(("mode", "level"), [("active", "error"), ("shadow", "ok")])
async def test_an_autoscaler_yields_to_an_hpa_unless_it_is_in_shadow_mode(
    server: ApiServer, tmp_path: Path, kinds: str, mode: str, level: str
) -> None:
    mine = hpa("hpad", timedelta(0), options={"mode": mode})
    server.hpas, server.autoscalers = [hpa("hpad", timedelta(0))], [mine]
    [finding] = [each for each in await found(tmp_path, server.url, kinds=kinds) if each.check == "targets"]
    both = "HPA shop/web of the API server and Autoscaler shop/web scale the same target"
    assert (finding.level, finding.says.startswith(both)) == (level, level == "error")


AKS = "https://westeurope.oic.prod-aks.azure.com/tenant/cluster/"


@pytest.mark.parametrize(
    ("version", "issuer", "service"),
    [
        ("v1.33.1-eks-595af52", None, "EKS"),
        ("v1.33.1-eks-1-33-12", None, ""),  # EKS Distro, whose flags are its user's
        ("v1.33.4-gke.1134000", None, "GKE"),
        ("v1.33.1", AKS, "AKS"),
        ("v1.33.1", "https://kubernetes.default.svc.cluster.local", ""),
        ("v1.33.1+k3s1", None, ""),
    ],
)
async def test_the_way_on_beside_the_built_in_controller(
    server: ApiServer, tmp_path: Path, version: str, issuer: str | None, service: str
) -> None:
    """A hosted server is seen by its version, or by the issuer of its tokens, which a pod may read as well."""
    server.version, server.issuer = version, issuer
    server.hpas = [hpa("kube-controller-manager", timedelta(seconds=20))]
    (finding,) = bad(await found(tmp_path, server.url))
    assert finding.do.startswith(f"{service} has no way" if service else "run kube-controller-manager with")
    assert "use Autoscalers in place of HPAs" in finding.do
    server.hpas = []
    hosted = bad(await found(tmp_path, server.url))
    assert [each.says.partition(":")[0] for each in hosted] == [
        f"the control plane is hosted by {each}" for each in [service] if each
    ]
    server.hpas = [both(20, 5)]
    [former] = [each for each in await found(tmp_path, server.url) if each.check == "controllers"]
    assert (former.level, former.do.partition(" is still on: ")[2]) == ("note", finding.do.partition("; to look")[0])
    server.autoscalers = []
    [alone] = [each for each in await found(tmp_path, server.url, kinds="autoscalers") if each.check == "controllers"]
    theirs = f"the built-in controller of {service}" if service else "their controller"
    assert (alone.level, alone.says) == ("ok", f"hpad acts on Autoscalers alone, and leaves HPAs to {theirs}")


def both(theirs: int, ours: int, name: str = "web") -> dict[str, Any]:
    """An HPA whose status the built-in controller and hpad wrote so many seconds ago."""
    made = hpa("kube-controller-manager", timedelta(seconds=theirs))
    made["metadata"]["managedFields"] += hpa("hpad", timedelta(seconds=ours))["metadata"]["managedFields"]
    made["metadata"]["name"] = name
    return made


@pytest.mark.parametrize(
    ("theirs", "ours", "leads_for", "level"),
    [
        (20, 5, None, "note"),  # 20 s after a switch
        (5, 20, None, "error"),
        (20, 3600, None, "error"),  # hpad was tried before
        (20, 3600, 15, "note"),  # it leads since, and has had nothing to write
        (20, 3600, 25, "error"),
        (20, 5, 600, "error"),  # it wrote while hpad led
        (90, 5, 600, "note"),  # it was turned off after hpad had started
    ],
)
async def test_a_controller_that_wrote_only_before_hpad_took_over_is_a_note(
    server: ApiServer, tmp_path: Path, theirs: int, ours: int, leads_for: int | None, level: str
) -> None:
    server.hpas = [both(theirs, ours)]
    if leads_for is not None:
        server.leads_since = datetime.now(UTC) - timedelta(seconds=leads_for)
    election = Election(enabled=leads_for is not None)
    shown = [each for each in await found(tmp_path, server.url, election=election) if each.check == "controllers"]
    assert [each.level for each in shown] == [level]
    assert ("and hpad has taken over since" if level == "note" else "two controllers own") in shown[0].says


async def test_a_status_that_hpad_had_no_need_to_write_is_no_sign_of_another_controller(
    server: ApiServer, tmp_path: Path
) -> None:
    server.hpas = [both(40, 5, "api"), hpa("kube-controller-manager", timedelta(seconds=40))]
    levels = [each.level for each in await found(tmp_path, server.url) if each.check == "controllers"]
    assert levels == ["note"]
    server.hpas = [both(40, 5, "api"), both(40, 60)]
    shown = [each for each in await found(tmp_path, server.url) if each.check == "controllers"]
    assert [each.level for each in shown] == ["error", "note"]
    assert "writes the status of shop/web beside hpad" in shown[0].says


@pytest.mark.parametrize(
    ("wrote", "led_until", "levels"),
    [
        (10, None, []),  # it leads, and so it has written
        (90, 85, []),  # it stopped, and its clock is not the API server's
        (90, 240, ["warning"]),
        (10, 3600, ["warning"]),
        (900, 3600, []),  # whichever it was, it writes no more
    ],
)
async def test_an_hpad_that_writes_without_the_lease(
    server: ApiServer, tmp_path: Path, wrote: int, led_until: int | None, levels: list[str]
) -> None:
    now = datetime.now(UTC)
    server.hpas = [hpa("hpad", timedelta(seconds=wrote))]
    server.leads_since = now - timedelta(days=1)
    server.led_until = None if led_until is None else now - timedelta(seconds=led_until)
    shown = [
        each for each in await found(tmp_path, server.url, election=Election(enabled=True)) if each.check == "hpads"
    ]
    assert [each.level for each in shown] == levels
    assert all("and not as the holder of the Lease kube-system/hpad" in each.says for each in shown)


async def test_an_hpad_that_writes_where_there_is_no_lease(server: ApiServer, tmp_path: Path) -> None:
    server.autoscalers = [hpa("hpad", timedelta(seconds=10))]
    shown = [
        each for each in await found(tmp_path, server.url, election=Election(enabled=True)) if each.check == "hpads"
    ]
    assert [each.level for each in shown] == ["warning"]


async def test_an_hpad_that_writes_while_nothing_listens_here(server: ApiServer, tmp_path: Path) -> None:
    server.hpas = [hpa("hpad", timedelta(seconds=10))]
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        address = port.getsockname()
        shown = [each for each in await found(tmp_path, server.url, listen=address) if each.check == "hpads"]
        assert [each.level for each in shown] == ["note"]
        assert f"none listens on 127.0.0.1:{address[1]}" in shown[0].says
        port.listen()
        assert "hpads" not in {each.check for each in await found(tmp_path, server.url, listen=address)}


async def test_a_dry_run_beside_another_controller_is_no_failure(server: ApiServer, tmp_path: Path) -> None:
    server.hpas = [hpa("kube-controller-manager", timedelta(seconds=2))]
    shown = [each for each in await found(tmp_path, server.url, dry_run=True) if each.check == "controllers"]
    assert [each.level for each in shown] == ["note"]
    assert "a dry run works beside it" in shown[0].says


async def test_an_active_controller_manager_is_a_note(server: ApiServer, tmp_path: Path) -> None:
    server.renewed = datetime.now(UTC)
    notes = [finding for finding in await found(tmp_path, server.url) if finding.check == "controllers"]
    assert [finding.level for finding in notes] == ["note", "ok"]


async def test_a_metric_without_a_value_and_an_unknown_adapter(server: ApiServer, tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.yaml"
    numbers.write_text("depth: 3\n")
    target = {"type": "Value", "value": "10"}
    metrics = [
        {"type": "External", "external": {"metric": {"name": name}, "target": target}} for name in ("depth", "no")
    ]
    server.hpas = [hpa("hpad", timedelta(0), metrics=metrics)]
    sources = (
        settings.SourceSettings(name="file", adapter="static", settings={"file": str(numbers)}),
        settings.SourceSettings(name="none", adapter="no-such-adapter"),
    )
    routes = (settings.Route(match=settings.Match(), source="file"),)
    findings = await found(tmp_path, server.url, sources=sources, routes=routes)
    levels = {finding.says.partition(" of ")[0]: finding.level for finding in findings if finding.check == "sources"}
    assert levels.pop('External metric "depth"') == "ok"
    assert levels.pop('External metric "no"') == "warning"
    assert not levels
    (broken,) = [finding for finding in findings if finding.check == "configuration"]
    assert (broken.level, "no-such-adapter" in broken.says) == ("error", True)


async def test_a_source_that_needs_the_name_of_the_hpa_gets_it(server: ApiServer, tmp_path: Path) -> None:
    target = {"type": "AverageValue", "averageValue": "1"}
    metric = {"type": "External", "external": {"metric": {"name": "floor"}, "target": target}}
    server.hpas = [hpa("hpad", timedelta(0), metrics=[metric])]
    seasonal = {"url": f"http://127.0.0.1:{ports.free(1)[0]}", "metrics": {"floor": {}}}
    sources = (settings.SourceSettings(name="season", adapter="seasonal", settings=seasonal),)
    routes = (settings.Route(match=settings.Match(), source="season"),)
    findings = await found(tmp_path, server.url, sources=sources, routes=routes)
    (finding,) = [each for each in findings if each.check == "sources"]
    assert "refused the connection" in finding.says


@pytest.mark.parametrize(
    ("name", "advice"),
    [("Orders", 'name it "orders" in the HPA'), ("orders", "correct the HPA, or the settings of the source")],
)
async def test_a_name_that_an_adapter_may_know_in_lower_case(
    server: ApiServer, tmp_path: Path, name: str, advice: str
) -> None:
    """The built-in controller asks the external metrics API in lower case, whatever the HPA says."""
    target = {"type": "Value", "value": "10"}
    metric = {"type": "External", "external": {"metric": {"name": name}, "target": target}}
    server.hpas = [hpa("hpad", timedelta(0), metrics=[metric])]
    server.missing = f"the server could not find the metric {name} for "
    (finding,) = [each for each in await found(tmp_path, server.url) if each.check == "sources"]
    assert finding.level == "warning"
    assert finding.do.startswith(advice)


async def test_settings_are_valid_only_if_their_sources_are(tmp_path: Path) -> None:
    """Also without an API server."""
    good = settings.SourceSettings(name="file", adapter="static", settings={"file": "x"})
    wrong = settings.SourceSettings(name="prom", adapter="prometheus", settings={"urll": "x"}, origin="hpad.yaml")
    findings = await found(tmp_path, "http://127.0.0.1:9", sources=(good, wrong))
    (finding,) = [finding for finding in findings if finding.check == "configuration"]
    assert finding.level == "error"
    assert finding.says == "hpad.yaml: source \"prom\": urll: unknown field; did you mean 'url'? (value: 'x')"
    findings = await found(tmp_path, "http://127.0.0.1:9", sources=(good,))
    (finding,) = [finding for finding in findings if finding.check == "configuration"]
    assert (finding.level, finding.says) == ("ok", "the settings are valid, including source file")


async def test_a_source_that_cannot_be_built_is_reported_once(tmp_path: Path) -> None:
    class Picky(static.Static):
        def __init__(self, settings: Any, context: Any) -> None:
            raise AdapterError("file: wants a newer one", "spec")

    source = settings.SourceSettings(name="file", adapter="static", settings={"file": "x"}, origin="hpad.yaml")
    with mock.patch.object(plugins, "adapter_class", return_value=Picky):
        (finding, *_) = await found(tmp_path, "http://127.0.0.1:9", sources=(source,))
    assert finding.says == 'hpad.yaml: source "file": file: wants a newer one'


def test_advice_that_several_findings_share_is_printed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (Finding("rights", "error", f"may not {verb} pods", "grant it") for verb in ("list", "watch"))
    findings = [one, two, Finding("server", "note", "it is old", "renew it")]
    monkeypatch.setattr(doctor, "examine", mock.AsyncMock(return_value=findings))
    assert main(["doctor"]) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["error", "rights", "may", "not", "list", "pods"],
        ["error", "rights", "may", "not", "watch", "pods"],
        ["->", "grant", "it"],
        ["note", "server", "it", "is", "old"],
        ["->", "renew", "it"],
        ["2", "errors,", "1", "note"],
    ]


async def test_manifests_replace_the_hpas_of_the_cluster(server: ApiServer, tmp_path: Path) -> None:
    server.hpas = [hpa("kube-controller-manager", timedelta(seconds=20))]
    folder = tmp_path / "hpas"
    (missing,) = bad(await found(tmp_path, server.url, manifests=folder))
    assert (missing.check, missing.level) == ("manifests", "error")
    assert f"there is no folder or file {folder}" in missing.says
    folder.mkdir()
    target = {"type": "Value", "value": "10"}
    metric = {"type": "External", "external": {"metric": {"name": "depth"}, "target": target}}
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": ref, "maxReplicas": 3, "metrics": [metric]}
    head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}}
    (folder / "good.json").write_text(json.dumps({**head, "spec": spec}))
    (folder / "bad.json").write_text(
        json.dumps({**head, "metadata": {"name": "b"}, "spec": {**spec, "maxReplicas": 0}})
    )
    findings = await found(tmp_path, server.url, manifests=folder)
    assert f"1 HPA in {folder}" in [finding.says for finding in findings]
    assert [finding.says.partition(": ")[0] for finding in bad(findings)] == [
        f"{folder / 'bad.json'}:1",
        f"{folder / 'bad.json'}:1",
        'External metric "depth" of default/web',
    ]


async def test_one_hpa_is_counted_in_the_singular(server: ApiServer, tmp_path: Path) -> None:
    server.hpas = [hpa("hpad", timedelta(seconds=10))]
    assert "no other controller writes the status of 1 HPA" in [each.says for each in await found(tmp_path, server.url)]


async def test_all_hpas_of_a_large_cluster_are_checked(server: ApiServer, tmp_path: Path) -> None:
    """The API server returns lists in pages of 500."""
    server.hpas = [hpa("hpad", timedelta(seconds=10)) for _ in range(1200)]
    findings = [each.says for each in await found(tmp_path, server.url)]
    assert "no other controller writes the status of 1200 HPAs" in findings


async def test_without_hpas_there_are_no_competing_writers(server: ApiServer, tmp_path: Path) -> None:
    assert "there are no HPAs yet, so no other controller writes their status" in [
        each.says for each in await found(tmp_path, server.url)
    ]


async def test_a_server_without_tls(server: ApiServer, tmp_path: Path) -> None:
    finding = (await found(tmp_path, server.url.replace("http:", "https:")))[-1]
    assert (finding.check, finding.level) == ("server", "error")
    assert "http://" in finding.do


async def test_a_certificate_for_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, tls = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("api.internal").configure_cert(tls)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with serving(says({}), tls=tls) as port:
        finding = (await found(tmp_path, f"https://127.0.0.1:{port}"))[-1]
    assert (finding.check, finding.level) == ("server", "error")
    assert "tls-server-name" in finding.do


async def test_an_unreachable_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    finding = (await found(tmp_path, "https://api.invalid"))[-1]
    assert (finding.check, finding.level) == ("server", "error")
    assert finding.do.startswith("check the proxy-url")


async def test_an_unreachable_server(tmp_path: Path) -> None:
    finding = (await found(tmp_path, "http://127.0.0.1:9"))[-1]
    assert (finding.check, finding.level) == ("server", "error")
    assert "http://127.0.0.1:9" in finding.do


async def test_a_store_that_cannot_be_written(server: ApiServer, tmp_path: Path) -> None:
    store = settings.StoreSettings(kind="sqlite", path=tmp_path / "none" / "history.db")
    (finding,) = bad(await found(tmp_path, server.url, store=store))
    assert (finding.check, finding.level) == ("store", "error")


@pytest.mark.parametrize(
    ("context", "changes", "place"),
    [
        ({"namespace": "team-a"}, {}, "team-a"),
        ({}, {}, "default"),
        ({"namespace": "team-a"}, {"election": Election(enabled=True, namespace="infra")}, "infra"),
        ({"namespace": "team-a"}, {"store": settings.StoreSettings(kind="cluster", namespace="kept")}, "kept"),
    ],
)
async def test_the_namespace_of_the_config_maps_is_that_of_run(
    server: ApiServer, tmp_path: Path, context: dict[str, str], changes: dict[str, Any], place: str
) -> None:
    server.denied = {("create", "configmaps")}
    file = write_kubeconfig(tmp_path, server.url)
    kubeconfig = json.loads(file.read_text())
    kubeconfig["contexts"][0]["context"].update(context)
    file.write_text(json.dumps(kubeconfig))
    configured = settings.Settings(
        kubeconfig=str(file),
        **{"store": settings.StoreSettings(kind="cluster"), **changes},  # type: ignore[arg-type]
    )
    findings = await doctor.examine(lambda: configured)
    [stored] = [each.says for each in findings if each.check == "store"]
    assert (
        stored == f"the state of HPAs is kept in ConfigMaps {configured.store.name}-* of namespace {place} (see rights)"
    )
    [missing] = [each.says for each in findings if each.level == "warning" and "configmaps" in each.says]
    assert missing.startswith(f"may not create configmaps in namespace {place}: ")
    where = await asyncio.to_thread(load_cluster_config, configured.kubeconfig, None)
    assert assembly.store_namespace(configured, where.namespace) == place


async def test_a_dry_run_stores_nothing_in_the_cluster(server: ApiServer, tmp_path: Path) -> None:
    store = settings.StoreSettings(kind="cluster")
    findings = await found(tmp_path, server.url, store=store, dry_run=True)
    [stored] = [each.says for each in findings if each.check == "store"]
    assert stored == "a dry run keeps the state of HPAs in memory"


def test_the_rights_follow_the_settings() -> None:
    quiet = {str(need.right) for need in doctor.needs(settings.Settings(dry_run=True), "default")}
    assert not any(right.startswith(("update", "patch", "create")) for right in quiet)
    configured = settings.Settings(namespaces=("shop",), election=Election(enabled=True), serving=Serving(review=True))
    needed = {str(need.right) for need in doctor.needs(configured, "default")}
    assert "update leases.coordination.k8s.io hpad in namespace kube-system" in needed
    assert "create tokenreviews.authentication.k8s.io in all namespaces" in needed
    assert "list pods in namespace shop" in needed


def test_invalid_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-o", "json", "--workers=none", "--tolerance=7"]) == 1
    findings = json.loads(capsys.readouterr().out)
    assert [(each["check"], each["level"]) for each in findings] == [("configuration", "error")] * 2
    assert "--workers" in findings[0]["says"]


async def test_the_embedded_cluster_has_no_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with Cluster() as cluster:
        kubeconfig = write_kubeconfig(tmp_path, cluster.url)
        status = await asyncio.to_thread(main, ["doctor", "--kubeconfig", str(kubeconfig)])
    text = capsys.readouterr().out
    assert status == 0, text
    assert "secret-token" not in text
