"""Other writers of a target: found in managedFields and by replica counts, and forgotten with the HPA."""

import asyncio
import json
from typing import Any

import pytest
from support import virtual_time
from support.controller import hpa
from support.references import containers

from hpad.api.hpa import Scale, ScaleSpec, ScaleStatus
from hpad.engine.view import SCALE, STATUS
from hpad.kube import managed_fields
from hpad.kube.competitors import Competitors, target_key

REPLICAS = {"f:spec": {"f:replicas": {}}}
WIDGET = {"apiVersion": "oracle.example/v1", "kind": "Widget", "name": "web"}


def owner(*entries: tuple[str, dict[str, Any]]) -> str:
    """The owner of the replicas according to these managers and their fields, the oldest first."""
    fields = [
        {"manager": manager, "operation": "Update", "apiVersion": "apps/v1", "time": f"2026-01-0{day}T00:00:00Z"}
        | {"fieldsType": "FieldsV1", "fieldsV1": owned}
        for day, (manager, owned) in enumerate(entries, 1)
    ]
    found = managed_fields.owner_of_replicas(json.dumps(fields).encode())
    return "" if found is None else found.manager


@pytest.mark.parametrize("collective", ["ancient-changes", "before-first-apply"])
def test_fields_of_collective_managers_have_no_known_owner(collective: str) -> None:
    """hpad's own write may be among them: with more than ten managers the server merges the oldest ones."""
    assert owner((collective, REPLICAS)) == ""
    assert owner((collective, REPLICAS), ("kubectl", {"f:metadata": {"f:labels": {}}})) == ""
    assert owner(("kubectl", REPLICAS), (collective, {"f:metadata": {"f:labels": {}}})) == "kubectl"
    assert owner(("hpad", REPLICAS), (collective, REPLICAS)) == "hpad"


def scale(count: int) -> Scale:
    return Scale(metadata={"name": "web", "uid": "u"}, spec=ScaleSpec(count), status=ScaleStatus(count, "app=web"))


def test_a_deleted_hpa_is_released() -> None:
    """Another client has set the count that hpad had set before the HPA is deleted."""

    async def main() -> list[tuple[list[str], bool]]:
        web, seen = hpa("web", scaleTargetRef=WIDGET), []
        known, target = Competitors(virtual_time.VirtualClock(), None), target_key("default", web.spec.scale_target_ref)
        known.written(target, scale(3))
        known.read(target, scale(2))
        for release in (lambda _: None, known.release):
            release(web)
            seen.append(([each.what for each in known.of(web)], sum(containers(known).values()) > 0))
        return seen

    assert virtual_time.run(main()) == [([SCALE], True), ([], False)]


def test_a_write_of_another_client_is_reported_for_five_minutes() -> None:
    async def main() -> list[list[str]]:
        web = hpa("web", scaleTargetRef=WIDGET)
        known, target = Competitors(virtual_time.VirtualClock(), None), target_key("default", web.spec.scale_target_ref)
        known.written(target, scale(3))
        known.read(target, scale(2))
        known.status_written_by(web.key, "someone")
        found = []
        for seconds in (299, 2):
            await asyncio.sleep(seconds)
            found.append([each.what for each in known.of(web)])
        return found

    assert virtual_time.run(main()) == [[SCALE, STATUS], []]
