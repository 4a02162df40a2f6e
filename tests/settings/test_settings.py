"""Settings: three origins with one meaning, and errors with the expected form."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from hpad import settings
from hpad.engine.view import Gates, Tunables

CONFIG = Path(__file__).resolve().parents[2] / "config" / "hpad.yaml"


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "hpad.yaml"
    file.write_text(text)
    return file


def problem(tmp_path: Path, text: str) -> str:
    with pytest.raises(settings.SettingsError) as caught:
        settings.load(written(tmp_path, text), {}, {})
    return str(caught.value).replace(str(tmp_path) + "/", "")


def test_the_defaults_are_those_of_kube_controller_manager() -> None:
    loaded = settings.load(None, {}, {})
    assert loaded.sync_period == timedelta(seconds=15)
    assert loaded.tunables == Tunables()
    assert loaded.sources == ()
    assert loaded.listen is not None
    assert loaded.listen[0] == "127.0.0.1"


def test_flag_beats_environment_beats_file(tmp_path: Path) -> None:
    file = written(tmp_path, "sync_period: 1s\nworkers: 3\ntolerance: 0.2\n")
    environ = {"HPAD_SYNC_PERIOD": "2s", "HPAD_WORKERS": "4"}
    loaded = settings.load(file, environ, {"sync_period": ("--sync-period", "3s")})
    assert (loaded.sync_period, loaded.workers, loaded.tunables.tolerance) == (timedelta(seconds=3), 4, 0.2)


def test_gates_of_the_origins_are_joined(tmp_path: Path) -> None:
    file = written(tmp_path, "feature_gates: {HPAScaleToZero: true}\n")
    flags = {"feature_gates": ("--feature-gates", "HPAConfigurableTolerance=false")}
    loaded = settings.load(file, {}, flags)
    assert loaded.tunables.gates == Gates(HPAScaleToZero=True, HPAConfigurableTolerance=False)


def test_a_broker_in_the_environment_is_a_source() -> None:
    environ = {
        "HPAD_RABBITMQ_URL": "http://127.0.0.1:15672",
        "HPAD_RABBITMQ_USERNAME": "monitor",
        "HPAD_RABBITMQ_PASSWORD_FILE": "/run/secrets/broker",
    }
    (source,) = settings.load(None, environ, {}).sources
    assert (source.name, source.adapter) == ("rabbitmq", "rabbitmq")
    assert source.settings == {
        "url": "http://127.0.0.1:15672",
        "username": "monitor",
        "password_file": "/run/secrets/broker",
    }
    assert source.match == ()  # the metrics that the adapter serves without configuration


def test_sources_and_routes(tmp_path: Path) -> None:
    text = """
sources:
  orders: {adapter: rabbitmq, url: "http://broker:15672", timeout: 3s, match: {metrics: ["orders_*"]}}
  bills: {adapter: rabbitmq, url: "http://other:15672"}
routes:
  - {match: {types: [External], metrics: [bills], namespaces: [shop]}, source: bills}
