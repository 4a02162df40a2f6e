"""What the daemon is told: a YAML file, then `HPAD_*` of the environment, then flags; the later one wins.

Every field is read by one parser, whichever way it came, so that "15s" means the same everywhere. What is wrong is
named with where it stood (file, variable or flag), the field, the value, and what would be right; what belongs to an
adapter (and may be a secret) is never repeated.
"""

import difflib
import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hpad.model import duration, selector, terms
from hpad.model.election import LEASES, Election, problems
from hpad.model.names import subdomain_faults
from hpad.model.sample import EXTERNAL, SOURCE_TYPES
from hpad.model.serving import Serving
from hpad.model.serving import problems as serving_problems
from hpad.model.tunables import Gates, Tunables

LOG_LEVELS = ("debug", "info", "warning", "error")
STORES = ("memory", "sqlite", "cluster")
HISTORY_FILE = "history.db"
LOG_FORMATS = ("auto", "text", "json")
RABBITMQ_METRICS = ("queue_messages", "queue_messages_ready", "queue_messages_unacknowledged")
BUILT_IN_SOURCES = ("metrics-server", "custom-metrics", "external-metrics")


class SettingsError(ValueError):
    """One or more settings are wrong; the message has a line for each."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """Which metrics are meant: each list holds names or shell-style patterns ("queue_*"); an empty list means any.

    `labels`: what the metric's own selector must say, label -> value or pattern.
    """

    types: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}


class SourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How a source is asked: at most `concurrency` calls at a time, `rate` a second, a failed one `retries` times more.

    `fresh`: how old an answer may be that another HPA's question brought (0s: never shared; default: a third of the
    sync period). `max_age`: how old a sample may be by its own timestamp. After `failures` calls that failed in a row
    the source is asked only once a `rest` (default: the sync period).
    """

    concurrency: int = 4
    rate: float = 20.0
    retries: int = 1
    fresh: timedelta | None = None
    max_age: timedelta | None = None
    failures: int = 5
    rest: timedelta | None = None


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One configured instance of an adapter. `settings` is for the adapter's own schema to judge.

    `timeout` is how long one question may take, None for the default; `match` says which metrics go there
    unless a route says otherwise (empty: whatever the adapter serves by itself). `namespaces`: names or patterns of
    those whose HPAs may use the source (empty: all). `fallback`: what stands in for its metrics while they fail, for
    HPAs that don't say so themselves (see `hpad.model.terms`).
    """

    name: str
    adapter: str
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    timeout: timedelta | None = None
    match: tuple[Match, ...] = ()
    namespaces: tuple[str, ...] = ()
    limits: SourceLimits = SourceLimits()
    fallback: terms.Fallback | None = None


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics that match go to the source of that name; the first route that matches wins."""

    match: Match
    source: str


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where histories survive: `sqlite` in the file `path`, `cluster` in the ConfigMaps NAME-0, NAME-1, ..., `memory`
    nowhere.

    `namespace` is that of the ConfigMaps, None for that of the Lease or of hpad itself. `chosen`: somebody said so.
    """

    kind: str = "memory"
    path: Path | None = None
    namespace: str | None = None
    name: str = "hpad-history"
    chosen: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, checked. `manifests` set: HPAs come from that folder instead of the API server.

    `workers` reconciles are at work at a time; those that wait for metrics do not count.
    `max_staleness`: once a watch that decisions need has brought nothing for that long, replicas are kept. Bookmarks
    come about once a minute and a silent watch is begun anew after two and a half, so five minutes are two such rounds.
    `kube_api_qps` None: requests to the API server are not limited on this side.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespaces: tuple[str, ...] = ()
    hpa_selector: str = ""
    manifests: Path | None = None
    sync_period: timedelta = timedelta(seconds=15)
    workers: int = 64
    max_staleness: timedelta = timedelta(minutes=5)
    kube_api_qps: float | None = None
    kube_api_burst: int = 30
    event_component: str = "horizontal-pod-autoscaler"
    tunables: Tunables = Tunables()
    election: Election = Election()
    sources: tuple[SourceSettings, ...] = ()
    routes: tuple[Route, ...] = ()
    listen: tuple[str, int] | None = ("127.0.0.1", 8473)
    serving: Serving = Serving()
    log_level: str = "info"
    log_format: str = "auto"
    record: Path | None = None
    store: StoreSettings = StoreSettings()
    dry_run: bool = False


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _optional_text(value: Any) -> str | None:
    return None if value is None else _text(value) or None


def _path(value: Any) -> Path | None:
    text = _optional_text(value)
    return None if text is None else Path(text).expanduser()


def _names(value: Any) -> tuple[str, ...]:
    """A list of names; a text is taken as names with commas between."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f"{value!r} is not a list of names")
    return tuple(value)


