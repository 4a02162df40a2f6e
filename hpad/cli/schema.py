"""The JSON schema of the configuration (draft 2020-12): each setting with form, default and meaning.

Covers the settings of hpad, and those of each installed adapter, described by the docstrings of its structs.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from hpad import settings
from hpad.api import duration
from hpad.api.sample import SOURCE_TYPES
from hpad.cli import adapters
from hpad.engine.view import Gates
from hpad.settings import fields, hpas, model, parsers

SETTINGS: Final[Mapping[str, str]] = {
    "kubeconfig": "how to reach the API server (default: $KUBECONFIG, ~/.kube/config, or the pod's service account)",
    "context": "context of the kubeconfig (default: its current one)",
    "namespaces": "only HPAs, targets and pods of these namespaces (default: all); the flag may be repeated",
    "hpa_selector": "only HPAs with these labels, such as autoscaler=hpad",
    "manifests": "read HPAs from the files of this folder, not from the API server",
    "sync_period": "reconcile every HPA once per period, at least 100ms",
    "workers": "concurrent reconciles, not counting those that wait for metrics",
    "max_staleness": "keep replicas once a watch that decisions need has delivered nothing for this long",
    "kube_api_qps": "requests per second to the API server (default: no limit)",
    "status_refresh": "write metric values alone to an HPA's status at most once per this time; 0s: at each change",
    "tolerance": "no scaling while a metric is within this fraction (0.1 is ten percent) of its target",
    "downscale_stabilization": "scale-down window of HPAs whose spec.behavior sets none",
    "cpu_initialization_period": "how long after a pod's start its CPU counts only while it is ready",
    "initial_readiness_delay": "how long after a pod's start its readiness changes count as its first",
    "feature_gates": "feature gates by name, such as HPAScaleToZero, as with kube-controller-manager",
    "sources": "metric sources: a name of your choice -> an adapter and its settings",
    "routes": "exceptions to the sources' own `match`; the first that matches wins",
    "hpas": "annotations for HPAs that cannot be annotated",
    "listen": "host:port of metrics, health, JSON API and status page, or none",
    "tls_cert_file": "serve TLS with this certificate (PEM), reloaded when it changes",
    "tls_private_key_file": "private key of tls_cert_file (PEM)",
    "listen_token_file": "admit clients with one of the bearer tokens in this file, one per line",
    "listen_review": "admit clients whose bearer token the cluster allows to `get` the path (a non-resource URL)",
    "log_level": "lowest level that is logged: debug, info, warning or error",
    "log_format": "text, json, or auto: text on a terminal, json otherwise",
    "record": "folder for recordings of the inputs and outputs of each decision, for `hpad replay`",
    "record_limit": "disk space for recordings, such as 1Gi, or none; the oldest are deleted first",
    "record_recent": "how long each decision stays in memory with its inputs, to be saved on SIGUSR1; off: not at all",
    "record_recent_dir": "folder for those that SIGUSR1 saves (default: that of the file of store)",
    "store": "where the state of HPAs survives a restart: sqlite[:FILE], cluster (ConfigMaps), or memory (it is lost)",
    "decision_history": "how long past decisions of each HPA are kept, for the API and the page; off: not at all",
    "decision_history_disk": "disk space for past decisions, beside the file of --store sqlite:FILE, or off",
    "competing_hpas": "if an HPA of the API server that hpad does not own scales the same target: yield or write",
    "dry_run": "decide for counts of its own (shadow mode), and write nothing",
    "leader_elect": "of several replicas, only the leader works (on by default in kube-controller-manager)",
    "shards": "divide the HPAs among all replicas, instead of leader_elect; keeps their state in the cluster",
    "shard_by": "with shards, what belongs to one replica as a whole: hpa or namespace (for many namespaces: cheaper)",
    "leader_elect_lease_duration": "time without a renewal after which another replica takes over",
    "leader_elect_renew_deadline": "time without a renewal after which the leader stops working",
    "leader_elect_retry_period": "time between renewals of the Lease, or between attempts to acquire it",
    "leader_elect_resource_name": "name of the Lease",
    "leader_elect_resource_namespace": "namespace of the Lease",
}
SOURCE: Final[Mapping[str, str]] = {
    "adapter": "kind of source (default: the source's name); `hpad adapters list` shows the installed ones",
    "timeout": "how long one attempt may take; at most 0.6 of the sync period",
    "match": "metrics that the source answers (default: those that its adapter offers)",
    "namespaces": "the namespaces, or patterns, whose HPAs may use the source; empty: all",
    "limits": "limits of calls to the source, and of the age of answers",
    "fallback": "while its metrics fail: hold, ignore, replicas:N, at-least:N, at-most:N or last-good:AGE, "
    "such as `replicas:5 after 3m`",
}
LIMITS: Final[Mapping[str, str]] = {
    "concurrency": "concurrent calls",
    "rate": "calls per second",
    "retries": "how often a failed call is repeated",
    "fresh": "maximum age of an answer that is shared with another HPA; 0s: answers are not shared",
    "max_age": "maximum age of a sample by its own timestamp",
    "failures": "failed calls in a row after which the circuit breaker opens",
    "rest": "how long the circuit breaker stays open before it tries a call",
}
MATCH: Final[Mapping[str, str]] = {
    "types": "metric types; empty: any",
    "metrics": "names of metrics, or patterns such as queue_*; empty: any",
    "namespaces": "namespaces of HPAs, or patterns; empty: any",
    "labels": "labels that the metric's selector must have: label -> value or pattern; they choose the source and are "
    "no part of the query, unless the adapter has a parameter of that name",
}
HPAS: Final[Mapping[str, str]] = {
    "namespaces": "namespaces of HPAs, or patterns; empty: any",
    "names": "names of HPAs, or patterns such as worker-*; empty: any",
    "labels": "labels that the HPA must have: label -> value or pattern",
}
_FIELD_NAMES: Final = re.compile(r"(?:^|(?<=[.;] ))(\w+(?:(?:, | and |, and )\w+)*): ")
_DURATION: Final = r"^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^0$"
_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_REFERENCE: Final = "#/$defs/{name}"
Json = dict[str, Any]


def document() -> Json:
    """Returns the whole schema, with the fields of all installed adapters. Blocks: imports them."""
    properties, default = forms(), defaults()
    properties["sources"], definitions = _sources(_fields(fields.OF_SOURCES, SOURCE))
    described = {}
    for name, form in properties.items():
        with_default = {} if default[name] is None else {"default": default[name]}
        described[name] = {"description": SETTINGS[name], **form, **with_default}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hpad",
        "description": "The configuration of hpad; the environment (HPAD_SYNC_PERIOD) and flags take precedence.",
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": described,
        "$defs": definitions,
    }


def forms() -> dict[str, Json]:
    """Returns the schema of each setting, without description and default."""
    return _fields(fields.PARSERS, {})


def defaults() -> Json:
    """Returns the default of each setting, as a file would hold it; None if it has none or depends on how hpad runs."""
    base = settings.Settings()
    gates = msgspec.structs.asdict(base.tunables.gates)
    gates.pop(model.ZERO)  # its default depends on the version of the API server
    special = {
        "feature_gates": gates,
        "sources": {},
        "record_limit": f"{base.record_limit >> 30}Gi",
        "decision_history_disk": f"{base.decision_history_disk >> 20}Mi",
        "listen": "{}:{}".format(*(base.listen or ())),
        "store": None,
    }
    return {name: special[name] if name in special else _default(name, base) for name in fields.PARSERS}


def _default(name: str, base: settings.Settings) -> Any:
    if name in settings.SERVING:
        value = getattr(base.serving, settings.SERVING[name])
    elif name in settings.ELECTION:
        value = getattr(base.election, settings.ELECTION[name])
    else:
        value = getattr(base.tunables if name in settings.TUNABLES else base, name)
    if isinstance(value, timedelta):
        return duration.write(value)
    return list(value) if isinstance(value, tuple) else value


def _fields(table: Mapping[str, fields.Parser], meanings: Mapping[str, str]) -> Json:
    """Returns the schema of the values that each parser accepts, with the descriptions of the fields in `meanings`."""
    described: Json = {name: {"description": meanings[name]} if name in meanings else {} for name in table}
    return {name: described[name] | (_FORMS_BY_NAME.get(name) or _FORMS[parser]) for name, parser in table.items()}


def _closed(properties: Json) -> Json:
    """Returns the schema of an object that may have these fields and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _or_text(form: Json, text: str) -> Json:
    return {"anyOf": [form, {"type": "string", "description": text}]}


