"""The sections about HPAs: `hpas`, annotations for those that cannot be annotated, and `budgets`, which they share.

Each entry of `hpas` selects HPAs and gives them annotations under `hpad.io/`. A field has the name of the annotation
with underscores: `tolerance_up` stands for `hpad.io/tolerance-up`.
"""

import datetime
import fnmatch
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from hpad.api.autoscaler import PREFIX
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import label_faults
from hpad.api.quantity import QuantityError, parse_milli
from hpad.api.text import shown
from hpad.engine import annotations, controls
from hpad.engine.budget import CORES, REPLICA, REPLICAS
from hpad.settings import parsers, rows
from hpad.settings.parsers import Json, Parser, each, takes
from hpad.settings.rows import Setting


class HpaEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Gives `annotations` (annotation -> text) to the HPAs that it selects; those of the HPA itself win."""

    namespaces: Annotated[
        tuple[str, ...], Setting(parsers.patterns, "namespaces of HPAs, or patterns; empty: any")
    ] = ()
    names: Annotated[
        tuple[str, ...], Setting(parsers.patterns, "names of HPAs, or patterns such as worker-*; empty: any")
    ] = ()
    labels: Annotated[
        Mapping[str, str], Setting(parsers.labels, "labels that the HPA must have: label -> value or pattern")
    ] = {}
    annotations: Mapping[str, str] = {}


def _text(value: Any) -> str:
    """Returns the text that the annotation would have. YAML reads some texts as numbers, times and truth values."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, str | int | float) and value != "":
        return str(value)
    raise ValueError(f"{shown(value)} is not a text or a number, as the annotation of that name takes it")


_OF_LISTS: Final = {f"{PREFIX}schedule": "; ", f"{PREFIX}ignore-containers": ","}
"""The annotations whose parts may be a list, and what stands between them in the annotation."""


def _valued(annotation: str, value: Any) -> str:
    """Returns the text of an annotation. The policies of metrics are checked with the metrics of each HPA."""
    between = _OF_LISTS.get(annotation)
    text = _text(value) if between is None or not isinstance(value, list) else between.join(parsers.names(value))
    controls.require_length(text, annotations.ANNOTATIONS[annotation])
    if annotation in controls.CONTROLS:
        controls.parse(annotation, text)
    return text


def _field(annotation: str) -> str:
    return annotation.removeprefix(PREFIX).replace("-", "_")


ANNOTATIONS: Final = {_field(annotation): annotation for annotation in annotations.ANNOTATIONS}
"""The annotation of each field."""
_SELECTING: Final = rows.parsers_in(HpaEntry)
_ANNOTATION: Final[Json] = {"type": ["string", "number", "boolean", "array"]}
_ENTRY: Final[dict[str, Parser[Any]]] = {
    **_SELECTING,
    **{field: Parser(partial(_valued, annotation), _ANNOTATION) for field, annotation in ANNOTATIONS.items()},
}
"""The parser of each field of an entry."""


@takes(
    parsers.list_of(parsers.closed({**rows.schema_of(HpaEntry), **dict.fromkeys(ANNOTATIONS, _ANNOTATION)})),
    write=list,
)
def entries(value: Any) -> tuple[HpaEntry, ...]:
    """Parses the section. Raises ValueError with every problem."""
    if not isinstance(value, list):
        raise ValueError("hpas are a list of {namespaces: […], names: […], labels: {…}, tolerance_up: …, …}")
    return tuple(each((index, partial(_entry, entry)) for index, entry in enumerate(value)))


def _entry(value: Any) -> HpaEntry:
    read = rows.fields(value, _ENTRY)
    selecting = {field: read.pop(field) for field in _SELECTING if field in read}
    if not read:
        raise ValueError(f"the entry sets nothing; it can set {', '.join(ANNOTATIONS)}")
    return HpaEntry(**selecting, annotations={ANNOTATIONS[field]: text for field, text in read.items()})


def defaults(given: Sequence[HpaEntry]) -> annotations.Defaults | None:
    """Returns which annotations an HPA gets from these entries; of two entries the later one wins. None without any."""
    return partial(_defaults, tuple(given)) if given else None


def _defaults(given: tuple[HpaEntry, ...], hpa: HorizontalPodAutoscaler) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for entry in given:
        if _selects(entry, hpa):
            found.update(entry.annotations)
    return found


def _selects(entry: HpaEntry, hpa: HorizontalPodAutoscaler) -> bool:
    metadata, labels = hpa.metadata, hpa.metadata.labels or {}
    return (
        parsers.matches_any(entry.namespaces, metadata.namespace)
        and parsers.matches_any(entry.names, metadata.name)
        and all(name in labels and fnmatch.fnmatchcase(labels[name], text) for name, text in entry.labels.items())
    )


_MOST_CORES: Final = 10**9
_FORM: Final = "{replicas: 200} or {cores: 50}"


@takes({"type": ["number", "string"]}, "CORES")
def _cores(value: Any) -> int:
    """Returns millicores from a number or a Kubernetes quantity such as 1500m."""
    try:
        milli = parse_milli(str(value)) if isinstance(value, str | int | float) and not isinstance(value, bool) else 0
    except QuantityError:
        milli = 0
    if not 0 < milli <= _MOST_CORES * 1000:
        raise ValueError(f"{shown(value)} is not a number of CPU cores above 0, such as 50, 1.5 or 1500m")
    return milli


class SharedBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A budget by its name: one of `replicas` and `cores` (in millicores), and which HPAs may share it."""

    name: str = ""
    replicas: Annotated[int | None, Setting(parsers.count, "replicas of all its HPAs together")] = None
    cores: Annotated[
        int | None,
        Setting(_cores, "CPU cores that the pods of all its HPAs request together, such as 50, 1.5 or 1500m"),
    ] = None
    namespaces: Annotated[
        tuple[str, ...],
        Setting(parsers.patterns, "the namespaces, or patterns, whose HPAs may share it; empty: all"),
    ] = ()

    @property
    def unit(self) -> str:
        """What it counts: replicas or cores."""
        return CORES if self.replicas is None else REPLICAS

    @property
    def amount(self) -> int:
        """The amount in milli-units."""
        return (self.cores or 0) if self.replicas is None else self.replicas * REPLICA

    def is_for(self, namespace: str) -> bool:
        """Whether HPAs of the namespace may share it."""
        return parsers.matches_any(self.namespaces, namespace)


_OF_BUDGET: Final = rows.mapping(SharedBudget)


def _budget(name: str, value: Any) -> SharedBudget:
    for fault in label_faults(name):
        raise ValueError(f"{shown(name)} is not the name of a budget: {fault}")
    found = _OF_BUDGET(value)
    if (found.replicas is None) == (found.cores is None):
        raise ValueError(f"a budget has either replicas or cores: {_FORM}")
    return msgspec.structs.replace(found, name=name)


@takes({"type": "object", "additionalProperties": _OF_BUDGET.form})
def budgets(value: Any) -> tuple[SharedBudget, ...]:
    """Parses the section. Raises ValueError with every problem."""
    if not isinstance(value, dict):
        raise ValueError(f"budgets are a mapping of a name to {_FORM}")
    return tuple(each((str(name), partial(_budget, str(name), entry)) for name, entry in value.items()))
