"""`hpad check`, in the process and as a program."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.engine import Workload, series

from hpad.cli import main

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted((ROOT / "config").glob("hpas/*")) + sorted((ROOT / "config" / "manifests").glob("*.yaml"))
GOOD = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 3
"""
BAD = GOOD.replace("maxReplicas: 3", "maxReplicas: 0").replace(
    "{name: web}\nspec", "{name: web, namespace: shop}\nspec"
)
Vectors = Callable[[str], Iterator[dict[str, Any]]]


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    status = main(["check", "-o", "json", *arguments])
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_valid_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    assert main(["check", str(tmp_path / "a.yaml")]) == 0
    assert capsys.readouterr().out == "1 document checked, none with errors\n"


def test_an_error_names_file_line_object_and_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(GOOD + "---\n" + BAD)
    assert main(["check", str(path)]) == 1
    here = f"{path}:13: HorizontalPodAutoscaler shop/web: spec.maxReplicas: "
    assert capsys.readouterr().out.splitlines() == [
        f"{here}Required value: must be set and greater than 0",
        f"{here}Invalid value: 0: must be greater than or equal to `minReplicas`",
        "2 documents checked, 1 with errors",
    ]


AUTOSCALER = GOOD.replace("autoscaling/v2", "hpad.io/v1").replace("HorizontalPodAutoscaler", "Autoscaler")
OPTIONS = """\
  options: {mod: shadow, sync-period: 5h, tolerance-up: "0.1"}
  queries: [{name: orders, source: prom, parameters: {query: sum(orders), offset: 2}}]
"""


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        (AUTOSCALER + OPTIONS.replace("mod: shadow, sync-period: 5h, ", ""), {}),
        (AUTOSCALER + OPTIONS, {"spec.options.mod": 7, "spec.options.sync-period": 7}),
        (AUTOSCALER + OPTIONS.replace("mod: shadow, sync-period: 5h", "hpad.io/mode: shadow, no key!: x"), {
            "spec.options.hpad.io/mode": 7, "spec.options.no key!": 7}),
        (AUTOSCALER + OPTIONS.replace('"0.1"', "0.1"), {"spec.options.tolerance-up": 7}),
        (AUTOSCALER.replace("name: web}\nspec", 'name: web, annotations: {hpad.io/mode: "on"}}\nspec'), {
            "metadata.annotations[hpad.io/mode]": 3}),
        (AUTOSCALER + "  minReplicas: 4\n  option: {}\n", {"spec.maxReplicas": 6, "spec.option": 8}),
        (AUTOSCALER.replace("Autoscaler", "AutoScaler"), {"kind": 2}),
        (AUTOSCALER.replace("hpad.io/v1", "hpad.io/v2"), {"apiVersion": 1}),
    ],
)  # fmt: skip
def test_an_autoscaler_is_checked_as_an_hpa_and_its_options_by_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, errors: dict[str, int]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    _, [row] = rows(capsys, str(path))
    assert {error["field"]: error["line"] for error in row["errors"]} == errors
    if not errors:
        spec = row["defaulted"]["spec"]
        assert (spec["minReplicas"], spec["options"], spec["queries"][0]["parameters"]["offset"]) == (
            1, {"tolerance-up": "0.1"}, 2
        )  # fmt: skip


@pytest.mark.parametrize(
    ("opened", "problem"),
    [
        (None, ""),
        ("", "is not open to queries"),
        (", queries: {namespaces: [default]}", "offset: unknown field"),
    ],
)
def test_the_queries_of_an_autoscaler_are_checked_with_the_sources_of_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], opened: str | None, problem: str
) -> None:
    path, configuration = tmp_path / "a.yaml", tmp_path / "hpad.yaml"
    path.write_text(AUTOSCALER + OPTIONS.replace("mod: shadow, sync-period: 5h, ", ""))
    configuration.write_text(f"sources: {{prom: {{adapter: prometheus, url: http://prom{opened or ''}}}}}\n")
    _, found = rows(capsys, str(path), *([] if opened is None else [str(configuration)]))
    errors = {error["field"]: error["message"] for error in found[0]["errors"]}
    assert list(errors) == (["spec.queries[0]"] if problem else [])
    assert problem in errors.get("spec.queries[0]", "")
    assert [warning["field"] for warning in found[0]["warnings"]] == ["spec.queries[0].name"]  # no metric names it


