"""Which HPAs `hpad advise` takes: those of a cluster by get and list alone, or of files."""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hpad import settings
from hpad.cli import advise_hpas
from hpad.cli.advise_hpas import KnownHpas
from hpad.cli.output import Failure, WrongUse

NO_SETTINGS = settings.load(None, {}, {})
HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
AUTOSCALERS = "/apis/hpad.io/v1/autoscalers"


def hpa(name: str, namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 5, **spec},
    }


class ApiServer:
    """Lists HPAs and, if they are installed, Autoscalers; remembers the requests."""

    def __init__(self) -> None:
        self.lists: dict[str, list[dict[str, Any]]] = {HPAS: []}
        self.forbidden: set[str] = set()
        self.requests: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append(f"{request.method} {request.path}")
        if request.path in self.forbidden:
            refused = {"kind": "Status", "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403}
            return web.json_response(refused, status=403)
        if request.path not in self.lists:
            status = {"kind": "Status", "status": "Failure", "message": "not here", "reason": "NotFound", "code": 404}
            return web.json_response(status, status=404)
        return web.json_response({"items": self.lists[request.path], "metadata": {"resourceVersion": "1"}})


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    made = ApiServer()
    runner = web.AppRunner(web.Application(), access_log=None)
    runner.app.router.add_route("*", "/{path:.*}", made.answer)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    cluster = {"name": "c", "cluster": {"server": "http://{}:{}".format(*runner.addresses[0])}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster]}
    config |= {"users": [{"name": "u", "user": {"token": "t"}}], "contexts": [context]}
    await asyncio.to_thread((tmp_path / "kubeconfig").write_text, json.dumps(config))
    yield made
    await runner.cleanup()


async def found(folder: Path, *arguments: str) -> KnownHpas:
    parser = argparse.ArgumentParser()
    advise_hpas.add_arguments(parser)
    args = parser.parse_args(["--kubeconfig", str(folder / "kubeconfig"), *arguments])
    return await asyncio.to_thread(advise_hpas.found, args, NO_SETTINGS)


def names(known: KnownHpas) -> list[str]:
    return [str(hpa.key) for hpa in known.hpas]


async def test_all_hpas_and_autoscalers_by_lists_alone(server: ApiServer, tmp_path: Path) -> None:
    server.lists = {HPAS: [hpa("web"), hpa("api", "blog")], AUTOSCALERS: [hpa("worker", options={"mode": "shadow"})]}
    known = await found(tmp_path)
    assert names(known) == ["blog/api", "shop/web", "shop/autoscaler/worker"]
    assert (list(known.unread), list(known.notes)) == ([], [])
    assert server.requests == [f"GET {HPAS}", f"GET {AUTOSCALERS}"]
    # The defaults of the API server are there, though it has not stored them.
    assert known.hpas[1].spec.metrics[0].resource.name == "cpu"


async def test_one_that_cannot_be_decoded_is_named(server: ApiServer, tmp_path: Path) -> None:
    server.lists[HPAS] = [hpa("odd", maxReplicas="five"), hpa("web")]
    known = await found(tmp_path)
    assert names(known) == ["shop/web"]
    (unread,) = known.unread
    assert str(unread.key) == "shop/odd"
    assert "maxReplicas" in unread.problem


async def test_only_what_is_named(server: ApiServer, tmp_path: Path) -> None:
    server.lists[HPAS] = [hpa("web"), hpa("web", "blog"), hpa("api")]
    assert names(await found(tmp_path, "web")) == ["blog/web", "shop/web"]
    assert names(await found(tmp_path, "shop/web", "api")) == ["shop/api", "shop/web"]
    with pytest.raises(Failure, match=r"there is no HPA 'wep' \(did you mean"):
        await found(tmp_path, "wep")
    with pytest.raises(WrongUse, match="'blog/web' is not of the namespace 'shop'"):
        await found(tmp_path, "-n", "shop", "blog/web")


@pytest.mark.parametrize("arguments", [("-n", "shop"), ("shop/web",)])
async def test_rights_for_one_namespace_suffice(server: ApiServer, tmp_path: Path, arguments: list[str]) -> None:
    own = HPAS.replace("horizontal", "namespaces/shop/horizontal")
    server.lists = {own: [hpa("web")]}
    assert names(await found(tmp_path, *arguments)) == ["shop/web"]
    assert server.requests[0] == f"GET {own}"


async def test_autoscalers_that_may_not_be_listed_are_a_note(server: ApiServer, tmp_path: Path) -> None:
    server.lists[HPAS] = [hpa("web")]
    server.forbidden = {AUTOSCALERS}
    known = await found(tmp_path)
    assert names(known) == ["shop/web"]
    (note,) = known.notes
    assert note.startswith("Autoscalers cannot be listed: ")


async def test_no_hpa_at_all_is_a_failure(server: ApiServer, tmp_path: Path) -> None:
    server.lists = {HPAS.replace("horizontal", "namespaces/shop/horizontal"): []}
    with pytest.raises(Failure, match="there is no HPA in namespace shop"):
        await found(tmp_path, "-n", "shop")


def test_files_with_an_invalid_hpa_keep_the_others(tmp_path: Path) -> None:
    head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    for name, more in (("good", {}), ("bad", {"maxReplicas": 0})):
        (tmp_path / f"{name}.json").write_text(json.dumps({**head, **hpa(name, **more)}))
    known = advise_hpas.from_files([str(tmp_path)], NO_SETTINGS)
    assert names(known) == ["shop/good"]
    assert [str(each.key) for each in known.unread] == ["shop/bad"]
    assert "spec.maxReplicas: Invalid value: 0" in known.unread[0].problem


def test_a_file_that_is_no_yaml_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: [")
    with pytest.raises(Failure, match=r"x\.yaml: not valid YAML"):
        advise_hpas.from_files([str(tmp_path / "x.yaml")], NO_SETTINGS)