"""
    loaded = settings.load(written(tmp_path, text), {}, {})
    orders, bills = loaded.sources
    assert orders.timeout == timedelta(seconds=3)
    assert orders.match == (settings.Match(metrics=("orders_*",)),)
    assert orders.settings == {"url": "http://broker:15672"}
    assert bills.match == ()
    match = settings.Match(types=("External",), metrics=("bills",), namespaces=("shop",))
    assert loaded.routes == (settings.Route(match=match, source="bills"),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sync_periode: 15s", "hpad.yaml: unknown field 'sync_periode'; did you mean 'sync_period'?"),
        ("sync_period: 15", 'hpad.yaml: sync_period: 15 has no unit: write "15s" for seconds'),
        ("sync_period: 0s", "hpad.yaml: sync_period: '0s' is zero: a duration above zero is needed"),
        ("sync_period: 15ms", "hpad.yaml: sync_period: '15ms' is less than 100ms, the minimum"),
        ("max_staleness: 5ms", "hpad.yaml: max_staleness: '5ms' is less than 1s, the minimum"),
        (
            "namespaces: [shop, No_Name]",
            "hpad.yaml: namespaces: 'No_Name' is not a namespace: a lowercase RFC 1123 label",
        ),
        ("namespaces: shop/pods", "hpad.yaml: namespaces: 'shop/pods' is not a namespace"),
        ("leader_elect_resource_namespace: a.b", "leader_elect_resource_namespace: 'a.b' is not a namespace"),
        ("store: {kind: cluster, namespace: a.b}", "hpad.yaml: store: namespace: 'a.b' is not a namespace"),
        ("leader_elect_lease_duration: 5s", "hpad.yaml: leader_elect_lease_duration: 5s is not more than the renew"),
        (
            "leader_elect_lease_duration: 600000h",
            "hpad.yaml: leader_elect_lease_duration: 600000h0m0s is more than a Lease can hold, 2147483647s",
        ),
        ("leader_elect_retry_period: 1ms", "hpad.yaml: leader_elect_retry_period: 1ms is less than 10ms"),
        ("sync_period: soon", "hpad.yaml: sync_period: 'soon' is not a duration"),
        ("max_staleness: 99999999h", "'99999999h' is too long a duration: the longest is 2562047h"),
        ("downscale_stabilization: -5m", "hpad.yaml: downscale_stabilization: '-5m' is negative"),
        ("tolerance: 10", "hpad.yaml: tolerance: 10 is not a number from 0 to 1"),
        (f"tolerance: '{'9' * 400}'", "is not a number from 0 to 1"),
        (f"workers: {'9' * 400}", "hpad.yaml:1: not valid YAML: a number of 400 digits, at most 100 are read"),
        (f"kube_api_qps: '{'9' * 400}'", "is not a number of requests per second"),
        ("workers: 2147483648", "hpad.yaml: workers: 2147483648 is more than 2147483647, the maximum"),
        (
            f"sources: {{a: {{adapter: rabbitmq, limits: {{rate: '{'9' * 400}'}}}}}}",
            "is not a number above 0 (calls per second)",
        ),
        ("workers: none", "hpad.yaml: workers: 'none' is not a whole number of 1 or more"),
        ("workers: true", "hpad.yaml: workers: true is not a whole number of 1 or more"),
        ("listen: '8080'", "hpad.yaml: listen: '8080' is not of the form host:port"),
        ("listen: '::1'", "hpad.yaml: listen: '::1' is not of the form host:port"),
        ("feature_gates: {HPAScaleToZer: true}", "no feature gate 'HPAScaleToZer'; did you mean 'HPAScaleToZero'?"),
        ("feature_gates: HPAScaleToZero", "'HPAScaleToZero' has no value: write HPAScaleToZero=true or =false"),
        ("hpa_selector: a=b=c", "hpa_selector: 'a=b=c' is not a label selector such as \"autoscaler=hpad\": "),
        ("feature_gates: {HPAScaleToZero: 2}", "hpad.yaml: feature_gates: 2 is neither true nor false"),
        ("sources: [rabbitmq]", "hpad.yaml: sources: sources are a mapping"),
        ("sources: {a: {adapter: rabbitmq, timeout: 3}}", "hpad.yaml: sources: a: timeout: 3 has no unit"),
        ("sources: {a: {match: {metric: x}}}", "sources: a: match: unknown field 'metric'; did you mean 'metrics'?"),
        (
            "sources: {a: {match: {types: [Extern]}}}",
            "types: there is no metric type 'Extern'; did you mean",
        ),
        ("routes: [{source: a}]", "hpad.yaml: routes: [0]: match is missing"),
        ("routes: [{source: a, match: {}}]", "hpad.yaml: routes: [0]: source: there is no source 'a'"),
        ("hpas: [{budget: a}]", "hpad.yaml: hpas: [0]: budget: there is no budget 'a'"),
        (
            "budgets: {queues: {replicas: 9}}\nhpas: [{budget: queues}, {budget: queue}]",
            "hpad.yaml: hpas: [1]: budget: there is no budget 'queue'; did you mean 'queues'?",
        ),
        ("log_level: loud", "hpad.yaml: log_level: 'loud' is not one of debug, info, warning, error"),
        ("a: [", "hpad.yaml:2: not valid YAML"),
        (
            "sources: {}\nworkers: 3\nsources: {}",
            'hpad.yaml:3: sources: strict decoding error: duplicate field "sources"',
        ),
        ("workers: 3\n---\nworkers: 4", "hpad.yaml:3: another document; settings are one"),
        ("- a", "hpad.yaml: not a mapping of settings"),
        ("pods: 3", "hpad.yaml: unknown field 'pods'; `hpad config show` lists all settings"),
        (
            "apiVersion: v1\nkind: Config",
            "hpad.yaml: this is a Kubernetes object (kind: Config), not a mapping of settings",
        ),
    ],
)
def test_an_invalid_setting_is_named_with_its_value_and_the_expected_form(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert expected in problem(tmp_path, text)


def test_a_repeated_field_or_document_has_its_place_once(tmp_path: Path) -> None:
    assert problem(tmp_path, "a: 1\na: 2").count("hpad.yaml") == 1
    assert problem(tmp_path, "a: 1\n---\na: 2").count("hpad.yaml") == 1


def test_a_field_beside_a_merge_is_not_there_twice(tmp_path: Path) -> None:
    text = """
