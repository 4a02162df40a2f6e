"""`hpad convert` of configurations of prometheus-adapter with faults."""

import io
from typing import Any

import pytest
import yaml

from hpad.cli import main

RULE = {
    "seriesQuery": 'http_requests_total{namespace!="",pod!=""}',
    "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
    "metricsQuery": "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
}


@pytest.fixture
def convert(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(text: Any) -> tuple[int, dict[str, Any], str]:
        """Returns the status, the source, and standard error."""
        written = text if isinstance(text, str) else yaml.safe_dump(text)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(written.encode())))
        status = main(["convert", "-"])
        out, err = capsys.readouterr()
        sources = (yaml.safe_load(out) or {}).get("sources", {})
        return status, sources.get("prometheus-adapter", {}), err

    return run


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "null", "kind: List\nitems: []\n"])
def test_an_input_without_documents_is_an_error(convert: Any, text: str) -> None:
    status, found, err = convert(text)
    assert (status, found) == (1, {})
    assert err.startswith("<stdin>:1: has no document")


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"Rules": [RULE]}, 'Rules: unknown field, which prometheus-adapter refuses; did you mean "rules"?'),
        ({"rule": [RULE]}, 'rule: unknown field, which prometheus-adapter refuses; did you mean "rules"?'),
        ({"rules": [RULE], "externalRule": []}, "externalRule: unknown field, which prometheus-adapter refuses; did"),
        ({"externalrules": []}, 'did you mean "externalRules"?'),
        (
            {"rules": [RULE], "metrics": []},
            "metrics: unknown field, which prometheus-adapter refuses; known are",
        ),
        ({"rules": [{**RULE, "metricQuery": "x"}]}, "metricQuery"),
        ({"rules": None}, "has no rules"),
        ("rules: []\nrules: []\n", 'duplicate field "rules"'),
        ({"groups": [{"name": "x"}]}, "has no kind: expected are HPAs"),
        ({"kind": None, "apiVersion": "v1"}, "has no kind: expected are HPAs"),
        ({"rules": {"default": False, "custom": [RULE]}}, "convert the ConfigMap that it writes"),
        ({"prometheus-adapter": {"rules": {"external": [RULE]}}}, "convert the ConfigMap that it writes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_faults_are_errors_that_name_the_field(convert: Any, document: Any, text: str) -> None:
    status, found, err = convert(document)
    assert (status, found) == (1, {})
    assert text in err
    assert "<stdin>:" in err


def test_a_misspelt_field_in_a_config_map_is_an_error(convert: Any) -> None:
    data = {"config.yaml": yaml.safe_dump({"Rules": [RULE]})}
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "adapter", "namespace": "shop"}}
    status, _, err = convert({**head, "data": data})
    assert status == 1
    assert "ConfigMap shop/adapter: data[config.yaml]: Rules: unknown field" in err


def test_null_fields_are_absent_as_for_prometheus_adapter(convert: Any) -> None:
    rule = {**RULE, "name": None, "seriesFilters": None, "resources": {**RULE["resources"], "template": None}}
    rule["resources"]["namespaced"] = None
    status, found, err = convert({"rules": [rule], "externalRules": None, "resourceRules": None})
    assert (status, found["rules"]) == (0, {"rules": [RULE]}), err
