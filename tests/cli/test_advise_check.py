"""`hpad advise --check`: the exit status and the sentence of a change that is worse, and of others."""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from support import advice_pasts
from support.commands import called

from hpad import settings
from hpad.api import hpa as v2
from hpad.cli import advise_check, advise_hpas
from hpad.simulation.advice import reading
from hpad.simulation.advice.assessment import Level, ModelTrust
from hpad.simulation.advice.model import trust
from hpad.simulation.advice.past import HpaPast

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
VALUE = {**CPU, "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "1"}}}
MEMORY = {**CPU, "resource": {**CPU["resource"], "name": "memory"}}
Check = Callable[[dict[str, Any]], tuple[int, str, str]]


def document(hpa: v2.HorizontalPodAutoscaler) -> dict[str, Any]:
    metadata = {"name": hpa.key.name, "namespace": hpa.key.namespace}
    return {"apiVersion": v2.API_VERSION, "kind": v2.KIND, "metadata": metadata, "spec": v2.to_builtins(hpa)["spec"]}


def patch(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": v2.API_VERSION,
        "kind": v2.KIND,
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": spec,
    }


@pytest.fixture
def past() -> HpaPast:
    """Two days under a load that asks for 2 to 8 replicas."""
    return advice_pasts.lived(advice_pasts.spec(CPU, name="web"), advice_pasts.daily(60, 400), days=2)


@pytest.fixture
def check(past: HpaPast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Checks a document against the HPA of `past`."""

    def read(server: Any, hpas: Sequence[v2.HorizontalPodAutoscaler], *rest: Any) -> Iterator[HpaPast]:
        return (past for hpa in hpas if hpa.key == past.hpa.key)

    monkeypatch.setattr(reading, "read", read)
    now, changed = tmp_path / "now.yaml", tmp_path / "changed.yaml"
    now.write_text(yaml.safe_dump(document(past.hpa)))

    def run(value: dict[str, Any]) -> tuple[int, str, str]:
        changed.write_text(yaml.safe_dump(value))
        flags = ("--prometheus", "http://127.0.0.1:1", "-f", str(now), "--check", str(changed), "--color", "never")
        return called("advise", *flags)

    return run


def test_the_hpa_as_it_stands_is_not_worse(check: Check, past: HpaPast) -> None:
    status, out, err = check(document(past.hpa))
    assert (status, err) == (0, "")
    assert out.startswith("shop/web: not worse: as many replica-hours; overloaded ")


def test_a_maximum_below_the_load_is_worse(check: Check) -> None:
    """The load of up to 400 % needs 8 replicas at the goal of 50 %; three are overloaded from 300 % on."""
    status, out, _ = check(patch(maxReplicas=3))
    assert status == 1
    assert "shop/web: worse: overloaded " in out
    assert "more replica-hours" not in out


def test_a_higher_minimum_costs_more_for_nothing(check: Check) -> None:
    status, out, _ = check(patch(minReplicas=9))
    assert status == 1
    assert " more replica-hours without less overload" in out


def test_a_goal_that_saves_replicas_below_the_level_of_overload_is_not_worse(check: Check) -> None:
    goal = {"type": "Utilization", "averageUtilization": 60}
    status, out, _ = check(patch(metrics=[{**CPU, "resource": {"name": "cpu", "target": goal}}]))
    assert status == 0, out
    assert " fewer replica-hours" in out


def test_json_has_the_outcome_and_both_figures(check: Check, tmp_path: Path) -> None:
    check(patch(minReplicas=9))
    flags = ("-f", str(tmp_path / "now.yaml"), "--check", str(tmp_path / "changed.yaml"), "-o", "json")
    status, out, _ = called("advise", "--prometheus", "http://127.0.0.1:1", *flags)
    (item,) = json.loads(out)["items"]
    assert (status, item["namespace"], item["name"], item["outcome"]) == (1, "shop", "web", "worse")
    assert item["after"]["replicaHours"] > item["before"]["replicaHours"]
    assert (item["after"]["lowest"], item["trust"]["level"]) == (9, item["trust"]["level"])


def test_a_model_that_is_not_trusted_judges_nothing(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "judged", lambda past, now: ModelTrust(0.3, Level.POOR, "the curves differ"))
    status, out, _ = check(patch(maxReplicas=3))
    assert (status, out) == (3, "shop/web: cannot be judged: the curves differ\n")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"metrics": [CPU, MEMORY]}, "it would add memory, and overload by other metrics is not comparable"),
        ({"metrics": [MEMORY]}, "it would add memory and remove cpu, and overload "),
        ({"metrics": [VALUE]}, "it would change the query or the kind of target of cpu, and overload "),
        ({"metrics": [CPU, CPU]}, "it would read the same metric several times, and overload "),
    ],
)
def test_other_metrics_cannot_be_judged(check: Check, changed: dict[str, Any], says: str) -> None:
    status, out, _ = check(patch(**changed))
    assert status == 3
    assert says in " ".join(out.split())


def test_another_target_cannot_be_judged(check: Check, past: HpaPast) -> None:
    target = msgspec.structs.replace(past.hpa.spec.scale_target_ref, name="other")
    changed = msgspec.structs.replace(past.hpa, spec=msgspec.structs.replace(past.hpa.spec, scale_target_ref=target))
    status, out, _ = check(document(changed))
    assert (status, "it would scale another target" in out) == (3, True)


def test_a_new_hpa_cannot_be_judged(check: Check, past: HpaPast) -> None:
    new = msgspec.structs.replace(past.hpa, metadata=msgspec.structs.replace(past.hpa.metadata, name="new"))
    status, out, _ = check(document(new))
    assert (status, out) == (3, "shop/new: cannot be judged: there is no such HPA, or no past of it\n")


def test_an_hpa_that_the_api_server_would_refuse_is_an_error(check: Check) -> None:
    status, out, err = check(patch(maxReplicas=0))
    assert (status, out) == (3, "")
    assert "spec.maxReplicas: Invalid value: 0" in err


def test_flags_that_do_not_fit_are_refused(check: Check, tmp_path: Path) -> None:
    status, _, err = called("advise", "--prometheus", "http://x", "--check", "x.yaml", "--patches", str(tmp_path))
    assert (status, err.count("\n")) == (2, 1)
    assert "leave out NAME, --report and --patches" in err


def test_a_patch_of_an_autoscaler_changes_its_spec_alone(tmp_path: Path) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "worker"}
    whole = {
        "apiVersion": "hpad.io/v1",
        "kind": "Autoscaler",
        "metadata": {"name": "worker", "namespace": "shop"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 9, "metrics": [CPU], "options": {"sync-period": "30s"}},
    }
    (tmp_path / "now.yaml").write_text(yaml.safe_dump(whole))
    (tmp_path / "patch.yaml").write_text(yaml.safe_dump({**whole, "spec": {"minReplicas": 3}}))
    given = settings.load(None, {}, {})
    (now,) = advise_hpas.from_files([str(tmp_path / "now.yaml")], given).hpas
    changes = advise_check.Changes(str(tmp_path / "patch.yaml"), argparse.Namespace(namespace=None), given)
    changed = changes.of(now)
    assert (changed.key, changed.metadata) == (now.key, now.metadata)
    assert changed.spec == msgspec.structs.replace(now.spec, min_replicas=3)
