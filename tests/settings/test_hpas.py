"""The section `hpas` of the configuration: what it selects, and that each field is an annotation."""

from pathlib import Path

import msgspec
import pytest

from hpad import settings
from hpad.api.hpa import from_builtins
from hpad.engine import annotations
from hpad.settings import hpas


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "hpad.yaml"
    file.write_text(text)
    return file


HPAS = """
hpas:
  - {namespaces: [shop], names: ["java-*"], initialization_period: 10m, tolerance_up: 0.05}
  - {labels: {tier: "b*"}, tolerance_up: 0.2, fallback: "replicas:5"}
"""


@pytest.mark.parametrize(
    ("namespace", "name", "labels", "expected"),
    [
        ("shop", "java-1", {}, {"initialization-period": "10m", "tolerance-up": "0.05"}),
        ("shop", "web", {}, {}),
        ("mail", "java-1", {"tier": "front"}, {}),
        ("mail", "web", {"tier": "batch"}, {"tolerance-up": "0.2", "fallback": "replicas:5"}),
        (
            "shop",
            "java-1",
            {"tier": "batch"},
            {"initialization-period": "10m", "tolerance-up": "0.2", "fallback": "replicas:5"},
        ),
    ],
)
def test_the_configuration_annotates_hpas(
    tmp_path: Path, namespace: str, name: str, labels: dict[str, str], expected: dict[str, str]
) -> None:
    loaded = settings.load(written(tmp_path, HPAS), {}, {})
    read = hpas.defaults(loaded.hpas)
    assert read is not None
    found = read(from_builtins({"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {}}))
    assert found == {f"hpad.io/{annotation}": text for annotation, text in expected.items()}


FIELDS = {  # by annotation: its value in the configuration, and the text of the annotation
    "fallback": ("replicas:5", "replicas:5"),
    "failure-duration-seconds": ("9", "9"),
    "activation": ("3", "3"),
    "mode": ("paused", "paused"),
    "paused-until": ("2026-11-30T08:00:00Z", "2026-11-30T08:00:00Z"),
    "schedule": (
        "['* * * * 1 for 1h: min=5', '* * * * 2 for 1h: max=9']",
        "* * * * 1 for 1h: min=5; * * * * 2 for 1h: max=9",
    ),
    "tolerance-up": ("0.05", "0.05"),
    "tolerance-down": ("1", "1"),
    "metric-policy": ("min", "min"),
    "ignore-containers": ("[istio-proxy, log-agent]", "istio-proxy,log-agent"),
    "pod-selection": ("owner", "owner"),
    "scale-down-order": ("idle-first", "idle-first"),
    "keep-busy": ("true", "true"),
    "busy-metric": ("q above 2", "q above 2"),
    "sync-period": ("2s", "2s"),
    "initialization-period": ("10m", "10m"),
    "readiness-delay": ("0s", "0s"),
    "zero-after": ("10m", "10m"),
    "initial-delay": ("2m", "2m"),
    "spare": ("10%", "10%"),
    "pods": ("role=stable", "role=stable"),
    "budget": ("gpu", "gpu"),
    "budget-priority": ("5", "5"),
}


def test_each_annotation_is_a_field_of_the_configuration(tmp_path: Path) -> None:
    assert {f"hpad.io/{name}" for name in FIELDS} == {*annotations.ANNOTATIONS}
    metric = {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "1"}}}
    for name, (value, text) in FIELDS.items():
        base = {} if name == "fallback" else {"hpad.io/fallback": "replicas:2"}  # which a failure duration needs
        given = {**base, f"hpad.io/{name}": text}
        head = {"name": "web", "namespace": "shop"}
        annotated = from_builtins({"metadata": {**head, "annotations": given}, "spec": {"metrics": [metric]}})
        plain = from_builtins({"metadata": head, "spec": {"metrics": [metric]}})
        lines = [f"{name.replace('-', '_')}: {value}", *(f"fallback: {each}" for each in base.values())]
        configuration = f"budgets: {{gpu: {{replicas: 9}}}}\nhpas: [{{names: [w*], {', '.join(lines)}}}]"
        file = written(tmp_path, configuration)
        by_file = annotations.AnnotationReader(defaults=hpas.defaults(settings.load(file, {}, {}).hpas)).of(plain)
        own, without = annotations.AnnotationReader().of(annotated), annotations.AnnotationReader().of(plain)
        assert by_file.error is own.error is None
        found, expected, absent = (  # without the texts: YAML has another way to write a time
            (each.policies, msgspec.structs.replace(each.controls, texts=())) for each in (by_file, own, without)
        )
        assert found == expected, name
        assert found != absent, name


def test_the_annotations_of_an_hpa_win_over_the_configuration(tmp_path: Path) -> None:
    loaded = settings.load(written(tmp_path, "hpas: [{tolerance_up: 0.2, tolerance_down: 0.25}]"), {}, {})
    metadata = {"name": "web", "namespace": "shop", "annotations": {"hpad.io/tolerance-up": "0.5"}}
    found = annotations.AnnotationReader(defaults=hpas.defaults(loaded.hpas)).of(from_builtins({"metadata": metadata}))
    assert (found.controls.tolerance_up, found.controls.tolerance_down) == (0.5, 0.25)


def test_the_windows_of_a_schedule_may_be_a_list(tmp_path: Path) -> None:
    text = 'hpas: [{schedule: ["0 8 * * * for 1h: min=5", "0 9 * * * for 1h: max=9"]}]'
    read = hpas.defaults(settings.load(written(tmp_path, text), {}, {}).hpas)
    assert read is not None
    found = annotations.AnnotationReader(defaults=read).of(from_builtins({"metadata": {"name": "web"}}))
    assert found.errors == ()
    assert [(each.low, each.high) for each in found.controls.schedule or ()] == [(5, None), (None, 9)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hpas: [{schedule: [1]}]", "hpad.yaml: hpas: [0]: schedule: "),
        ("hpas: [{schedule: [always]}]", "hpad.yaml: hpas: [0]: schedule: 'always' is not a window such as"),
        ("hpas: {a: 1}", "hpad.yaml: hpas: hpas are a list of {namespaces: […]"),
        ("hpas: [{names: [web]}]", "hpad.yaml: hpas: [0]: the entry sets nothing; it can set fallback, "),
        ("hpas: [{tolerance_up: -1}]", "hpad.yaml: hpas: [0]: tolerance_up: '-1' is not a tolerance"),
        ("hpas: [{tolerance_upp: 1}]", "unknown field 'tolerance_upp'; did you mean 'tolerance_up'?"),
        ("hpas: [{readiness_delay: [1]}]", "hpad.yaml: hpas: [0]: readiness_delay: [1] is not a text or a number"),
        ("hpas: [{labels: {a: 1}, readiness_delay: 1s}]", "labels: {a: 1} is not a mapping of labels"),
        ('hpas: [{labels: {a: "b["}, readiness_delay: 1s}]', "labels: 'b[' is no pattern: its [ is not closed"),
    ],
)
def test_mistakes_in_the_annotations_of_the_configuration(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(settings.SettingsError) as failure:
        settings.load(written(tmp_path, text), {}, {})
    assert expected in str(failure.value)
