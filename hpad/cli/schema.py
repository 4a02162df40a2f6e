"""The JSON schema of the configuration (draft 2020-12): each setting with form, default and description.

Covers the settings of hpad, and those of each installed adapter, described by the docstrings of its structs.
"""

import inspect
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from hpad import settings
from hpad.adapter import Adapter, AdapterError
from hpad.api import duration
from hpad.api.sample import SOURCE_TYPES
from hpad.engine.view import Gates
from hpad.settings import model
from hpad.sources import plugins

SETTINGS: Final[Mapping[str, str]] = {
    "kubeconfig": "How to reach the API server (default: $KUBECONFIG, ~/.kube/config, or the pod's service account).",
    "context": "Context of the kubeconfig (default: its current one).",
    "namespaces": "Only HPAs, targets and pods of these namespaces; empty: all.",
    "hpa_selector": 'Only HPAs with these labels, such as "autoscaler=hpad".',
    "manifests": "Read HPAs from the files of this folder, not from the API server.",
    "sync_period": "Every HPA is reconciled once per period (at least 100ms).",
    "workers": "Concurrent reconciles, not counting those that wait for metrics.",
    "max_staleness": "Replicas are kept once a watch that decisions need has delivered nothing for this long.",
    "kube_api_qps": "Requests per second to the API server; null: no limit.",
    "kube_api_burst": "Requests at once, if kube_api_qps is set.",
    "event_component": "Component named in events.",
    "tolerance": "No scaling while a metric is within this fraction of its target (0.1: ten percent).",
    "downscale_stabilization": "Scale-down window of HPAs whose spec.behavior sets none.",
    "cpu_initialization_period": "How long after a pod's start its CPU counts only while it is ready.",
    "initial_readiness_delay": "How long after a pod's start its readiness changes count as its first.",
    "feature_gates": "Feature gates by name, as with kube-controller-manager.",
    "sources": "Metric sources: a name of your choice -> an adapter and its settings.",
    "routes": "Exceptions to the sources' own `match`; the first that matches wins.",
    "listen": 'host:port of /metrics, health, JSON API and status page; "none": no server.',
    "tls_cert_file": "Serve TLS with this certificate (PEM), read again when it changes.",
    "tls_private_key_file": "The key of tls_cert_file (PEM).",
    "client_ca_file": "Admit clients with a certificate of these authorities (PEM).",
    "listen_token_file": "Admit clients with one of the bearer tokens in this file, one per line.",
    "listen_review": "Admit clients whose bearer token the cluster accepts for `get` of the path.",
    "log_level": "The lowest level that is logged.",
    "log_format": "auto: text on a terminal, json otherwise.",
    "record": "Folder for recordings of the inputs and outputs of each decision, for `hpad replay`.",
    "record_limit": "Disk space for recordings, such as 1Gi; the oldest are deleted first. none: no limit.",
    "store": "Where the state of HPAs survives a restart: memory (not at all), sqlite:FILE or cluster (ConfigMaps).",
    "competing_hpas": "If an HPA of the API server that hpad does not own scales the same target: yield or write.",
    "dry_run": "Decide and log the decisions, but write nothing.",
    "leader_elect": "Of several replicas, only the leader works.",
    "shards": "All replicas work, each on a part of the HPAs; instead of leader_elect.",
    "leader_elect_lease_duration": "Time without a renewal after which another replica takes over.",
    "leader_elect_renew_deadline": "Time without a renewal after which a replica stops working.",
    "leader_elect_retry_period": "Time between renewals of the Lease, or between attempts to acquire it.",
    "leader_elect_resource_lock": "The kind of lock; leases is the only one.",
    "leader_elect_resource_name": "The name of the Lease.",
    "leader_elect_resource_namespace": "The namespace of the Lease.",
}
SOURCE: Final[Mapping[str, str]] = {
    "adapter": "The kind of source (default: the source's name); `hpad adapters list` shows those installed.",
    "timeout": "How long one attempt may take; at most 0.6 of the sync period.",
    "match": "The metrics that the source answers (default: those that its adapter offers).",
    "namespaces": "The namespaces, or patterns, whose HPAs may use the source; empty: all.",
    "limits": "Limits of calls to the source, and of the age of answers.",
    "fallback": "While its metrics fail: hold, ignore, replicas:N or last-good:AGE, such as `replicas:5 after 3m`.",
}
LIMITS: Final[Mapping[str, str]] = {
    "concurrency": "Concurrent calls.",
    "rate": "Calls per second.",
    "retries": "How often a failed call is repeated.",
    "fresh": "Maximum age of an answer that is shared with another HPA; 0s: answers are not shared.",
    "max_age": "Maximum age of a sample by its own timestamp.",
    "failures": "Failed calls in a row after which the circuit breaker opens.",
    "rest": "How long the circuit breaker stays open before it tries a call.",
}
MATCH: Final[Mapping[str, str]] = {
    "types": "Metric types; empty: any.",
    "metrics": "Names of metrics, or patterns such as queue_*; empty: any.",
    "namespaces": "Namespaces of HPAs, or patterns; empty: any.",
    "labels": "Labels that the metric's selector must have: label -> value or pattern.",
}
_FIELD_NAMES: Final = re.compile(r"(?:^|(?<=[.;] ))(\w+(?:(?:, | and |, and )\w+)*): ")
_DURATION: Final = r"^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^0$"
_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_REFERENCE: Final = "#/$defs/{name}"
Json = dict[str, Any]


