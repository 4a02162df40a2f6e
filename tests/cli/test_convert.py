"""`hpad convert`, in the process and as a program."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import commands

from hpad.cli import main
from hpad.manifests import documents
from hpad.manifests.keda import scaledobject

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted((ROOT / "config").glob("hpas/*")) + sorted((ROOT / "config" / "manifests").glob("*.yaml"))
V1 = """\
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: web, finalizers: [x]}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 3
  targetCPUUtilizationPercentage: 50
"""
V2 = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web", "finalizers": ["x"]},
    "spec": {
        "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
        "maxReplicas": 3,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
            }
        ],
    },
}
Vectors = Callable[[str], Iterator[dict[str, Any]]]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.yaml"
    path.write_text(V1)
    return path


def test_v1_becomes_v2(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scenario 25."""
    assert main(["convert", str(old)]) == 0
    out = capsys.readouterr().out
    assert yaml.safe_load(out) == V2
    assert out.startswith("apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata:\n")


def test_v2_becomes_v1_again(old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = tmp_path / "new.json"
    new.write_text(json.dumps(V2))
    assert main(["convert", "--to", "v1", str(new)]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(V1)


OPTIONS = {
    "hpad.io/mode": "active",
    "hpad.io/tolerance-up": "0.05",
    "team": "a",
    "kubectl.kubernetes.io/last-applied-configuration": "{}",
}
LIVE = {
    **V2,
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "uid": "1",
        "resourceVersion": "5",
        "generation": 2,
        "labels": {"app": "web"},
        "annotations": OPTIONS,
        "managedFields": [],
        "ownerReferences": [{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "2"}],
    },
    "status": {"currentReplicas": 1, "desiredReplicas": 1, "currentMetrics": None},
}
Convert = Callable[..., tuple[int, list[Any], str]]


@pytest.fixture
def convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Convert:
    """Runs the command on one document: its status, the documents printed, and standard error."""

    def run(document: dict[str, Any], *options: str) -> tuple[int, list[Any], str]:
        path = tmp_path / "in.yaml"
        path.write_text(yaml.safe_dump(document))
        status = main(["convert", *options, str(path)])
        out, err = capsys.readouterr()
        return status, list(yaml.safe_load_all(out)), err

    return run


def test_an_hpa_becomes_an_autoscaler_without_what_belongs_to_the_one_object(convert: Convert) -> None:
    status, [made], err = convert(LIVE, "--to", "autoscaler")
    assert (status, made) == (
        0,
        {
            "apiVersion": "hpad.io/v1",
            "kind": "Autoscaler",
            "metadata": {
                "name": "web",
                "namespace": "shop",
                "labels": {"app": "web"},
                "annotations": {"team": "a"},
            },
            "spec": {**V2["spec"], "options": {"mode": "active", "tolerance-up": "0.05"}},
        },
    )
    assert "metadata.ownerReferences[0]: is left out: ScaledObject web owns" in err


def test_an_autoscaler_becomes_an_hpa_again_and_its_queries_are_lost(convert: Convert) -> None:
    _, [autoscaler], _ = convert(LIVE, "--to", "autoscaler")
    status, [hpa], err = convert(autoscaler, "--to", "hpa")
    annotations = {name: text for name, text in OPTIONS.items() if "last-applied" not in name}
    metadata = {"name": "web", "namespace": "shop", "labels": {"app": "web"}, "annotations": annotations}
    assert (status, hpa, err) == (0, {**V2, "metadata": metadata}, "")

    query = {"name": "orders", "source": "prom", "parameters": {"query": "sum(orders)", "offset": 2}}
    autoscaler["spec"]["queries"] = [query]
    assert convert(autoscaler, "--to", "autoscaler")[:2] == (0, [autoscaler])
    status, [again], err = convert(autoscaler)
    assert (status, again) == (3, hpa)
    assert 'Autoscaler shop/web: spec.queries[0]: is lost: an HPA has no queries; give the source "prom"' in err
    assert convert(autoscaler, "--to", "v1", "--lossy")[1][0]["apiVersion"] == "autoscaling/v1"


@pytest.mark.parametrize(("mode", "made"), [(None, "shadow"), ("active", "shadow"), ("paused", "paused")])
def test_shadow_leaves_the_target_alone_and_ends_no_pause(convert: Convert, mode: str | None, made: str) -> None:
    annotations = {} if mode is None else {"hpad.io/mode": mode}
    hpa = {**V2, "metadata": {"name": "web", "annotations": annotations}}
    status, [found], _ = convert(hpa, "--to", "autoscaler", "--shadow")
    assert (status, found["spec"]["options"]) == (0, {"mode": made})
    assert convert(hpa, "--shadow")[0] == 2


def test_an_annotation_that_no_option_may_have_is_an_error_of_the_hpa(convert: Convert) -> None:
    hpa = {**V2, "metadata": {"name": "web", "annotations": {"hpad.io/mode": "of"}}}
    status, made, err = convert(hpa, "--to", "autoscaler")
    assert (status, made, 'metadata.annotations[hpad.io/mode]: Invalid value: "of"' in err) == (1, [], True)


def test_documents_are_separated(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(old), str(old)]) == 0
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == [V2, V2]


