"""Reads the short file that says which series differ from those of kube-state-metrics 2 and cAdvisor."""

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import promql_parser

from hpad.api import duration, settings_errors
from hpad.api.problem import Place
from hpad.api.text import hint, shown
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

_VARIABLE: Final = re.compile(r"<<.*?>>")
_FILLED: Final = {HPAS: 'namespace="n"', PODS: 'namespace="n"', WINDOW: "120s"}


class _Labels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kube_state_metrics: SeriesLabels | None = None
    cadvisor: SeriesLabels | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    series: dict[str, str] = {}
    labels: _Labels = _Labels()
    matchers: str = ""
    window: str | None = None
    pods: dict[str, str] = {}
    queues: dict[str, dict[str, QueueExpressions]] = {}


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
    wrong = [*document.faults] or [settings_errors.problem(*each) for each in _wrong(document.value)]
    if wrong:
        placed = sorted(map(document.placed, wrong), key=lambda each: each.line)
        raise HistoryError("\n".join(each.at(str(path)) for each in placed))
    file = msgspec.convert(document.value, _File)
    return Series(
        expressions={**EXPRESSIONS, **file.series},
        state=file.labels.kube_state_metrics,
        cadvisor=file.labels.cadvisor,
        matchers=_matchers(file.matchers),
        window=None if file.window is None else _window(file.window),
        pods={**DEFAULT.pods, **file.pods},
        queues=file.queues,
        file=str(path),
    )


def _wrong(value: Any) -> Iterator[tuple[Place, str]]:
    """Yields the errors of the fields; if there are none, of what their texts say."""
    if any(found := list(settings_errors.faults(value, _File))):
        yield from found
        return
    for place, check in _checks(msgspec.convert(value, _File)):
        try:
            check()
        except ValueError as error:
            yield place, str(error)


def _checks(file: _File) -> Iterator[tuple[Place, Callable[[], object]]]:
    """Yields what raises ValueError for a wrong text, by its place."""
    for name, text in file.series.items():
        yield ("series", name), functools.partial(_check_expression, name, text)
    yield ("matchers",), functools.partial(_matchers, file.matchers)
    if file.window is not None:
        yield ("window",), functools.partial(_window, file.window)
    for kind, text in file.pods.items():
        yield ("pods", kind), functools.partial(_check_pattern, text)
    for hpa, queues in file.queues.items():
        for address, queue in queues.items():
            for name in ("messages", "published", "acked"):
                yield ("queues", hpa, address, name), functools.partial(_check_promql, getattr(queue, name))


def _check_expression(name: str, text: str) -> None:
    if name not in EXPRESSIONS:
        raise ValueError(f"unknown field{hint(name, tuple(EXPRESSIONS))}")
    _check_promql(text, (HPAS if name in OF_HPAS else PODS,), (WINDOW,))


def _check_promql(text: str, needed: tuple[str, ...] = (), allowed: tuple[str, ...] = ()) -> None:
    known, filled = (*needed, *allowed), text
    for variable in _VARIABLE.findall(text):
        if variable not in known:
            right = f"there are {', '.join(known)}" if known else "there are none here"
            raise ValueError(f"{shown(text)} has the variable {variable}; {right}")
    for variable in needed:
        if variable not in text:
            example = f"as in {EXPRESSIONS['current' if variable == HPAS else 'memory_usage']}"
            raise ValueError(f"{shown(text)} lacks the variable {variable}, {example}")
    for variable, stand_in in _FILLED.items():
        filled = filled.replace(variable, stand_in)
    try:
        promql_parser.parse(filled)
    except ValueError as error:
        raise ValueError(f"{shown(text)} is not PromQL: {error}") from None


def _matchers(text: str) -> str:
    found = text.strip().rstrip(",")
    with suppress(ValueError):
        if isinstance(promql_parser.parse(f"up{{{found}}}"), promql_parser.VectorSelector):
            return found
    raise ValueError(f'{shown(text)} are no matchers of labels, such as cluster="prod",job="kubelet"')


def _window(text: str) -> float:
    seconds = duration.parse(text).total_seconds()
    if seconds < 1:
        raise ValueError(f"{shown(text)} is too short for a rate; twice the scrape interval or more is needed")
    return seconds


def _check_pattern(text: str) -> None:
    if NAME not in text:
        raise ValueError(f"{shown(text)} lacks the variable {NAME}, as in {DEFAULT.pods['StatefulSet']}")
    try:
        re.compile(text.replace(NAME, "n"))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{shown(text)} is not a regular expression: {error}") from None