def _duration(value: Any) -> timedelta:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f'{value!r} has no unit: write "{value}s" for seconds')
    parsed = duration.parse(_text(value))
    if parsed < timedelta(0):
        raise ValueError(f"{value!r} is negative: a duration of zero or more is needed")
    return parsed


def _positive_duration(value: Any) -> timedelta:
    parsed = _duration(value)
    if not parsed:
        raise ValueError(f"{value!r} is no time at all: a duration above zero is needed")
    return parsed


def _count(value: Any) -> int:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{value!r} is not a whole number of 1 or more")
    return int(text)


def _qps(value: Any) -> float | None:
    """Requests a second; nothing, zero or less: no limit, as with the original's flag."""
    if value in ("", "none", None):
        return None
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a number of requests a second")
    return number if number > 0 else None


def _whole(value: Any) -> int:
    """A number of 0 or more."""
    return 0 if value in (0, "0") and not isinstance(value, bool) else _count(value)


def _pace(value: Any) -> float:
    """Calls a second."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{value!r} is not a number above 0 (calls a second)")
    return float(value)


def _fraction(value: Any) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ValueError(f"{value!r} is not a number from 0 to 1 (0.1 is ten percent)")
    return number


def _flag(value: Any) -> bool:
    known: dict[Any, bool] = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}
    if not isinstance(value, bool | str) or value not in known:
        raise ValueError(f"{value!r} is neither true nor false")
    return known[value]


def _one_of(*choices: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"{value!r} is not one of {', '.join(choices)}")
        return str(value)

    return parse


def _address(value: Any) -> tuple[str, int] | None:
    if value in ("", "none", None):
        return None
    host, colon, port = _text(value).rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f'{value!r} is not of the form host:port, such as "127.0.0.1:8473", or "none"')
    return host.strip("[]") or "0.0.0.0", int(port)


def _object_name(value: Any) -> str:
    for fault in subdomain_faults(_text(value)):
        raise ValueError(f"{value!r} is no name: {fault}")
    return str(value)


def _gates(value: Any) -> dict[str, bool]:
    """`{Name: true}` or, as with the original's flag, "A=true,B=false"."""
    if isinstance(value, str):
        parts = [part.partition("=") for part in value.split(",") if part.strip()]
        for name, equals, _ in parts:
            if not equals:
                raise ValueError(f"{name.strip()!r} is given no value: write {name.strip()}=true or =false")
        value = {name.strip(): setting.strip().lower() for name, _, setting in parts}
    if not isinstance(value, dict):
        raise ValueError(f'{value!r} is not of the form "Name=true,Other=false"')
    known = Gates.__struct_fields__
    for name in value:
        if name not in known:
            raise ValueError(f"there is no feature gate {name!r}{_hint(name, known)}")
    return {name: _flag(setting) for name, setting in value.items()}


def _selector(value: Any) -> str:
    """A label selector as `kubectl -l` takes it."""
    text = _text(value)
    try:
        selector.parse(text)
    except selector.SelectorError as error:
        raise ValueError(f'{text!r} is not a label selector such as "autoscaler=hpad": {error}') from None
    return text