def test_zero_in_an_autoscaler_is_a_warning_without_the_feature_gate_of_hpad(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    metric = {"type": "External", "external": {"metric": {"name": "n"}, "target": {"type": "Value", "value": "1"}}}
    path.write_text(AUTOSCALER + f"  minReplicas: 0\n  metrics: [{json.dumps(metric)}]\n")
    for flags, fields in (((), ["spec.minReplicas"]), (("--scale-to-zero",), [])):
        status, [row] = rows(capsys, str(path), *flags)
        assert (status, [warning["field"] for warning in row["warnings"]]) == (0, fields)


def test_an_autoscaler_of_another_project_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(GOOD + "---\n" + AUTOSCALER.replace("hpad.io", "example.com"))
    assert (rows(capsys, str(path))[0], len(rows(capsys, str(path))[1])) == (0, 1)


def test_json_has_one_object_per_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(GOOD + "---\n" + BAD + "---\na: [")
    status, found = rows(capsys, str(path))
    assert status == 1
    assert [list(row) for row in found] == [["file", "document", "name", "errors", "warnings", "defaulted"]] * 3
    assert [(row["file"], row["document"], row["name"]) for row in found] == [
        (str(path), 0, "web"),
        (str(path), 1, "web"),
        (str(path), 2, ""),
    ]
    assert found[0]["errors"] == []
    assert found[0]["defaulted"]["spec"]["minReplicas"] == 1
    assert found[1]["errors"][0] == {
        "type": "FieldValueRequired",
        "field": "spec.maxReplicas",
        "message": "spec.maxReplicas: Required value: must be set and greater than 0",
        "file": str(path),
        "line": 13,
    }
    assert found[1]["defaulted"]["metadata"] == {"name": "web", "namespace": "shop"}
    assert found[2]["defaulted"] is None
    assert "not valid YAML" in found[2]["errors"][0]["message"]


def test_a_second_object_of_a_name_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`hpad run --manifests` ignores it."""
    path = tmp_path / "a.yaml"
    path.write_text(f"{AUTOSCALER}---\n{AUTOSCALER.replace('name: web}', 'name: other}', 1)}---\n{AUTOSCALER}")
    status, found = rows(capsys, str(path))
    assert (status, [len(row["warnings"]) for row in found]) == (0, [0, 0, 1])
    [warning] = found[2]["warnings"]
    assert warning["message"].startswith(f"metadata.name: is already defined in {path}:1: ")


def test_an_object_of_the_same_name_in_another_folder_is_no_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a repository with a folder for each cluster."""
    for folder in ("staging", "production"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "web.yaml").write_text(AUTOSCALER)
    status, found = rows(capsys, str(tmp_path / "staging"), str(tmp_path / "production"))
    assert (status, [len(row["warnings"]) for row in found]) == (0, [0, 0])


def test_idle_first_on_a_stateful_set_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hpa.yaml"
    text = """apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: db
  annotations:
    hpad.io/scale-down-order: idle-first
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: KIND, name: db}
  maxReplicas: 3
"""
    path.write_text(text.replace("KIND", "StatefulSet"))
    assert main(["check", str(path)]) == 0
    assert f"{path}:6: HorizontalPodAutoscaler default/db: warning: " in (out := capsys.readouterr().out)
    assert "has no effect: a StatefulSet removes the pod with the highest ordinal" in out
    path.write_text(text.replace("KIND", "Deployment"))
    assert main(["check", str(path)]) == 0
    assert "warning" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ({"hpad.io/zero-after": "5m"}, "has no effect: minReplicas is 1, and not 0"),
        ({"hpad.io/initial-delay": "5m"}, "has no effect: minReplicas is 1, and not 0"),
        ({"hpad.io/busy-metric": "jobs"}, "has no effect without hpad.io/scale-down-order or hpad.io/keep-busy"),
        ({"hpad.io/busy-metric": "jobs", "hpad.io/keep-busy": "true"}, ""),
        ({"hpad.io/failure-duration-seconds": "60"}, "has no effect without hpad.io/fallback, unless"),
        ({"hpad.io/failure-duration-seconds": "60", "hpad.io/fallback": "hold"}, ""),
    ],
)
def test_an_annotation_that_changes_nothing_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: dict[str, str], text: str
) -> None:
    path = tmp_path / "hpa.yaml"
    metadata = f"metadata: {json.dumps({'name': 'web', 'annotations': written})}"
    path.write_text(GOOD.replace("metadata: {name: web}", metadata))
    assert main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert (text in out) if text else ("warning" not in out)


