"""`hpad doctor` on HPAs in shadow mode."""

from pathlib import Path
from typing import Any

from cli.test_doctor import ApiServer, found, server

__all__ = ["server"]  # a fixture
SHADOW = {"hpad.io/mode": "shadow"}
PAUSED = {"hpad.io/mode": "paused"}


def hpa(name: str, **annotations: str) -> dict[str, Any]:
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    metadata = {"name": name, "namespace": "shop", "uid": name, "annotations": annotations}
    return {"metadata": metadata, "spec": {"scaleTargetRef": ref, "maxReplicas": 10}, "status": {}}


async def shadow(folder: Path, server: ApiServer, **changes: Any) -> list[str]:
    return [each.says for each in await found(folder, server.url, **changes) if each.check == "shadow"]


async def test_hpas_in_shadow_mode_are_counted(server: ApiServer, tmp_path: Path) -> None:
    server.hpas = [hpa("web", **SHADOW), hpa("same", **SHADOW), hpa("active")]
    [says] = await shadow(tmp_path, server)
    assert says.startswith("2 HPAs in shadow mode")


async def test_without_a_shadow_it_says_nothing(server: ApiServer, tmp_path: Path) -> None:
    server.hpas = [hpa("web"), hpa("paused", **PAUSED)]
    assert await shadow(tmp_path, server) == []


async def test_in_a_dry_run_all_but_paused_ones_have_a_shadow(server: ApiServer, tmp_path: Path) -> None:
    server.hpas = [hpa("web"), hpa("paused", **PAUSED)]
    [says] = await shadow(tmp_path, server, dry_run=True)
    assert says.startswith("1 HPA in shadow mode")
