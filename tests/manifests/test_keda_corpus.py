"""Every document of the corpus either becomes an HPA and settings that `hpad check` accepts, or is refused by name."""

import re
from pathlib import Path

import pytest
from support import keda_corpus
from support.scaled_objects import scaled, trigger

from hpad.cli import main
from hpad.manifests.keda import authentication, scaledobject
from hpad.manifests.keda.unsupported import UNSUPPORTED

NAMES = """
activemq apache-kafka arangodb artemis-queue aws-cloudwatch aws-dynamodb aws-dynamodb-streams aws-kinesis-stream
aws-sqs-queue azure-app-insights azure-blob azure-data-explorer azure-eventhub azure-log-analytics azure-monitor
azure-pipelines azure-queue azure-servicebus beanstalkd cassandra clickhouse couchdb cpu cron datadog dynatrace
elastic-forecast elasticsearch etcd external external-mock external-push forgejo-runner gcp-cloudtasks gcp-pubsub
gcp-spanner gcp-stackdriver gcp-storage github-runner graphite huawei-cloudeye ibmmq influxdb kafka
kubernetes-resource kubernetes-workload liiklus loki memory metrics-api mongodb mssql mysql nats-jetstream new-relic
nsq opensearch openstack-metric openstack-swift postgresql predictkube prometheus pulsar rabbitmq redis redis-cluster
redis-cluster-streams redis-sentinel redis-sentinel-streams redis-streams selenium-grid solace-direct-messaging
solace-event-queue solarwinds solr splunk splunk-observability sumologic temporal
"""
"""The types of triggers that KEDA 2.21 builds scalers for (scalers_builder.go)."""
REFUSED = {"ratio", "odd-location", "version-one", "jobs", "events"}
"""The documents without an HPA."""


def test_each_trigger_of_keda_is_carried_over_or_has_something_to_use_instead() -> None:
    keda = NAMES.split()
    assert len(keda) == 79
    known = [*scaledobject.TRIGGERS, *UNSUPPORTED]
    assert len(set(known)) == len(known)
    assert set(keda) - set(known) == set()
    assert set(known) - set(keda) == {"stan"}  # documented, and no longer built


def objects(path: Path) -> list[tuple[str, str]]:
    """Returns kind and name of the documents that are no parts of others."""
    parts = ("TriggerAuthentication", "ClusterTriggerAuthentication", "ConfigMap", "Deployment", "StatefulSet")
    found = [(each["kind"], each["metadata"]["name"]) for each in keda_corpus.documents(path)]
    return [each for each in found if each[0] not in parts]


@pytest.mark.parametrize("path", keda_corpus.FILES, ids=lambda path: path.stem)
def test_a_document_converts_to_what_check_accepts_or_is_refused_by_name(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["convert", "--out", str(tmp_path), str(path)])
    lines = capsys.readouterr().err.splitlines()
    assert status == 3  # each file has a loss
    assert all(line.startswith((f"{path}:", "hpad: ")) for line in lines)
    written = {file.stem.partition(".")[2] for file in (tmp_path / "hpas").iterdir()}
    for kind, name in objects(path):
        # The HPA of one of them has the name that the ScaledObject gives it.
        assert ({"everything": "web"}.get(name, name) in written) == (name not in REFUSED)
        if name in REFUSED:
            assert any(f": {kind} shop/{name}: " in line for line in lines)
    for file in tmp_path.rglob("*.yaml"):
        file.write_text(file.read_text().replace("REPLACE-ME", "filled-in"))
    status = main(["check", str(tmp_path / "hpad.yaml"), str(tmp_path / "hpas")])
    assert status == 0, capsys.readouterr().out


def test_no_secret_of_the_corpus_is_copied() -> None:
    known = authentication.collect([each for path in keda_corpus.FILES for each in keda_corpus.documents(path)])
    for document in keda_corpus.scaled_objects():
        found = scaledobject.convert(document, None, known)
        secrets = "guest:guest|a-token|SCALER_PASSWORD|reader-pass"
        assert not re.search(secrets, str((found.hpa, found.sources, found.notes)))


@pytest.mark.parametrize("kind", sorted(keda_corpus.OTHER))
def test_another_trigger_is_refused_by_name_with_what_to_use_instead(kind: str) -> None:
    triggers = [trigger(kind, dict.fromkeys(names, "5")) for names in keda_corpus.OTHER[kind]]
    found = scaledobject.convert(scaled(*triggers))
    assert found.hpa is None
    for index, note in enumerate(found.notes[: len(triggers)]):
        assert (note.field, note.lost) == (f"spec.triggers[{index}]", True)
        assert f'type "{kind}" is not carried over: {UNSUPPORTED[kind]}' in note.text


def test_a_type_that_keda_does_not_have_is_named_with_the_nearest_one() -> None:
    [note, _] = scaledobject.convert(scaled(trigger("rabitmq", {"queueName": "q"}))).notes
    assert 'did you mean "rabbitmq"?' in note.text


def test_the_table_of_triggers_in_the_documentation_is_complete() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "from-keda.md").read_text()
    [table] = re.findall(r"\| trigger \| source \| lost \|\n(.*?)\n\n", page, re.DOTALL)
    named = re.findall(r"`([a-z-]+)`", "\n".join(row.split("|")[1] for row in table.splitlines()))
    assert {name for name in named if not name.startswith("-")} == set(scaledobject.TRIGGERS)
