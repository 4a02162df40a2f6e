"""The schema of the configuration accepts and refuses the same files as the settings."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from hpad import settings
from hpad.cli import main
from hpad.sources import plugins

SAMPLE = Path(__file__).resolve().parents[2] / "config" / "hpad.yaml"
GOOD = [
    "",
    "sync_period: 1h30m0.5s",
    "namespaces: shop,bank",
    "namespaces: [shop, bank]",
    "feature_gates: HPAScaleToZero=true",
    "feature_gates: {HPAScaleToZero: true}",
    "listen: none",
    "listen: '[::1]:8473'",
    "store: sqlite:/var/lib/hpad/history.db",
    "store: {kind: cluster, namespace: hpad, name: history}",
    "sources: {a: {adapter: rabbitmq, url: 'http://x', timeout: 3s, limits: {rate: 0.5, max_age: 60s}}}",
    "sources: {a: {adapter: static, file: x, match: [{metrics: queue_*}, {types: [External]}], fallback: hold}}",
    "{sources: {a: {adapter: static, file: x}}, routes: [{match: {metrics: [x], labels: {queue: y}}, source: a}]}",
    "kube_api_qps: 20.5",
]
BAD = [
    "sync_periode: 15s",
    "sync_period: 15",
    "sync_period: soon",
    "downscale_stabilization: -5m",
    "workers: 0",
    "workers: many",
    "tolerance: 10",
    "listen: '8080'",
    "feature_gates: {HPAScaleToZer: true}",
    "feature_gates: {HPAScaleToZero: 2}",
    "sources: [rabbitmq]",
    "sources: {a: {timeout: 3}}",
    "sources: {a: {match: {metric: x}}}",
    "sources: {a: {match: {types: [Extern]}}}",
    "sources: {a: {limits: {freshness: 5s}}}",
    "sources: {a: {limits: {rate: 0}}}",
    "routes: [{source: a}]",
    "log_level: loud",
    "store: {kind: redis}",
    "store: {path: 5}",
    "leader_elect: maybe",
    "leader_elect_resource_name: No_Name",
    "leader_elect_resource_namespace: a.b",
    "namespaces: [No_Name]",
    "- a",
]


REFUSED = [
    "sources: {a: {adapter: static}}",
    "sources: {a: {adapter: rabbitmq, urll: 'http://x'}}",
    "sources: {rabbitmq: {urll: 'http://x'}}",
    "sources: {a: {adapter: prometheus, url: 'http://x', metrics: {m: {querry: up}}}}",
    "sources: {a: {adapter: http-json, metrics: {m: {url: 'http://x'}}}}",
    "sources: {a: {adapter: rabbitmq, url: 'http://x', on_missing_queue: hold}}",
    "sources: {a: {adapter: rabbitmq, url: 'http://x', limits: {rate: fast}}}",
]
"""Settings that are invalid by the rules of their adapters."""
ACCEPTED = [
    "sources: {rabbitmq: {url: 'http://x', timeout: 3s}}",
    "sources: {rabbitmq: {adapter: static, file: x}}",
    "sources: {a: {adapter: of-another-package, anything: 5}}",
    "sources: {a: {adapter: prometheus, url: 'http://x', headers: {X: {file: y}, Y: z}, metrics: {m: {query: up}}}}",
]


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    """Validates by the schema that `hpad config schema` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["config", "schema"]) == 0
    schema: dict[str, Any] = json.loads(printed.getvalue())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def is_accepted(text: str, folder: Path) -> bool:
    file = folder / "hpad.yaml"
    file.write_text(text)
    try:
        settings.load(file, {"STATE_DIRECTORY": str(folder)}, {})
    except settings.SettingsError:
        return False
    return True


def test_the_sample_is_valid(validator: jsonschema.Draft202012Validator) -> None:
    validator.validate(yaml.safe_load(SAMPLE.read_text(encoding="utf-8")))


@pytest.mark.parametrize("text", GOOD)
def test_the_schema_accepts_valid_settings(
    validator: jsonschema.Draft202012Validator, text: str, tmp_path: Path
) -> None:
    assert is_accepted(text, tmp_path)
    validator.validate(yaml.safe_load(text))


@pytest.mark.parametrize("text", BAD)
def test_the_schema_refuses_invalid_settings(
    validator: jsonschema.Draft202012Validator, text: str, tmp_path: Path
) -> None:
    assert not is_accepted(text, tmp_path)
    assert list(validator.iter_errors(yaml.safe_load(text)))


@pytest.mark.parametrize("text", REFUSED)
def test_the_schema_refuses_invalid_settings_of_adapters(validator: jsonschema.Draft202012Validator, text: str) -> None:
    assert list(validator.iter_errors(yaml.safe_load(text)))


@pytest.mark.parametrize("text", ACCEPTED)
def test_the_schema_accepts_valid_settings_of_adapters(validator: jsonschema.Draft202012Validator, text: str) -> None:
    validator.validate(yaml.safe_load(text))


def test_every_field_has_a_description(validator: jsonschema.Draft202012Validator) -> None:
    """Fields of the settings, of every source, and of each installed adapter."""
    schema = validator.schema
    forms = {"": schema, **schema["$defs"]}
    forms["match"] = schema["properties"]["routes"]["items"]["properties"]["match"]
    silent = [
        f"{place}.{name}"
        for place, form in forms.items()
        for name, field in form.get("properties", {}).items()
        if not field.get("description")
    ]
    assert silent == []
    assert {f"source-{name}" for name in plugins.names()} <= set(schema["$defs"])
    url = schema["$defs"]["source-rabbitmq"]["properties"]["url"]
    assert url["description"].startswith("the address of the source, such as")
