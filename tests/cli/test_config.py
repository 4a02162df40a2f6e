"""`hpad config`: the schema describes all settings, and `show` prints their origins, but no secrets."""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpad import settings
from hpad.cli import flags, main


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*(f"HPAD_{field.upper()}" for field in settings.TABLE), "HPAD_CONFIG", "HPAD_RABBITMQ_URL"]:
        monkeypatch.delenv(name, raising=False)


def test_every_setting_but_those_of_mappings_has_a_flag() -> None:
    parser = argparse.ArgumentParser()
    flags.add(parser)
    names = {name for name in settings.TABLE if parser.format_help().count(f"--{name.replace('_', '-')} ")}
    assert set(settings.TABLE) - names == {
        *("sources", "routes", "hpas", "budgets", "notify"),
        "namespaces",  # --namespace names one
    }


def test_the_defaults_of_the_schema_are_those_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text(
        yaml.safe_dump({name: row.written for name, row in settings.TABLE.items() if row.written is not None})
    )
    assert settings.load(file, {}, {}) == settings.load(None, {}, {})


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["config", "show", "-o", "json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_show_prints_origins_and_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text(
        "workers: 3\nsync_period: 20s\nfeature_gates: {HPAScaleToZero: true}\n"
        "sources: {prom: {adapter: prometheus, url: 'http://me:hidden-password@prom', timeout: 3s}}\n"
    )
    monkeypatch.setenv("HPAD_SYNC_PERIOD", "10s")
    monkeypatch.setenv("HPAD_RABBITMQ_URL", "http://me:hidden-password@rabbit")
    found = shown(capsys, "--config", str(file), "--tolerance=0.2", "--feature-gates=HPAConfigurableTolerance=false")
    assert found["workers"] == {"value": 3, "from": str(file)}
    assert found["sync_period"] == {"value": "10s", "from": "HPAD_SYNC_PERIOD"}
    assert found["tolerance"] == {"value": 0.2, "from": "--tolerance"}
    assert found["feature_gates"]["from"] == f"{file}, --feature-gates"
    assert found["feature_gates"]["value"] == {
        **settings.TABLE["feature_gates"].written,
        "HPAScaleToZero": True,
        "HPAConfigurableTolerance": False,
    }
    assert found["listen"] == {"value": "127.0.0.1:8473", "from": "default"}
    assert found["sources"]["from"] == f"{file}, HPAD_RABBITMQ_URL"
    assert found["sources"]["value"]["prom"] == {
        "adapter": "prometheus",
        "url": "http://***@prom",
        "timeout": "3s",
    }
    assert "hidden-password" not in json.dumps(found)
    assert main(["config", "show", "--config", str(file)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^workers +3  # .*hpad\.yaml$", text, re.MULTILINE)
    assert "hidden-password" not in text


SECRET = "s3cr3t-Xy9"
SOURCES = {
    "prom": {
        "adapter": "prometheus",
        "url": "https://prom:9090/select",
        "bearer_token": SECRET,
        "headers": {"X-Scope-OrgID": SECRET, "Authorization": {"file": "/run/token"}},
        "params": {"key": SECRET},
        "metrics": {"password_resets": {"query": 'sum(rate(resets{job="x"}[2m]))'}},
        "server_name": "prom.example.com",
        "insecure": False,
        "concurrency": 3,
    },
    "mq": {
        "adapter": "rabbitmq",
        "url": [f"http://me:{SECRET}@mq:15672", f"http://me:pa/ss@{SECRET}@mq2:15672?key={SECRET}"],
        "username": "monitor",
        "password_file": "/run/secrets/mq",
        "oauth2": {"token_url": f"https://id/token?secret={SECRET}", "client_id": "hpad", "client_secret": SECRET},
    },
    "docs": {
        "adapter": "http-json",
        "metrics": {"open": {"url": f"https://h/stats?tenant=a&token={SECRET}", "path": "queues[0].open"}},
        "passwort": SECRET,
    },
    "cache": {"adapter": "redis", "url": f"me:{SECRET}@redis:6379", "username": f"token={SECRET}"},
    "unknown": {"adapter": "no-such-adapter", "dsn": SECRET, "anything": SECRET},
    "third": {"adapter": "static", "file": f"Bearer {SECRET}"},
}
OPEN = {
    ("prom", "url"): "https://prom:9090/select",
    ("prom", "metrics"): "(not shown)",
    ("prom", "server_name"): "(not shown)",
    ("prom", "insecure"): False,
    ("prom", "concurrency"): 3,
    ("mq", "url", 0): "http://***@mq:15672",
    ("mq", "url", 1): "http://***@mq2:15672",
    ("mq", "username"): "(not shown)",
    ("mq", "oauth2"): "(not shown)",
    ("cache", "url"): "(not shown)",
}


def test_addresses_are_shown_without_credentials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text(yaml.safe_dump({"sources": SOURCES}))
    found = shown(capsys, "--config", str(file))["sources"]["value"]
    assert SECRET not in json.dumps(found)
    for path, expected in OPEN.items():
        value = found
        for step in path:
            value = value[step]
        assert value == expected, path
    assert found["prom"]["bearer_token"] == found["docs"]["passwort"] == "(not shown)"
    assert found["unknown"] == {"adapter": "no-such-adapter", "dsn": "(not shown)", "anything": "(not shown)"}
    assert main(["config", "show", "--config", str(file)]) == 0
    text = capsys.readouterr().out
    assert SECRET not in text
    assert "\n    url: https://prom:9090/select\n" in text


@pytest.mark.parametrize(
    ("flag", "setting", "value"),
    [
        ("--workers=9", "workers", 9),
        ("--leader-elect", "leader_elect", True),
        ("--kube-api-qps=2.5", "kube_api_qps", 2.5),
        ("--namespace=a,b", "namespaces", ["a", "b"]),
        ("--sync-period=1m", "sync_period", "1m"),
        ("--store=sqlite:h.db", "store", "sqlite:h.db"),
        ("--log-level=debug", "log_level", "debug"),
    ],
)
def test_a_flag_is_shown_in_the_form_of_the_file(
    capsys: pytest.CaptureFixture[str], flag: str, setting: str, value: Any
) -> None:
    assert shown(capsys, flag)[setting] == {"value": value, "from": flag.partition("=")[0]}


def test_invalid_settings_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--workers=none"]) == 2
    assert "--workers" in capsys.readouterr().err


def test_a_removed_setting_is_refused_with_its_replacement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text("memory_limit: 256Mi\n")
    with pytest.raises(settings.SettingsError) as caught:
        settings.load(file, {"HPAD_MEMORY_LIMIT": "auto"}, {})
    instead = "was removed: set systemd's MemoryMax= or the container's resources.limits.memory"
    assert tuple(map(str, caught.value.problems)) == (
        f"{file}: 'memory_limit' {instead}",
        f"HPAD_MEMORY_LIMIT: 'memory_limit' {instead}",
    )
    with pytest.raises(SystemExit) as ended:
        main(["run", "--memory-limit", "256Mi"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[0] == f"hpad run: --memory-limit {instead}"


def test_flags_of_a_manifest_that_is_carried_over_are_refused_in_one_go(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--kube-api-qps=50", "--kube-api-burst=100", "--leader-elect-resource-lock=leases"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[:2] == [
        "hpad run: --kube-api-burst was removed: with kube_api_qps up to 30 requests are sent at once, Kubernetes' "
        "default; leave it out",
        "hpad run: --leader-elect-resource-lock was removed: the lock is always a Lease; leave it out",
    ]


def test_no_removed_setting_exists() -> None:
    assert not set(settings.REMOVED) & set(settings.TABLE)


def test_the_version_for_bug_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert re.match(r"\d+\.\d+", found["version"])
    assert {"aiohttp", "msgspec", "PyYAML"} <= set(found["packages"])
    assert "pytest" not in found["packages"]
