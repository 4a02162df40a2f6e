"""From file, environment and flags to Settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hpad.api.sample import EXTERNAL
from hpad.api.text import shown
from hpad.engine.view import Gates, Tunables
from hpad.settings import sections, values
from hpad.settings.shape import (
    BUILT_IN_SOURCES,
    HISTORY_FILE,
    RABBITMQ_METRICS,
    ZERO,
    Election,
    Serving,
    Settings,
    SettingsError,
    StoreSettings,
    election_problems,
    serving_problems,
)


def _stored(told: Mapping[str, Any] | None, environ: Mapping[str, str], election: Election) -> StoreSettings:
    """What was said, or what fits the way hpad is run (see `_homeless`).

    Several replicas share what only the cluster can keep. systemd names a service's StateDirectory.
    """
    folder = _state(environ)
    if told is None:
        if not election.enabled and folder:
            return StoreSettings(kind="sqlite", path=Path(folder) / HISTORY_FILE)
        in_cluster = election.enabled or "KUBERNETES_SERVICE_HOST" in environ
        return StoreSettings(kind="cluster" if in_cluster else "memory")
    if told["kind"] == "sqlite" and told.get("path") is None:
        told = {**told, "path": Path(folder) / HISTORY_FILE}
    return StoreSettings(**told, chosen=True)


def _state(environ: Mapping[str, str]) -> str:
    """systemd's StateDirectory, the first of several; "" where there is none."""
    return environ.get("STATE_DIRECTORY", "").partition(":")[0]


_NOT_IN_THE_ENVIRONMENT = ("sources", "routes")
_SEE = "; `hpad config show` names all there are"
_NARROWING = ("namespaces", "hpa_selector", "manifests")


def load(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, tuple[str, Any]]) -> Settings:
    """Read the settings; raises SettingsError with every problem found.

    `flags` maps a field to the flag as people write it and its value: {"sync_period": ("--sync-period", "5s")}.
    """
    found: list[tuple[str, values.Flaw]] = []
    merged: dict[str, Any] = {}
    places: dict[str, str] = {}
    for origin, field, value in origins(file, environ, flags):
        if field not in sections.PARSERS:
            found.append((origin, values.Flaw((), _unknown(field), field)))
            continue
        places[field] = _place(origin, field)
        try:
            merged[field] = _joined(field, merged.get(field), _read(origin, field, value))
        except ValueError as error:
            found += [(places[field], flaw.inside(field)) for flaw in values.flaws(error)]
    wrong: set[str | int] = {flaw.place[0] for _, flaw in found}
    for flaw in (*_inconsistent(merged, wrong), *_homeless(merged, environ)):
        found.append((places.get(str(flaw.path[0]), str(flaw.path[0])), flaw))
    if found:
        raise SettingsError(*map(_said, found), places=[flaw.place for _, flaw in found])
    return _assembled(merged, environ)


def _said(problem: tuple[str, values.Flaw]) -> str:
    """The problem in words: where the setting stands says its name, unless it is one that does not exist."""
    origin, flaw = problem
    return f"{origin}: {flaw._replace(path=flaw.path[1:])}"


def origins(
    file: Path | None, environ: Mapping[str, str], flags: Mapping[str, tuple[str, Any]]
) -> list[tuple[str, str, Any]]:
    """All that is said and where, as it was written: (origin, field, value); the later one wins. Raises SettingsError
    where the file cannot be read."""
    return [*_from_file(file), *_from_environment(environ), *_from_flags(flags)]


def _place(origin: str, field: str) -> str:
    """Where a setting stands; a variable and a flag say its name themselves."""
    named = origin.lower().replace("-", "_").endswith(field)
    return origin if named else f"{origin}: {field}"


def _unknown(field: str) -> str:
    if field in sections.RENAMED:
        return f"{shown(field)} is called {shown(sections.RENAMED[field])} now"
    if field in sections.REMOVED:
        return f"{shown(field)} was removed: {sections.REMOVED[field]}"
    return f"unknown field {shown(field)}{values.near(field, tuple(sections.PARSERS)) or _SEE}"


def _read(origin: str, field: str, value: Any) -> Any:
    """The value as its parser has it; a source knows where it comes from. Raises ValueError."""
    read = sections.PARSERS[field](value)
    return tuple(msgspec.structs.replace(source, origin=origin) for source in read) if field == "sources" else read


def _joined(field: str, held: Any, new: Any) -> Any:
    """Later values replace earlier ones; of feature gates and sources, only those of the same name."""
    if held is None or field not in sections.JOINED:
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
        raise SettingsError(
            f"{file}: not UTF-8: byte {error.object[error.start]:#04x} at offset {error.start}"
        ) from None
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
    if "kind" in content and "apiVersion" in content:
        raise SettingsError(
            f"{file}: this is a Kubernetes object (kind: {content['kind']}), not a mapping of settings such as "
            "`sync_period: 15s`; --manifests takes a folder of HPAs, --kubeconfig the way to a cluster"
        )
    return [(str(file), str(field), value) for field, value in content.items()]


