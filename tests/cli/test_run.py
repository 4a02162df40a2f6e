"""`hpad run`: flags become settings, those of kube-controller-manager as well."""

import argparse
from datetime import timedelta
from pathlib import Path

import pytest

from hpad import settings
from hpad.cli import main, run
from hpad.model.election import Election
from hpad.model.tunables import Gates


def told(*arguments: str) -> settings.Settings:
    parser = argparse.ArgumentParser()
    run.add_parser(parser.add_subparsers())
    return run.read_settings(parser.parse_args(["run", *arguments]))


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in settings.PARSERS:
        monkeypatch.delenv(f"HPAD_{field.upper()}", raising=False)
    monkeypatch.delenv("HPAD_CONFIG", raising=False)
    monkeypatch.delenv("HPAD_RABBITMQ_URL", raising=False)


def test_the_originals_flags_mean_the_same() -> None:
    loaded = told(
        "--horizontal-pod-autoscaler-sync-period=30s",
        "--concurrent-horizontal-pod-autoscaler-syncs=5",
        "--horizontal-pod-autoscaler-tolerance=0.2",
        "--horizontal-pod-autoscaler-downscale-stabilization=1m0s",
        "--horizontal-pod-autoscaler-cpu-initialization-period=2m",
        "--horizontal-pod-autoscaler-initial-readiness-delay=10s",
        "--feature-gates=HPAScaleToZero=true,HPAConfigurableTolerance=false",
        "--kube-api-qps=20.5",
        "--kube-api-burst=40",
    )
    assert loaded.sync_period == timedelta(seconds=30)
    assert loaded.workers == 5
    assert (loaded.kube_api_qps, loaded.kube_api_burst) == (20.5, 40)
    assert loaded.tunables.tolerance == 0.2
    assert loaded.tunables.downscale_stabilization == timedelta(minutes=1)
    assert loaded.tunables.cpu_initialization_period == timedelta(minutes=2)
    assert loaded.tunables.initial_readiness_delay == timedelta(seconds=10)
    assert loaded.tunables.gates == Gates(HPAScaleToZero=True, HPAConfigurableTolerance=False)


def test_hpads_own_flags(tmp_path: Path) -> None:
    loaded = told(
        *("-n", "shop", "--namespace=bank", "--hpa-selector=autoscaler=hpad"),
        *("--max-staleness=2m", "--event-component=autoscaler", "--kube-api-qps=0"),
        *(f"--manifests={tmp_path}", f"--record={tmp_path}", "--listen=none", "--dry-run", "--log-level=debug"),
    )
    assert loaded.namespaces == ("shop", "bank")
    assert loaded.hpa_selector == "autoscaler=hpad"
    assert (loaded.max_staleness, loaded.event_component) == (timedelta(minutes=2), "autoscaler")
    assert loaded.kube_api_qps is None
    assert (loaded.manifests, loaded.record) == (tmp_path, tmp_path)
    assert (loaded.listen, loaded.dry_run, loaded.log_level) == (None, True, "debug")


def test_a_file_may_be_named_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text("workers: 3\nsync_period: 20s\n")
    monkeypatch.setenv("HPAD_CONFIG", str(file))
    monkeypatch.setenv("HPAD_SYNC_PERIOD", "10s")
    assert (told().workers, told().sync_period) == (3, timedelta(seconds=10))
    assert told("--sync-period=5s").sync_period == timedelta(seconds=5)


def test_one_call_leaves_nothing_for_the_next() -> None:
    parser = argparse.ArgumentParser()
    run.add_parser(parser.add_subparsers())
    assert run.read_settings(parser.parse_args(["run", "--workers=3"])).workers == 3
    assert run.read_settings(parser.parse_args(["run"])).workers == settings.Settings().workers


def test_help_suffices(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for word in ("--config", "--kubeconfig", "--manifests", "--dry-run", "--record", "HPAD_RABBITMQ_URL", "examples:"):
        assert word in text


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith("hpad 0.")


def test_leader_election_is_off_unless_asked_for() -> None:
    assert told().election == Election()
    assert not Election().enabled
    assert told("--leader-elect").election.enabled
    assert not told("--leader-elect=false").election.enabled


def test_the_originals_flags_of_leader_election() -> None:
    loaded = told(
        "--leader-elect=true",
        "--leader-elect-lease-duration=60s",
        "--leader-elect-renew-deadline=40s",
        "--leader-elect-retry-period=5s",
        "--leader-elect-resource-lock=leases",
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
        ("--leader-elect-resource-lock=endpoints", "--leader-elect-resource-lock: 'endpoints' is not one of leases"),
        ("--leader-elect-lease-duration=10s", "10s is not more than the renew deadline of 10s"),
        ("--leader-elect-retry-period=9s", "10s is not more than 1.2 times the retry period of 9s"),
        ("--leader-elect-lease-duration=15500ms", "15.5s is not a whole number of seconds"),
        ("--leader-elect-resource-name=No_Name", "--leader-elect-resource-name: 'No_Name' is no name"),
        ("--leader-elect=maybe", "--leader-elect: 'maybe' is neither true nor false"),
    ],
)
def test_what_no_leader_can_be_elected_with(flag: str, words: str) -> None:
    with pytest.raises(settings.SettingsError) as caught:
        told("--leader-elect", flag)
    assert words in str(caught.value)
