"""Alerts and dashboard use series that hpad exports, and each alert fires in a test."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpad import telemetry
from hpad.api.hpa import HorizontalPodAutoscalerCondition
from hpad.api.metadata import Key
from hpad.engine import conditions

Json = dict[str, Any]
FOLDER = "config/monitoring"
OF_PROMETHEUS = {"job", "instance", "le"}
"""Labels that a scrape or a histogram adds."""
WORDS = {"and", "or", "unless", "bool", "by", "on"}
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_count", "_sum"),
    "summary": ("_count", "_sum"),
}
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing: install Debian's package prometheus"
)


def exported() -> dict[str, set[str]]:
    """Returns the name of every series that hpad can export, and its labels."""
    registry = telemetry.Telemetry().registry
    found: dict[str, set[str]] = {}
    for collector in registry._collector_to_names:
        for family in collector.collect():
            labels = set(getattr(collector, "_labelnames", ())) | set(getattr(family, "_labelnames", ()))
            for suffix in SUFFIXES[family.type]:
                found[family.name + suffix] = labels
    return found


def series_in(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yields the series of a PromQL expression, each with the labels that select it."""
    plain = re.sub(r"\[[^]]*\]", "", expression)
    plain = re.sub(r"\b(by|on|without|ignoring)\s*\([^)]*\)", "", plain)
    for name, selectors in re.findall(r"\b([a-z_]\w*)\b(?!\s*\()(?:\{([^}]*)\})?", re.sub(r'"[^"]*"', '""', plain)):
        if name not in WORDS and name not in labels_in(plain):
            yield name, set(re.findall(r"(\w+)\s*[=!]", selectors))


def labels_in(expression: str) -> set[str]:
    """Returns labels in selectors, which look like names of series."""
    return {
        label for selector in re.findall(r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)\s*[=!]", selector)
    }


def grouped_by(expression: str) -> set[str]:
    clauses = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression)
    return {label.strip() for clause in clauses for label in clause.split(",")}


def alerts(documents: Callable[[str], list[Json]]) -> list[Json]:
    [rules] = documents(f"{FOLDER}/rules.yaml")
    return [rule for group in rules["groups"] for rule in group["rules"]]