def field_descriptions(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The descriptions of fields in the docstring of a struct: "name: text", or "name, other: text"."""
    fields = {field.encode_name for field in msgspec.structs.fields(kind)}
    text = " ".join(inspect.cleandoc(vars(kind).get("__doc__") or "").split())
    matches = [(match, re.split(r", and |, | and ", match[1])) for match in _FIELD_NAMES.finditer(text)]
    matches = [(match, names) for match, names in matches if fields.issuperset(names)]
    ends = [*(match.start() for match, _ in matches), len(text)][1:]
    descriptions: dict[str, str] = {}
    for (match, names), end in zip(matches, ends, strict=True):
        descriptions |= dict.fromkeys(names, text[match.end() : end].strip(" ;"))
    return descriptions


def sources(own: Json) -> tuple[Json, Json]:
    """The schema of `sources`, and the definitions that it refers to; `own`: the fields of every source.

    The adapter of a source is named, or has the source's name. A source of an adapter that is not installed may have
    any field. Blocks: imports all adapters.
    """
    adapters = dict(_adapters())
    forms, definitions = msgspec.json.schema_components(
        [adapter.Settings for adapter in adapters.values()], ref_template=_REFERENCE
    )
    for kind in _structs(adapters.values()):
        _describe(definitions, kind)
    settings_names = {_reference_name(form) for form in forms}
    inner = {key: definition for key, definition in definitions.items() if key not in settings_names}
    for name, form in zip(adapters, forms, strict=True):
        definition = definitions[_reference_name(form)]
        fields = {name: each for name, each in definition["properties"].items() if name not in settings.OF_SOURCES}
        inner[f"source-{name}"] = {**definition, "properties": {**own, **fields}}
    then = {name: {"then": {"$ref": _REFERENCE.format(name=f"source-{name}")}} for name in adapters}
    named = [{"if": _adapter_names(name), **form} for name, form in then.items()]
    implied = {name: {"if": {"not": {"required": ["adapter"]}}, **form} for name, form in then.items()}
    source: Json = {"type": "object", "properties": own, "allOf": named}
    return {"type": "object", "additionalProperties": source, "allOf": [{"properties": implied}]}, inner


def _adapters() -> list[tuple[str, type[Adapter]]]:
    """The installed adapters that can be loaded, by name."""
    found = []
    for name in plugins.names():
        try:
            found.append((name, plugins.adapter_class(name)))
        except AdapterError:
            continue
    return found


def _adapter_names(adapter: str) -> Json:
    return {"properties": {"adapter": {"const": adapter}}, "required": ["adapter"]}


def _reference_name(form: Json) -> str:
    name: str = form["$ref"].rpartition("/")[2]
    return name


def _structs(adapters: Iterable[type[Adapter]]) -> list[type[msgspec.Struct]]:
    """The structs of the adapters' settings and the structs nested in them, each once."""
    found: dict[type[msgspec.Struct], None] = {}
    waiting: list[Any] = [msgspec.inspect.type_info(adapter.Settings) for adapter in adapters]
    while waiting:
        form = waiting.pop()
        if isinstance(form, msgspec.inspect.StructType):
            if form.cls not in found:
                found[form.cls] = None
                waiting += [field.type for field in form.fields]
            continue
        parts = (getattr(form, name, None) for name in ("types", "key_type", "value_type", "item_type", "type"))
        for part in parts:
            waiting += part if isinstance(part, tuple) else [part] if isinstance(part, msgspec.inspect.Type) else []
    return list(found)


def _describe(definitions: Json, kind: type[msgspec.Struct]) -> None:
    """Adds the descriptions in a struct's docstring to its definition."""
    descriptions = field_descriptions(kind)
    fields = {field.encode_name for field in msgspec.structs.fields(kind)}
    for name in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}"):
        definition = definitions.get(name, {})
        if set(definition.get("properties", ())) == fields:
            for field, form in definition["properties"].items():
                if field in descriptions:
                    form.setdefault("description", descriptions[field])


def document() -> Json:
    """The whole schema, with the fields of all installed adapters. Blocks: imports them."""
    properties, default = forms(), defaults()
    properties["sources"], definitions = sources(properties["sources"]["additionalProperties"]["properties"])
    for name, form in properties.items():
        described = {"description": SETTINGS.get(name, ""), **form}
        properties[name] = described if default[name] is None else {**described, "default": default[name]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hpad",
        "description": "The configuration of hpad; the environment (HPAD_SYNC_PERIOD) and flags take precedence.",
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": properties,
        "$defs": definitions,
    }


