"""Changes of an HPA, as `--set PATH=VALUE` names them: read, applied, defaulted and validated.

A path is written as in the manifest of an HPA: `spec.metrics[0].resource.target.averageUtilization`. A value is YAML;
null removes a field or an entry of a list.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from hpad.api import decode, validation, yaml_reader
from hpad.api import hpa as v2
from hpad.api.autoscaler import PREFIX
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.text import shown, visible
from hpad.engine.annotations import FALLBACK
from hpad.manifests import hpas

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_INDEX: Final = re.compile(r"\[([0-9]{1,9})\]")
_KEY: Final = re.compile(r"""\[(?:"([^"]*)"|'([^']*)')\]""")
_ROOTS: Final = ("spec", "metadata")
_NO_QUOTES: Final = "*&!%@`"
"""Begins of texts, such as that of `* * * * * for 1h: min=5`, which are no plain text in YAML."""
_SETTABLE: Final = f"only spec and the annotations under {PREFIX} can be set"
_IN_BRACKETS: Final = f'metadata.annotations["{FALLBACK}"]'

Part = str | int
"""A field, or the index of an entry."""


class ChangeError(ValueError):
    """A change that cannot be read or applied. The message names the flag, the path, the value and what is wrong."""


class Change(NamedTuple):
    """One `--set`: `text` as written, the parts of its path, and the value."""

    text: str
    path: tuple[Part, ...]
    value: Any

    @property
    def annotation(self) -> str | None:
        """The name of the annotation, None for a field of the spec."""
        return str(self.path[-1]) if self.path[0] == "metadata" else None

    def error(self, message: str) -> ChangeError:
        """Returns the error of this change."""
        return ChangeError(f"--set {visible(self.text)}: {message}")


def parse(text: str) -> Change:
    """Reads PATH=VALUE. Raises ChangeError."""
    draft = Change(text, ("",), None)
    path, rest = _path(draft)
    if not rest.startswith("="):
        raise draft.error(f"{_stop(rest)} after {written(path)}; write PATH=VALUE, as in spec.maxReplicas=20")
    draft = draft._replace(path=_annotation_of(path))
    _check_root(draft)
    return draft._replace(value=_value(draft, rest[1:]))


def _annotation_of(path: tuple[Part, ...]) -> tuple[Part, ...]:
    """Returns the path of the annotation that stands for an option of an Autoscaler; any other path as it is."""
    match path:
        case ("spec", "options", str(name)):
            return "metadata", "annotations", f"{PREFIX}{name}"
    return path


def _stop(rest: str) -> str:
    return f"{shown(rest[:1])} is not understood" if rest else "there is no value"


def _path(draft: Change) -> tuple[tuple[Part, ...], str]:
    """Returns the parts of the path, and the text after it."""
    rest, path = draft.text.removeprefix("$").removeprefix("."), list[Part]()
    while True:
        name, index, key = _NAME.match(rest), _INDEX.match(rest), _KEY.match(rest)
        found = index or key if path else name
        if found is None and rest.startswith(".") and path:
            rest = rest[1:]
            found = _NAME.match(rest)
            if found is None:
                raise draft.error(f"a field is missing after {written(path)}.")
        if found is None:
            break
        path.append(_part(found))
        rest = rest[found.end() :]
    if not path:
        raise draft.error("the path is missing; write PATH=VALUE, as in spec.maxReplicas=20")
    if path[:2] == ["metadata", "annotations"] and not rest.startswith("="):
        raise draft.error(f"write the name of an annotation in brackets: {_IN_BRACKETS}")
    return tuple(path), rest


def _part(found: re.Match[str]) -> Part:
    if found.re is _INDEX:
        return int(found[1])
    return found[0] if found.re is _NAME else found[1] if found[1] is not None else found[2]


def _check_root(change: Change) -> None:
    path = change.path
    if path[0] not in _ROOTS:
        near = f"; did you mean spec.{written(path)}?" if path[0] in _spec_fields() else ""
        raise change.error(f"{_SETTABLE}{near}")
    if path[0] == "spec" and len(path) == 1:
        raise change.error("name a field of the spec, as in spec.maxReplicas=20")
    if path[0] == "metadata" and (len(path) != 3 or path[1] != "annotations" or not isinstance(path[2], str)):
        raise change.error(f"{_SETTABLE}, as in {_IN_BRACKETS}")
    if change.annotation is not None and not change.annotation.startswith(PREFIX):
        raise change.error(f"this annotation changes no decision: {_SETTABLE}")


def _spec_fields() -> Sequence[str]:
    return [field.encode_name for field in msgspec.structs.fields(v2.HorizontalPodAutoscalerSpec)]


