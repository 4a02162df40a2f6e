"""What managedFields and counts tell of other writers, and for how long it is remembered."""

import json
from typing import Any

import pytest
from support import virtual_time
from support.controller import hpa

from hpad.api.hpa import HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus
from hpad.engine.view import SCALE
from hpad.kube import managed_fields
from hpad.kube.competitors import Competitors, target_key

REPLICAS = {"f:spec": {"f:replicas": {}}}
WIDGET = {"apiVersion": "oracle.example/v1", "kind": "Widget", "name": "web"}


def owner(*entries: tuple[str, dict[str, Any]]) -> str:
    """Who owns the replicas by these managers and their fields, the oldest first."""
    fields = [
        {"manager": manager, "operation": "Update", "apiVersion": "apps/v1", "time": f"2026-01-0{day}T00:00:00Z"}
        | {"fieldsType": "FieldsV1", "fieldsV1": owned}
        for day, (manager, owned) in enumerate(entries, 1)
    ]
    found = managed_fields.owner_of_replicas(json.dumps(fields).encode())
    return "" if found is None else found.manager


@pytest.mark.parametrize("collective", ["ancient-changes", "before-first-apply"])
def test_fields_that_the_server_notes_for_no_client_have_no_known_owner(collective: str) -> None:
    """hpad's own write may be among them: with more than ten managers the server merges the oldest ones."""
    assert owner((collective, REPLICAS)) == ""
    assert owner((collective, REPLICAS), ("kubectl", {"f:metadata": {"f:labels": {}}})) == ""
    assert owner(("kubectl", REPLICAS), (collective, {"f:metadata": {"f:labels": {}}})) == "kubectl"
    assert owner(("hpad", REPLICAS), (collective, REPLICAS)) == "hpad"


def scale(count: int) -> Scale:
    return Scale(metadata={"name": "web", "uid": "u"}, spec=ScaleSpec(count), status=ScaleStatus(count, "app=web"))


def counted(found: HorizontalPodAutoscaler) -> tuple[Competitors, list[str]]:
    """Competitors after another client has set the count that hpad had set."""
    known, where = Competitors(virtual_time.VirtualClock(), None), target_key("default", found.spec.scale_target_ref)
    known.written(where, scale(3))
    known.seen(where, scale(2))
    return known, [each.what for each in known.of(found)]


def test_nothing_is_left_of_an_hpa_that_is_gone() -> None:
    async def main() -> tuple[list[str], list[str], int]:
        web = hpa("web", scaleTargetRef=WIDGET)
        known, before = counted(web)
        known.forget(web)
        held = sum(map(len, (known._written, known._scaled, known._reported)))
        return before, [each.what for each in known.of(web)], held

    assert virtual_time.run(main()) == ([SCALE], [], 0)