def test_json_has_one_object_per_line(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "-o", "json", str(old)]) == 0
    status = {"desiredReplicas": 0, "currentMetrics": None}
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{**V2, "status": status}]


def test_unreadable_documents_are_reported_and_left_out(
    old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text(V1 + "  metrics: []\n---\nkind: Service\napiVersion: v1\n---\n- text\n---\na: [")
    assert main(["convert", str(broken), str(old)]) == 1
    out, err = capsys.readouterr()
    assert yaml.safe_load(out) == V2
    errors = err.splitlines()
    assert errors[0].startswith(
        f"{broken}:8: HorizontalPodAutoscaler default/web: spec.metrics: Forbidden: autoscaling/v1"
    )
    assert errors[1].startswith(f"{broken}:13: Invalid value: […]: must be an object with apiVersion, kind")
    assert "not valid YAML" in errors[2]
    assert errors[3] == "hpad: skipped 1 document of other kinds: Service"


@pytest.mark.parametrize("text", ["no", "1e3", "0o17", "1:30", "0x1F", "~", "2026-01-02", "+1", ".5", "12e4567"])
def test_texts_that_resemble_other_yaml_types_stay_texts(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the older YAML, which PyYAML reads, and in that of kubectl and hpad."""
    path = tmp_path / "a.yaml"
    path.write_text(V1.replace("finalizers: [x]", f'annotations: {{about: "{text}"}}'))
    assert main(["convert", str(path)]) == 0
    out = capsys.readouterr().out
    [read] = documents.parse(out.encode(), "file", ".yaml")
    assert read.value["metadata"]["annotations"] == yaml.safe_load(out)["metadata"]["annotations"] == {"about": text}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_converted_samples_are_equal_and_valid(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for version in ("v2", "v1", "v2"):
        assert main(["convert", "--to", version, str(path)]) == 0
        path = tmp_path / f"{version}.yaml"
        path.write_text(capsys.readouterr().out)
    assert main(["check", str(path)]) == 0


def test_the_vectors_are_converted_line_by_line(
    vectors: Vectors, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = list(vectors("convert_v1_v2"))
    path = tmp_path / "v1.jsonl"
    path.write_text("".join(json.dumps(row["v1"]) + "\n" for row in rows))
    assert main(["convert", "-o", "json", str(path)]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [row["v2"] for row in rows]


def test_the_installed_program(old: Path) -> None:
    program = Path(sys.executable).with_name("hpad")
    done = subprocess.run([program, "convert", old], capture_output=True, text=True, check=False)
    assert (done.returncode, yaml.safe_load(done.stdout), done.stderr) == (0, V2, "")


def test_the_help_breaks_no_name_of_a_trigger() -> None:
    status, text, _ = commands.called("convert", "--help")
    assert status == 0
    assert [name for name in scaledobject.TRIGGERS if not re.search(rf"(?<![\w-]){name}(?![\w-])", text)] == []