def _value(change: Change, text: str) -> Any:
    """Returns the value of a YAML text; of an annotation the text itself, unless it is null or in quotes."""
    if not text.strip():
        raise change.error("the value is missing; null removes a field")
    if change.annotation is not None and text.lstrip()[0] in _NO_QUOTES:
        return text
    try:
        found = list(yaml_reader.documents(text))
    except yaml.YAMLError as error:
        raise change.error(f"the value is not YAML: {getattr(error, 'problem', None) or error}") from None
    if len(found) != 1:
        raise change.error("the value is not one YAML value")
    _, repeated, value = found[0]
    for twice in repeated:
        raise change.error(str(twice))
    return value if change.annotation is None or value is None or isinstance(value, str) else text


def written(path: Sequence[Part]) -> str:
    """Returns a path as text: spec.metrics[0].type."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def applied(
    hpa: HorizontalPodAutoscaler, changes: Sequence[Change], *, scale_to_zero: bool = False
) -> HorizontalPodAutoscaler:
    """Returns the HPA with the changes of its spec, in order, with defaults and validated, as the API server does.

    Errors that the HPA has without the changes are no errors. An HPA that the changes leave as it is, is returned
    itself. Raises ChangeError.
    """
    document: dict[str, Any] = {
        "apiVersion": v2.API_VERSION,
        "kind": v2.KIND,
        "metadata": {"name": hpa.metadata.name, "namespace": hpa.metadata.namespace},
        "spec": v2.to_builtins(msgspec.structs.replace(hpa.spec, queries=())),
    }
    spec = hpa.spec
    for change in changes:
        if change.annotation is None:
            _put(document, change, hpa)
            spec = msgspec.structs.replace(_read(document, change, hpa).spec, queries=hpa.spec.queries)
    if spec == hpa.spec:
        return hpa
    made = v2.defaulted(msgspec.structs.replace(hpa, spec=spec))
    _validate(made, hpa, changes, scale_to_zero)
    return made


def _put(document: dict[str, Any], change: Change, hpa: HorizontalPodAutoscaler) -> None:
    """Sets the value in the document, with the objects on the way to it."""
    holder: Any = document
    for index, part in enumerate(change.path):
        before, last = change.path[:index], index == len(change.path) - 1
        if isinstance(part, int):
            _check_index(document, holder, part, before, change, hpa)
        elif not isinstance(holder, dict):
            raise change.error(f"{hpa.key}: {written(before)} {_no_object(holder, part)}")
        if not last:
            following: Any = [] if isinstance(change.path[index + 1], int) else {}
            if isinstance(part, str) and holder.get(part) is None:
                holder[part] = following
            holder = holder[part]
        elif isinstance(part, int) and change.value is None:
            del holder[part]
        else:
            holder[part] = change.value


def _no_object(holder: Any, part: str) -> str:
    if isinstance(holder, list):
        return f"is a list: write the index of an entry, as in [0].{part}"
    return f"is {shown(holder)} and has no field {shown(part)}"


def _check_index(
    document: dict[str, Any],
    holder: Any,
    index: int,
    before: Sequence[Part],
    change: Change,
    hpa: HorizontalPodAutoscaler,
) -> None:
    """Raises ChangeError if the holder is no list, or has no such entry."""
    where = f"{hpa.key}: {written(before)}"
    if not isinstance(holder, list):
        raise change.error(f"{where} is no list: write a field instead of [{index}]")
    if index < len(holder):
        return
    _read(document, change, hpa)  # a misspelled list is empty as well
    there = f"the last one is [{len(holder) - 1}]" if holder else "it has none"
    raise change.error(f"{where} has no entry [{index}]: {there}")


def _read(document: dict[str, Any], change: Change, hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    reading = decode.read(document)
    if reading.errors or reading.hpa is None:
        raise change.error(f"{hpa.key}: {'; '.join(map(str, reading.errors))}")
    return reading.hpa


def _validate(
    made: HorizontalPodAutoscaler, hpa: HorizontalPodAutoscaler, changes: Sequence[Change], scale_to_zero: bool
) -> None:
    """Raises ChangeError for errors that the recorded HPA does not have, and for another target."""
    key = hpa.key
    if made.spec.scale_target_ref != hpa.spec.scale_target_ref:
        raise _blamed("spec.scaleTargetRef", changes).error(
            f"{key}: the target cannot be changed: counts and pods were recorded for the other one"
        )
    known = {str(error) for error in validation.validate(v2.defaulted(hpa), scale_to_zero=scale_to_zero)}
    errors = [each for each in validation.validate(made, scale_to_zero=scale_to_zero) if str(each) not in known]
    if errors:
        texts = "; ".join(str(hpas.explained(each)) for each in errors)
        raise _blamed(errors[0].path, changes).error(f"the API server would refuse {key}: {texts}")


def _blamed(field: str, changes: Sequence[Change]) -> Change:
    """Returns the change whose path has most in common with the field of an error."""

    def common(change: Change) -> int:
        path = written(change.path)
        return next(
            (i for i, (a, b) in enumerate(zip(path, field, strict=False)) if a != b), min(len(path), len(field))
        )

    return max((each for each in changes if each.annotation is None), key=common)