def test_the_option_that_changes_nothing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f'{AUTOSCALER}  options: {{budget-priority: "3"}}\n')
    assert main(["check", str(path)]) == 0
    assert "spec.options.budget-priority: " in (out := capsys.readouterr().out)
    assert "has no effect without spec.options.budget, unless" in out


def test_as_many_spare_replicas_as_the_maximum_are_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hpa.yaml"
    text = """apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, annotations: {hpad.io/spare: SPARE}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 3
"""
    path.write_text(text.replace("SPARE", '"3"'))
    assert main(["check", str(path)]) == 0
    expected = "leaves the metrics no choice: with one replica that they want there would be 4, and maxReplicas is 3"
    assert f'warning: metadata.annotations[hpad.io/spare]: Invalid value: "3": {expected}' in capsys.readouterr().out
    path.write_text(text.replace("SPARE", '"2"'))
    assert main(["check", str(path)]) == 0
    assert "warning" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        (
            "{matchLabels: {queue: a}, matchExpressions: [{key: queue, operator: NotIn, values: [a]}]}",
            '"queue" excludes',
        ),
        ("{matchLabels: {queue: a}, matchExpressions: [{key: queue, operator: In, values: [b]}]}", '"queue" excludes'),
        ("{matchLabels: {queue: a}, matchExpressions: [{key: queue, operator: DoesNotExist}]}", '"queue" excludes'),
        ("queue=a,vhost=x,queue=b", '"queue" excludes'),
        ("{matchLabels: {queue: a/b}}", 'Invalid value: "a/b"'),
        ("{matchLabels: {queue: a}, matchExpressions: [{key: queue, operator: In, values: [a, b]}]}", ""),
        ("{matchExpressions: [{key: queue, operator: DoesNotExist}, {key: queue, operator: NotIn, values: [a]}]}", ""),
        ("{}", ""),
    ],
)
def test_a_selector_that_no_label_can_match_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], selector: str, why: str
) -> None:
    path = tmp_path / "hpa.yaml"
    path.write_text(f"""apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: web}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}
  maxReplicas: 3
  metrics:
  - {{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 50}}}}}}
  - type: External
    external:
      target: {{type: Value, value: 1}}
      metric:
        name: depth
        selector: {selector}
""")
    assert main(["check", str(path)]) == 0
    shown = capsys.readouterr().out
    warned = f"{path}:14: HorizontalPodAutoscaler default/web: warning: no label can match the selector" in shown
    assert (warned, why in shown) == (bool(why), True)