_TEXT: Final[Json] = {"type": "string"}
_PATH: Final[Json] = {"type": ["string", "null"]}
_FLAG: Final[Json] = {"type": "boolean"}
_SPAN: Final[Json] = {"type": "string", "pattern": _DURATION}
_OFF: Final[Json] = {"enum": [False, 0], "description": "off"}
_NAMES: Final = "names with commas between"
_FORMS: Final[dict[fields.Parser, Json]] = {
    parsers.text: _TEXT,
    parsers.optional_text: _PATH,
    parsers.path: _PATH,
    parsers.flag: _FLAG,
    parsers.count: {"type": "integer", "minimum": 1},
    parsers.whole: {"type": "integer", "minimum": 0},
    parsers.rate: {"type": "number", "exclusiveMinimum": 0},
    parsers.qps: {"type": ["number", "null"]},
    parsers.fraction: {"type": "number", "minimum": 0, "maximum": 1},
    parsers.disk: {"type": ["string", "integer"]},
    parsers.budget: {"anyOf": [{"type": ["string", "integer"]}, _OFF]},
    parsers.duration: _SPAN,
    parsers.span: {"anyOf": [{"type": "string", "pattern": f"{_DURATION}|^off$"}, _OFF]},
    parsers.positive_duration: _SPAN,
    parsers.period: _SPAN,
    parsers.staleness: _SPAN,
    parsers.address: {"type": ["string", "null"], "pattern": r"^$|^none$|:[0-9]{1,5}$"},
    parsers.selector: _TEXT,
    parsers.labels: {"type": "object", "additionalProperties": _TEXT},
    parsers.object_name: {"type": "string", "pattern": _NAME},
    parsers.namespace: {"type": "string", "pattern": _LABEL},
    parsers.names: _or_text(_list(_TEXT), _NAMES),
    parsers.namespaces: _or_text(_list({"type": "string", "pattern": _LABEL}), _NAMES),
    parsers.gates: _or_text(_closed(dict.fromkeys(Gates.__struct_fields__, _FLAG)), "Name=true,Other=false"),
    fields.metric_types: _list({"enum": list(SOURCE_TYPES)}),
}
_FORMS_BY_NAME: Final[dict[str, Json]] = {
    "competing_hpas": {"enum": list(model.COMPETING)},
    "shard_by": {"enum": list(model.SHARD_BY)},
    "log_level": {"enum": list(settings.LOG_LEVELS)},
    "log_format": {"enum": list(settings.LOG_FORMATS)},
    "kind": {"enum": list(settings.STORES)},
    "fallback": _TEXT,
}
"""Forms that the parser alone does not determine."""
# Later entries are built from earlier ones: a match is a field of sources and of routes.
_FORMS[fields.match] = _closed(_fields(fields.MATCH, MATCH))
_FORMS[fields.matches] = {"anyOf": [_FORMS[fields.match], _list(_FORMS[fields.match])]}
_FORMS[fields.limits] = _closed(_fields(fields.LIMITS, LIMITS))
_FORMS[fields.sources] = {"type": "object"}
_FORMS[fields.routes] = _list(_closed(_fields(fields.ROUTE, {})) | {"required": list(fields.ROUTE)})
_ANNOTATION: Final[Json] = {"type": ["string", "number", "boolean", "array"]}
_FORMS[hpas.entries] = _list(_closed({**_fields(hpas.SELECTING, HPAS), **dict.fromkeys(hpas.ANNOTATIONS, _ANNOTATION)}))
_FORMS[fields.store] = _or_text(_closed(_fields(fields.STORE, {})), "memory, cluster, sqlite or sqlite:FILE")


