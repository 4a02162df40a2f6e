"""`hpad check` on the daemon's configuration: all errors at once, each with the line of its field."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hpad.cli import main

WRONG = """\
workers: 0
sync_periode: 15s
feature_gates: {HPAScaleToZero: true}
sources:
  queues:
    adapter: rabbitmq
    url: http://mq:15672
    timeout: 3
    limits:
      rate: 0
      freshness: 5s
    match:
      - metrics: [queue_*]
      - types: [Extern]
    metrics:
      slow.queue:
        queue: orders
        mode: size
      other:
        queue_regex: "("
  prom:
    adapter: prometheus
    url: http://prom
    bearer_token: s3cr3t
    metrics:
      a:
        query: sum(rate(x{job="(["}[2m])
      b:
        query: x{namespace="<<.Namspace>>"}
      c:
        query: sum(x)) # (
      d:
        querry: up
  numbers:
    adapter: http-json
    metrics:
      open:
        url: http://h/stats
  mystery: {adapter: rabitmq}
routes:
  - source: queues
  - {match: {metric: x}, source: queues}
log_level: loud
"""
EXPECTED = {
    1: "workers: 0 is not a whole number of 1 or more",
    2: "unknown field 'sync_periode'; did you mean 'sync_period'?",
    8: "sources: queues: timeout: 3 has no unit",
    10: "sources: queues: limits: rate: 0 is not a number above 0",
    11: "sources: queues: limits: unknown field 'freshness'; did you mean 'fresh'?",
    14: "sources: queues: match: [1]: types: there is no metric type 'Extern'; did you mean 'External'?",
    18: "sources: queues: metrics[slow.queue].mode: 'size' is not one of",
    20: "sources: queues: metrics.other.queue_regex: '(' is not a regular expression",
    27: "sources: prom: metrics.a.query: the brackets do not match: a ( is never closed",
    29: "sources: prom: metrics.b.query: there is no variable .Namspace",
    31: "sources: prom: metrics.c.query: the brackets do not match: a ) closes no (",
    33: "sources: prom: metrics.d.querry: unknown field; did you mean 'query'?",
    37: "sources: numbers: metrics.open.path: is missing",
    39: 'there is no adapter "rabitmq"',
    41: "routes: [0]: match is missing",
    42: "routes: [1]: match: unknown field 'metric'; did you mean 'metrics'?",
    43: "log_level: 'loud' is not one of",
}


def checked(capsys: pytest.CaptureFixture[str], *files: Path) -> dict[int, list[str]]:
    """The messages of the command by line."""
    main(["check", *map(str, files)])
    found: dict[int, list[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        if ": configuration: " in line:
            place, _, message = line.partition(": configuration: ")
            found.setdefault(int(place.rpartition(":")[2]), []).append(message)
    return found


def test_reports_all_errors_at_once_each_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text(WRONG)
    found = checked(capsys, file)
    assert sorted(found) == sorted(EXPECTED)
    for line, message in EXPECTED.items():
        assert len(found[line]) == 1
        assert message in found[line][0], (line, found[line])
    assert "s3cr3t" not in str(found)


def test_queries_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text(
        "sources:\n  prom:\n    adapter: prometheus\n    url: http://p:9090\n    metrics:\n"
        '      a:\n        query: sum(rate(x{job="(["}[2m])\n'
        '      b:\n        query: x{namespace="<<.Namspace>>"}\n'
        "      c:\n        query: >-\n          sum(x))\n"
        '      d:\n        query: sum(x{job="<<.Namespace>>)"}) # (\n'
        "      e: {query: '<<.Namespace'}\n"
        "      f: {query: 'x{a=\"b}'}\n"
        "      g: {query: ' '}\n"
        "      h: {query: 'sum(x[5m)]'}\n"
    )
    found = checked(capsys, file)
    assert {line: texts[0].partition("query: ")[2].partition("; there are")[0] for line, texts in found.items()} == {
        7: "the brackets do not match: a ( is never closed",
        9: 'there is no variable .Namspace (did you mean "Namespace"?)',
        11: "the brackets do not match: a ) closes no (",
        15: "a << is not closed",
        16: 'a quote " is not closed',
        17: "is empty: PromQL is needed",
        18: "the brackets do not match: a ) closes no (",
    }


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (None, ["cannot be read"]),
        ("rules: [", ["not valid YAML"]),
        ("- a", ["is not a mapping"]),
        (
            json.dumps(
                {
                    "rules": [{"seriesQuery": "x", "metricsQuery": "sum(<<.Serie>>)"}, {"seriesQuery": "y"}],
                    "externalRules": [{"seriesQuery": "x", "metricsQuery": "sum(<<.Series>>"}],
                    "resourceRules": {"cpu": {"containerQuery": "sum(<<.Series>>}"}},
                }
            ),
            [
                'rules[0]: there is no variable .Serie (did you mean "Series"?)',
                "externalRules[0]: the brackets do not match: a ( is never closed",
                "resourceRules: cpu: the brackets do not match: a } closes no {",
            ],
        ),
        (
            json.dumps(
                {"rules": [{"seriesQuery": "x", "name": {"matches": "("}}, {"seriesQuery": 5}, {"series": "x"}]}
            ),
            ["rules[1]: seriesQuery: 5 is not text", "rules[2]: series: unknown field"],
        ),
    ],
)
def test_files_of_rules_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rules: str | None, expected: list[str]
) -> None:
    file, named = tmp_path / "hpad.yaml", tmp_path / "adapter.yaml"
    if rules is not None:
        named.write_text(rules)
    file.write_text(f"sources:\n  prom:\n    adapter: prometheus\n    url: http://p:9090\n    rules_file: {named}\n")
    found = checked(capsys, file)
    assert list(found) == [5]
    assert found[5]
    messages = "\n".join(found[5])
    assert all(message.startswith("sources: prom: rules_file: ") and str(named) in message for message in found[5])
    assert all(each in messages for each in expected)


def test_contradicting_settings_are_reported_beside_other_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text("workers: 0\nsources:\n  mq: {adapter: cron, metrics: {}}\nroutes:\n- {match: {}, source: qm}\n")
    found = checked(capsys, file)
    assert found[1][0].startswith("workers: ")
    assert found[5] == ["routes: [0]: source: there is no source 'qm'; there are mq"]


def test_a_repeated_field_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text("sources: {}\nworkers: 3\nsources: {}\n")
    assert checked(capsys, file) == {3: ['sources: strict decoding error: duplicate field "sources"']}


def test_keys_with_dots_have_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text("sources:\n  a.b:\n    adapter: cron\n    metrics:\n      x.y: {start: '* * * * *'}\n")
    found = checked(capsys, file)
    assert sorted(message.rpartition("[x.y].")[2] for message in found[5]) == [
        "end: is missing",
        "replicas: is missing",
    ]


def test_each_rule_within_the_file_has_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text(
        "sources:\n  prom:\n    adapter: prometheus\n    url: http://p:9090\n    rules:\n      rules:\n"
        "      - seriesQuery: x\n      - seriesQuery: z\n        metricsQuery: sum(<<.Serie>>)\n"
        "      externalRules:\n      - {seriesQuery: x, metricsQuery: 'sum(<<.Series>>'}\n"
        "      resourceRules:\n        window: soon\n        cpu: {containerQuery: 'x)'}\n"
    )
    found = checked(capsys, file)
    assert {line: texts[0].partition(";")[0].partition(": write")[0] for line, texts in found.items()} == {
        8: 'sources: prom: rules.rules[1]: there is no variable .Serie (did you mean "Series"?)',
        11: "sources: prom: rules.externalRules[0]: the brackets do not match: a ( is never closed",
        13: "sources: prom: rules.resourceRules.window: 'soon' is not a duration",
        14: "sources: prom: rules.resourceRules.cpu: the brackets do not match: a ) closes no (",
    }


def test_a_package_that_this_installation_lacks_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The installation that runs hpad may have it, so a check in CI needs no extras."""

    class Absent:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if name == "aiokafka":
                raise ModuleNotFoundError

    monkeypatch.delitem(sys.modules, "aiokafka", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    (tmp_path / "hpad.yaml").write_text(
        "sources:\n  events: {adapter: kafka, bootstrap_servers: ['k:9092']}\n  other: {adapter: kafka}\n"
    )
    text = "sources: events: the Python package \"aiokafka\" is missing: pip install '.[kafka]' in a clone of hpad"
    assert main(["check", str(tmp_path / "hpad.yaml")]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"{tmp_path}/hpad.yaml:2: configuration: warning: {text}",
        "1 document checked, 1 with errors",
    ]
    (tmp_path / "hpad.yaml").write_text("sources:\n  events: {adapter: kafka, bootstrap_servers: ['k:9092']}\n")
    assert main(["check", "-o", "json", str(tmp_path / "hpad.yaml")]) == 0
    [warning] = json.loads(capsys.readouterr().out)["warnings"]
    assert (warning["field"], warning["message"], warning["line"]) == ("sources.events", text, 2)


RULE = "rules:\n- seriesQuery: http_requests_total\n  metricsQuery: sum(<<.Series>>)\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (RULE, "1: a configuration of prometheus-adapter; `hpad convert` makes a source of hpad of it"),
        (f"{RULE}externalRule: []\n", "4: externalRule: unknown field"),
        ("prometheus: {url: http://p}\nrules: {custom: []}\n", "1: a configuration of prometheus-adapter"),
        ("prometheus: {url: http://p}\nrules: {custom: none}\n", "2: rules.custom: "),
    ],
    ids=["rules", "a misspelt field", "values of its chart", "wrong values of its chart"],
)
def test_configuration_of_prometheus_adapter_is_named_with_its_fault_or_with_what_converts_it(
    text: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "adapter.yaml"
    path.write_text(text)
    assert main(["check", str(path)]) == 1
    assert capsys.readouterr().out.startswith(f"{path}:{fault}")


POSTGRESQL = "adapter: postgresql, host: h, database: d, username: u"
RABBITMQ = "adapter: rabbitmq, url: http://r"
KAFKA = "adapter: kafka, bootstrap_servers: [k:9092]"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("adapter: static, file: ''", "file: is empty; write the path of the file with the numbers"),
        (f"{POSTGRESQL}, metrics: {{}}", "metrics: is empty; write a metric, such as waiting: {query: "),
        ("adapter: keda-external, address: a:1, metrics: {}", "metrics: is empty; write a metric, such as "),
        (
            "adapter: seasonal, url: http://p, metrics: {}",
            "metrics: is empty; write a metric, such as floor: {weeks: 4}",
        ),
        ("adapter: redis, url: redis://r, only_keys: true", "only_keys: allows no key; write keys, or leave it out"),
        ("adapter: sqs, only_queues: true", "only_queues: allows no queue; write queues, or leave it out"),
        (f"{RABBITMQ}, metrics: {{m: {{stream: s, group: g}}}}", "metrics: m: stream: needs stream_url, such as "),
    ],
)
def test_a_source_or_metric_that_can_answer_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, error: str
) -> None:
    refused(tmp_path, capsys, source, error)


