"""Reads the short file that says which series differ from those of kube-state-metrics 2 and cAdvisor."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import promql_parser

from hpad.api import duration
from hpad.api.problem import Invalid, Problem, problems_of
from hpad.api.text import meant, shown
from hpad.manifests import documents
from hpad.simulation.advice.reading.series import (
    DEFAULT,
    EXPRESSIONS,
    HPAS,
    NAME,
    OF_HPAS,
    PODS,
    WINDOW,
    QueueExpressions,
    Series,
    SeriesLabels,
)
from hpad.simulation.history import HistoryError

_T = TypeVar("_T")

_VARIABLE: Final = re.compile(r"<<.*?>>")
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_FILLED: Final = {HPAS: 'namespace="n"', PODS: 'namespace="n"', WINDOW: "120s"}
_OF_QUEUE: Final = ("messages", "published", "acked")


def read_file(path: Path) -> Series:
    """Returns the series of a YAML file, which has only what differs. Raises HistoryError with a line per problem."""
    try:
        found = documents.read(path)
    except OSError as error:
        raise HistoryError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not found:
        return DEFAULT
    if len(found) > 1:
        raise HistoryError(f"{path}: has {len(found)} documents; one is needed")
    (document,) = found
    problems = [*document.faults]
    series = DEFAULT
    if not problems:
        try:
            series = _series(document.value)._replace(file=str(path))
        except ValueError as error:
            problems = [document.placed(problem) for problem in problems_of(error)]
    if problems:
        raise HistoryError("\n".join(problem.at(str(path)) for problem in problems))
    return series


def _series(value: Any) -> Series:
    fields = _mapping(value, ("series", "labels", "matchers", "window", "pods", "queues"))
    parsers: dict[str, Callable[[Any], Any]] = {
        "series": _expressions,
        "labels": _labels,
        "matchers": _matchers,
        "window": _window,
        "pods": lambda value: {**DEFAULT.pods, **_each(_mapping(value), _pattern)},
        "queues": lambda value: _each(_mapping(value), lambda entry: _each(_mapping(entry), _queue)),
    }
    read = _each(fields, lambda value, name: parsers[name](value), named=True)
    labels = read.get("labels", {})
    return Series(
        expressions=read.get("series", EXPRESSIONS),
        state=labels.get("kube_state_metrics"),
        cadvisor=labels.get("cadvisor"),
        matchers=read.get("matchers", ""),
        window=read.get("window"),
        pods=read.get("pods", DEFAULT.pods),
        queues=read.get("queues", {}),
    )


def _mapping(value: Any, known: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns the fields of a mapping; all names are right if `known` is empty."""
    if not isinstance(value, Mapping):
        names = f" with {', '.join(known)}" if known else ""
        raise ValueError(f"must be a mapping{names}, not {shown(value)}")
    unknown = [name for name in value if known and name not in known]
    if unknown:
        rest = f"{meant(str(unknown[0]), known)}; there are {', '.join(known)}"
        raise Invalid(Problem(str(unknown[0]), f"{shown(unknown[0])} is no name here{rest}"))
    return {str(name): each for name, each in value.items()}


def _each(fields: Mapping[str, Any], parse: Callable[..., _T], *, named: bool = False) -> dict[str, _T]:
    """Returns each field parsed. Raises Invalid with the problems of all that fail."""
    read, problems = {}, []
    for name, value in fields.items():
        try:
            read[name] = parse(value, name) if named else parse(value)
        except ValueError as error:
            problems += [problem.inside(name) for problem in problems_of(error)]
    if problems:
        raise Invalid(*problems)
    return read


def _expressions(value: Any) -> dict[str, str]:
    fields = _mapping(value, tuple(EXPRESSIONS))
    return {**EXPRESSIONS, **_each(fields, _expression, named=True)}


def _expression(value: Any, name: str) -> str:
    return _promql(value, (HPAS if name in OF_HPAS else PODS,), (WINDOW,))


def _promql(value: Any, needed: tuple[str, ...] = (), allowed: tuple[str, ...] = ()) -> str:
    text = _text(value, "PromQL")
    known = (*needed, *allowed)
    for variable in _VARIABLE.findall(text):
        if variable not in known:
            right = f"there are {', '.join(known)}" if known else "there are none here"
            raise ValueError(f"{shown(text)} has the variable {variable}; {right}")
    for variable in needed:
        if variable not in text:
            example = f"as in {EXPRESSIONS['current' if variable == HPAS else 'memory_usage']}"
            raise ValueError(f"{shown(text)} lacks the variable {variable}, {example}")
    for variable, stand_in in _FILLED.items():
        text = text.replace(variable, stand_in)
    try:
        promql_parser.parse(text)
    except ValueError as error:
        raise ValueError(f"{shown(value)} is not PromQL: {error}") from None
    return str(value)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be {what}, not {shown(value)}")
    return value


def _labels(value: Any) -> dict[str, SeriesLabels]:
    fields = _mapping(value, ("kube_state_metrics", "cadvisor"))
    return _each(fields, lambda entry: SeriesLabels(**_each(_mapping(entry, SeriesLabels._fields), _label)))


def _label(value: Any) -> str:
    text = _text(value, "the name of a label, such as exported_namespace")
    if not _LABEL.fullmatch(text):
        raise ValueError(f"{shown(text)} is not the name of a label, such as exported_namespace")
    return text


def _matchers(value: Any) -> str:
    text = _text(value, 'matchers of labels, such as cluster="prod"').strip().rstrip(",")
    with suppress(ValueError):
        if isinstance(promql_parser.parse(f"up{{{text}}}"), promql_parser.VectorSelector):
            return text
    raise ValueError(f'{shown(text)} are no matchers of labels, such as cluster="prod",job="kubelet"')


def _window(value: Any) -> float:
    seconds = duration.parse(_text(value, "a duration, such as 5m")).total_seconds()
    if seconds < 1:
        raise ValueError(f"{shown(value)} is too short for a rate; twice the scrape interval or more is needed")
    return seconds


def _pattern(value: Any) -> str:
    text = _text(value, f"a regular expression with {NAME}")
    if NAME not in text:
        raise ValueError(f"{shown(text)} lacks the variable {NAME}, as in {DEFAULT.pods['StatefulSet']}")
    try:
        re.compile(text.replace(NAME, "n"))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{shown(text)} is not a regular expression: {error}") from None
    return text


def _queue(value: Any) -> QueueExpressions:
    fields = _mapping(value, (*_OF_QUEUE, "per_replica"))
    missing = [name for name in _OF_QUEUE if name not in fields]
    if missing:
        raise ValueError(f"lacks {', '.join(missing)}: a queue has {', '.join(_OF_QUEUE)}, each in PromQL")
    each = fields.pop("per_replica", None)
    if each is not None and (isinstance(each, bool) or not isinstance(each, int | float) or each <= 0):
        raise ValueError(f"per_replica: {shown(each)} is not a number of messages per second above 0")
    return QueueExpressions(**_each(fields, _promql), per_replica=each)
