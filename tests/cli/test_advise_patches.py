"""`hpad advise --patches`: what the files say, their names, and which folders are left alone."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from support import advice_pasts, assessments

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.cli import advise_patches
from hpad.cli.output import Failure
from hpad.simulation.advice.assessment import SettingChange
from hpad.simulation.advice.summary import FleetAdvice

BEGIN, END = datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 1, 12, tzinfo=UTC)
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}},
}
GOAL = SettingChange(assessments.CPU_GOAL, 50, 65)
POLICY = {"type": "Pods", "value": 4, "periodSeconds": 60}


def fleet(*changes: SettingChange, name: str = "web", hpa: HorizontalPodAutoscaler | None = None) -> FleetAdvice:
    hpa = hpa or advice_pasts.spec(CPU, QUEUE, name=name)
    found = assessments.assessment(name)
    advice = assessments.advice(1000.0, "cpu goal 50 -> 65 %:\nfewer replica-hours", changes)
    return FleetAdvice(BEGIN, END, "prometheus", {hpa.key: hpa}, [msgspec.structs.replace(found, advice=advice)])


def written(folder: Path, found: FleetAdvice) -> Any:
    (file,) = advise_patches.write(folder, found)
    return yaml.safe_load(file.read_text())


def test_metrics_are_replaced_whole_and_other_fields_alone(tmp_path: Path) -> None:
    found = written(tmp_path / "new" / "patches", fleet(GOAL, SettingChange("spec.maxReplicas", 10, 20)))
    metrics = found["spec"].pop("metrics")
    assert found == {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"maxReplicas": 20},
    }
    assert metrics[0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 65}
    assert metrics[1]["external"]["target"] == {"type": "AverageValue", "averageValue": "30"}


def test_a_window_is_changed_alone_and_policies_are_replaced_whole(tmp_path: Path) -> None:
    behavior = {"scaleDown": {"policies": [POLICY], "stabilizationWindowSeconds": 0, "selectPolicy": "Max"}}
    hpa = advice_pasts.spec(CPU, name="web", behavior=behavior)
    changes = (
        SettingChange("spec.behavior.scaleDown.stabilizationWindowSeconds", 0, 300),
        SettingChange("spec.behavior.scaleDown.policies[0].value", 4, 8),
    )
    found = written(tmp_path, fleet(*changes, hpa=hpa))
    assert found["spec"] == {
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300, "policies": [{**POLICY, "value": 8}]}}
    }


def test_a_setting_that_is_removed_becomes_null() -> None:
    assert advise_patches.merge_patch({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "d": [1]}}) == {
        "a": {"b": None, "d": [1]}
    }


def test_the_comment_has_the_reason_on_one_line_and_the_command(tmp_path: Path) -> None:
    (file,) = advise_patches.write(tmp_path, fleet(GOAL))
    assert file.read_text().splitlines()[:3] == [
        "# Written by hpad advise",
        "# cpu goal 50 -> 65 %: fewer replica-hours",
        "# kubectl -n shop patch horizontalpodautoscalers.v2.autoscaling web --patch-file shop.web.yaml",
    ]


def test_a_name_of_a_recording_is_one_word_of_the_command(tmp_path: Path) -> None:
    (file,) = advise_patches.write(tmp_path, fleet(GOAL, name="web;reboot"))
    assert " web;reboot" not in file.read_text().splitlines()[2]
    assert " 'web;reboot' " in file.read_text().splitlines()[2]


def test_no_two_objects_share_a_file_and_no_name_leaves_the_folder() -> None:
    names_of_hpas = ["web", "web_autoscaler", "web.autoscaler", "../../etc/x", "%2E", "a" * 250, "a" * 251, "ü/\n"]
    keys = [Key("shop", "web", "autoscaler"), *(Key("shop", name) for name in names_of_hpas)]
    names = [advise_patches.file_name(key) for key in keys]
    assert len({*names}) == len(keys)
    assert names[:2] == ["shop.web_autoscaler.yaml", "shop.web.yaml"]
    for name in names:
        assert "/" not in name
        assert len(name.encode()) <= 255
        assert name.isascii()


def test_patches_of_an_earlier_call_go(tmp_path: Path) -> None:
    advise_patches.write(tmp_path, fleet(GOAL, name="old"))
    advise_patches.write(tmp_path, fleet(GOAL, name="new"))
    assert [path.name for path in tmp_path.iterdir()] == ["shop.new.yaml"]


@pytest.mark.parametrize("name", ["kustomization.yaml", "sub/notes.txt"])
def test_a_folder_with_anything_else_is_left_alone(tmp_path: Path, name: str) -> None:
    advise_patches.write(tmp_path, fleet(GOAL, name="old"))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("resources: []\n")
    with pytest.raises(Failure, match=f"has {name.partition('/')[0]}, which is no patch of hpad advise"):
        advise_patches.write(tmp_path, fleet(GOAL))
    assert (tmp_path / "shop.old.yaml").exists()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "patches").write_text("")
    with pytest.raises(Failure, match="cannot be read: Not a directory"):
        advise_patches.write(tmp_path / "patches", fleet(GOAL))
