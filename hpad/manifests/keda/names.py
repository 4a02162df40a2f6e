"""The trigger types of KEDA that hpad does not carry over, and what to use instead.

Source: KEDA 2.21, pkg/scaling/scalers_builder.go: buildScaler.
"""

import difflib
from collections.abc import Iterable
from typing import Final

_EXPORTER: Final = "have {0} scraped by Prometheus, and use a prometheus source"
_HTTP: Final = "use an http-json source with {0}"
_CLOUD: Final = "export it to Prometheus with {0}, and use a prometheus source"
_ANY: Final = "serve the number as JSON and use an http-json source, or export it to Prometheus"
_GCP: Final = _CLOUD.format("stackdriver_exporter")
_AZURE: Final = _CLOUD.format("azure-metrics-exporter")
_AWS: Final = _CLOUD.format("cloudwatch_exporter or YACE")

UNSUPPORTED: Final = {
    "activemq": _HTTP.format("the broker's Jolokia API (QueueSize of the queue's MBean)"),
    "arangodb": _ANY,
    "artemis-queue": _HTTP.format("the broker's Jolokia API (MessageCount of the queue's MBean)"),
    "aws-cloudwatch": _AWS,
    "aws-dynamodb": _ANY,
    "aws-dynamodb-streams": "scale by the MillisBehindLatest of the Kinesis Client Library: " + _AWS,
    "aws-kinesis-stream": "scale by the stream's GetRecords.IteratorAgeMilliseconds: " + _AWS,
    "azure-app-insights": _AZURE,
    "azure-blob": _ANY + "; Azure Monitor counts blobs by the hour only",
    "azure-data-explorer": _ANY,
    "azure-eventhub": "where consumers speak Kafka, use a kafka source with the Kafka endpoint of Event Hubs; " + _ANY,
    "azure-log-analytics": _ANY,
    "azure-monitor": _AZURE,
    "azure-pipelines": "run an agent per job with KEDA's ScaledJob, or " + _ANY,
    "azure-queue": _ANY + "; Azure Monitor counts messages by the hour only",
    "azure-servicebus": _AZURE,
    "beanstalkd": _EXPORTER.format("beanstalkd_exporter"),
    "cassandra": _ANY,
    "clickhouse": _HTTP.format("the HTTP interface of ClickHouse (FORMAT JSON)"),
    "couchdb": _HTTP.format("the database's _find, as a POST with a limit (docs[#])"),
    "datadog": _HTTP.format("the API /api/v1/query, whose keys are headers"),
    "dynatrace": _HTTP.format("the API /api/v2/metrics/query"),
    "elastic-forecast": _HTTP.format("the search API of Elasticsearch, for the results of the forecast"),
    "elasticsearch": _HTTP.format("the search API of Elasticsearch"),
    "etcd": _ANY + ": the HTTP API of etcd has values in base64",
    "external-mock": "it is for tests of KEDA alone",
    "forgejo-runner": _ANY + ": the API of Forgejo has null in place of a list while no job waits",
    "gcp-cloudtasks": _GCP,
    "gcp-pubsub": _GCP,
    "gcp-spanner": _ANY,
    "gcp-stackdriver": "use a prometheus source with the frontend of Google's managed Prometheus, or " + _GCP,
    "gcp-storage": _ANY + "; Cloud Monitoring counts objects once a day only",
    "github-runner": "use the autoscaler of actions-runner-controller, or " + _ANY,
    "graphite": _HTTP.format("the render API of Graphite (format=json)"),
    "huawei-cloudeye": _ANY,
    "ibmmq": _EXPORTER.format("mq_prometheus of mq-metric-samples"),
    "influxdb": _ANY,
    "kubernetes-resource": "use kube-state-metrics with a custom resource state, and a prometheus source",
    "liiklus": "use a kafka source for the topic behind it",
    "loki": "record the query with the ruler of Loki, which writes it to Prometheus, and use a prometheus source",
    "mongodb": _EXPORTER.format("mongodb-query-exporter with the query"),
    "mssql": _EXPORTER.format("sql_exporter with the query"),
    "mysql": _EXPORTER.format("sql_exporter with the query"),
    "new-relic": _HTTP.format("the NerdGraph API of New Relic"),
    "nsq": _EXPORTER.format("nsq_exporter"),
    "opensearch": _HTTP.format("the search API of OpenSearch"),
    "openstack-metric": _ANY,
    "openstack-swift": _ANY,
    "predictkube": "use a prometheus source with predict_linear, or the recurring floor of a seasonal source",
    "pulsar": _HTTP.format("the admin API of Pulsar (msgBacklog in the stats of the topic)"),
    "selenium-grid": _HTTP.format("the GraphQL API of the grid (grid.sessionQueueSize)"),
    "solace-direct-messaging": _EXPORTER.format("solace-prometheus-exporter"),
    "solace-event-queue": _HTTP.format("the monitoring API SEMP v2 (collections.msgs.count)"),
    "solarwinds": _ANY,
    "solr": _HTTP.format("the select API of Solr (response.numFound)"),
    "splunk": _HTTP.format("the search API, which runs the saved search (exec_mode=oneshot)"),
    "splunk-observability": _ANY,
    "stan": "NATS Streaming has ended; move to JetStream and use a nats-jetstream source",
    "sumologic": _ANY,
    "temporal": _EXPORTER.format("the Temporal server") + " (approximate_backlog_count)",
}
"""What to use instead of each."""


def instead(kind: str, supported: Iterable[str]) -> str:
    """Returns what to do about a trigger that is not carried over."""
    if kind in UNSUPPORTED:
        return UNSUPPORTED[kind]
    known = sorted(supported)
    close = difflib.get_close_matches(kind, [*known, *UNSUPPORTED], n=1)
    meant = f'; did you mean "{close[0]}"?' if close else ""
    return f"KEDA 2.21 has no trigger of that type{meant} carried over are {', '.join(known)}"
