"""`hpad doctor` on HPAs that remove idle pods first."""

from pathlib import Path
from typing import Any

from cli.test_doctor import ApiServer, found, server

__all__ = ["server"]  # a fixture


def hpa(name: str, kind: str = "Deployment", **annotations: str) -> dict[str, Any]:
    ref = {"apiVersion": "apps/v1", "kind": kind, "name": name}
    metadata = {"name": name, "namespace": "shop", "uid": name, "annotations": annotations}
    return {"metadata": metadata, "spec": {"scaleTargetRef": ref, "maxReplicas": 10}, "status": {}}


ORDER = {"hpad.io/scale-down-order": "idle-first"}


async def checked(folder: Path, server: ApiServer, **changes: Any) -> list[tuple[str, str]]:
    findings = await found(folder, server.url, **changes)
    return [(each.level, each.says) for each in findings if each.check == "idle-first"]


async def test_the_right_is_checked_only_where_an_hpa_needs_it(server: ApiServer, tmp_path: Path) -> None:
    server.denied = {("patch", "pods")}
    server.hpas = [hpa("web")]
    assert await checked(tmp_path, server) == []
    server.hpas = [hpa("web"), hpa("worker", **ORDER)]
    ((level, says),) = await checked(tmp_path, server)
    assert (level, says) == ("warning", "may not patch pods in shop: scale-downs there remove pods in any order")
    server.denied = set()
    ((level, _),) = await checked(tmp_path, server)
    assert level == "ok"
    server.denied = {("patch", "pods")}
    assert [level for level, _ in await checked(tmp_path, server, dry_run=True)] != ["warning"]


async def test_a_stateful_set_goes_by_ordinal(server: ApiServer, tmp_path: Path) -> None:
    server.hpas = [hpa("db", "StatefulSet", **ORDER)]
    ((level, says),) = await checked(tmp_path, server)
    assert level == "note"
    assert "has no effect on shop/db" in says
