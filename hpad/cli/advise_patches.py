"""`hpad advise --patches DIR`: a file per HPA with an advice, for `kubectl patch --patch-file` and for kustomize.

A file is a merge patch with the head that kustomize needs. `kubectl patch` takes it for HPAs as it is: for them a
strategic merge patch is the same, since no list in autoscaling/v2 has a merge key, so that lists are replaced whole
(kubernetes/api, autoscaling/v2/types.go: metrics and policies are of listType atomic). Custom resources, such as
Autoscalers, need `--type merge`.
"""

import hashlib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from hpad.api import hpa as v2
from hpad.api import yaml_reader
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.cli.output import Failure
from hpad.kube import paths
from hpad.simulation.advice.assessment import SettingChange
from hpad.simulation.advice.choosing.candidates import applied
from hpad.simulation.advice.summary import FleetAdvice

HEAD: Final = "# Written by hpad advise"
"""Begins each file; files that begin so are replaced."""
_LONGEST: Final = 200
"""Characters of a file name; file systems take 255 bytes."""
_NO_KEY: Final = re.compile(r"[^A-Za-z0-9.-]")


def write(folder: Path, found: FleetAdvice) -> list[Path]:
    """Writes a patch for each HPA with an advice, and removes patches of earlier calls. Raises Failure."""
    changed = [(found.hpas[each.key], each.advice) for each in found.assessments if each.advice is not None]
    texts = {file_name(hpa.key): text(hpa, advice.changes, advice.text) for hpa, advice in changed}
    try:
        _clear(folder)
        for name, content in texts.items():
            (folder / name).write_text(content, encoding="utf-8")
    except OSError as error:
        raise Failure(f"--patches {folder}: cannot be written: {error.strerror or error}") from None
    return [folder / name for name in texts]


def check(folder: Path) -> None:
    """Raises Failure if the folder has anything but patches of earlier calls, or is none."""
    try:
        others = [path.name for path in sorted(folder.iterdir()) if not _is_own(path)] if folder.exists() else []
    except OSError as error:
        raise Failure(f"--patches {folder}: cannot be read: {error.strerror or error}") from None
    if others:
        raise Failure(f"--patches {folder}: has {others[0]}, which is no patch of hpad advise; name another folder")


def _clear(folder: Path) -> None:
    """Creates the folder, or removes the patches in it. Raises Failure if it has anything else, and OSError."""
    check(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()


def _is_own(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(HEAD)) == HEAD.encode()


def file_name(key: Key) -> str:
    """Returns NAMESPACE.NAME.yaml; that of an Autoscaler ends in _autoscaler.yaml.

    A namespace has no dot, and no name has "_" or "%", so that two objects never share a file.
    """
    plain = _NO_KEY.sub(_escaped, f"{key.namespace}.{key.name}")
    if len(plain) > _LONGEST:
        whole = hashlib.sha256(plain.encode()).hexdigest()
        plain = f"{plain[:_LONGEST]}_{whole[:12]}"
    return f"{plain}{'_autoscaler' if key.kind else ''}.yaml"


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def text(hpa: HorizontalPodAutoscaler, changes: Sequence[SettingChange], why: str) -> str:
    """Returns the file of an HPA, with the command that applies it."""
    key = hpa.key
    resource, kind = (paths.AUTOSCALERS, " --type merge") if key.kind else (paths.HPAS, "")
    name = f"{resource.plural}.{resource.version}.{resource.group}"
    place, own, file = map(shlex.quote, (key.namespace, key.name, file_name(key)))  # a recording may have any name
    command = f"kubectl -n {place} patch {name} {own}{kind} --patch-file {file}"
    document = {
        "apiVersion": f"{resource.group}/{resource.version}",
        "kind": resource.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": patch(hpa, changes),
    }
    head = "\n".join((HEAD, f"# {_one_line(why)}", f"# {_one_line(command)}", ""))
    return head + yaml.dump(document, Dumper=yaml_reader.Dumper, sort_keys=False, allow_unicode=True)


def _one_line(comment: str) -> str:
    return " ".join(comment.split())


def patch(hpa: HorizontalPodAutoscaler, changes: Sequence[SettingChange]) -> Any:
    """Returns the merge patch (RFC 7386) of the spec that makes the changes. Raises ChangeError."""
    before, after = (v2.to_builtins(v2.defaulted(each))["spec"] for each in (hpa, applied(hpa, changes)))
    return merge_patch(before, after)


def merge_patch(before: Any, after: Any) -> Any:
    """Returns what makes `after` of `before`; lists are replaced whole, and null removes a field."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    found: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        if name not in before:
            found[name] = value
        elif before[name] != value:
            found[name] = merge_patch(before[name], value)
    return found
