"""What of KEDA has no counterpart: types of triggers, entries of their metadata, and kinds and versions of objects."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from hpad.manifests.keda.fields import API_VERSION, SCALED_OBJECT, Note
from hpad.manifests.keda.trigger import FROM_ENV, Trigger

# The trigger types of KEDA that hpad does not carry over, and what to use instead.
#
# Source: KEDA 2.21, pkg/scaling/scalers_builder.go: buildScaler.

_EXPORTER: Final = "have {0} scraped by Prometheus, and use a prometheus source"
_HTTP_JSON: Final = "use an http-json source with {0}"
_CLOUD: Final = "export it to Prometheus with {0}, and use a prometheus source"
_ANY: Final = "serve the number as JSON and use an http-json source, or export it to Prometheus"
_GCP: Final = _CLOUD.format("stackdriver_exporter")
_AZURE: Final = _CLOUD.format("azure-metrics-exporter")
_AWS: Final = _CLOUD.format("cloudwatch_exporter or YACE")

UNSUPPORTED: Final = {
    "activemq": _HTTP_JSON.format("the broker's Jolokia API (QueueSize of the queue's MBean)"),
    "arangodb": _ANY,
    "artemis-queue": _HTTP_JSON.format("the broker's Jolokia API (MessageCount of the queue's MBean)"),
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
    "clickhouse": _HTTP_JSON.format("the HTTP interface of ClickHouse (FORMAT JSON)"),
    "couchdb": _HTTP_JSON.format("the database's _find, as a POST with a limit (docs[#])"),
    "datadog": _HTTP_JSON.format("the API /api/v1/query, whose keys are headers"),
    "dynatrace": _HTTP_JSON.format("the API /api/v2/metrics/query"),
    "elastic-forecast": _HTTP_JSON.format("the search API of Elasticsearch, for the results of the forecast"),
    "elasticsearch": _HTTP_JSON.format("the search API of Elasticsearch"),
    "etcd": _ANY + ": the HTTP API of etcd has values in base64",
    "external-mock": "it is for tests of KEDA alone",
    "forgejo-runner": _ANY + ": the API of Forgejo has null in place of a list while no job waits",
    "gcp-cloudtasks": _GCP,
    "gcp-pubsub": _GCP,
    "gcp-spanner": _ANY,
    "gcp-stackdriver": "use a prometheus source with the frontend of Google's managed Prometheus, or " + _GCP,
    "gcp-storage": _ANY + "; Cloud Monitoring counts objects once a day only",
    "github-runner": "use the autoscaler of actions-runner-controller, or " + _ANY,
    "graphite": _HTTP_JSON.format("the render API of Graphite (format=json)"),
    "huawei-cloudeye": _ANY,
    "ibmmq": _EXPORTER.format("mq_prometheus of mq-metric-samples"),
    "influxdb": _ANY,
    "kubernetes-resource": "use kube-state-metrics with a custom resource state, and a prometheus source",
    "liiklus": "use a kafka source for the topic behind it",
    "loki": "record the query with the ruler of Loki, which writes it to Prometheus, and use a prometheus source",
    "mongodb": _EXPORTER.format("mongodb-query-exporter with the query"),
    "mssql": _EXPORTER.format("sql_exporter with the query"),
    "mysql": _EXPORTER.format("sql_exporter with the query"),
    "new-relic": _HTTP_JSON.format("the NerdGraph API of New Relic"),
    "nsq": _EXPORTER.format("nsq_exporter"),
    "opensearch": _HTTP_JSON.format("the search API of OpenSearch"),
    "openstack-metric": _ANY,
    "openstack-swift": _ANY,
    "predictkube": "use a prometheus source with predict_linear, or the recurring floor of a seasonal source",
    "pulsar": _HTTP_JSON.format("the admin API of Pulsar (msgBacklog in the stats of the topic)"),
    "selenium-grid": _HTTP_JSON.format("the GraphQL API of the grid (grid.sessionQueueSize)"),
    "solace-direct-messaging": _EXPORTER.format("solace-prometheus-exporter"),
    "solace-event-queue": _HTTP_JSON.format("the monitoring API SEMP v2 (collections.msgs.count)"),
    "solarwinds": _ANY,
    "solr": _HTTP_JSON.format("the select API of Solr (response.numFound)"),
    "splunk": _HTTP_JSON.format("the search API, which runs the saved search (exec_mode=oneshot)"),
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
    meant = f'; did you mean "{close[0]}"?' if close else ";"
    return f"KEDA 2.21 has no trigger of that type{meant} carried over are {', '.join(known)}"


_GROUPS: Final = ("keda.sh", "keda.k8s.io")
_INSTEAD: Final = {
    "ScaledJob": "it starts Jobs, an HPA scales workloads that keep running: scale a Deployment by the same metric",
    "CloudEventSource": "hpad has events and series of its own",
    "ClusterCloudEventSource": "hpad has events and series of its own",
    "HTTPScaledObject": "hpad sees no requests; scale by a request rate from a source such as Prometheus",
}


def is_unsupported(value: Any) -> bool:
    """Returns whether a document is an object of KEDA, of those that are not carried over."""
    version = value.get("apiVersion") if isinstance(value, dict) else None
    group = version.partition("/")[0] if isinstance(version, str) else ""
    return group.endswith(_GROUPS)


def identity(value: Mapping[str, Any]) -> str:
    """Returns the object's kind, namespace and name, for messages."""
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        metadata = {}
    namespace = "" if str(value.get("kind", "")).startswith("Cluster") else f"{metadata.get('namespace') or 'default'}/"
    return f"{value.get('kind') or 'object'} {namespace}{metadata.get('name') or '?'}"


