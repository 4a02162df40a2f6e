"""Builds Settings from a file, the environment and flags."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hpad import files
from hpad.api import yaml_reader
from hpad.api.problem import Problem, below, path_of, problems_of, steps
from hpad.api.text import hint, near, shown
from hpad.engine.controls import BUDGET
from hpad.engine.view import Gates
from hpad.settings import rows
from hpad.settings.model import (
    BUILT_IN_SOURCES,
    HISTORY_FILE,
    TABLE,
    Election,
    Serving,
    Settings,
    election_problems,
    serving_problems,
)
from hpad.settings.parsers import ZERO, SettingsError
from hpad.settings.sources import StoreSettings

_LARGEST = 16 << 20
"""Bytes of the configuration."""
_ELECTION = rows.names(Election)
_SERVING = rows.names(Serving)


def load(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, tuple[str, Any]]) -> Settings:
    """Reads the settings. Raises SettingsError with every problem found.

    `flags` maps a field to the flag as written and its value: {"sync_period": ("--sync-period", "5s")}.
    """
    found: list[Problem] = []
    merged: dict[str, Any] = {}
    places: dict[str, str] = {}
    for origin, field, value in origins(file, environ, flags):
        if field not in TABLE:
            found.append(Problem(path_of((field,)), f"{origin}: {_unknown(field)}"))
            continue
        places[field] = _place(origin, field)
        try:
            merged[field] = _joined(field, merged.get(field), _parsed(origin, field, value))
        except ValueError as error:
            found += [_placed(problem, field, places) for problem in problems_of(error)]
    invalid = {step for problem in found for step in steps(problem.path)[:1]}
    for field, problem in (*_inconsistent(merged, invalid), *_without_path(merged, environ)):
        found.append(_placed(problem, field, places))
    if found:
        raise SettingsError(*found)
    return _assembled(merged, environ)


def origins(
    file: Path | None, environ: Mapping[str, str], flags: Mapping[str, tuple[str, Any]]
) -> list[tuple[str, str, Any]]:
    """Returns all configured values as (origin, field, value), as written; later ones win.

    Raises SettingsError if the file cannot be read.
    """
    return [*_from_file(file), *_from_environment(environ), *_from_flags(flags)]


def _placed(problem: Problem, field: str, places: Mapping[str, str]) -> Problem:
    """Returns the problem of a setting; its message names the origin, which names the setting."""
    return problem._replace(path=below(field, problem.path), text=f"{places.get(field, field)}: {problem.text}")


def _place(origin: str, field: str) -> str:
    """Returns the origin with the setting's name. The names of variables and flags contain it already."""
    named = origin.lower().replace("-", "_").endswith(field)
    return origin if named else f"{origin}: {field}"


def _unknown(field: str) -> str:
    if field in REMOVED:
        return f"{shown(field)} was removed: {REMOVED[field]}"
    suggestion = near(field, tuple(TABLE)) or "; `hpad config show` lists all settings"
    return f"unknown field {shown(field)}{suggestion}"


def _parsed(origin: str, field: str, value: Any) -> Any:
    """Returns the parsed value; sources note their origin. Raises ValueError."""
    parsed = TABLE[field].setting.parser(value)
    if field == "sources":
        return tuple(msgspec.structs.replace(source, origin=origin) for source in parsed)
    return parsed


def _joined(field: str, earlier: Any, later: Any) -> Any:
    join = TABLE[field].setting.join
    return later if earlier is None or join is None else join(earlier, later)