@pytest.mark.parametrize(
    ("metric", "error"),
    [
        ("query: up, window: {last: soon}", "metrics.m.window.last: 'soon' is not a duration"),
        ("query: up, window: {fetch: soon}", "metrics.m.window.fetch: 'soon' is not a duration"),
        ("query: up, span: soon", "metrics.m.span: 'soon' is not a duration"),
        ("query: up, span: -1m", "metrics.m.span: '-1m' is below zero"),
        ("ahead: soon", "metrics.m.ahead: 'soon' is not between 0s and 24h"),
    ],
)
def test_a_metric_of_prometheus_with_a_wrong_duration_names_the_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], metric: str, error: str
) -> None:
    adapter = "seasonal" if "ahead" in metric else "prometheus"
    file = tmp_path / "hpad.yaml"
    file.write_text(f"sources: {{s: {{adapter: {adapter}, url: http://p, metrics: {{m: {{{metric}}}}}}}}}\n")
    assert main(["check", str(file)]) == 1
    assert error in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "error"),
    [
        *(
            (
                f"adapter: prometheus, url: http://p, rules_{each}",
                f"rules_{each.partition(':')[0]}: has an effect with rules or rules_file only",
            )
            for each in ("empty: zero", "reduce: sum", "window: {last: 30s}")
        ),
        (f"{RABBITMQ}, offset_reset_policy: latest", "offset_reset_policy: has an effect with stream_url only"),
        (
            f"{KAFKA}, metrics: {{m: {{group: g, scale_to_zero_on_invalid_offset: true}}}}",
            "metrics: m: scale_to_zero_on_invalid_offset: has an effect with offset_reset_policy: earliest or latest",
        ),
    ],
)
def test_a_setting_of_a_source_that_has_no_effect_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, error: str
) -> None:
    refused(tmp_path, capsys, source, error)


def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, error: str) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text(f"sources:\n  s: {{{source}}}\n")
    assert main(["check", str(file)]) == 1
    assert f"{file}:2: configuration: sources: s: {error}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "source",
    [
        "adapter: cron, metrics: {}",  # Autoscalers bring windows along
        "adapter: prometheus, url: http://p",
        "adapter: prometheus, url: http://p, rules: {rules: []}, rules_empty: zero",
        "adapter: redis, url: redis://r, only_keys: true, keys: {mails: 'jobs:mail'}",
        "adapter: sqs, only_queues: true, metrics: {m: {queue: jobs}}",
        f"{RABBITMQ}, only_queues: true, metrics: {{m: {{queue: jobs}}}}",
        f"{RABBITMQ}, stream_url: rabbitmq-stream://r, offset_reset_policy: latest",
        f"{KAFKA}, offset_reset_policy: latest, metrics: {{m: {{group: g, scale_to_zero_on_invalid_offset: true}}}}",
    ],
)
def test_a_source_that_can_answer_something_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text(f"sources:\n  s: {{{source}}}\n")
    assert main(["check", str(file)]) == 0