@pytest.mark.parametrize(
    ("target", "api_version", "warning"),
    [
        ("{type: AverageValue, value: 5}", "apps/v1", "type: AverageValue has no effect, since value is set"),
        ("{type: Value, averageValue: 5}", "apps/v1", "type: Value has no effect, since averageValue is set"),
        ("{type: Value, value: 5}", "apps/v1", ""),
        ("{type: Value, value: 5}", "extensions/v1beta1", "extensions/v1beta1 is not served since Kubernetes 1.16"),
    ],
)
def test_what_the_api_server_takes_and_no_controller_heeds_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str, api_version: str, warning: str
) -> None:
    path = tmp_path / "hpa.yaml"
    path.write_text(f"""apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: web}}
spec:
  scaleTargetRef: {{apiVersion: {api_version}, kind: Deployment, name: web}}
  maxReplicas: 3
  behavior: {{scaleDown: {{stabilizationWindowSeconds: 60}}}}
  metrics:
  - {{type: External, external: {{metric: {{name: depth}}, target: {target}}}}}
""")
    assert main(["check", str(path)]) == 0
    shown = capsys.readouterr().out
    assert ("warning" in shown, warning in shown) == (bool(warning), True)


@pytest.mark.parametrize(
    ("kind", "warned"),
    [("autoscaling/v2\nkind: HorizontalPodAutoscaler", []), ("hpad.io/v1\nkind: Autoscaler", [6, 9])],
)
def test_a_fraction_in_an_autoscaler_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, warned: list[int]
) -> None:
    """An HPA takes `tolerance: 0.05`; the schema of a custom kind allows integers and text for a quantity."""
    path = tmp_path / "scaled.yaml"
    path.write_text(f"""apiVersion: {kind}
metadata: {{name: web}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}
  behavior: {{scaleUp: {{tolerance: 0.05}}, scaleDown: {{tolerance: "0.05"}}}}
  maxReplicas: 3
  metrics:
  - {{type: External, external: {{metric: {{name: depth}}, target: {{type: Value, value: 1.5}}}}}}
  - {{type: External, external: {{metric: {{name: calls}}, target: {{type: Value, value: 2}}}}}}
""")
    assert main(["check", "-o", "json", str(path)]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert [each["line"] for each in json.loads(line)["warnings"]] == warned


@pytest.mark.parametrize(
    ("behavior", "metric", "named"),
    [
        ("", "External", True),
        ("  behavior: {}\n", "External", False),
        ("  behavior: {scaleDown: {stabilizationWindowSeconds: 60}}\n", "External", False),
        ("", "Resource", False),
    ],
)
def test_an_hpa_of_a_queue_without_behavior_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], behavior: str, metric: str, named: bool
) -> None:
    sources = {
        "External": "external: {metric: {name: tasks}, target: {type: AverageValue, averageValue: 8}}",
        "Resource": "resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}",
    }
    path = tmp_path / "hpa.yaml"
    path.write_text(f"{GOOD}{behavior}  metrics:\n  - type: {metric}\n    {sources[metric]}\n")
    for form in ("text", "json"):
        assert main(["check", "-o", form, str(path)]) == 0
        said = "hpad: web: an External metric without spec.behavior goes on doubling replicas"
        assert capsys.readouterr().err.startswith(said) is named


def test_an_unreadable_v1_annotation_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics, conditions = (f"autoscaling.alpha.kubernetes.io/{name}" for name in ("metrics", "conditions"))
    annotations = f"  annotations:\n    {metrics}: '[{{'\n    {conditions}: '[]'\n    {metrics}x: '['\n"
    old = GOOD.replace("autoscaling/v2", "autoscaling/v1").replace("{name: web}\n", f"\n  name: web\n{annotations}")
    path = tmp_path / "a.yaml"
    path.write_text(old)
    assert main(["check", str(path)]) == 0
    field = f"metadata.annotations[{metrics}]"
    message = f'{field}: Invalid value: "[{{": it cannot be read, and is ignored'
    assert capsys.readouterr().out.splitlines() == [
        f"{path}:6: HorizontalPodAutoscaler default/web: warning: {message}",
        "1 document checked, none with errors",
    ]
    status, [row] = rows(capsys, str(path))
    assert (status, row["errors"]) == (0, [])
    assert row["warnings"] == [
        {"type": "FieldValueInvalid", "field": field, "message": message, "file": str(path), "line": 6}
    ]
    path.write_text(old.replace("'[{'", "'[]'"))
    assert rows(capsys, str(path))[1][0]["warnings"] == []


