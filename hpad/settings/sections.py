"""How the parts of the configuration are read, and by which parser each setting is."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hpad.api.sample import SOURCE_TYPES
from hpad.api.text import shown
from hpad.engine import fallback_policy
from hpad.settings import values
from hpad.settings.shape import COMPETING, LOG_FORMATS, LOG_LEVELS, STORES, Match, Route, SourceLimits, SourceSettings


def match(value: Any) -> Match:
    parsers: dict[str, Callable[[Any], Any]] = {
        "types": types, "metrics": values.names, "namespaces": values.names, "labels": values.labels,
    }  # fmt: skip
    return Match(**values.fields(value, parsers))


def types(value: Any) -> tuple[str, ...]:
    """A list of metric types."""
    read = values.names(value)
    for kind in read:
        if kind not in SOURCE_TYPES:
            raise ValueError(f"there is no metric type {shown(kind)}{values.hint(kind, SOURCE_TYPES)}")
    return read


def matches(value: Any) -> tuple[Match, ...]:
    """One rule, or a list of them."""
    if not isinstance(value, list):
        return (match(value),)
    return tuple(values.each((index, partial(match, entry)) for index, entry in enumerate(value)))


LIMITS: dict[str, Callable[[Any], Any]] = {
    "concurrency": values.count,
    "rate": values.pace,
    "retries": values.whole,
    "fresh": values.duration,
    "max_age": values.positive_duration,
    "failures": values.count,
    "rest": values.positive_duration,
}


def limits(value: Any) -> SourceLimits:
    return SourceLimits(**values.fields(value, LIMITS))


def fallback(value: Any) -> fallback_policy.Fallback:
    return fallback_policy.parse(values.text(value))


OF_SOURCES: dict[str, Callable[[Any], Any]] = {
    "adapter": values.text,
    "timeout": values.positive_duration,
    "match": matches,
    "namespaces": values.names,
    "limits": limits,
    "fallback": fallback,
}


def source(name: str, value: Any) -> SourceSettings:
    if not isinstance(value, dict):
        raise ValueError(f'a source is a mapping such as {{adapter: "{name}", url: …}}')
    mine = values.fields({key: entry for key, entry in value.items() if key in OF_SOURCES}, OF_SOURCES)
    return SourceSettings(**{"name": name, "adapter": name, "settings": of_adapter(value), **mine})


def of_adapter(value: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a source that are its adapter's own to judge."""
    return {key: entry for key, entry in value.items() if key not in OF_SOURCES}


def store(value: Any) -> dict[str, Any]:
    """`{kind: sqlite, path: FILE}`, or as text: memory, cluster, sqlite, sqlite:FILE."""
    if isinstance(value, str):
        kind, _, path = value.partition(":")
        value = {"kind": kind, **({"path": path} if path else {})}
    parsers: dict[str, Callable[[Any], Any]] = {
        "kind": values.one_of(*STORES),
        "path": values.path,
        "namespace": values.namespace,
        "name": values.object_name,
    }
    fields = values.fields(value, parsers)
    fields.setdefault("kind", "sqlite" if "path" in fields else None)
    if fields["kind"] is None:
        raise ValueError(f"kind is missing: one of {', '.join(STORES)}")
    for name, kind in (("path", "sqlite"), ("namespace", "cluster"), ("name", "cluster")):
        if name in fields and fields["kind"] != kind:
            raise ValueError(f"{name}: means nothing to the kind {fields['kind']}, only to {kind}")
    return fields


def sources(value: Any) -> tuple[SourceSettings, ...]:
    if not isinstance(value, dict):
        raise ValueError("sources are a mapping of a name of your choice to {adapter: …, …}")
    return tuple(values.each((str(name), partial(source, str(name), entry)) for name, entry in value.items()))


def routes(value: Any) -> tuple[Route, ...]:
    if not isinstance(value, list):
        raise ValueError("routes are a list of {match: {metrics: […]}, source: …}")
    parsers: dict[str, Callable[[Any], Any]] = {"match": match, "source": values.text}
    read = values.each((index, partial(values.fields, entry, parsers, True)) for index, entry in enumerate(value))
    return tuple(Route(**fields) for fields in read)


PARSERS: dict[str, Callable[[Any], Any]] = {
    "kubeconfig": values.optional_text,
    "context": values.optional_text,
    "namespaces": values.namespaces,
    "hpa_selector": values.selector,
    "manifests": values.path,
    "competing_hpas": values.one_of(*COMPETING),
    "sync_period": values.period,
    "workers": values.count,
    "max_staleness": values.staleness,
    "kube_api_qps": values.qps,
    "kube_api_burst": values.count,
    "event_component": values.object_name,
    "tolerance": values.fraction,
    "downscale_stabilization": values.duration,
    "cpu_initialization_period": values.duration,
    "initial_readiness_delay": values.duration,
    "feature_gates": values.gates,
    "sources": sources,
    "routes": routes,
    "listen": values.address,
    "tls_cert_file": values.path,
    "tls_private_key_file": values.path,
    "client_ca_file": values.path,
    "listen_token_file": values.path,
    "listen_review": values.flag,
    "log_level": values.one_of(*LOG_LEVELS),
    "log_format": values.one_of(*LOG_FORMATS),
    "record": values.path,
    "record_limit": values.disk,
    "store": store,
    "dry_run": values.flag,
    "leader_elect": values.flag,
    "shards": values.flag,
    "leader_elect_lease_duration": values.positive_duration,
    "leader_elect_renew_deadline": values.positive_duration,
    "leader_elect_retry_period": values.positive_duration,
    "leader_elect_resource_lock": values.lock,
    "leader_elect_resource_name": values.object_name,
    "leader_elect_resource_namespace": values.namespace,
}
TUNABLES = ("tolerance", "downscale_stabilization", "cpu_initialization_period", "initial_readiness_delay")
ELECTION = {
    "leader_elect": "enabled",
    "shards": "shards",
    "leader_elect_lease_duration": "lease_duration",
    "leader_elect_renew_deadline": "renew_deadline",
    "leader_elect_retry_period": "retry_period",
    "leader_elect_resource_name": "name",
    "leader_elect_resource_namespace": "namespace",
}
SERVING = {
    "tls_cert_file": "certificate",
    "tls_private_key_file": "private_key",
    "client_ca_file": "client_ca",
    "listen_token_file": "token_file",
    "listen_review": "review",
}
JOINED = ("feature_gates", "sources")
"""Settings of which a later origin replaces only the entries that it names."""
RENAMED: dict[str, str] = {}
"""Former names of settings, with their present names. Adapters list those of their own sources (`renamed` in their
Settings)."""
REMOVED: dict[str, str] = {
    "memory_limit": "set systemd's MemoryMax= or the container's resources.limits.memory",
}
"""Former settings, with what to use instead."""
