"""`hpad config`: the schema says what the settings take, and `show` where they come from, but no secret."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpad import settings
from hpad.cli import main, schema

SAMPLE = Path(__file__).resolve().parents[2] / "config" / "hpad.yaml"


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*(f"HPAD_{field.upper()}" for field in settings.PARSERS), "HPAD_CONFIG", "HPAD_RABBITMQ_URL"]:
        monkeypatch.delenv(name, raising=False)


def test_the_schema_knows_every_setting_and_no_other() -> None:
    assert set(schema.forms()) == set(settings.PARSERS)


def test_the_schemas_defaults_are_the_settings_own(tmp_path: Path) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text(yaml.safe_dump({name: value for name, value in schema.defaults().items() if value is not None}))
    assert settings.load(file, {}, {}) == settings.load(None, {}, {})


def test_the_sample_fits_the_schema() -> None:
    """As far as it goes without a validator: known names, right types, patterns."""
    known = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}
    for name, value in yaml.safe_load(SAMPLE.read_text()).items():
        form = schema.forms()[name]
        types = form.get("type", [])
        if types:
            allowed = tuple(known[each] for each in ([types] if isinstance(types, str) else types) if each != "null")
            assert value is None or isinstance(value, allowed), name
        if "pattern" in form and isinstance(value, str):
            assert re.search(form["pattern"], value), name


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["config", "show", "-o", "json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_each_setting_says_where_it_comes_from_and_secrets_stay_hidden(
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
        **schema.defaults()["feature_gates"],
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
        "url": [f"http://me:{SECRET}@mq:15672", f"http://me:pa/ss@{SECRET}@mq2:15672"],
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
    ("prom", "metrics", "password_resets", "query"): 'sum(rate(resets{job="x"}[2m]))',
    ("prom", "headers", "Authorization", "file"): "/run/token",
    ("prom", "server_name"): "prom.example.com",
    ("prom", "concurrency"): 3,
    ("mq", "url", 0): "http://***@mq:15672",
    ("mq", "username"): "monitor",
    ("mq", "password_file"): "/run/secrets/mq",
    ("mq", "oauth2", "token_url"): "https://id/token?secret=***",
    ("mq", "oauth2", "client_id"): "hpad",
    ("docs", "metrics", "open", "url"): "https://h/stats?tenant=***&token=***",
    ("docs", "metrics", "open", "path"): "queues[0].open",
    ("cache", "url"): "***@redis:6379",
}


def test_addresses_and_queries_are_shown_without_credentials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
def test_a_flag_is_shown_as_it_would_stand_in_a_file(
    capsys: pytest.CaptureFixture[str], flag: str, setting: str, value: Any
) -> None:
    assert shown(capsys, flag)[setting] == {"value": value, "from": flag.partition("=")[0]}


def test_settings_that_are_not_good_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--workers=none"]) == 2
    assert "--workers" in capsys.readouterr().err


def test_an_old_name_tells_its_successor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.RENAMED, "pace", "sync_period")
    file = tmp_path / "hpad.yaml"
    file.write_text("pace: 15s\n")
    with pytest.raises(settings.SettingsError) as caught:
        settings.load(file, {"HPAD_PACE": "3s"}, {})
    assert caught.value.problems == (
        f"{file}: 'pace' is called 'sync_period' now",
        "HPAD_PACE: 'pace' is called 'sync_period' now",
    )


def test_a_setting_that_was_removed_says_what_to_use_instead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text("memory_limit: 256Mi\n")
    with pytest.raises(settings.SettingsError) as caught:
        settings.load(file, {"HPAD_MEMORY_LIMIT": "auto"}, {})
    instead = "was removed: set systemd's MemoryMax= or the container's resources.limits.memory"
    assert caught.value.problems == (
        f"{file}: 'memory_limit' {instead}",
        f"HPAD_MEMORY_LIMIT: 'memory_limit' {instead}",
    )
    with pytest.raises(SystemExit) as ended:
        main(["run", "--memory-limit", "256Mi"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[0] == f"hpad run: --memory-limit {instead}"


def test_an_old_name_leads_to_one_that_is_there() -> None:
    assert set(settings.RENAMED.values()) <= set(settings.PARSERS)
    assert not {*settings.RENAMED, *settings.REMOVED} & set(settings.PARSERS)


def test_the_version_for_bug_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert re.match(r"\d+\.\d+", found["version"])
    assert {"aiohttp", "msgspec", "PyYAML"} <= set(found["packages"])
    assert "pytest" not in found["packages"]