def _from_file(file: Path | None) -> list[tuple[str, str, Any]]:
    if file is None:
        return []
    try:
        found = list(yaml_reader.documents(files.content(file, _LARGEST).decode()))
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"{file}: not UTF-8: byte {error.object[error.start]:#04x} at offset {error.start}"
        ) from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise SettingsError(f"{file}{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SettingsError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from None
    content = _only(file, found)
    if content is None:
        return []
    if not isinstance(content, dict):
        raise SettingsError(f"{file}: not a mapping of settings such as `sync_period: 15s`")
    if "kind" in content and "apiVersion" in content:
        raise SettingsError(
            f"{file}: this is a Kubernetes object (kind: {content['kind']}), not a mapping of settings such as "
            "`sync_period: 15s`; pass a folder of HPAs with --manifests, a kubeconfig with --kubeconfig"
        )
    return [(str(file), str(field), value) for field, value in content.items()]


def _only(file: Path, found: Sequence[tuple[yaml.Node, tuple[Problem, ...], Any]]) -> Any:
    """Returns the value of the only document, None if there is none. Raises SettingsError."""
    for node, repeated, _ in found:
        for each in repeated:  # the last one would count, and the sources before it would be lost
            raise SettingsError(f"{file}:{yaml_reader.line_of(node, each.path)}: {each}")
    if len(found) > 1:
        raise SettingsError(f"{file}:{found[1][0].start_mark.line + 1}: another document; settings are one")
    return found[0][2] if found else None


def _from_environment(environ: Mapping[str, str]) -> list[tuple[str, str, Any]]:
    """Reads `HPAD_SYNC_PERIOD` and so on. Ignores unknown names: Kubernetes sets some for a Service hpad."""
    known = [
        *(field for field, row in TABLE.items() if row.setting.group),
        *REMOVED,
    ]
    named = [(f"HPAD_{field.upper()}", field) for field in known]
    found: list[tuple[str, str, Any]] = [(name, field, environ[name]) for name, field in named if name in environ]
    if environ.get("HPAD_RABBITMQ_URL"):
        found.append(("HPAD_RABBITMQ_URL", "sources", {"rabbitmq": _rabbitmq(environ)}))
    return found


def _rabbitmq(environ: Mapping[str, str]) -> dict[str, Any]:
    """Returns the source of `HPAD_RABBITMQ_URL`, `_USERNAME` and `_PASSWORD_FILE`."""
    names = {"url": "URL", "username": "USERNAME", "password_file": "PASSWORD_FILE"}
    values = {field: environ.get(f"HPAD_RABBITMQ_{name}") for field, name in names.items()}
    return {"adapter": "rabbitmq", **{field: value for field, value in values.items() if value}}


def _from_flags(flags: Mapping[str, tuple[str, Any]]) -> list[tuple[str, str, Any]]:
    """Raises SettingsError if a flag that selects HPAs is empty, as from an unset shell variable.

    Otherwise hpad would act on all HPAs.
    """
    empty = [flag for field, (flag, value) in flags.items() if TABLE[field].setting.selects and value == ""]
    if empty:
        raise SettingsError(*(f"{flag}: '' is empty: give a value, or leave the flag out" for flag in empty))
    return [(flag, field, value) for field, (flag, value) in flags.items()]


def _inconsistent(merged: Mapping[str, Any], invalid: set[str]) -> list[tuple[str, Problem]]:
    """Returns contradictions between settings with the setting, except those that involve invalid ones."""
    found = [] if "sources" in invalid else _unknown_sources(merged)
    found += [] if "budgets" in invalid else _unknown_budgets(merged)
    if not invalid & set(_ELECTION.values()):
        found += _for_settings(election_problems(rows.filled(Election(), merged)), _ELECTION)
    address = merged.get("listen", Settings().listen)
    if not invalid & {"listen", *_SERVING.values()} and address is not None:
        found += _for_settings(serving_problems(rows.filled(Serving(), merged), address[0]), _SERVING)
    return found


def _unknown_sources(merged: Mapping[str, Any]) -> list[tuple[str, Problem]]:
    names = tuple(source.name for source in merged.get("sources", ()))
    found = []
    for index, route in enumerate(merged.get("routes", ())):
        if route.source not in (*names, *BUILT_IN_SOURCES):
            text = f"there is no source {shown(route.source)}{hint(route.source, names) if names else ''}"
            found.append(("routes", Problem("", text).inside("source").inside(index)))
    return found


def _unknown_budgets(merged: Mapping[str, Any]) -> list[tuple[str, Problem]]:
    """An HPA whose budget is unknown would never grow."""
    names = tuple(budget.name for budget in merged.get("budgets", ()))
    found = []
    for index, entry in enumerate(merged.get("hpas", ())):
        name = entry.annotations.get(BUDGET)
        if name is not None and name not in names:
            text = f"there is no budget {shown(name)}{hint(name, names) if names else ''}"
            found.append(("hpas", Problem("", text).inside("budget").inside(index)))
    return found


def _for_settings(problems: Iterable[Problem], names: Mapping[str, str]) -> list[tuple[str, Problem]]:
    """Returns the setting of each problem, which names an attribute."""
    return [(names[problem.path], problem._replace(path="")) for problem in problems]


def _without_path(merged: Mapping[str, Any], environ: Mapping[str, str]) -> list[tuple[str, Problem]]:
    """Returns a problem if the store is an SQLite file, and neither the settings nor systemd name one."""
    store = merged.get("store") or {}
    if store.get("kind") != "sqlite" or store.get("path") is not None or _state_directory(environ):
        return []
    text = (
        f"path is missing: name the file, as in sqlite:/var/lib/hpad/{HISTORY_FILE}"
        " (systemd's STATE_DIRECTORY is not set)"
    )
    return [("store", Problem("", text))]


def _store(value: Mapping[str, Any] | None, environ: Mapping[str, str], election: Election) -> StoreSettings:
    """Returns the configured store, else ConfigMaps for replicas and pods, and the StateDirectory of a service."""
    folder = _state_directory(environ)
    name = f"{election.name}-history"  # hpads with Leases of their own keep their states apart
    if value is None:
        if not election.enabled and folder:
            return StoreSettings(kind="sqlite", path=Path(folder) / HISTORY_FILE)
        in_cluster = election.enabled or "KUBERNETES_SERVICE_HOST" in environ
        return StoreSettings(kind="cluster", name=name) if in_cluster else StoreSettings(kind="memory")
    if value["kind"] == "sqlite" and value.get("path") is None:
        value = {**value, "path": Path(folder) / HISTORY_FILE}
    if value["kind"] == "cluster":
        value = {"name": name, **value}
    return StoreSettings(**value, chosen=True)


def _state_directory(environ: Mapping[str, str]) -> str:
    """Returns the first StateDirectory of systemd, "" if there is none."""
    return environ.get("STATE_DIRECTORY", "").partition(":")[0]


def _assembled(merged: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    gates = merged.get("feature_gates", {})
    store = _store(merged.get("store"), environ, rows.filled(Election(), merged))
    return rows.filled(Settings(names_zero=ZERO in gates), {**merged, "feature_gates": Gates(**gates), "store": store})


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
    "record_recent_dir": "hpad explain NAME --save FILE fetches the last decisions of an HPA, with their inputs",
    "decision_history_entries": "an HPA has at most 1,000 entries; decision_history bounds their age",
    "decision_history_memory": "the history in memory takes 16Mi at most; decision_history_disk bounds that of a file",
    "decision_series": "the series are always exported; drop unwanted ones by metric_relabel_configs of Prometheus",
    "explain_events": "events of rescales always give the reason in full, after the text of Kubernetes; leave it out",
    "event_component": "events name the component horizontal-pod-autoscaler, as Kubernetes does; leave it out",
    "sync_tick": "HPAs are due on ticks of 100 ms; leave it out",
    "memory_limit": "set systemd's MemoryMax= or the container's resources.limits.memory",
}
"""Former settings and former names, with what to use instead. Adapters list those of their own sources (`renamed`)."""