def defaults() -> Json:
    """The default of each setting, as a file would hold it; None if it has none or depends on how hpad runs."""
    base = settings.Settings()
    return {name: _default(name, base) for name in forms()}


def forms() -> dict[str, Json]:
    """The schema of each setting, without description and default."""
    text, path, flag = {"type": "string"}, {"type": ["string", "null"]}, {"type": "boolean"}
    span, fraction = {"type": "string", "pattern": _DURATION}, {"type": "number", "minimum": 0, "maximum": 1}
    count, name = {"type": "integer", "minimum": 1}, {"type": "string", "pattern": _NAME}
    label = {"type": "string", "pattern": _LABEL}
    return {
        "kubeconfig": path,
        "context": path,
        "namespaces": _either(_list(label), "names with commas between"),
        "hpa_selector": text,
        "manifests": path,
        "competing_hpas": {"enum": list(model.COMPETING)},
        "sync_period": span,
        "workers": count,
        "max_staleness": span,
        "kube_api_qps": {"type": ["number", "null"]},
        "kube_api_burst": count,
        "event_component": name,
        "tolerance": fraction,
        "downscale_stabilization": span,
        "cpu_initialization_period": span,
        "initial_readiness_delay": span,
        "feature_gates": _either(_closed({gate: flag for gate in Gates.__struct_fields__}), "Name=true,Other=false"),
        "sources": {"type": "object", "additionalProperties": _source(text, span, count)},
        "routes": _list(_closed({"match": _match(), "source": text}, required=("match", "source"))),
        "listen": {"type": ["string", "null"], "pattern": r"^$|^none$|:[0-9]{1,5}$"},
        "tls_cert_file": path,
        "tls_private_key_file": path,
        "client_ca_file": path,
        "listen_token_file": path,
        "listen_review": flag,
        "log_level": {"enum": list(settings.LOG_LEVELS)},
        "log_format": {"enum": list(settings.LOG_FORMATS)},
        "record": path,
        "record_limit": {"type": ["string", "integer"]},
        "store": _either(
            _closed({"kind": {"enum": list(settings.STORES)}, "path": text, "namespace": label, "name": name}),
            "memory, cluster, sqlite or sqlite:FILE",
        ),
        "dry_run": flag,
        "leader_elect": flag,
        "shards": flag,
        "leader_elect_lease_duration": span,
        "leader_elect_renew_deadline": span,
        "leader_elect_retry_period": span,
        "leader_elect_resource_lock": {"const": model.LEASES},
        "leader_elect_resource_name": name,
        "leader_elect_resource_namespace": label,
    }


def _source(text: Json, span: Json, count: Json) -> Json:
    limits = {
        "concurrency": count,
        "rate": {"type": "number", "exclusiveMinimum": 0},
        "retries": {"type": "integer", "minimum": 0},
        "fresh": span,
        "max_age": span,
        "failures": count,
        "rest": span,
    }
    own = {
        "adapter": text,
        "timeout": span,
        "match": {"anyOf": [_match(), _list(_match())]},
        "namespaces": _either(_list(text), "names with commas between"),
        "limits": _closed(_described(limits, LIMITS)),
        "fallback": text,
    }
    return {"type": "object", "properties": _described(own, SOURCE)}


def _match() -> Json:
    names = _either(_list({"type": "string"}), "names with commas between")
    kinds = {"items": {"enum": list(SOURCE_TYPES)}}
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    fields = {"types": {**_list({}), **kinds}, "metrics": names, "namespaces": names, "labels": labels}
    return _closed(_described(fields, MATCH))


def _described(fields: Json, descriptions: Mapping[str, str]) -> Json:
    return {name: {"description": descriptions[name], **form} for name, form in fields.items()}


def _closed(fields: Json, required: tuple[str, ...] = ()) -> Json:
    """An object without other fields."""
    return {
        "type": "object",
        "properties": fields,
        "additionalProperties": False,
        **({"required": list(required)} if required else {}),
    }


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _either(form: Json, text: str) -> Json:
    return {"anyOf": [form, {"type": "string", "description": text}]}


def _default(name: str, base: settings.Settings) -> Any:
    if name == "leader_elect_resource_lock":
        return model.LEASES
    if name == "store":
        return None  # depends on how hpad runs
    if name == "listen" and base.listen is not None:
        return "{}:{}".format(*base.listen)
    if name == "feature_gates":
        gates = msgspec.structs.asdict(base.tunables.gates)
        return {name: on for name, on in gates.items() if name != model.ZERO}  # depends on the API server's version
    if name == "sources":
        return {}
    value = _value(name, base)
    if isinstance(value, timedelta):
        return duration.write(value)
    return list(value) if isinstance(value, tuple) else value


def _value(name: str, base: settings.Settings) -> Any:
    for table, part in ((settings.SERVING, base.serving), (settings.ELECTION, base.election)):
        if name in table:
            return getattr(part, table[name])
    return getattr(base.tunables if name in settings.TUNABLES else base, name)
