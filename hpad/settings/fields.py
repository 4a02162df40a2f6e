"""The parser of each setting, and of the mappings below `sources`, `routes` and `store`."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hpad.api.sample import SOURCE_TYPES
from hpad.api.text import shown
from hpad.engine import fallback_policy
from hpad.settings import hpas, parsers
from hpad.settings.model import (
    COMPETING,
    LOG_FORMATS,
    LOG_LEVELS,
    SHARD_BY,
    STORES,
    Match,
    Route,
    SourceLimits,
    SourceSettings,
)

Parser = Callable[[Any], Any]


def metric_types(value: Any) -> tuple[str, ...]:
    names = parsers.names(value)
    for name in names:
        if name not in SOURCE_TYPES:
            raise ValueError(f"there is no metric type {shown(name)}{parsers.hint(name, SOURCE_TYPES)}")
    return names


MATCH: dict[str, Parser] = {
    "types": metric_types,
    "metrics": parsers.names,
    "namespaces": parsers.names,
    "labels": parsers.labels,
}


def match(value: Any) -> Match:
    return Match(**parsers.fields(value, MATCH))


def matches(value: Any) -> tuple[Match, ...]:
    """Accepts one rule or a list of rules."""
    if not isinstance(value, list):
        return (match(value),)
    return tuple(parsers.each((index, partial(match, entry)) for index, entry in enumerate(value)))


LIMITS: dict[str, Parser] = {
    "concurrency": parsers.count,
    "rate": parsers.rate,
    "retries": parsers.whole,
    "fresh": parsers.duration,
    "max_age": parsers.positive_duration,
    "failures": parsers.count,
    "rest": parsers.positive_duration,
}


def limits(value: Any) -> SourceLimits:
    return SourceLimits(**parsers.fields(value, LIMITS))


OF_SOURCES: dict[str, Parser] = {
    "adapter": parsers.text,
    "timeout": parsers.positive_duration,
    "match": matches,
    "namespaces": parsers.names,
    "limits": limits,
    "fallback": lambda value: fallback_policy.parse(parsers.text(value)),
}
"""Fields that every source may have beside those of its adapter."""


def source(name: str, value: Any) -> SourceSettings:
    if not isinstance(value, dict):
        raise ValueError(f'a source is a mapping such as {{adapter: "{name}", url: …}}')
    common = parsers.fields({key: entry for key, entry in value.items() if key in OF_SOURCES}, OF_SOURCES)
    return SourceSettings(**{"name": name, "adapter": name, "settings": of_adapter(value), **common})


def of_adapter(value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a source that its adapter validates."""
    return {key: entry for key, entry in value.items() if key not in OF_SOURCES}


def sources(value: Any) -> tuple[SourceSettings, ...]:
    if not isinstance(value, dict):
        raise ValueError("sources are a mapping of a name of your choice to {adapter: …, …}")
    return tuple(parsers.each((str(name), partial(source, str(name), entry)) for name, entry in value.items()))


ROUTE: dict[str, Parser] = {"match": match, "source": parsers.text}


def routes(value: Any) -> tuple[Route, ...]:
    if not isinstance(value, list):
        raise ValueError("routes are a list of {match: {metrics: […]}, source: …}")
    read = parsers.each((index, partial(parsers.fields, entry, ROUTE, True)) for index, entry in enumerate(value))
    return tuple(Route(**route) for route in read)


STORE: dict[str, Parser] = {
    "kind": parsers.one_of(*STORES),
    "path": parsers.path,
    "namespace": parsers.namespace,
    "name": parsers.object_name,
}


def store(value: Any) -> dict[str, Any]:
    """Accepts a mapping such as `{kind: sqlite, path: FILE}`, or the text memory, cluster, sqlite or sqlite:FILE."""
    if isinstance(value, str):
        kind, _, path = value.partition(":")
        value = {"kind": kind, **({"path": path} if path else {})}
    read = parsers.fields(value, STORE)
    read.setdefault("kind", "sqlite" if "path" in read else None)
    if read["kind"] is None:
        raise ValueError(f"kind is missing: one of {', '.join(STORES)}")
    for name, kind in (("path", "sqlite"), ("namespace", "cluster"), ("name", "cluster")):
        if name in read and read["kind"] != kind:
            raise ValueError(f"{name}: applies only to the kind {kind}, not to {read['kind']}")
    return read


