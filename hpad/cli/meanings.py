"""What settings are for, in a sentence: those of hpad, and those of adapters, whose docstrings say it."""

import inspect
import re
from collections.abc import Mapping
from typing import Final

import msgspec

SETTINGS: Final[Mapping[str, str]] = {
    "kubeconfig": "The way to the API server; else $KUBECONFIG, ~/.kube/config, or the pod's own service account.",
    "context": "A context of the kubeconfig (default: its current one).",
    "namespaces": "Only HPAs, targets and pods of these namespaces; empty: all.",
    "hpa_selector": 'Only HPAs with these labels, such as "autoscaler=hpad".',
    "manifests": "HPAs from the files of this folder instead of the API server's.",
    "sync_period": "Every HPA is reconciled once in this time (100ms at least).",
    "workers": "Reconciles at work at a time; those that wait for metrics do not count.",
    "max_staleness": "Replicas are kept once a watch that decisions need has brought nothing for this long.",
    "memory_limit": "What hpad may take: auto (the limit of its cgroup), none, or an amount such as 256Mi.",
    "kube_api_qps": "Requests a second to the API server; null: no limit on this side.",
    "kube_api_burst": "How many requests at once, where kube_api_qps is set.",
    "event_component": "The component that events are from.",
    "tolerance": "No scaling while a metric is within this fraction of its target (0.1: ten percent).",
    "downscale_stabilization": "The window of HPAs whose spec.behavior sets none for scaling down.",
    "cpu_initialization_period": "How long after its start a pod's CPU is judged with care.",
    "initial_readiness_delay": "How long after its start a pod that was never ready counts as starting.",
    "feature_gates": "Feature gates by name, as with kube-controller-manager.",
    "sources": "Where metrics come from: a name of your choice -> an adapter and its settings.",
    "routes": "Exceptions to the sources' own `match`; the first that matches wins.",
    "listen": 'host:port of /metrics, health, JSON API and status page; "none": not at all.',
    "tls_cert_file": "Serve TLS with this certificate (PEM), read again when it changes.",
    "tls_private_key_file": "The key of tls_cert_file (PEM).",
    "client_ca_file": "Admit clients with a certificate of these authorities (PEM).",
    "listen_token_file": "Admit clients with one of the bearer tokens in this file, one a line.",
    "listen_review": "Admit clients whose bearer token the cluster accepts for `get` of the path.",
    "log_level": "The least level of lines that are logged.",
    "log_format": "auto: text on a terminal, json otherwise.",
    "record": "The folder to which each decision is written with what it saw, for `hpad replay`.",
    "record_limit": "What recordings may take, such as 1Gi; the oldest files go first. none: no limit.",
    "store": "Where the state of HPAs survives a restart: memory (not at all), sqlite:FILE or cluster (ConfigMaps).",
    "competing_hpas": "Where an HPA of the API server that is not hpad's scales the same target: yield or override.",
    "dry_run": "Decide and log, but change nothing.",
    "leader_elect": "One of several replicas works at a time.",
    "shards": "All replicas work, each on a part of the HPAs; instead of leader_elect.",
    "leader_elect_lease_duration": "How long other replicas wait for one that is not heard of.",
    "leader_elect_renew_deadline": "How long after its last renewal of the Lease a replica stops working.",
    "leader_elect_retry_period": "How often the Lease is renewed or looked at.",
    "leader_elect_resource_lock": "The kind of lock; leases is the only one.",
    "leader_elect_resource_name": "The name of the Lease.",
    "leader_elect_resource_namespace": "The namespace of the Lease.",
}
SOURCE: Final[Mapping[str, str]] = {
    "adapter": "The kind of source (default: the source's name); `hpad adapters list` shows those installed.",
    "timeout": "How long one attempt may take; at most 0.6 of the sync period.",
    "match": "Which metrics the source answers (default: what its adapter offers by itself).",
    "namespaces": "The namespaces, or patterns, whose HPAs may use the source; empty: all.",
    "limits": "How often and how many at a time the source is asked.",
    "fallback": "While its metrics fail: hold, ignore, replicas:N or last-good:AGE, such as `replicas:5 after 3m`.",
}
LIMITS: Final[Mapping[str, str]] = {
    "concurrency": "Calls at a time.",
    "rate": "Calls a second.",
    "retries": "How often a failed call is repeated.",
    "fresh": "How old an answer may be that is shared with another HPA; 0s: none is.",
    "max_age": "How old a sample may be by its own timestamp.",
    "failures": "After so many failed calls in a row the source is left alone for `rest`.",
    "rest": "How long a source that keeps failing is left alone.",
}
MATCH: Final[Mapping[str, str]] = {
    "types": "Metric types; empty: any.",
    "metrics": "Names of metrics, or patterns such as queue_*; empty: any.",
    "namespaces": "Namespaces of HPAs, or patterns; empty: any.",
    "labels": "What the metric's selector must say: label -> value or pattern.",
}
_LISTED: Final = re.compile(r"(?:^|(?<=[.;] ))(\w+(?:(?:, | and |, and )\w+)*): ")


def of_struct(kind: type[msgspec.Struct]) -> str:
    """What the docstring of the class itself says; empty where it has none."""
    return inspect.cleandoc(vars(kind).get("__doc__") or "")


def of_fields(kind: type[msgspec.Struct]) -> dict[str, str]:
    """What the docstring says of each field, as far as it lists them: "name: text", or "name, other: text"."""
    fields = {field.encode_name for field in msgspec.structs.fields(kind)}
    text = " ".join(of_struct(kind).split())
    marks = [(found, _names(found[1])) for found in _LISTED.finditer(text) if fields.issuperset(_names(found[1]))]
    ends = [*(found.start() for found, _ in marks), len(text)][1:]
    said: dict[str, str] = {}
    for (found, names), end in zip(marks, ends, strict=True):
        said |= dict.fromkeys(names, text[found.end() : end].strip(" ;"))
    return said


def _names(listed: str) -> list[str]:
    return re.split(r", and |, | and ", listed)
