"""Answers of adapters: checked against the contract, and kept so that several HPAs share a call.

An answer that breaks the contract becomes an error with the blame "bug". Users see its text in conditions and events,
so it names source and metric, and nothing of Python.

Reconciles are spread over the period, while one call may serve all HPAs of a namespace. Where an adapter groups its
queries, a call for one query also contains the queries of its group that are expected before the answer is stale. A
sample keeps its own timestamp; its age in the cache counts from the start of the call.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from hpad.adapter import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    PODS,
    RESOURCE,
    AdapterError,
    Answer,
    ExternalSample,
    ObjectSample,
    PodSample,
    PodValue,
    Query,
    Sample,
)
from hpad.api.text import shown

_SAMPLE_OF: Mapping[str, type[PodSample] | type[ObjectSample] | type[ExternalSample]] = {
    RESOURCE: PodSample,
    CONTAINER_RESOURCE: PodSample,
    PODS: PodSample,
    OBJECT: ObjectSample,
    EXTERNAL: ExternalSample,
}
_WORDS: Mapping[type, str] = {
    PodSample: "values of pods",
    ObjectSample: "the value of an object",
    ExternalSample: "a list of values",
    type(None): "nothing",
}
_BLAMES = ("spec", "source", "cluster", "bug")
_INT64 = range(-(2**63), 2**63)
_AHEAD = timedelta(minutes=5)
"""How far the clock of a source may be ahead. A window is hardly longer, so that a limited time still is after it."""


def checked(source: str, queries: Sequence[Query], answers: Any, now: datetime | None = None) -> list[Answer]:
    """Returns one answer per query: the adapter's if it keeps the contract, else an error (blame "bug").

    With `now`, values of pods that are dated more than five minutes ahead are dated five minutes ahead, and a sample
    that has no others is an error (blame "source"). Kubernetes uses such values as they are: a wrong clock of a node
    says nothing about the usage. A time after the whole window counts the same there, however far it is ahead
    (replica_calculator.go: groupPods).
    """
    if not isinstance(answers, list | tuple):
        kind = _WORDS.get(type(answers), "something else")
        return [_bug(source, f'answered {kind} instead of a list when it was asked for "{q.name}"') for q in queries]
    if len(answers) != len(queries):
        count = f"{len(answers)} {'answer' if len(answers) == 1 else 'answers'} to {len(queries)} queries"
        return [_bug(source, f'gave {count} when it was asked for "{query.name}"') for query in queries]
    latest = None if now is None else now + _AHEAD
    return [_checked_one(source, query, answer, latest) for query, answer in zip(queries, answers, strict=True)]


def error(source: str, answer: AdapterError) -> AdapterError:
    """Returns the error itself if it keeps the contract: a text, and a known blame."""
    message, blame = getattr(answer, "message", None), getattr(answer, "blame", None)
    if not isinstance(message, str):
        return _bug(source, "gave an error without a text")
    if blame not in _BLAMES:
        return AdapterError(
            f'source "{source}" gave an error whose blame is none of {", ".join(_BLAMES)}: {message}', "bug"
        )
    return answer


def raised(source: str, query: Query) -> AdapterError:
    """Returns the answer to a query for which the adapter raised an exception other than AdapterError."""
    what = "its adapter raised an exception, a bug of the adapter; the log says where"
    return AdapterError(f'source "{source}" cannot answer "{query.name}": {what}', "bug")


def not_too_old(source: str, answer: Answer, now: datetime, max_age: float | None) -> Answer:
    """Returns the answer, or an error if its sample is older than `max_age` seconds (None: any age is accepted).

    A pod whose value is too old counts as a pod without a value, unless all values are too old.
    """
    if max_age is None or isinstance(answer, AdapterError):
        return answer
    oldest = now - timedelta(seconds=max_age)
    if isinstance(answer, PodSample) and answer.values:
        young = {pod: value for pod, value in answer.values.items() if value.timestamp >= oldest}
        if len(young) == len(answer.values):
            return answer
        return msgspec.structs.replace(answer, values=young) if young else _too_old(source, max_age)
    return answer if answer.timestamp >= oldest else _too_old(source, max_age)


def _too_old(source: str, max_age: float) -> AdapterError:
    # Without the present age: a text that changes would cost a status write in each period.
    return AdapterError(f'source "{source}": sample is older than max_age {max_age:g}s', lasting=True)


def _checked_one(source: str, query: Query, answer: Any, latest: datetime | None) -> Answer:
    if isinstance(answer, AdapterError):
        return answer
    expected = _SAMPLE_OF[query.type] if query.members is None else PodSample
    if type(answer) is not expected:
        kind, needed = _WORDS.get(type(answer), "something else"), _WORDS[expected]
        return _bug(source, f'answered {kind} where the {query.type} metric "{query.name}" needs {needed}')
    fault = _fault(answer)
    if fault is not None:
        return _bug(source, f'answered {fault} for "{query.name}"')
    return answer if latest is None else _dated(source, query, answer, latest)


def _fault(answer: Any) -> str | None:
    """Returns what is wrong inside a sample of the right type, since Python does not check the types of fields."""
    if not _is_time(answer.timestamp):
        return _time_fault(answer.timestamp)
    if isinstance(answer, ObjectSample):
        return _value_fault(answer.value)
    if isinstance(answer, ExternalSample):
        return _external_fault(answer)
    return _pods_fault(answer)


def _dated(source: str, query: Query, answer: Sample, latest: datetime) -> Answer:
    """Returns the sample with no time after `latest`, an error if all of its times are."""
    values = answer.values if isinstance(answer, PodSample) else {}
    ahead = [pod for pod, value in values.items() if value.timestamp > latest]
    if not ahead and answer.timestamp <= latest:
        return answer
    if len(ahead) < len(values):
        limited = {pod: msgspec.structs.replace(values[pod], timestamp=latest) for pod in ahead}
        return PodSample({**values, **limited}, min(answer.timestamp, latest))
    return AdapterError(
        f'source "{source}": each value of "{query.name}" has a timestamp more than five minutes in the future: '
        "correct the clock of the source, of its nodes, or of hpad's machine",
        lasting=True,
        alive=True,
    )


def _external_fault(answer: Any) -> str | None:
    if not isinstance(answer.values, list | tuple):
        return "values that are not a list"
    if not answer.values:
        return "no values at all (which would read as zero) instead of an AdapterError"
    if not isinstance(answer.note, str):
        return "a note that is not a text"
    return next(filter(None, map(_value_fault, answer.values)), None)


def _pods_fault(answer: Any) -> str | None:
    if type(answer.values) is not dict and not isinstance(answer.values, Mapping):
        return "values that are not values of pods"
    for pod, value in answer.values.items():
        # All of `_pod_fault` for the types that nearly all values have: it is called for each pod in each period.
        if (
            type(pod) is str
            and type(value) is PodValue
            and type(value.value) is int
            and value.value in _INT64
            and type(value.timestamp) is datetime
            and value.timestamp.tzinfo is not None
            and type(value.window) is timedelta
        ):
            continue
        fault = _pod_fault(pod, value)
        if fault is not None:
            return fault
    return None


def _pod_fault(pod: Any, value: Any) -> str | None:
    if not isinstance(pod, str) or not isinstance(value, PodValue):
        return f"something other than the value of a pod for {shown(pod) if isinstance(pod, str) else 'no name'}"
    if not _is_time(value.timestamp):
        return f'{_time_fault(value.timestamp)} for pod "{pod}"'
    window: Any = value.window
    if not isinstance(window, timedelta):
        return f'a window that is not a duration for pod "{pod}"'
    return _value_fault(value.value)


def _value_fault(value: Any) -> str | None:
    if type(value) is not int:  # a bool is an int, too
        number = value if isinstance(value, str | bool | int | float | None) else "something else"
        return f"the value {shown(number)}, which is not a whole number of thousandths"
    return None if value in _INT64 else f"the value {value}, which is beyond 64 bits"


def _time_fault(value: Any) -> str:
    return "a timestamp without a time zone" if isinstance(value, datetime) else "a timestamp that is not a time"


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _bug(source: str, what: str) -> AdapterError:
    return AdapterError(f'source "{source}" {what}, a bug of its adapter', "bug")


_FORGOTTEN_PERIODS = 3.0
_IN_TIME = 0.9
"""Part of the freshness after which no query is expected: an HPA that comes a little late would find a stale answer."""


class AnswerCache:
    """Answers by query. `fresh` and `period` are in seconds; times are those of a monotonic clock."""

    def __init__(self, fresh: float, period: float) -> None:
        self._fresh = fresh
        self._period = period
        self._answers: dict[Query, tuple[float, Answer]] = {}
        self._groups: dict[Hashable, dict[Query, float]] = {}
        self._swept = 0.0

    def get(self, query: Query, now: float, fresh: float | None = None) -> Answer | None:
        """Returns the answer, if there is one that is fresh, and at most `fresh` seconds old (None: any fresh one)."""
        began, answer = self._answers.get(query, (0.0, None))
        return answer if self.is_fresh(began, now) and (fresh is None or now - began <= fresh) else None

    def put(self, query: Query, answer: Answer, began: float) -> None:
        """Keeps an answer of a call that began at `began`."""
        if self._fresh:
            self._answers[query] = (began, answer)

    def is_fresh(self, began: float, now: float) -> bool:
        """Returns whether the answer of a call that began at `began` may be used now."""
        return bool(self._fresh) and now - began <= self._fresh

    def expect(self, query: Query, group: Hashable | None, now: float) -> None:
        """Notes a query, which comes again in a period. Queries of a `group` share calls (None: no group).

        A query of an HPA with a period of its own has no group here, since it comes at another time.
        """
        if group is not None:
            self._groups.setdefault(group, {})[query] = now
        self._sweep(now)

    def announce(self, query: Query, group: Hashable | None, now: float) -> None:
        """Expects a query that may come at any time, unless it has come within the last period."""
        if group is not None:
            known = self._groups.setdefault(group, {})
            known[query] = max(known.get(query, -math.inf), now - self._period)

    def expected(self, group: Hashable, now: float) -> Iterator[Query]:
        """Yields the queries of a group without a fresh answer that are expected while an answer of now is fresh."""
        horizon = now + self._fresh * _IN_TIME - self._period
        for query, last in self._groups.get(group, {}).items():
            if last <= horizon and last > now - _FORGOTTEN_PERIODS * self._period and self.get(query, now) is None:
                yield query

    def _sweep(self, now: float) -> None:
        """Drops, once a period, stale answers and the queries that did not come for three periods."""
        if now - self._swept < self._period:
            return
        self._swept = now
        cutoff = now - _FORGOTTEN_PERIODS * self._period
        self._answers = {query: kept for query, kept in self._answers.items() if self.is_fresh(kept[0], now)}
        for group, members in list(self._groups.items()):
            recent = {query: last for query, last in members.items() if last > cutoff}
            self._groups[group] = recent
            if not recent:
                del self._groups[group]
