"""The kind Autoscaler on an API server: its definition, its samples, and the recorded objects that are invalid.

The embedded server does not run the rules in CEL, so it takes some objects that a real one refuses.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from kube.contract.conftest import DEFINITIONS, Api, serve
from support.crd_rules import by_schema
from support.recorded_refusals import REFUSED, autoscaler

from hpad.kube import hpas
from hpad.kube.errors import ApiError
from hpad.lab.autoscaler import definition

ROOT = Path(__file__).resolve().parents[3]
AUTOSCALERS = "/apis/hpad.io/v1/{ns}/autoscalers"
AT_ZERO = "03_min_zero_gate_off"
"""The object that is valid with hpad's gate HPAScaleToZero; without it a condition says that 0 counts as 1."""
DOTS = {"apiVersion": "apps/v1", "kind": "Deployment", "name": ".."}
SCHEMA = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@pytest.fixture
async def autoscalers(api: Api) -> Api:
    """The API server with the kind installed."""
    await serve(api, definition(), AUTOSCALERS)
    return api


def recorded(recordings: Path) -> dict[str, dict[str, Any]]:
    """Returns the recorded objects as Autoscalers, each with a name of its own where its name is valid."""
    found = {}
    for path in sorted((recordings / "invalid").glob("*.json")):
        sent = json.loads(path.read_text("utf-8"))["request"]["body"]
        is_valid = sent["metadata"]["name"].replace("-", "").isalnum() and sent["metadata"]["name"].islower()
        name = path.stem.replace("_", "-") if is_valid else sent["metadata"]["name"]
        found[path.stem] = autoscaler({"metadata": {"name": name}, "spec": sent["spec"]})
    return found


async def is_taken(api: Api, body: dict[str, Any]) -> bool:
    """Creates an object as kubectl does, with strict validation."""
    try:
        await api.ask("POST", AUTOSCALERS, body, fieldValidation="Strict")
    except ApiError:
        return False
    return True


async def test_the_samples_are_taken_and_stored_as_they_are(autoscalers: Api) -> None:
    for path in sorted((ROOT / "config" / "autoscalers").glob("*.yaml")):
        sample = yaml.safe_load(path.read_text("utf-8"))
        made = await autoscalers.ask("POST", AUTOSCALERS, sample, fieldValidation="Strict")
        assert made["spec"] == sample["spec"]
    live = await autoscalers.ask("GET", f"{DEFINITIONS}/autoscalers.hpad.io")
    assert live["spec"]["versions"][0]["schema"] == definition()["spec"]["versions"][0]["schema"]


async def test_what_is_invalid_is_refused_or_reported_in_the_words_of_a_server(
    autoscalers: Api, recordings: Path, request: pytest.FixtureRequest
) -> None:
    sent = recorded(recordings)
    taken = {name for name, body in sent.items() if await is_taken(autoscalers, body)}
    by_rules = {name for name in REFUSED if not by_schema(SCHEMA, sent[name])}
    runs_rules = request.node.callspec.params["api"] == "real"
    assert taken == {AT_ZERO} | (set() if runs_rules else by_rules)
    dots = autoscaler({"metadata": {"name": "dots"}, "spec": {"scaleTargetRef": DOTS, "maxReplicas": 1}})
    assert await is_taken(autoscalers, dots)
    reported = {name: await fault(autoscalers, sent[name]["metadata"]["name"]) for name in taken}
    assert reported == {name: words(recordings, name) for name in taken} | {AT_ZERO: ""}
    assert await fault(autoscalers, "dots") == """spec.scaleTargetRef.name: Invalid value: "..": may not be '..'"""


@pytest.mark.parametrize(("tolerance", "taken"), [(0.05, False), ("0.05", True)])
async def test_a_quantity_with_a_fraction_is_text(autoscalers: Api, tolerance: float | str, taken: bool) -> None:
    """An HPA may have the number; `hpad check` warns of it in an Autoscaler."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "maxReplicas": 1, "behavior": {"scaleUp": {"tolerance": tolerance}}}
    assert await is_taken(autoscalers, autoscaler({"metadata": {"name": "web"}, "spec": spec})) is taken


async def fault(api: Api, name: str) -> str:
    """Returns what hpad finds invalid in an Autoscaler; its status shows it."""
    stored = json.dumps(await api.ask("GET", f"{AUTOSCALERS}/{name}")).encode()
    return hpas.hpa(stored, hpas.AUTOSCALER).value.spec.invalid


def words(recordings: Path, name: str) -> str:
    """Returns the first cause of the recorded refusal."""
    cause = json.loads((recordings / "invalid" / f"{name}.json").read_text("utf-8"))["body"]["details"]["causes"][0]
    return f"{cause['field']}: {cause['message']}"