sources:
  a: &a {adapter: static, file: x}
  b: &b {<<: *a, file: w}
  c: {<<: *b, file: z}
  d: *b
"""
    loaded = settings.load(written(tmp_path, text), {}, {})
    assert [source.settings["file"] for source in loaded.sources] == ["x", "w", "z", "w"]


def test_bytes_that_are_not_utf8_are_named_with_their_offset(tmp_path: Path) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_bytes(b"a: \x88")
    with pytest.raises(settings.SettingsError, match=f"^{file}: not UTF-8: byte 0x88 at offset 3$"):
        settings.load(file, {}, {})


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    assert len(problem(tmp_path, "workers: 0\ntolerance: x\nlog_format: xml\n").splitlines()) == 3


def test_errors_name_variables_and_flags() -> None:
    flags = {"workers": ("--workers", "many")}
    with pytest.raises(settings.SettingsError) as caught:
        settings.load(None, {"HPAD_TOLERANCE": "10%"}, flags)
    first, second = caught.value.problems
    assert first.text.startswith("HPAD_TOLERANCE: '10%'")
    assert second.text.startswith("--workers: 'many' is not a whole number")


def test_a_contradiction_is_reported_at_the_origin_of_its_setting(tmp_path: Path) -> None:
    """The file's Lease duration is fine with the default deadline, but not with that of the flag."""
    file = tmp_path / "hpad.yaml"
    file.write_text("leader_elect_lease_duration: 20s\n")
    flags = {"leader_elect_renew_deadline": ("--leader-elect-renew-deadline", "30s")}
    with pytest.raises(settings.SettingsError) as caught:
        settings.load(file, {"HPAD_LEADER_ELECT_RETRY_PERIOD": "40s"}, flags)
    first, second = map(str, caught.value.problems)
    assert first.startswith(f"{file}: leader_elect_lease_duration: 20s is not more than the renew deadline of 30s")
    assert second.startswith("--leader-elect-renew-deadline: 30s is not more than 1.2 times the retry period of 40s")


@pytest.mark.parametrize(
    ("field", "flag"), [("namespaces", "-n"), ("hpa_selector", "--hpa-selector"), ("manifests", "--manifests")]
)
def test_an_empty_flag_does_not_select_all_hpas(field: str, flag: str) -> None:
    """A shell variable may be unset: hpad would act on all HPAs."""
    with pytest.raises(settings.SettingsError, match=f"^{flag}: '' is empty: give a value, or leave the flag out$"):
        settings.load(None, {}, {field: (flag, "")})


def test_a_namespace_that_is_named_twice_is_one(tmp_path: Path) -> None:
    assert settings.load(None, {"HPAD_NAMESPACES": "shop,kitchen,shop"}, {}).namespaces == ("shop", "kitchen")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(settings.SettingsError, match=r"absent\.yaml: cannot be read"):
        settings.load(tmp_path / "absent.yaml", {}, {})


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(settings.SettingsError, match=r"^/dev/zero: cannot be read: larger than 16 MiB$"):
        settings.load(Path("/dev/zero"), {}, {})


def test_the_sample_configuration_holds_the_defaults() -> None:
    assert settings.load(CONFIG, {}, {}) == settings.Settings()