def notes(value: Mapping[str, Any]) -> Iterator[Note]:
    """Yields a note on the loss of the object."""
    kind = value.get("kind")
    if kind in _INSTEAD:
        yield Note("kind", f"a {kind} is not carried over: {_INSTEAD[kind]}")
    elif kind == SCALED_OBJECT:
        yield Note(
            "apiVersion",
            f"{value['apiVersion']} is not carried over: only {API_VERSION}, of KEDA 2, is read; migrate the object "
            "first, as KEDA's documentation says (scaleTargetRef.deploymentName is scaleTargetRef.name there)",
        )
    else:
        yield Note("kind", f"{kind or 'an object without a kind'} is not carried over: there is no counterpart")


# Entries of a trigger's metadata that no converter reads.
#
# KEDA 2.21 ignores entries that its scaler does not know. Source: pkg/scalers/scalersconfig/typed_config.go, and the
# parameters of each scaler in schema/generated/scalers-schema.json.

_WITHOUT_EFFECT: Final = frozenset(
    {
        *("type", "name", "metricType", "useCachedMetrics", "authenticationRef"),  # KEDA reads them beside the metadata
        *("username", "password", "ca", "Cert", "cert", "key", "keyPassword", "tls", "token", "bearerToken"),
        *("clientID", "clientSecret", "scopes", "oauthTokenEndpointUri", "oauthExtensions"),
        *("customAuthHeader", "customAuthValue", "awsAccessKeyID", "awsSecretAccessKey", "workloadIdentityResource"),
        *("keytab", "realm", "kerberosConfig", "kerberosServiceName", "kerberosDisableFAST"),  # of an authentication
        *("address", "addresses", "host", "hosts", "port", "ports"),  # beside another form of the address
        *("sentinelMaster", "sentinelUsername", "sentinelPassword", "databaseIndex"),  # of other kinds of Redis
        *("streamLength", "pendingEntriesCount", "lagCount"),  # only one of them counts
        *("keyParamName", "method", "apiKey", "unsafeSsl", "saslTokenProvider", "operation", "aggregationType"),
        *("metricName", "pageSize", "excludeUnacknowledged", "version", "fullMetadata", "identityOwner"),
    }
)
"""Entries that KEDA takes in some triggers: where a converter does not read one, it changes nothing in the result."""
_KAFKA: Final = ("kafka", "apache-kafka")


def note_unread(trigger: Trigger) -> None:
    """Notes each entry of the metadata that was not read."""
    for name in trigger.metadata.unread_names():
        without_aws = name == "awsRegion" and trigger.type in _KAFKA
        if without_aws or name.removesuffix(FROM_ENV) in _WITHOUT_EFFECT:
            trigger.note_change(name, "is left out: hpad needs nothing in its place")
        else:
            trigger.note_loss(
                name, f"is not carried over: KEDA 2.21 ignores it, or hpad lacks it{_hint(trigger, name)}"
            )


def _hint(trigger: Trigger, name: str) -> str:
    known = {each.lower(): each for each in trigger.metadata.known if not each.endswith(FROM_ENV)}
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.8)
    return f'; did you mean "{known[close[0]]}"?' if close else ""
