"""`hpad run`: flags become settings, those of kube-controller-manager as well."""

import argparse
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from hpad import cli, settings
from hpad.cli import flags, main, run
from hpad.engine.view import Gates
from hpad.manifests import folder
from hpad.settings.model import Election


def settings_of(*arguments: str) -> settings.Settings:
    parser = argparse.ArgumentParser()
    cli.add(parser.add_subparsers(), "run")
    return flags.read(parser.parse_args(["run", *arguments]))


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in settings.TABLE:
        monkeypatch.delenv(f"HPAD_{field.upper()}", raising=False)
    monkeypatch.delenv("HPAD_CONFIG", raising=False)
    monkeypatch.delenv("HPAD_RABBITMQ_URL", raising=False)


def test_flags_of_kube_controller_manager_are_accepted() -> None:
    loaded = settings_of(
        "--horizontal-pod-autoscaler-sync-period=30s",
        "--concurrent-horizontal-pod-autoscaler-syncs=5",
        "--horizontal-pod-autoscaler-tolerance=0.2",
        "--horizontal-pod-autoscaler-downscale-stabilization=1m0s",
        "--horizontal-pod-autoscaler-cpu-initialization-period=2m",
        "--horizontal-pod-autoscaler-initial-readiness-delay=10s",
        "--feature-gates=HPAScaleToZero=true,HPAConfigurableTolerance=false",
        "--kube-api-qps=20.5",
    )
    assert loaded.sync_period == timedelta(seconds=30)
    assert loaded.workers == 5
    assert loaded.kube_api_qps == 20.5
    assert loaded.tunables.tolerance == 0.2
    assert loaded.tunables.downscale_stabilization == timedelta(minutes=1)
    assert loaded.tunables.cpu_initialization_period == timedelta(minutes=2)
    assert loaded.tunables.initial_readiness_delay == timedelta(seconds=10)
    assert loaded.tunables.gates == Gates(HPAScaleToZero=True, HPAConfigurableTolerance=False)


def test_flags_of_hpad(tmp_path: Path) -> None:
    loaded = settings_of(
        *("-n", "shop", "--namespace=bank", "--hpa-selector=autoscaler=hpad"),
        *("--max-staleness=2m", "--kube-api-qps=0"),
        "--status-refresh=90s",
        *(f"--manifests={tmp_path}", f"--record={tmp_path}", "--listen=none", "--dry-run", "--log-level=debug"),
    )
    assert loaded.namespaces == ("shop", "bank")
    assert loaded.hpa_selector == "autoscaler=hpad"
    assert loaded.max_staleness == timedelta(minutes=2)
    assert (loaded.status_refresh, settings_of().status_refresh) == (timedelta(seconds=90), timedelta(0))
    assert loaded.kube_api_qps is None
    assert (loaded.manifests, loaded.record) == (tmp_path, tmp_path)
    assert (loaded.listen, loaded.dry_run, loaded.log_level) == (None, True, "debug")


def test_the_environment_may_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text("workers: 3\nsync_period: 20s\n")
    monkeypatch.setenv("HPAD_CONFIG", str(file))
    monkeypatch.setenv("HPAD_SYNC_PERIOD", "10s")
    assert (settings_of().workers, settings_of().sync_period) == (3, timedelta(seconds=10))
    assert settings_of("--sync-period=5s").sync_period == timedelta(seconds=5)


def test_flags_of_one_call_do_not_affect_the_next() -> None:
    parser = argparse.ArgumentParser()
    cli.add(parser.add_subparsers(), "run")
    assert flags.read(parser.parse_args(["run", "--workers=3"])).workers == 3
    assert flags.read(parser.parse_args(["run"])).workers == settings.Settings().workers