def test_a_source_has_limits_namespaces_and_a_fallback(tmp_path):
    file = tmp_path / "hpad.yaml"
    file.write_text(
        "sources:\n  mine:\n    adapter: static\n    namespaces: [shop, 'team-*']\n    fallback: replicas:5 after 3m\n"
        "    limits: {retries: 0, concurrency: 2, rate: 0.5, fresh: 0s, max_age: 60s, failures: 9, rest: 1m}\n"
        "    file: x\n"
    )
    [source] = settings.load(file, {}, {}).sources
    assert source.namespaces == ("shop", "team-*")
    assert str(source.fallback) == "replicas:5 after 3m0s"
    assert source.limits == settings.SourceLimits(
        retries=0,
        concurrency=2,
        rate=0.5,
        fresh=timedelta(0),
        max_age=timedelta(minutes=1),
        failures=9,
        rest=timedelta(minutes=1),
    )
    assert source.settings == {"file": "x"}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("limits: {rate: 0}", "mine: limits: rate: 0 is not a number above 0"),
        ("limits: {retries: -1}", "mine: limits: retries: -1 is not a whole number"),
        ("limits: {freshness: 5s}", "mine: limits: unknown field 'freshness'; did you mean 'fresh'?"),
        ("fallback: replicas", "mine: fallback: 'replicas' is not one of hold, ignore, replicas:N, at-least:N, "),
    ],
)
def test_an_invalid_field_of_a_source_is_named(line, complaint, tmp_path):
    file = tmp_path / "hpad.yaml"
    file.write_text(f"sources:\n  mine:\n    adapter: static\n    {line}\n")
    with pytest.raises(settings.SettingsError, match=re.escape(complaint)):
        settings.load(file, {}, {})


def test_the_default_store_depends_on_the_environment() -> None:
    def store(environ: dict[str, str], **flags: str) -> tuple[str, Path | None]:
        loaded_store = settings.load(None, environ, {name: (f"--{name}", value) for name, value in flags.items()}).store
        return loaded_store.kind, loaded_store.path

    service, pod = {"STATE_DIRECTORY": "/var/lib/hpad:/var/lib/more"}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert store({}) == ("memory", None)
    assert store(service) == ("sqlite", Path("/var/lib/hpad/history.db"))
    assert store(pod) == ("cluster", None)
    assert store(service, leader_elect="true") == ("cluster", None)
    assert store(service, store="memory") == ("memory", None)
    assert store({}, store="sqlite:/tmp/h.db") == ("sqlite", Path("/tmp/h.db"))


def test_an_invalid_store_is_named(tmp_path: Path) -> None:
    assert problem(tmp_path, "store: {kind: sqlite}").startswith("hpad.yaml: store: path is missing: name the file")
    with pytest.raises(settings.SettingsError, match=r"^--store: path is missing: name the file"):
        settings.load(None, {}, {"store": ("--store", "sqlite")})
    assert "applies only to the kind sqlite, not to cluster" in problem(tmp_path, "store: {kind: cluster, path: /x}")
    assert "'redis' is not one of memory, sqlite, cluster" in problem(tmp_path, "store: redis")


@pytest.mark.parametrize(
    ("written_as", "span", "disk"),
    [
        ("{}", timedelta(hours=24), 256 << 20),
        ("{decision_history: 1h30m, decision_history_disk: 2Gi}", timedelta(hours=1, minutes=30), 2 << 30),
        ("{decision_history: off, decision_history_disk: off}", timedelta(0), 0),
        ("{decision_history: 'off', decision_history_disk: 'off'}", timedelta(0), 0),
        ("{decision_history: 0, decision_history_disk: 0}", timedelta(0), 0),
        ("{decision_history: 0s, decision_history_disk: '0'}", timedelta(0), 0),
    ],
)
def test_the_decision_history_has_a_span_and_budgets_or_is_off(
    tmp_path: Path, written_as: str, span: timedelta, disk: int
) -> None:
    loaded = settings.load(written(tmp_path, written_as), {}, {})
    assert (loaded.decision_history, loaded.decision_history_disk) == (span, disk)


def test_a_budget_of_the_decision_history_names_what_would_be_right(tmp_path: Path) -> None:
    for value, shown in (("1000", "1000"), ("on", "true"), ("many", "'many'"), ("1Ki", "'1Ki'"), ("-5Mi", "'-5Mi'")):
        expected = f'decision_history_disk: {shown} is not an amount of 1Mi or more such as "16Mi", or "off"'
        assert problem(tmp_path, f"decision_history_disk: {value}") == f"hpad.yaml: {expected}"
    assert "has no unit" in problem(tmp_path, "decision_history: 24")