PARSERS: dict[str, Parser] = {
    "kubeconfig": parsers.optional_text,
    "context": parsers.optional_text,
    "namespaces": parsers.namespaces,
    "hpa_selector": parsers.selector,
    "manifests": parsers.path,
    "competing_hpas": parsers.one_of(*COMPETING),
    "sync_period": parsers.period,
    "workers": parsers.count,
    "max_staleness": parsers.staleness,
    "kube_api_qps": parsers.qps,
    "status_refresh": parsers.duration,
    "tolerance": parsers.fraction,
    "downscale_stabilization": parsers.duration,
    "cpu_initialization_period": parsers.duration,
    "initial_readiness_delay": parsers.duration,
    "feature_gates": parsers.gates,
    "sources": sources,
    "routes": routes,
    "hpas": hpas.entries,
    "listen": parsers.address,
    "tls_cert_file": parsers.path,
    "tls_private_key_file": parsers.path,
    "listen_token_file": parsers.path,
    "listen_review": parsers.flag,
    "log_level": parsers.one_of(*LOG_LEVELS),
    "log_format": parsers.one_of(*LOG_FORMATS),
    "record": parsers.path,
    "record_limit": parsers.disk,
    "record_recent": parsers.span,
    "record_recent_dir": parsers.path,
    "store": store,
    "decision_history": parsers.span,
    "decision_history_disk": parsers.budget,
    "dry_run": parsers.flag,
    "leader_elect": parsers.flag,
    "shards": parsers.flag,
    "shard_by": parsers.one_of(*SHARD_BY),
    "leader_elect_lease_duration": parsers.positive_duration,
    "leader_elect_renew_deadline": parsers.positive_duration,
    "leader_elect_retry_period": parsers.positive_duration,
    "leader_elect_resource_name": parsers.object_name,
    "leader_elect_resource_namespace": parsers.namespace,
}
TUNABLES = ("tolerance", "downscale_stabilization", "cpu_initialization_period", "initial_readiness_delay")
ELECTION = {
    "leader_elect": "enabled",
    "shards": "shards",
    "shard_by": "shard_by",
    "leader_elect_lease_duration": "lease_duration",
    "leader_elect_renew_deadline": "renew_deadline",
    "leader_elect_retry_period": "retry_period",
    "leader_elect_resource_name": "name",
    "leader_elect_resource_namespace": "namespace",
}
SERVING = {
    "tls_cert_file": "certificate",
    "tls_private_key_file": "private_key",
    "listen_token_file": "token_file",
    "listen_review": "review",
}
JOINED = ("feature_gates", "sources")
"""Settings of which a later origin replaces only the entries that it names, not the whole."""
RENAMED: dict[str, str] = {}
"""Former names of settings, with their present names. Adapters list those of their own sources (`renamed` in their
Settings)."""
REMOVED: dict[str, str] = {
    "client_ca_file": "hpad admits bearer tokens; use listen_token_file or listen_review",
    "leader_elect_resource_lock": "the lock is always a Lease; leave it out",
    "kube_api_burst": "with kube_api_qps up to 30 requests are sent at once, Kubernetes' default; leave it out",
    "record_recent_memory": "memory has room for 4Mi of them; record names a folder for more",
    "decision_history_entries": "an HPA has at most 1,000 entries; decision_history bounds their age",
    "decision_history_memory": "the history in memory takes 16Mi at most; decision_history_disk bounds that of a file",
    "decision_series": "the series are always exported; drop unwanted ones by metric_relabel_configs of Prometheus",
    "explain_events": "events of rescales always give the reason in full, after the text of Kubernetes; leave it out",
    "event_component": "events name the component horizontal-pod-autoscaler, as Kubernetes does; leave it out",
    "sync_tick": "HPAs are due on ticks of 100 ms; leave it out",
    "memory_limit": "set systemd's MemoryMax= or the container's resources.limits.memory",
}
"""Former settings, with what to use instead."""
