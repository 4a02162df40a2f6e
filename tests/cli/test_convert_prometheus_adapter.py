"""`hpad convert` of configurations of prometheus-adapter with faults, and of values of its Helm chart."""

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
RESOURCE = {
    "cpu": {"containerQuery": "a{<<.LabelMatchers>>}", "containerLabel": "container", "resources": RULE["resources"]},
    "window": "3m",
}
SERVER = {"url": "http://prometheus.monitoring.svc", "port": 80, "path": "/prom"}
URL = "http://prometheus.monitoring.svc:80/prom"


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
        (
            {"rules": [RULE, {**RULE, "metricQuery": "x"}]},
            "prometheus-adapter: rules[1].metricQuery: unknown field; did you mean 'metricsQuery'?",
        ),
        (
            {"rules": {"default": False, "external": [{**RULE, "name": {"match": "x"}}]}},
            "rules.external[0].name.match: unknown field; did you mean 'matches'?",
        ),
        (
            {"resourceRules": {"cpu": {"containerquery": "x"}}},
            "resourceRules.cpu.containerquery: unknown field; did you mean 'containerQuery'?",
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
        (
            {"rules": {"externl": [RULE]}},
            "rules.externl: unknown value, which the chart ignores; did you mean",
        ),
        ({"rules": {"default": False, "custom": RULE}}, "rules.custom: Invalid value"),
        ({"prometheus": {"url": "http://x:9090"}}, "the chart appends port 9090 unless port is 0"),
        ({"prometheus": {"url": "http://u:s3cret@x"}}, "without credentials"),
        ({"prometheus": {"url": "http://x/", "port": 80}}, 'prometheus.url: Invalid value: "http://x/:80"'),
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
        ({"rules": {"default": False, "external": [RULE]}}, "data[config.yaml]: rules: has values of the chart"),
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
def test_values_of_the_chart_become_a_source_with_its_url(convert: Any, prefix: str) -> None:
    rules = {"default": False, "custom": [RULE], "external": [RULE], "resource": RESOURCE, "existing": None}
    values: dict[str, Any] = {"prometheus": SERVER, "rules": rules, "replicas": 2, "image": {"tag": "v0.12.0"}}
    status, found, err = convert({prefix: values, "other": {}} if prefix else values)
    assert (status, found["url"]) == (0, URL), err
    assert found["rules"] == {"rules": [RULE], "externalRules": [RULE], "resourceRules": RESOURCE}


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ({"url": "https://p"}, "https://p:9090"),
        ({"url": "https://p", "port": 0}, "https://p"),
        ({"url": "https://p", "port": None}, "https://p"),
        ({"url": "https://p/", "port": 0, "path": "/prometheus"}, "https://p/prometheus"),
        ({"url": "https://p", "port": "80", "path": None}, "https://p:80"),
        ({"port": 9091}, "http://prometheus.default.svc:9091"),
        (None, "http://prometheus.default.svc:9090"),
    ],
)
def test_url_port_and_path_are_put_together_as_the_chart_does(convert: Any, server: Any, url: str) -> None:
    status, found, err = convert({"prometheus": server, "rules": {"default": False, "custom": [RULE]}})
    assert (status, found["url"]) == (0, url)
    assert ("carried over as the chart's default" in err) == ("url" not in (server or {}))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"rules": {"custom": [RULE]}}, "rules.default: the default rules are those of the chart"),
        ({"prometheus": SERVER}, "rules.default: the default rules are those of the chart"),
        ({"rules": {"existing": "mine"}}, "kubectl get configmap mine -o yaml | hpad convert -"),
        (
            {"prometheus": {"url": "{{ .Release.Name }}"}, "rules": {"default": False, "custom": [RULE]}},
            "is a template",
        ),
        (
            {
                "rules": {"default": False, "custom": [RULE]},
                "extraArguments": ["--v=4", "--prometheus-header=k=s3cret"],
            },
            "extraArguments[1]: --prometheus-header is not carried over",
        ),
    ],
    ids=["default", "default alone", "existing", "template", "arguments"],
)
def test_what_the_values_do_not_hold_is_lost(convert: Any, values: dict[str, Any], text: str) -> None:
    status, found, err = convert(values)
    assert status == 3
    assert text in err
    assert "s3cret" not in err
    assert "REPLACE-ME" in found.get("url", "REPLACE-ME") or "is a template" not in text


def test_the_chart_s_default_url_is_named_only_where_a_source_has_it(convert: Any) -> None:
    status, _, err = convert({"rules": {"default": False, "custom": None, "external": None, "resource": None}})
    assert (status, "carried over" in err) == (1, False)