def test_a_placeholder_of_convert_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hpa, settings = tmp_path / "a.yaml", tmp_path / "hpad.yaml"
    hpa.write_text(GOOD.replace("Deployment, name: web", "Deployment, name: REPLACE-ME"))
    settings.write_text(
        "sources:\n  cache.a:\n    adapter: redis\n    url: redis://redis.example.com\n    username: REPLACE-ME\n"
        "    password: x\n"
    )
    assert main(["check", str(hpa), str(settings)]) == 1
    message = "is the placeholder REPLACE-ME of hpad convert: replace it with your"
    assert capsys.readouterr().out.splitlines() == [
        f"{hpa}:5: HorizontalPodAutoscaler default/web: spec.scaleTargetRef.name: {message} name",
        f"{settings}:5: configuration: sources[cache.a].username: {message} username",
        "2 documents checked, 2 with errors",
    ]


def test_scale_to_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    external = "external: {metric: {name: q}, target: {type: Value, value: 1}}"
    path = tmp_path / "a.yaml"
    path.write_text(GOOD + f"  minReplicas: 0\n  metrics: [{{type: External, {external}}}]\n")
    assert main(["check", str(path)]) == 1
    assert "spec.minReplicas: Invalid value: 0" in capsys.readouterr().out
    assert main(["check", "--scale-to-zero", str(path)]) == 0
    capsys.readouterr()
    assert main(["check", str(path), "--scale-to-zero", str(path)]) == 0
    assert capsys.readouterr().out == "2 documents checked, none with errors\n"


@pytest.mark.parametrize(
    ("configuration", "status"),
    [
        ("feature_gates: {HPAScaleToZero: true}", 0),
        ("feature_gates: HPATargetHistory=false,HPAScaleToZero=true", 0),
        ("feature_gates: {HPAScaleToZero: false}", 1),
        ("workers: 4", 1),
        ("feature_gates: {HPAScaleToZero: true, HPAScaledToZero: true}", 1),
        ("feature_gates: [HPAScaleToZero]", 1),
        ("feature_gates: {HPAScaleToZero: true}\nspec: {}", 1),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_the_gate_of_a_configuration_applies_to_all_hpas_checked_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], configuration: str, status: int, first: bool
) -> None:
    file, folder = tmp_path / "hpad.yaml", tmp_path / "hpas"
    folder.mkdir()
    file.write_text(configuration)
    (folder / "a.yaml").write_text(GOOD + "  minReplicas: 0\n" + QUEUE)
    names = [str(file), str(folder)]
    assert main(["check", *(names if first else names[::-1])]) == status
    assert ("spec.minReplicas: Invalid value: 0" in capsys.readouterr().out) == bool(status)


def test_zero_replicas_get_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("\n---\n".join([GOOD + "  minReplicas: 0\n"] * 3))
    assert main(["check", str(path)]) == 1
    err = capsys.readouterr().err
    assert err.count("--scale-to-zero") == 1  # for all documents together
    assert "where the feature gate HPAScaleToZero is on" in err


QUEUE = """\
  metrics:
  - type: External
    external: {metric: {name: queue_depth}, target: {type: Value, value: 1}}
"""


def annotated(annotations: dict[str, str]) -> str:
    lines = "".join(f"\n    {name}: {json.dumps(text)}" for name, text in annotations.items())
    return GOOD.replace("{name: web}", f"\n  name: web\n  annotations:{lines}", 1) + QUEUE


