"""Checks what an adapter answered: whatever breaks the contract becomes an error with the blame "bug".

Users see the error texts in conditions and events, so the texts name source and metric, and nothing of Python.
"""

from collections.abc import Mapping, Sequence
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
"""How far the clock of a source may be ahead."""


def checked(source: str, queries: Sequence[Query], answers: Any, now: datetime | None = None) -> list[Answer]:
    """Returns one answer per query: the given one if it keeps the contract, else an error (blame "bug").

    With `now`, a timestamp that is more than five minutes in the future is an error as well.
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
        return AdapterError(f'source "{source}" gave an error that does not say whose fault it is: {message}', "bug")
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
    """Returns an error whose text stays the same, so that it changes no condition in each period."""
    return AdapterError(f'source "{source}": sample is older than max_age {max_age:g}s', lasting=True)


def _checked_one(source: str, query: Query, answer: Any, latest: datetime | None) -> Answer:
    if isinstance(answer, AdapterError):
        return answer
    expected = _SAMPLE_OF[query.type]
    if type(answer) is not expected:
        kind, needed = _WORDS.get(type(answer), "something else"), _WORDS[expected]
        return _bug(source, f'answered {kind} where the {query.type} metric "{query.name}" needs {needed}')
    fault = _fault(answer) or (None if latest is None else _future_fault(answer, latest))
    return answer if fault is None else _bug(source, f'answered {fault} for "{query.name}"')


def _fault(answer: Any) -> str | None:
    """Returns what is wrong inside a sample of the right type: Python checks no types of fields."""
    if not _is_time(answer.timestamp):
        return _time_fault(answer.timestamp)
    if isinstance(answer, ObjectSample):
        return _value_fault(answer.value)
    if isinstance(answer, ExternalSample):
        return _external_fault(answer)
    return _pods_fault(answer)


def _future_fault(answer: Any, latest: datetime) -> str | None:
    """Returns what is wrong with a timestamp of the future."""
    times = [answer.timestamp]
    if isinstance(answer, PodSample):
        times += [value.timestamp for value in answer.values.values()]
    return None if max(times) <= latest else "a timestamp more than five minutes in the future"


def _external_fault(answer: Any) -> str | None:
    if not isinstance(answer.values, list | tuple):
        return "values that are not a list"
    if not answer.values:
        return "no values at all (which would read as zero) instead of an AdapterError"
    return next(filter(None, map(_value_fault, answer.values)), None)


def _pods_fault(answer: Any) -> str | None:
    if not isinstance(answer.values, Mapping):
        return "values that are not values of pods"
    return next(filter(None, map(_pod_fault, answer.values.items())), None)


def _pod_fault(item: tuple[Any, Any]) -> str | None:
    pod, value = item
    if not isinstance(pod, str) or not isinstance(value, PodValue):
        return f"something other than the value of a pod for {shown(pod) if isinstance(pod, str) else 'no name'}"
    if not _is_time(value.timestamp):
        return f'{_time_fault(value.timestamp)} for pod "{pod}"'
    window: Any = value.window
    if not isinstance(window, timedelta):
        return f'a window that is not a duration for pod "{pod}"'
    return _value_fault(value.value)


def _value_fault(value: Any) -> str | None:
    if type(value) is not int:
        number = value if isinstance(value, str | bool | int | float | None) else "something else"
        return f"the value {shown(number)}, which is not a whole number of thousandths"
    return None if value in _INT64 else f"the value {value}, which is beyond 64 bits"


def _time_fault(value: Any) -> str:
    return "a timestamp without a time zone" if isinstance(value, datetime) else "a timestamp that is not a time"


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _bug(source: str, what: str) -> AdapterError:
    return AdapterError(f'source "{source}" {what}, a bug of its adapter', "bug")