def test_help_names_the_main_flags(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for word in ("--config", "--kubeconfig", "--manifests", "--dry-run", "--record", "HPAD_RABBITMQ_URL", "examples:"):
        assert word in text


def test_leader_election_is_off_by_default() -> None:
    assert settings_of().election == Election()
    assert not Election().enabled
    assert settings_of("--leader-elect").election.enabled
    assert not settings_of("--leader-elect=false").election.enabled


def test_the_config_maps_of_the_store_are_named_after_the_lease() -> None:
    assert settings_of("--leader-elect").store.name == "hpad-history"
    shops = settings_of("--leader-elect", "--leader-elect-resource-name=hpad-shops")
    assert (shops.store.kind, shops.store.name) == ("cluster", "hpad-shops-history")
    assert settings_of("--store=cluster", "--leader-elect-resource-name=hpad-shops").store.name == "hpad-shops-history"


def test_leader_election_flags_of_kube_controller_manager_are_accepted() -> None:
    loaded = settings_of(
        "--leader-elect=true",
        "--leader-elect-lease-duration=60s",
        "--leader-elect-renew-deadline=40s",
        "--leader-elect-retry-period=5s",
        "--leader-elect-resource-name=kube-controller-manager",
        "--leader-elect-resource-namespace=hpad",
    )
    assert loaded.election == Election(
        enabled=True,
        lease_duration=timedelta(seconds=60),
        renew_deadline=timedelta(seconds=40),
        retry_period=timedelta(seconds=5),
        name="kube-controller-manager",
        namespace="hpad",
    )


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--leader-elect-lease-duration=10s", "10s is not more than the renew deadline of 10s"),
        ("--leader-elect-retry-period=9s", "10s is not more than 1.2 times the retry period of 9s"),
        ("--leader-elect-lease-duration=15500ms", "15.5s is not a whole number of seconds"),
        ("--leader-elect-resource-name=No_Name", "--leader-elect-resource-name: 'No_Name' is not a name"),
        ("--leader-elect=maybe", "--leader-elect: 'maybe' is neither true nor false"),
    ],
)
def test_invalid_settings_of_leader_election_are_refused(flag: str, words: str) -> None:
    with pytest.raises(settings.SettingsError) as caught:
        settings_of("--leader-elect", flag)
    assert words in str(caught.value)


@pytest.mark.parametrize("in_a_pod", [False, True])
def test_an_unusable_folder_of_manifests_is_refused_at_the_start(
    in_a_pod: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a pod, a sidecar may create the folder later, so the daemon waits for it."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if in_a_pod:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    os.mkfifo(tmp_path / "pipe")
    assert main(["run", f"--manifests={tmp_path / 'pipe'}"]) == 2
    assert capsys.readouterr().err == f"hpad: manifests: {tmp_path / 'pipe'} is neither a file nor a folder\n"
    loaded = settings_of(f"--manifests={tmp_path / 'later'}")
    if in_a_pod:
        run.check_manifests(loaded)
        return
    with pytest.raises(folder.FolderError, match=r"there is no folder or file .*/later: create it"):
        run.check_manifests(loaded)


def test_a_second_path_of_manifests_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The first would be forgotten, where kubectl's -f takes both."""
    with pytest.raises(SystemExit):
        main(["run", "--manifests", "web.yaml", "--manifests", "api.yaml"])
    assert "--manifests is given twice: put the files into one folder, and name that" in capsys.readouterr().err


def test_a_store_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    kubeconfig, store = tmp_path / "kubeconfig", tmp_path / "kubeconfig" / "history.db"
    kubeconfig.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}], users: []}"
    )
    flags = (f"--kubeconfig={kubeconfig}", f"--store=sqlite:{store}", "--listen=none")
    done = subprocess.run([sys.executable, "-m", "hpad", "run", *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"hpad: store: {store}: File exists: state cannot be kept" in done.stderr


def test_a_misspelt_variable_is_distinguished_from_those_of_a_service() -> None:
    """Kubernetes adds variables to pods for each Service, such as one named hpad."""
    ours = {"HPAD_WROKERS": "3", "HPAD_WORKERS": "4", "HPAD_CONFIG": "x", "HPAD_RABBITMQ_URL": "", "HOME": "/"}
    services = {
        "HPAD_SERVICE_HOST": "10.0.0.1",
        "HPAD_SERVICE_PORT": "80",
        "HPAD_SERVICE_PORT_HTTP": "80",
        "HPAD_PORT": "tcp://10.0.0.1:80",
        "HPAD_PORT_80_TCP": "tcp://10.0.0.1:80",
        "HPAD_PORT_80_TCP_ADDR": "10.0.0.1",
        "HPAD_PORT_80_TCP_PORT": "80",
        "HPAD_PORT_80_TCP_PROTO": "tcp",
    }
    assert run.misspelt(ours | services) == [("HPAD_WROKERS", "HPAD_WORKERS")]