@pytest.mark.parametrize(
    "annotations",
    [
        {"hpad.io/fallback": "hold"},
        {"hpad.io/fallback": "queue_depth=replicas:5 after 1m", "hpad.io/failure-duration-seconds": "60"},
        {"hpad.io/activation": "500m", "example.com/fallback": "nonsense"},
    ],
)
def test_valid_annotations(tmp_path: Path, capsys: pytest.CaptureFixture[str], annotations: dict[str, str]) -> None:
    (tmp_path / "a.yaml").write_text(annotated(annotations))
    assert main(["check", str(tmp_path / "a.yaml")]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("fallback", "give-up", "'give-up' is not one of hold, ignore, replicas:N, at-least:N"),
        ("fallback", "replicas:0", "'0' is not a whole number of 1 or more"),
        ("fallback", "last-good:10", "'10' is not a duration: write a number with its unit"),
        ("fallback", "depth=hold", "there is no metric 'depth' here; there are queue_depth"),
        ("failure-duration-seconds", "3m", "'3m' is not a whole number of 0 or more"),
        ("activation", "some", "'some' is not a number such as 5 or 500m"),
        ("falback", "hold", 'there is no such annotation; did you mean "hpad.io/fallback"?'),
        (
            "min-replicas-when-idle",
            "",
            "there is no such annotation; there are hpad.io/fallback, hpad.io/failure-duration-seconds, ",
        ),
    ],
)
def test_invalid_annotations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, message: str
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(annotated({"example.com/x": "y", f"hpad.io/{name}": text}))
    status, [row] = rows(capsys, str(path))
    [error] = row["errors"]
    assert (status, error["type"]) == (1, "FieldValueInvalid")
    assert error["field"] == f"metadata.annotations[hpad.io/{name}]"
    assert error["message"].startswith(f'{error["field"]}: Invalid value: "{text}": {message}')
    assert main(["check", str(path)]) == 1
    assert capsys.readouterr().out.startswith(f"{path}:7: HorizontalPodAutoscaler default/web: {error['field']}: ")


METRIC = "metric: {name: q, selector: {matchLabels: {queue: %s}}}, target: {type: Value, value: 1}"
QUEUES = "  metrics:\n" + "".join(f"  - {{type: External, external: {{{METRIC % queue}}}}}\n" for queue in "ab")


def test_metrics_of_one_name_are_addressed_by_selector(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    present = {"hpad.io/fallback": "q{queue=a}=hold,#1=ignore", "hpad.io/activation": "q{queue in (b)}=5,2"}
    (tmp_path / "a.yaml").write_text(annotated(present).replace(QUEUE, QUEUES))
    assert main(["check", str(tmp_path / "a.yaml")]) == 0, capsys.readouterr().out


def test_errors_in_annotations_have_the_text_of_the_condition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    present = {
        "hpad.io/falback": "hold",
        "hpad.io/fallback": "q{queue=c}=hold,#2=ignore",
        "hpad.io/failure-duration-seconds": "soon",
    }
    path = tmp_path / "a.yaml"
    path.write_text(annotated(present).replace(QUEUE, QUEUES))
    _, [row] = rows(capsys, str(path))
    document = yaml.safe_load(path.read_text())
    web = Workload(*document["spec"]["metrics"], replicas=3, annotations=present)
    web.reconcile(series(3), series(3))
    message = web.condition("HpadAnnotationsValid").message
    assert message.count("annotation hpad.io/") == len(row["errors"]) == 3
    for error in row["errors"]:
        name = error["field"].removeprefix("metadata.annotations[").removesuffix("]")
        text = error["message"].removeprefix(f'{error["field"]}: Invalid value: "{present[name]}": ')
        assert f"annotation {name}: {text}" in message


def test_a_folder_is_read_and_other_kinds_are_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.json").write_text(json.dumps({"apiVersion": "v1", "kind": "Service"}))
    (tmp_path / "c.txt").write_text("not looked at")
    assert main(["check", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out == "1 document checked, none with errors\n"
    assert err == "hpad: skipped 1 document of other kinds\n"


@pytest.mark.parametrize("what", ["none.yaml", "empty", "empty.yaml"])
def test_without_documents_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert main(["check", str(tmp_path / what)]) == 1
    place = f"{tmp_path / what}:1" if what == "empty.yaml" else f"{tmp_path / what}"
    assert capsys.readouterr().out.startswith(f"{place}: ")


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BAD.encode())))
    assert main(["check", "-"]) == 1
    assert capsys.readouterr().out.startswith("<stdin>:6: HorizontalPodAutoscaler shop/web: spec.maxReplicas: ")