def _labels(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise ValueError(f"{value!r} is not a mapping of labels to values such as {{queue: orders}}")
    return value


def _match(value: Any) -> Match:
    parsers: dict[str, Callable[[Any], Any]] = {
        "types": _names, "metrics": _names, "namespaces": _names, "labels": _labels,
    }  # fmt: skip
    match = Match(**_fields(value, parsers))
    for kind in match.types:
        if kind not in SOURCE_TYPES:
            raise ValueError(f"types: there is no metric type {kind!r}{_hint(kind, SOURCE_TYPES)}")
    return match


def _matches(value: Any) -> tuple[Match, ...]:
    return tuple(_match(entry) for entry in (value if isinstance(value, list) else [value]))


_LIMITS: dict[str, Callable[[Any], Any]] = {
    "concurrency": _count,
    "rate": _pace,
    "retries": _whole,
    "fresh": _duration,
    "max_age": _positive_duration,
    "failures": _count,
    "rest": _positive_duration,
}


def _limits(value: Any) -> SourceLimits:
    return SourceLimits(**_fields(value, _LIMITS))


def _fallback(value: Any) -> terms.Fallback:
    return terms.parse(_text(value))


def _source(name: str, value: Any) -> SourceSettings:
    if not isinstance(value, dict):
        raise ValueError(f'a source is a mapping such as {{adapter: "{name}", url: …}}')
    own: dict[str, Callable[[Any], Any]] = {
        "adapter": _text,
        "timeout": _positive_duration,
        "match": _matches,
        "namespaces": _names,
        "limits": _limits,
        "fallback": _fallback,
    }
    mine = _fields({key: entry for key, entry in value.items() if key in own}, own)
    rest = {key: entry for key, entry in value.items() if key not in own}
    return SourceSettings(**{"name": name, "adapter": name, "settings": rest, **mine})


def _store(value: Any) -> dict[str, Any]:
    """`{kind: sqlite, path: FILE}`, or as text: memory, cluster, sqlite, sqlite:FILE."""
    if isinstance(value, str):
        kind, _, path = value.partition(":")
        value = {"kind": kind, **({"path": path} if path else {})}
    parsers: dict[str, Callable[[Any], Any]] = {
        "kind": _one_of(*STORES), "path": _path, "namespace": _object_name, "name": _object_name,
    }  # fmt: skip
    fields = _fields(value, parsers)
    fields.setdefault("kind", "sqlite" if "path" in fields else None)
    if fields["kind"] is None:
        raise ValueError(f"kind is missing: one of {', '.join(STORES)}")
    for name, kind in (("path", "sqlite"), ("namespace", "cluster"), ("name", "cluster")):
        if name in fields and fields["kind"] != kind:
            raise ValueError(f"{name}: means nothing to the kind {fields['kind']}, only to {kind}")
    return fields


def _stored(told: Mapping[str, Any] | None, environ: Mapping[str, str], election: Election) -> StoreSettings:
    """What was said, or what fits the way hpad is run; raises SettingsError where a file is meant but none is named.

    Several replicas share what only the cluster can keep. systemd names a service's StateDirectory.
    """
    folder = environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if told is None:
        if not election.enabled and folder:
            return StoreSettings(kind="sqlite", path=Path(folder) / HISTORY_FILE)
        in_cluster = election.enabled or "KUBERNETES_SERVICE_HOST" in environ
        return StoreSettings(kind="cluster" if in_cluster else "memory")
    if told["kind"] == "sqlite" and told.get("path") is None:
        if not folder:
            raise SettingsError(
                "store: path is missing: which file to keep histories in (systemd's STATE_DIRECTORY is not set)"
            )
        told = {**told, "path": Path(folder) / HISTORY_FILE}
    return StoreSettings(**told, chosen=True)


def _sources(value: Any) -> tuple[SourceSettings, ...]:
    if not isinstance(value, dict):
        raise ValueError("sources are a mapping of a name of your choice to {adapter: …, …}")
    return tuple(_within(str(name), _source, str(name), entry) for name, entry in value.items())


def _routes(value: Any) -> tuple[Route, ...]:
    if not isinstance(value, list):
        raise ValueError("routes are a list of {match: {metrics: […]}, source: …}")
    parsers: dict[str, Callable[[Any], Any]] = {"match": _match, "source": _text}
    read = [_within(f"[{index}]", _fields, entry, parsers, True) for index, entry in enumerate(value)]
    return tuple(Route(**fields) for fields in read)


def _within(place: str, parse: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return parse(*arguments)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _hint(name: Any, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"


def _fields(value: Any, parsers: Mapping[str, Callable[[Any], Any]], required: bool = False) -> dict[str, Any]:
    """Read a mapping field by field; raises ValueError for the first field that is unknown, wrong or missing."""
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not a mapping of {', '.join(parsers)}")
    missing = [name for name in parsers if required and name not in value]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    for name in value:
        if name not in parsers:
            raise ValueError(f"unknown field {name!r}{_hint(name, tuple(parsers))}")
    return {name: _within(name, parsers[name], entry) for name, entry in value.items()}


PARSERS: dict[str, Callable[[Any], Any]] = {
    "kubeconfig": _optional_text,
    "context": _optional_text,
    "namespaces": _names,
    "hpa_selector": _selector,
    "manifests": _path,
    "sync_period": _positive_duration,
    "workers": _count,
    "max_staleness": _positive_duration,
    "kube_api_qps": _qps,
    "kube_api_burst": _count,
    "event_component": _object_name,
    "tolerance": _fraction,
    "downscale_stabilization": _duration,
    "cpu_initialization_period": _duration,
    "initial_readiness_delay": _duration,
    "feature_gates": _gates,
    "sources": _sources,
    "routes": _routes,
    "listen": _address,
    "tls_cert_file": _path,
    "tls_private_key_file": _path,
    "client_ca_file": _path,
    "listen_token_file": _path,
    "listen_review": _flag,
    "log_level": _one_of(*LOG_LEVELS),
    "log_format": _one_of(*LOG_FORMATS),
    "record": _path,
    "store": _store,
    "dry_run": _flag,
    "leader_elect": _flag,
    "leader_elect_lease_duration": _positive_duration,
    "leader_elect_renew_deadline": _positive_duration,
    "leader_elect_retry_period": _positive_duration,
    "leader_elect_resource_lock": _one_of(LEASES),
    "leader_elect_resource_name": _object_name,
    "leader_elect_resource_namespace": _object_name,
}
TUNABLES = ("tolerance", "downscale_stabilization", "cpu_initialization_period", "initial_readiness_delay")
ELECTION = {
    "leader_elect": "enabled",
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
_NOT_IN_THE_ENVIRONMENT = ("sources", "routes")
JOINED = ("feature_gates", "sources")
"""Settings of which a later origin replaces only the entries that it names."""
RENAMED: dict[str, str] = {}
"""Names that settings have had in earlier versions, and what they are called now."""


def load(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, tuple[str, Any]]) -> Settings:
    """Read the settings; raises SettingsError with every problem found.

    `flags` maps a field to the flag as people write it and its value: {"sync_period": ("--sync-period", "5s")}.
    """
    problems: list[str] = []
    merged: dict[str, Any] = {}
    for origin, field, value in origins(file, environ, flags):
        if field not in PARSERS:
            problems.append(f"{origin}: {_unknown(field)}")
            continue
        try:
            merged[field] = _joined(field, merged.get(field), PARSERS[field](value))
        except ValueError as error:
            named = origin.lower().replace("-", "_").endswith(field)
            problems.append(f"{origin}: {error}" if named else f"{origin}: {field}: {error}")
    if not problems:
        problems.extend(_inconsistent(merged))
    if problems:
        raise SettingsError(*problems)
    return _assembled(merged, environ)


def origins(
    file: Path | None, environ: Mapping[str, str], flags: Mapping[str, tuple[str, Any]]
) -> list[tuple[str, str, Any]]:
    """All that is said and where, as it was written: (origin, field, value); the later one wins. Raises SettingsError
    where the file cannot be read."""
    return [*_from_file(file), *_from_environment(environ), *_from_flags(flags)]


def _unknown(field: str) -> str:
    if field in RENAMED:
        return f"{field!r} is called {RENAMED[field]!r} now"
    return f"unknown field {field!r}{_hint(field, tuple(PARSERS))}"


def _joined(field: str, held: Any, new: Any) -> Any:
    """Later values replace earlier ones; of feature gates and sources, only those of the same name."""
    if held is None or field not in JOINED:
        return new
    if field == "feature_gates":
        return {**held, **new}
    names = {source.name for source in new}
    return (*(source for source in held if source.name not in names), *new)


def _from_file(file: Path | None) -> list[tuple[str, str, Any]]:
    if file is None:
        return []
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: cannot be read: {error}") from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise SettingsError(f"{file}{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, AttributeError, LookupError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())  # PyYAML's own constructors let through what a false tag does to them
        raise SettingsError(f"{file}: not valid YAML: {reason}") from None
    if content is None:
        return []
    if not isinstance(content, dict):
        raise SettingsError(f"{file}: not a mapping of settings such as `sync_period: 15s`")
    return [(str(file), str(field), value) for field, value in content.items()]


def _from_environment(environ: Mapping[str, str]) -> list[tuple[str, str, Any]]:
    """`HPAD_SYNC_PERIOD` and so on; names that mean nothing to hpad are left alone (Services put some there)."""
    known = [*(field for field in PARSERS if field not in _NOT_IN_THE_ENVIRONMENT), *RENAMED]
    named = [(f"HPAD_{field.upper()}", field) for field in known]
    found: list[tuple[str, str, Any]] = [(name, field, environ[name]) for name, field in named if name in environ]
    if environ.get("HPAD_RABBITMQ_URL"):
        found.append(("HPAD_RABBITMQ_URL", "sources", {"rabbitmq": _rabbitmq(environ)}))
    return found


def _rabbitmq(environ: Mapping[str, str]) -> dict[str, Any]:
    """The broker of `HPAD_RABBITMQ_URL`, `_USERNAME` and `_PASSWORD_FILE` as a source."""
    names = {"url": "URL", "username": "USERNAME", "password_file": "PASSWORD_FILE"}
    given = {field: environ.get(f"HPAD_RABBITMQ_{name}") for field, name in names.items()}
    match = {"types": [EXTERNAL], "metrics": list(RABBITMQ_METRICS)}
    return {"adapter": "rabbitmq", "match": match, **{field: value for field, value in given.items() if value}}


def _from_flags(flags: Mapping[str, tuple[str, Any]]) -> list[tuple[str, str, Any]]:
    return [(flag, field, value) for field, (flag, value) in flags.items()]


def _inconsistent(merged: Mapping[str, Any]) -> list[str]:
    names = tuple(source.name for source in merged.get("sources", ()))
    routes = [
        f"routes: [{index}]: source: there is no source {route.source!r}"
        + (_hint(route.source, names) if names else "")
        for index, route in enumerate(merged.get("routes", ()))
        if route.source not in (*names, *BUILT_IN_SOURCES)
    ]
    return [*routes, *(f"leader_elect_{problem}" for problem in problems(_election(merged))), *_unguarded(merged)]


def _unguarded(merged: Mapping[str, Any]) -> list[str]:
    """What does not go together in the way the windows are guarded, by the settings' own names."""
    address = merged.get("listen", Settings().listen)
    if address is None:
        return []
    names = {name: field for field, name in SERVING.items()}
    split = (problem.partition(":") for problem in serving_problems(_serving(merged), address[0]))
    return [f"{names[name]}:{rest}" for name, _, rest in split]


def _serving(merged: Mapping[str, Any]) -> Serving:
    return Serving(**{name: merged[field] for field, name in SERVING.items() if field in merged})


def _election(merged: Mapping[str, Any]) -> Election:
    return Election(**{name: merged[field] for field, name in ELECTION.items() if field in merged})


def _assembled(merged: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    rest = dict(merged)
    numbers = {field: rest.pop(field) for field in TUNABLES if field in rest}
    tunables = Tunables(gates=Gates(**rest.pop("feature_gates", {})), **numbers)
    election = _election(rest)
    rest["store"] = _stored(rest.get("store"), environ, election)
    guarded = _serving(rest)
    others = {
        field: value for field, value in rest.items() if not field.startswith("leader_elect") and field not in SERVING
    }
    return Settings(tunables=tunables, election=election, serving=guarded, **others)