def _from_environment(environ: Mapping[str, str]) -> list[tuple[str, str, Any]]:
    """`HPAD_SYNC_PERIOD` and so on; names that mean nothing to hpad are left alone (Services put some there)."""
    known = [
        *(field for field in sections.PARSERS if field not in _NOT_IN_THE_ENVIRONMENT),
        *sections.RENAMED,
        *sections.REMOVED,
    ]
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
    """Raises SettingsError where a flag that narrows what hpad looks after is empty, as with a shell's variable that is
    not set: it would look after everything."""
    empty = [flag for field, (flag, value) in flags.items() if field in _NARROWING and value == ""]
    if empty:
        raise SettingsError(*(f"{flag}: '' says nothing: give a value, or leave the flag out" for flag in empty))
    return [(flag, field, value) for field, (flag, value) in flags.items()]


def _inconsistent(merged: Mapping[str, Any], wrong: set[str | int]) -> list[values.Flaw]:
    """What does not go together, as far as the settings that it is about could be read."""
    names = tuple(source.name for source in merged.get("sources", ()))
    found = [
        values.Flaw(
            ("routes", index, "source"), f"there is no source {shown(route.source)}{_hint(route.source, names)}"
        )
        for index, route in enumerate(merged.get("routes", ()))
        if "sources" not in wrong and route.source not in (*names, *BUILT_IN_SOURCES)
    ]
    if not wrong & sections.ELECTION.keys():
        found += [_flaw(f"leader_elect_{problem}") for problem in election_problems(_election(merged))]
    if not wrong & {"shards", "leader_elect", "store"}:
        found += map(_flaw, _unshared(merged))
    if not wrong & {"listen", *sections.SERVING}:
        found += map(_flaw, _unguarded(merged))
    return found


def _hint(name: str, names: tuple[str, ...]) -> str:
    return values.hint(name, names) if names else ""


def _flaw(problem: str) -> values.Flaw:
    """Of a sentence that begins with a setting's name."""
    field, _, text = problem.partition(": ")
    return values.Flaw((field,), text)


def _unshared(merged: Mapping[str, Any]) -> list[str]:
    """What does not go together with sharing the HPAs."""
    if not merged.get("shards"):
        return []
    found = []
    if merged.get("leader_elect"):
        found.append(
            "shards: all replicas share the HPAs, with leader_elect one does all the work: choose one of the two"
        )
    kind = (merged.get("store") or {}).get("kind", "cluster")
    if kind != "cluster":
        found.append(
            f"store: {kind} is this replica's own, but with shards HPAs change hands and their histories go along:"
            " only cluster will do"
        )
    return found


def _homeless(merged: Mapping[str, Any], environ: Mapping[str, str]) -> list[values.Flaw]:
    """A file is meant, but none is named, and systemd has none to offer."""
    told = merged.get("store") or {}
    if told.get("kind") != "sqlite" or told.get("path") is not None or _state(environ):
        return []
    text = (
        f"path is missing: which file to keep histories in, as in sqlite:/var/lib/hpad/{HISTORY_FILE}"
        " (systemd's STATE_DIRECTORY is not set)"
    )
    return [values.Flaw(("store",), text)]


def _unguarded(merged: Mapping[str, Any]) -> list[str]:
    """What does not go together in the way the windows are guarded, by the settings' own names."""
    address = merged.get("listen", Settings().listen)
    if address is None:
        return []
    names = {name: field for field, name in sections.SERVING.items()}
    split = (problem.partition(":") for problem in serving_problems(_serving(merged), address[0]))
    return [f"{names[name]}:{rest}" for name, _, rest in split]


def _serving(merged: Mapping[str, Any]) -> Serving:
    return Serving(**{name: merged[field] for field, name in sections.SERVING.items() if field in merged})


def _election(merged: Mapping[str, Any]) -> Election:
    told = {name: merged[field] for field, name in sections.ELECTION.items() if field in merged}
    return Election(**{**told, "enabled": told.get("enabled", False) or told.get("shards", False)})


def _assembled(merged: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    rest = dict(merged)
    numbers = {field: rest.pop(field) for field in sections.TUNABLES if field in rest}
    gates = rest.pop("feature_gates", {})
    tunables = Tunables(gates=Gates(**gates), **numbers)
    election = _election(rest)
    rest["store"] = _stored(rest.get("store"), environ, election)
    guarded = _serving(rest)
    others = {
        field: value
        for field, value in rest.items()
        if not field.startswith("leader_elect") and field != "shards" and field not in sections.SERVING
    }
    return Settings(names_zero=ZERO in gates, tunables=tunables, election=election, serving=guarded, **others)
