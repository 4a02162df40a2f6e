"""The JSON schema of the configuration (draft 2020-12): each setting of `hpad.settings` with its form and default."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from hpad import settings
from hpad.api import duration
from hpad.api.sample import SOURCE_TYPES
from hpad.cli import adapter_schema, meanings
from hpad.engine.view import Gates
from hpad.settings import shape

Json = dict[str, Any]
_DURATION: Final = r"^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^0$"
_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


def document() -> Json:
    """The whole schema, with the fields of all adapters that are installed. It blocks: they are imported."""
    known = forms()
    known["sources"], definitions = adapter_schema.sources(known["sources"]["additionalProperties"]["properties"])
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
        "competing_hpas": {"enum": list(shape.COMPETING)},
        "sync_period": span,
        "workers": count,
        "max_staleness": span,
        "memory_limit": {"type": ["string", "integer", "null"]},
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
        "leader_elect_resource_lock": {"const": shape.LEASES},
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
        "limits": _closed(_described(limits, meanings.LIMITS)),
        "fallback": text,
    }
    return {"type": "object", "properties": _described(own, meanings.SOURCE)}


def _match() -> Json:
    names = _either(_list({"type": "string"}), "names with commas between")
    kinds = {"items": {"enum": list(SOURCE_TYPES)}}
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    fields = {"types": {**_list({}), **kinds}, "metrics": names, "namespaces": names, "labels": labels}
    return _closed(_described(fields, meanings.MATCH))


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
    described = {"description": meanings.SETTINGS.get(name, ""), **form}
    return described if default is None else {**described, "default": default}


def _written(name: str, base: settings.Settings) -> Any:
    """The default as it would stand in a file; None for what is simply not set."""
    if name == "leader_elect_resource_lock":
        return shape.LEASES
    if name == "store":
        return None  # what fits the way hpad is run
    if name == "listen" and base.listen is not None:
        return "{}:{}".format(*base.listen)
    if name == "feature_gates":
        gates = msgspec.structs.asdict(base.tunables.gates)
        return {name: on for name, on in gates.items() if name != shape.ZERO}  # follows the API server
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
