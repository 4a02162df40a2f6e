"""The JSON schema of the configuration (draft 2020-12): each setting of `hpad.settings` with its form and default.

The JSON schema of a source: what hpad reads of it, and for each installed adapter the fields of its own.

What settings are for, in a sentence: those of hpad, and those of adapters, whose docstrings say it.
"""

import inspect
import re
from collections.abc import Mapping
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
    "kubeconfig": "The way to the API server; else $KUBECONFIG, ~/.kube/config, or the pod's own service account.",
    "context": "A context of the kubeconfig (default: its current one).",
    "namespaces": "Only HPAs, targets and pods of these namespaces; empty: all.",
    "hpa_selector": 'Only HPAs with these labels, such as "autoscaler=hpad".',
    "manifests": "HPAs from the files of this folder instead of the API server's.",
    "sync_period": "Every HPA is reconciled once in this time (100ms at least).",
    "workers": "Reconciles at work at a time; those that wait for metrics do not count.",
    "max_staleness": "Replicas are kept once a watch that decisions need has brought nothing for this long.",
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
    marks = [
        (found, _listed_names(found[1]))
        for found in _LISTED.finditer(text)
        if fields.issuperset(_listed_names(found[1]))
    ]
    ends = [*(found.start() for found, _ in marks), len(text)][1:]
    said: dict[str, str] = {}
    for (found, names), end in zip(marks, ends, strict=True):
        said |= dict.fromkeys(names, text[found.end() : end].strip(" ;"))
    return said


def _listed_names(listed: str) -> list[str]:
    return re.split(r", and |, | and ", listed)


Json = dict[str, Any]
_REFERENCE: Final = "#/$defs/{name}"


def sources(own: Json) -> tuple[Json, Json]:
    """The form of `sources`, and the definitions that it refers to; `own` are the fields that every source may have.

    A source's adapter is named, or is that of the source's name; of one that is not installed any field is taken. It
    blocks: all adapters are imported.
    """
    adapters = dict(_loaded())
    forms, definitions = msgspec.json.schema_components(
        [adapter.Settings for adapter in adapters.values()], ref_template=_REFERENCE
    )
    for kind in _structs(adapters.values()):
        _describe(definitions, kind)
    inner = {key: definition for key, definition in definitions.items() if key not in _tops(forms)}
    for name, form in zip(adapters, forms, strict=True):
        inner[f"source-{name}"] = _whole(form, definitions, own)
    then = {name: {"then": {"$ref": _REFERENCE.format(name=f"source-{name}")}} for name in adapters}
    named = [{"if": _adapter_names(name), **form} for name, form in then.items()]
    implied = {name: {"if": {"not": {"required": ["adapter"]}}, **form} for name, form in then.items()}
    source: Json = {"type": "object", "properties": own, "allOf": named}
    return {"type": "object", "additionalProperties": source, "allOf": [{"properties": implied}]}, inner


def _loaded() -> list[tuple[str, type[Adapter]]]:
    found = []
    for name in plugins.names():
        try:
            found.append((name, plugins.adapter_class(name)))
        except AdapterError:
            continue
    return found


def _adapter_names(adapter: str) -> Json:
    return {"properties": {"adapter": {"const": adapter}}, "required": ["adapter"]}


def _tops(forms: tuple[Json, ...]) -> set[str]:
    return {form["$ref"].rpartition("/")[2] for form in forms}


def _whole(form: Json, definitions: Json, own: Json) -> Json:
    """The settings of an adapter together with those of every source."""
    definition = definitions[form["$ref"].rpartition("/")[2]]
    fields = {name: each for name, each in definition["properties"].items() if name not in settings.OF_SOURCES}
    return {**definition, "properties": {**own, **fields}}


def _structs(adapters: Any) -> list[type[msgspec.Struct]]:
    """The structs of the adapters' settings, those within too, each once."""
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
    """Add what the docstring of a struct says of its fields to its definition."""
    said = of_fields(kind)
    mine = {field.encode_name for field in msgspec.structs.fields(kind)}
    for name in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}"):
        definition = definitions.get(name, {})
        if set(definition.get("properties", ())) == mine:
            for field, form in definition["properties"].items():
                if field in said:
                    form.setdefault("description", said[field])


_DURATION: Final = r"^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^0$"
_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


def document() -> Json:
    """The whole schema, with the fields of all adapters that are installed. It blocks: they are imported."""
    known = forms()
    known["sources"], definitions = sources(known["sources"]["additionalProperties"]["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hpad",
        "description": "The configuration of hpad; the environment (HPAD_SYNC_PERIOD) and flags beat it.",
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {name: _property(name, form) for name, form in known.items()},
        "$defs": definitions,
    }


def defaults() -> Json:
    """What each setting is if nothing is said, as one would write it."""
    base, out = settings.Settings(), {}
    for name in forms():
        out[name] = _written(name, base)
    return out


def forms() -> dict[str, Json]:
    """The form of each setting."""
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


def _described(fields: Json, said: Mapping[str, str]) -> Json:
    return {name: {"description": said[name], **form} for name, form in fields.items()}


def _closed(fields: Json, required: tuple[str, ...] = ()) -> Json:
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


def _property(name: str, form: Json) -> Json:
    default = defaults()[name]
    described = {"description": SETTINGS.get(name, ""), **form}
    return described if default is None else {**described, "default": default}


def _written(name: str, base: settings.Settings) -> Any:
    """The default as it would stand in a file; None for what is simply not set."""
    if name == "leader_elect_resource_lock":
        return model.LEASES
    if name == "store":
        return None  # what fits the way hpad is run
    if name == "listen" and base.listen is not None:
        return "{}:{}".format(*base.listen)
    if name == "feature_gates":
        gates = msgspec.structs.asdict(base.tunables.gates)
        return {name: on for name, on in gates.items() if name != model.ZERO}  # follows the API server
    if name == "sources":
        return {}
    return _plain(_found(name, base))


def _found(name: str, base: settings.Settings) -> Any:
    for table, part in ((settings.SERVING, base.serving), (settings.ELECTION, base.election)):
        if name in table:
            return getattr(part, table[name])
    return getattr(base.tunables if name in settings.TUNABLES else base, name)


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return duration.write(value)
    if isinstance(value, tuple):
        return list(value)
    return value
