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
        ({"Rules": [RULE]}, 'Rules: unknown field (did you mean "rules"?), which prometheus-adapter refuses'),
        ({"rule": [RULE]}, 'rule: unknown field (did you mean "rules"?), which prometheus-adapter refuses'),
        ({"rules": [RULE], "externalRule": []}, 'externalRule: unknown field (did you mean "externalRules"?)'),
        ({"externalrules": []}, "has no kind: expected are HPAs"),
        (
            {"rules": [RULE], "metrics": []},
            "metrics: unknown field, which prometheus-adapter refuses",
        ),
        (
            {"rules": [RULE, {**RULE, "metricQuery": "x"}]},
            'prometheus-adapter: rules[1].metricQuery: unknown field (did you mean "metricsQuery"?)',
        ),
        (
            {"resourceRules": {"cpu": {"containerquery": "x"}}},
            'resourceRules.cpu.containerquery: unknown field (did you mean "containerQuery"?)',
        ),
        (
            {"rules": [{**RULE, "resources": {"overrides": {"pod": {"kind": "x"}}}}]},
            "overrides.pod.kind: unknown field",
        ),
        (
            {"rules": [{**RULE, "resources": {"overrides": {"namespace": "namespace"}}}]},
            "rules[0].resources.overrides.namespace: 'namespace' is not a mapping",
        ),
        ({"rules": [{"metricsQuery": "x"}]}, "rules[0].seriesQuery: is missing"),
        ({"rules": [{**RULE, "name": {"matches": "(?<a>.*)"}}]}, "name: matches: '(?<a>.*)' is no regular expression"),
        ({"rules": [{**RULE, "seriesFilters": [{"is": "*x"}]}]}, "seriesFilters: '*x' is no regular expression"),
        ({"rules": None}, "has no rules"),
        ("rules: []\nrules: []\n", 'duplicate field "rules"'),
        ({"groups": [{"name": "x"}]}, "has no kind: expected are HPAs"),
        ({"kind": None, "apiVersion": "v1"}, "has no kind: expected are HPAs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_faults_are_errors_that_name_the_field(convert: Any, document: Any, text: str) -> None:
    status, found, err = convert(document)
    assert (status, found) == (1, {})
    assert text in err
    assert "<stdin>:" in err
    assert "s3cret" not in err


def test_the_error_of_a_field_has_its_line(convert: Any) -> None:
    status, _, err = convert("rules:\n- seriesQuery: a\n- seriesQuery: b\n  metricQuery: c\n")
    assert (status, err.split(" ")[0]) == (1, "<stdin>:4:")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"Rules": [RULE]}, "data[config.yaml]: Rules: unknown field"),
        ({"rules": {"default": False, "external": [RULE]}}, "data[config.yaml]: rules: has values of the Helm chart"),
    ],
    ids=["misspelt", "values of the chart"],
)
def test_wrong_rules_in_a_config_map_are_an_error(convert: Any, content: Any, text: str) -> None:
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "adapter", "namespace": "shop"}}
    status, _, err = convert({**head, "data": {"config.yaml": yaml.safe_dump(content)}})
    assert status == 1
    assert f"ConfigMap shop/adapter: {text}" in err


def test_a_config_map_with_rules_of_another_program_is_skipped(convert: Any) -> None:
    data = {"jmx.yaml": yaml.safe_dump({"rules": [{"pattern": ".*"}]})}
    status, _, err = convert({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "jmx"}, "data": data})
    assert (status, "skipped 1 document of other kinds: ConfigMap" in err, "pattern" in err) == (1, True, False)


def test_null_fields_are_absent_as_for_prometheus_adapter(convert: Any) -> None:
    rule = {**RULE, "name": None, "seriesFilters": None, "resources": {**RULE["resources"], "template": None}}
    rule["resources"]["namespaced"] = None
    status, found, err = convert({"rules": [rule], "externalRules": None, "resourceRules": None})
    assert (status, found["rules"]) == (0, {"rules": [RULE]}), err


@pytest.mark.parametrize("prefix", ["", "prometheus-adapter"])
def test_values_of_the_chart_are_an_error_that_names_its_config_map(convert: Any, prefix: str) -> None:
    values: dict[str, Any] = {"prometheus": {"url": "http://p"}, "rules": {"default": False, "custom": [RULE]}}
    status, found, err = convert({prefix: values, "other": {}} if prefix else values)
    assert (status, found) == (1, {})
    assert f"{f'{prefix}.' if prefix else ''}rules: has values of the Helm chart, which lack its default rules" in err
    assert "`kubectl get configmap NAME -o yaml | hpad convert -`" in err