def dashboard(root: Path) -> Json:
    read: Json = json.loads((root / FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    return read


def expressions(root: Path, documents: Callable[[str], list[Json]]) -> Iterator[tuple[str, str]]:
    """Yields the title and the expression of each alert, panel and variable."""
    for rule in alerts(documents):
        yield rule["alert"], rule["expr"]
    read = dashboard(root)
    for panel in read["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in read["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert match, variable
            yield variable["name"], f"sum by ({match[2]}) ({match[1]})"


def test_every_series_is_exported_with_those_labels(root: Path, documents: Callable[[str], list[Json]]) -> None:
    known, seen = exported(), 0
    for where, expression in expressions(root, documents):
        names = dict(series_in(expression))
        assert names, f"{where}: {expression}"
        for name, labels in names.items():
            assert name in known, f"{where}: {name}"
            assert labels <= known[name] | OF_PROMETHEUS, f"{where}: {name}"
            seen += 1
        of_all = set().union(*(known[name] for name in names))
        assert grouped_by(expression) <= of_all | OF_PROMETHEUS, f"{where}: {expression}"
    assert seen > 50


def test_all_series_of_a_decision_are_shown_or_have_an_alert(
    root: Path, documents: Callable[[str], list[Json]]
) -> None:
    named = {name for _, expression in expressions(root, documents) for name in dict(series_in(expression))}
    found = {family.name for family in telemetry.Telemetry().controller.decisions.collect()}
    assert len(found) == 11
    assert found <= named


def test_reasons_and_conditions_in_expressions_exist_in_the_engine(
    root: Path, documents: Callable[[str], list[Json]]
) -> None:
    engine = "\n".join(path.read_text(encoding="utf-8") for path in (root / "hpad").glob("[em]*/**/*.py"))
    for where, expression in expressions(root, documents):
        for value in re.findall(r'\b(?:reason|condition)[=!]~?"([^"]*)"', expression):
            for one in value.split("|"):
                assert f'"{one}"' in engine, f"{where}: {one}"


def test_conditions_that_hold_an_hpa_back_are_series_until_it_is_deleted() -> None:
    exporter, key = telemetry.Telemetry(), Key("shop", "web")

    def condition(kind: str, status: str, reason: str) -> HorizontalPodAutoscalerCondition:
        return HorizontalPodAutoscalerCondition(type=kind, status=status, reason=reason)

    def held_back() -> set[tuple[str, str]]:
        samples = [
            each.labels for family in exporter.registry.collect() for each in family.samples if "held_back" in each.name
        ]
        assert all(Key(each["namespace"], each["hpa_name"]) == key for each in samples)
        return {(each["condition"], each["reason"]) for each in samples}

    able = condition(conditions.ABLE_TO_SCALE, conditions.TRUE, "ReadyForNewScale")
    active = condition(conditions.SCALING_ACTIVE, conditions.TRUE, "ValidMetricFound")
    limited = condition(conditions.SCALING_LIMITED, conditions.TRUE, "TooManyReplicas")
    exporter.controller.conditions(key, (able, active, limited))
    assert held_back() == {("ScalingLimited", "TooManyReplicas")}
    broken = condition(conditions.SCALING_ACTIVE, conditions.FALSE, "FailedGetExternalMetric")
    within = condition(conditions.SCALING_LIMITED, conditions.FALSE, "DesiredWithinRange")
    exporter.controller.conditions(key, (able, broken, within))
    assert held_back() == {("ScalingActive", "FailedGetExternalMetric")}
    exporter.controller.forget(key)
    assert held_back() == set()


def test_the_prometheus_rule_has_the_same_rules(
    documents: Callable[[str], list[Json]], only: Callable[..., Json]
) -> None:
    [plain] = documents(f"{FOLDER}/rules.yaml")
    assert only(f"{FOLDER}/prometheusrule.yaml", "PrometheusRule")["spec"] == plain


def test_every_alert_has_severity_summary_and_description(documents: Callable[[str], list[Json]]) -> None:
    rules = list(alerts(documents))
    assert len(rules) >= 5
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert {"summary", "description"} == rule["annotations"].keys()


def test_every_alert_has_a_rule_test(documents: Callable[[str], list[Json]], root: Path) -> None:
    text = (root / "tests/packaging/rules_test.yaml").read_text(encoding="utf-8")
    fired = set(re.findall(r'ALERTS\{alertname="(\w+)", alertstate="firing", severity', text))
    fired |= set(re.findall(r"alertname: (\w+)\n\s+eval_time: \w+\n\s+exp_alerts:\n", text))
    assert {rule["alert"] for rule in alerts(documents)} == fired


@needs_promtool
@pytest.mark.parametrize(
    "command", [("check", "rules", f"{FOLDER}/rules.yaml"), ("test", "rules", "tests/packaging/rules_test.yaml")]
)
def test_promtool_accepts_rules_and_their_tests(root: Path, command: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *command], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_dashboards_queries_are_promql(root: Path, tmp_path: Path) -> None:
    queries = [target["expr"] for panel in dashboard(root)["panels"] for target in panel.get("targets", ())]
    rules = [{"record": f"panel:{number}", "expr": filled(each)} for number, each in enumerate(queries)]
    file = tmp_path / "rules.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def filled(query: str) -> str:
    """Returns the query with values in place of Grafana's variables."""
    return re.sub(r"\$(job|namespace|hpa)\b", ".*", query.replace("$__rate_interval", "5m"))


def test_monitors_select_the_pods_and_services_of_the_manifests(only: Callable[..., Json]) -> None:
    service = only("config/base/service.yaml", "Service")
    monitor = only(f"{FOLDER}/servicemonitor.yaml", "ServiceMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert {each["port"] for each in monitor["endpoints"]} == {each["name"] for each in service["spec"]["ports"]}
    deployment = only("config/overlays/sidecar/deployment.yaml", "Deployment")
    beside = only("config/overlays/sidecar/podmonitor.yaml", "PodMonitor")["spec"]
    template = deployment["spec"]["template"]
    assert beside["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"] for container in template["spec"]["containers"] for port in container.get("ports", ())}
    assert (len(monitor["endpoints"]), len(beside["podMetricsEndpoints"])) == (1, 1)
    for endpoint in (*monitor["endpoints"], *beside["podMetricsEndpoints"]):
        assert endpoint["path"] == "/metrics"
        assert endpoint["honorLabels"], "the label namespace is the HPA's"
    assert {each["port"] for each in beside["podMetricsEndpoints"]} <= ports


def test_panels_of_the_dashboard_do_not_overlap(root: Path) -> None:
    read = dashboard(root)
    rows = [panel["title"] for panel in read["panels"] if panel["type"] == "row"]
    assert rows == ["Overview", "One HPA", "Metric sources", "API server", "Queue"]
    assert len({panel["id"] for panel in read["panels"]}) == len(read["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in read["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