def _sources(own: Json) -> tuple[Json, Json]:
    """Returns the schema of `sources`, and the definitions that it refers to; `own`: the fields of every source.

    The adapter of a source is named, or has the source's name. A source of an adapter that is not installed may have
    any field. Blocks: imports all adapters.
    """
    loaded = adapters.loadable()
    forms, definitions = msgspec.json.schema_components(
        [adapter.Settings for adapter in loaded.values()], ref_template=_REFERENCE
    )
    for definition in definitions.values():
        _describe_fields(definition)
    names = [form["$ref"].rpartition("/")[2] for form in forms]  # adapters may share their Settings
    inner = {name: definition for name, definition in definitions.items() if name not in names}
    for adapter, name in zip(loaded, names, strict=True):
        definition = definitions[name]
        inner[f"source-{adapter}"] = {**definition, "properties": {**definition["properties"], **own}}
    then = {name: {"then": {"$ref": _REFERENCE.format(name=f"source-{name}")}} for name in loaded}
    named = [
        {"if": {"properties": {"adapter": {"const": name}}, "required": ["adapter"]}, **form}
        for name, form in then.items()
    ]
    implied = {name: {"if": {"not": {"required": ["adapter"]}}, **form} for name, form in then.items()}
    source: Json = {"type": "object", "properties": own, "allOf": named}
    return {"type": "object", "additionalProperties": source, "allOf": [{"properties": implied}]}, inner


def _describe_fields(definition: Json) -> None:
    """Copies the descriptions of fields from a struct's docstring, "name: text" or "name, other: text", to the fields.

    A description in a field's msgspec.Meta takes precedence.
    """
    properties: Json = definition.get("properties", {})
    text = " ".join(definition.get("description", "").split())
    matches = [(match, re.split(r", and |, | and ", match[1])) for match in _FIELD_NAMES.finditer(text)]
    matches = [(match, names) for match, names in matches if properties.keys() >= set(names)]
    ends = [*(match.start() for match, _ in matches), len(text)][1:]
    descriptions: dict[str, str] = {}
    for (match, names), end in zip(matches, ends, strict=True):
        descriptions |= dict.fromkeys(names, text[match.end() : end].strip(" ;"))
    for name, description in descriptions.items():
        properties[name].setdefault("description", description)
