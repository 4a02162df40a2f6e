"""Former settings, which are refused with a sentence that says what to use instead."""

RENAMED: dict[str, str] = {}
"""Former names of settings, with their present names. Adapters list those of their own sources (`renamed` in their
Settings)."""
_INSTEAD_OF_SHARDS = (
    "one process decides for all HPAs; set leader_elect for a standby. A very large site runs one hpad per set of "
    "namespaces, each with its own leader_elect_resource_name"
)
REMOVED: dict[str, str] = {
    "shards": _INSTEAD_OF_SHARDS,
    "shard_by": _INSTEAD_OF_SHARDS,
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