def test_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hpad.yaml"
    path.write_text("sync_period: 15s\nworkers: 8\n")
    assert main(["check", str(path)]) == 0
    capsys.readouterr()
    path.write_text("workers: 8\nsync_period: fast\n")
    status, [row] = rows(capsys, str(path))
    assert status == 1
    assert (row["name"], row["defaulted"], row["errors"][0]["field"]) == ("", None, "sync_period")
    assert main(["check", str(path)]) == 1
    assert capsys.readouterr().out.startswith(f"{path}:2: configuration: sync_period: 'fast' is not a duration")


def test_configuration_among_manifests_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `hpad convert` prints it below the HPA of a ScaledObject."""
    path = tmp_path / "orders.yaml"
    path.write_text(f"{GOOD}---\nsources: {{}}\nfeature_gates: {{HPAScaleToZero: true}}\n")
    assert main(["check", str(path)]) == 1
    line = GOOD.count("\n") + 2
    assert f"{path}:{line}: configuration: belongs into a file of its own" in capsys.readouterr().out


def test_configuration_of_an_adapter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hpad.yaml"
    path.write_text("sources:\n  queues:\n    adapter: rabbitmq\n    url: 5\n  other: {adapter: nonsense}\n")
    status, [row] = rows(capsys, str(path))
    assert status == 1
    assert [error["field"] for error in row["errors"]] == ["sources.queues.url", "sources.other.adapter"]
    assert "url" in row["errors"][0]["message"]
    assert 'there is no adapter "nonsense"' in row["errors"][1]["message"]
    assert main(["check", str(path)]) == 1
    assert capsys.readouterr().out.startswith(f"{path}:4: configuration: sources: queues: ")


def test_an_hpa_without_kind_does_not_count_as_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("metadata: {name: web}\nspec: {maxReplicas: 3}\n")
    assert main(["check", str(path)]) == 1
    assert "kind: Required value: an HPA has kind: HorizontalPodAutoscaler" in capsys.readouterr().out


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_the_samples_are_valid(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(path)]) == 0, capsys.readouterr().out
    assert path.read_text().startswith("# ")


def test_the_sample_configuration_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(ROOT / "config" / "hpad.yaml")]) == 0, capsys.readouterr().out


def test_a_thousand_documents_in_one_file(vectors: Vectors, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows_of_vector = list(vectors("admission_v2"))
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row["in"]) + "\n" for row in rows_of_vector))
    status, found = rows(capsys, str(path))
    assert status == 1
    assert len(found) == len(rows_of_vector) == 1000
    assert [row["document"] for row in found] == list(range(1000))
    for ours, row in zip(found, rows_of_vector, strict=True):
        policies = "must specify at least one Policy"
        if any(policies in error["message"] for error in row["errors"]):
            continue  # the row's input lost an empty list: tests/conformance/test_admission.py
        errors = [{name: error[name] for name in ("type", "field", "message")} for error in ours["errors"]]
        assert (errors, ours["defaulted"]) == (row["errors"], row["defaulted"])


def test_the_installed_program(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(BAD)
    program = Path(sys.executable).with_name("hpad")
    done = subprocess.run([program, "check", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.endswith("1 document checked, 1 with errors\n")


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text((json.dumps({"kind": "HorizontalPodAutoscaler"}) + "\n") * 5000)
    program = Path(sys.executable).with_name("hpad")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run([program, "check", path], stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")


def test_help_imports_neither_the_cluster_nor_the_plugins() -> None:
    code = (
        "import sys\nfrom hpad.cli import main\n"
        "try:\n    main(['check', '--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "assert not {'aiohttp', 'kubernetes_asyncio', 'asyncio'} & set(sys.modules), sorted(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "examples:" in done.stdout


def test_a_budget_that_the_configuration_lacks_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, configuration = tmp_path / "hpa.yaml", tmp_path / "hpad.yaml"
    path.write_text("""apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: web
  annotations:
    hpad.io/budget: gpus
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 3
""")
    assert main(["check", str(path)]) == 0  # without a configuration it is not known
    for budgets, more in (("{gpu: {replicas: 9}}", "; did you mean 'gpu'?"), ("{}", "")):
        configuration.write_text(f"budgets: {budgets}\n")
        capsys.readouterr()
        assert main(["check", str(path), str(configuration)]) == 1
        assert f"{path}:6: HorizontalPodAutoscaler default/web: metadata.annotations[hpad.io/budget]: " in (
            out := capsys.readouterr().out
        )
        assert f"the configuration has no such budget{more}\n" in out
    path.write_text(path.read_text().replace("hpad.io/budget: gpus", 'hpad.io/budget-priority: "2"'))
    assert main(["check", str(path)]) == 0
    assert "warning: metadata.annotations[hpad.io/budget-priority]: " in capsys.readouterr().out
    path.write_text(path.read_text().replace('hpad.io/budget-priority: "2"', "hpad.io/budget: gpus"))
    configuration.write_text("budgets: {gpus: {replicas: 9}}\n")
    assert main(["check", str(path), str(configuration)]) == 0


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ("budgets: {gpu: {replicas: 9}}", "budget gpu: the minima of 2 HPAs need 10 replicas; it has 9"),
        ("budgets: {gpu: {replicas: 10}}", ""),
        ("budgets: {gpu: {replicas: 9, namespaces: [other]}}", ""),
        ("budgets: {gpu: {cores: 2}}", ""),
        (
            "budgets: {gpu: {replicas: 9}, all: {replicas: 9}}\nhpas: [{budget: all}]",
            "budget gpu: the minima of 2 HPAs",
        ),
        ("budgets: {gpu: {replicas: 5}}\nhpas: [{names: [c], budget: gpu}]", "the minima of 3 HPAs need 11 replicas"),
    ],
)
def test_minima_beyond_a_budget_are_named(
    sections: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, configuration = tmp_path / "hpas.yaml", tmp_path / "hpad.yaml"
    path.write_text(
        "\n---\n".join(
            "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, "
            f"metadata: {{name: {name}{more}}}, spec: {{minReplicas: {low}, maxReplicas: 50, "
            f"scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}}}}}"
            for name, low, more in (
                ("a", 3, ", annotations: {hpad.io/budget: gpu}"),
                ("b", 7, ", annotations: {hpad.io/budget: gpu}"),
                ("c", 1, ""),
            )
        )
    )
    configuration.write_text(f"{sections}\n")
    assert main(["check", str(configuration), str(path)]) == 0
    found = capsys.readouterr().err
    assert says in found
    assert bool(found) == bool(says)


@pytest.mark.parametrize("seconds", [0, -3, 99999999])
def test_a_field_of_newer_servers_that_is_out_of_range_is_named(
    seconds: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(
        "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\nspec:\n"
        "  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}\n"
        f"  maxReplicas: 5\n  syncPeriodSeconds: {seconds}\n"
    )
    assert main(["check", str(path)]) == 1
    assert f"{path}:7: HorizontalPodAutoscaler default/web: spec.syncPeriodSeconds: Invalid value: {seconds}" in (
        capsys.readouterr().out
    )
