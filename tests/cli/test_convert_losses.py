"""`hpad convert` of objects of KEDA and prometheus-adapter: losses are reported, results are valid."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.scaled_objects import CRON, FULL, PULSAR, RABBITMQ, scaled

from hpad.cli import main

Convert = Callable[..., tuple[int, list[Any], list[str]]]
PAUSED = {"autoscaling.keda.sh/paused": "true"}
GOOD = scaled(CRON, minReplicaCount=1)
RULES = {
    "rules": [
        {
            "seriesQuery": 'http_requests_total{namespace!="",pod!=""}',
            "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
            "name": {"matches": "^(.*)_total$", "as": "${1}_per_second"},
            "metricsQuery": "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
        }
    ]
}
HPA = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 3},
}


def document(kind: str, version: str = "keda.sh/v1alpha1", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "shop"}, "spec": spec}


@pytest.fixture
def convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Convert:
    """Runs the command on documents: its status, the documents printed, and the lines of standard error."""

    def run(*documents: dict[str, Any], options: tuple[str, ...] = ()) -> tuple[int, list[Any], list[str]]:
        path = tmp_path / "in.yaml"
        path.write_text(yaml.safe_dump_all(documents, sort_keys=False))
        status = main(["convert", *options, str(path)])
        out, err = capsys.readouterr()
        printed = [] if "--out" in options else list(yaml.safe_load_all(out))
        return status, printed, err.splitlines()

    return run


@pytest.mark.parametrize(
    ("lossy", "field", "word"),
    [
        (scaled(PULSAR), "spec.triggers[0]", "pulsar"),
        (scaled(CRON, PULSAR), "spec.triggers[1]", "pulsar"),
        (
            scaled(CRON, advanced={"scalingModifiers": {"formula": "a+b", "target": "2"}}),
            "spec.advanced.scalingModifiers.formula",
            '"a+b"',
        ),
        (scaled({**CRON, "authenticationRef": {"name": "pass"}}), "spec.triggers[0].authenticationRef", '"pass"'),
        (document("ScaledJob", jobTargetRef={}, triggers=[RABBITMQ]), "kind", "ScaledJob"),
        (document("CloudEventSource"), "kind", "CloudEventSource"),
        (document("HTTPScaledObject", "http.keda.sh/v1alpha1"), "kind", "HTTPScaledObject"),
        (document("ScaledObject", "keda.k8s.io/v1alpha1"), "apiVersion", "keda.k8s.io/v1alpha1"),
        (document("ScaledObject", "keda.sh/v2"), "apiVersion", "keda.sh/v2"),
        (document("ScaledJob", "keda.k8s.io/v1alpha1"), "kind", "ScaledJob"),
    ],
)
def test_a_loss_is_reported_with_status_3_unless_it_is_accepted(
    lossy: dict[str, Any], field: str, word: str, convert: Convert, tmp_path: Path
) -> None:
    status, _, err = convert(GOOD, lossy)
    assert status == 3
    name = f"{lossy['kind']} {'' if lossy['kind'].startswith('Cluster') else 'shop/'}{lossy['metadata']['name']}"
    [line] = [line for line in err if f" {name}: {field}: " in line]
    assert line.startswith(f"{tmp_path / 'in.yaml'}:")
    assert word in line
    assert "--lossy" in err[-1]
    status, _, accepted = convert(GOOD, lossy, options=("--lossy",))
    assert (status, accepted) == (0, err[:-1])


def test_without_a_loss_the_status_is_0(convert: Convert) -> None:
    status, [hpa, settings], err = convert(GOOD)
    assert (status, err) == (0, [])
    assert hpa["metadata"]["name"] == "worker"
    assert list(settings["sources"]) == ["cron"]


def test_a_paused_scaledobject_becomes_a_paused_hpa(convert: Convert) -> None:
    status, [hpa, _], _ = convert(scaled(RABBITMQ, annotations=PAUSED))
    assert status == 0
    assert hpa["metadata"]["annotations"] == {"hpad.io/mode": "paused"}


def test_an_authentication_is_noted_beside_the_scaled_objects_that_use_it(convert: Convert) -> None:
    stored = {"parameter": "password", "name": "rabbit-pass"}
    vault = document("TriggerAuthentication", azureKeyVault={"vaultUri": "https://v", "secrets": [stored]})
    user = scaled({**RABBITMQ, "authenticationRef": {"name": "x"}})
    status, printed, err = convert(vault, user)
    assert status == 3
    file = "/etc/hpad/secrets/shop/azureKeyVault/rabbit-pass"
    assert next(iter(printed[1]["sources"].values()))["password_file"] == file
    [line] = [line for line in err if "TriggerAuthentication shop/x: spec.azureKeyVault.secrets[0].parameter" in line]
    assert file in line
    status, _, err = convert(vault, GOOD)
    assert status == 0
    assert "TriggerAuthentication shop/x: kind: is left out: no trigger that is carried over refers to it" in err[0]


def test_a_folder_of_secrets_can_be_named(convert: Convert) -> None:
    mounted = document("TriggerAuthentication", secretTargetRef=[{"parameter": "password", "name": "r", "key": "p"}])
    user = scaled({**RABBITMQ, "authenticationRef": {"name": "x"}})
    status, [_, settings], err = convert(mounted, user, options=("--secrets", "/run/secrets"))
    assert status == 0
    assert settings["sources"]["rabbitmq-rabbit"]["password_file"] == "/run/secrets/shop/r/p"
    assert any('mount key "p" of Secret shop/r there' in line for line in err)


WRONG_WINDOWS = [{"scaleDown": {"stabilizationWindowSeconds": window}} for window in ("60", -1, True)]
WRONG_BEHAVIORS = ["x", ["x"], True, {"scaleDown": "x"}, {"scaleDown": [1]}, {"scaleUp": "x"}, *WRONG_WINDOWS]


def cooling(behavior: Any) -> dict[str, Any]:
    """Returns a ScaledObject whose cooldown and switches change its behavior."""
    config = {"horizontalPodAutoscalerConfig": {"behavior": behavior}}
    document = scaled(RABBITMQ, minReplicaCount=0, cooldownPeriod=900, advanced=config)
    switches = {"autoscaling.keda.sh/paused-scale-in": "true", "autoscaling.keda.sh/paused-scale-out": "true"}
    return {**document, "metadata": {**document["metadata"], "annotations": switches}}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        *((cooling(behavior), "horizontalPodAutoscalerConfig.behavior") for behavior in WRONG_BEHAVIORS),
        (scaled(CRON, minReplicaCount=5, maxReplicaCount=2), "spec.maxReplicas"),
        (scaled(CRON, advanced={"horizontalPodAutoscalerConfig": {"behavior": {"scaleUp": {"x": 1}}}}), "scaleUp.x"),
        (scaled({**CRON, "metadata": CRON["metadata"] | {"start": "61 8 * * *"}}), "start"),
        (scaled({**CRON, "metadata": CRON["metadata"] | {"timezone": "Mars/Here"}}), "timezone"),
        ({**HPA, "spec": {**HPA["spec"], "maxReplicas": 0}}, "spec.maxReplicas"),
        ({**HPA, "spec": {**HPA["spec"], "minReplicas": 4}}, "spec.maxReplicas"),
    ],
)
def test_an_invalid_hpa_is_not_written(wrong: dict[str, Any], field: str, convert: Convert) -> None:
    status, printed, err = convert(wrong, options=("--lossy",))
    assert (status, printed) == (1, [])
    line = err[0]
    assert f"{wrong['metadata']['namespace']}/{wrong['metadata']['name']}: " in line
    assert field in line


def test_the_status_of_an_error_wins_over_that_of_a_loss(convert: Convert) -> None:
    assert convert(scaled(PULSAR), scaled(CRON, maxReplicaCount="x"))[0] == 1


def test_an_error_has_the_line_of_the_field_in_the_scaledobject(convert: Convert, tmp_path: Path) -> None:
    _, _, err = convert(scaled(CRON, minReplicaCount=5, maxReplicaCount=2))
    number = (tmp_path / "in.yaml").read_text().splitlines().index("  maxReplicaCount: 2") + 1
    assert err[0].startswith(f"{tmp_path / 'in.yaml'}:{number}: ")


def test_hpas_and_settings_are_written_to_separate_files(
    convert: Convert, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new"
    unnamed = {**HPA, "metadata": {"name": "web"}}
    status, _, _ = convert(GOOD, HPA, unnamed, FULL, options=("--out", str(out), "--lossy"))
    assert status == 0
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*.*"))
    hpas = ["hpas/default.web.yaml", "hpas/shop.mine.yaml", "hpas/shop.web.yaml", "hpas/shop.worker.yaml"]
    assert found == ["hpad.yaml", *hpas]
    assert main(["check", "--scale-to-zero", str(out / "hpas")]) == 0, capsys.readouterr().out
    assert [yaml.safe_load((out / path).read_text())["metadata"]["name"] for path in hpas] == [
        "web", "mine", "web", "worker",
    ]  # fmt: skip


def test_no_file_is_overwritten(convert: Convert, tmp_path: Path) -> None:
    out = tmp_path / "new"
    (out / "hpas").mkdir(parents=True)
    (out / "hpad.yaml").write_text("workers: 5\n")
    status, _, err = convert(GOOD, options=("--out", str(out)))
    assert status == 1
    assert str(out / "hpad.yaml") in err[0]
    assert (out / "hpad.yaml").read_text() == "workers: 5\n"
    assert not list((out / "hpas").iterdir())


def test_a_conversion_can_be_repeated_and_extended(convert: Convert, tmp_path: Path) -> None:
    out = tmp_path / "new"
    options = ("--out", str(out), "--lossy")
    assert convert(GOOD, HPA, options=options)[0] == 0
    before = {path: path.read_text() for path in out.rglob("*.yaml")}
    assert convert(GOOD, HPA, options=options)[0] == 0
    unnamed = {**HPA, "metadata": {"name": "web"}}
    assert convert(GOOD, HPA, unnamed, options=options)[0] == 0
    after = {path: path.read_text() for path in out.rglob("*.yaml")}
    assert after.keys() - before.keys() == {out / "hpas" / "default.web.yaml"}
    assert {path: after[path] for path in before} == before

    (out / "hpas" / "shop.web.yaml").write_text("edited\n")
    (out / "hpas" / "default.web.yaml").unlink()
    status, _, err = convert(GOOD, HPA, unnamed, options=options)
    assert status == 1
    assert [line for line in err if "exists with other content" in line] == [
        f"hpad: {out / 'hpas' / 'shop.web.yaml'} exists with other content, so nothing is written: name another folder"
    ]
    assert (out / "hpas" / "shop.web.yaml").read_text() == "edited\n"
    assert not (out / "hpas" / "default.web.yaml").exists()


def test_two_hpas_of_one_name_are_an_error(convert: Convert, tmp_path: Path) -> None:
    status, _, err = convert(HPA, HPA, options=("--out", str(tmp_path / "new")))
    assert status == 1
    assert "shop.web.yaml" in err[0]


def test_a_folder_that_cannot_be_created_is_reported(convert: Convert, tmp_path: Path) -> None:
    (tmp_path / "new").write_text("a file")
    status, _, err = convert(HPA, options=("--out", str(tmp_path / "new")))
    assert status == 1
    assert str(tmp_path / "new") in err[0]


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    """Of a file without room, as of one beyond the limit of the process, the error names no file."""
    (tmp_path / "in.yaml").write_text(json.dumps(HPA))
    called = [sys.executable, "-m", "hpad", "convert", "--out", "new", "in.yaml"]
    limited = ["sh", "-c", 'ulimit -f 0 && exec "$@"', "sh", *called]
    ended = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "hpad: the output cannot be written: File too large\n")


@pytest.mark.parametrize(
    "document",
    [
        RULES,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "x", "namespace": "shop"},
            "data": {"config.yaml": yaml.safe_dump(RULES)},
        },
    ],
    ids=["file", "ConfigMap"],
)
def test_rules_of_prometheus_adapter_become_a_source(document: dict[str, Any], convert: Convert) -> None:
    status, [settings], err = convert(document)
    assert status == 0
    assert settings["sources"]["prometheus-adapter"]["rules"] == RULES
    assert settings["sources"]["prometheus-adapter"]["url"] in err[0]


def test_other_keys_of_their_config_map_are_lost(convert: Convert) -> None:
    data = {"config.yaml": yaml.safe_dump(RULES), "notes.txt": "by hand"}
    metadata = {"name": "x", "namespace": "shop"}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    status, _, err = convert(document)
    assert status == 3
    assert any("ConfigMap shop/x: data[notes.txt]: is not carried over" in line for line in err)


def test_other_config_maps_are_skipped(convert: Convert) -> None:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "rules"}}
    status, printed, err = convert(document, HPA)
    assert (status, len(printed), err) == (0, 1, ["hpad: skipped 1 document of other kinds: ConfigMap"])
    status, printed, err = convert(document)
    assert (status, printed, err[1].partition(": expected")[0]) == (1, [], "hpad: nothing to convert")


def test_a_kustomization_beside_manifests_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: [web.yaml]\n")
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(HPA))
    assert main(["convert", str(tmp_path)]) == 0
    assert capsys.readouterr().err == "hpad: skipped 1 document of other kinds: Kustomization\n"


def test_a_list_of_kubectl_counts_as_its_items(convert: Convert) -> None:
    status, printed, _ = convert({"apiVersion": "v1", "kind": "List", "items": [GOOD, {**HPA}]})
    assert status == 0
    assert [each.get("kind") for each in printed] == ["HorizontalPodAutoscaler"] * 2 + [None]


def test_a_target_of_a_removed_api_group_is_reported(convert: Convert) -> None:
    target = {"apiVersion": "extensions/v1beta1", "kind": "Deployment", "name": "web"}
    old = {**HPA, "spec": {**HPA["spec"], "scaleTargetRef": target}}
    status, [hpa], [line] = convert(old)
    assert status == 0
    assert hpa["spec"]["scaleTargetRef"] == target
    assert "spec.scaleTargetRef.apiVersion: extensions/v1beta1 is not served since Kubernetes 1.16" in line


def test_v1_gets_the_default_rules_of_a_behavior(convert: Convert, tmp_path: Path) -> None:
    document = {**HPA, "spec": {**HPA["spec"], "behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}}
    status, [v1], _ = convert(document, options=("--to", "v1"))
    assert status == 0
    behavior = json.loads(v1["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/behavior"])
    assert behavior["ScaleDown"]["Policies"] == [{"Type": "Percent", "Value": 100, "PeriodSeconds": 15}]
    (tmp_path / "v1.yaml").write_text(yaml.safe_dump(v1))
    assert main(["check", str(tmp_path / "v1.yaml")]) == 0
