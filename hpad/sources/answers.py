"""What an adapter may answer. Anything else is its bug, and the answer to that query says so.

The texts are for users, who see them in conditions and events: they name source and metric, and no Python.
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
"""How far the clocks of others may be ahead."""


def checked(source: str, queries: Sequence[Query], answers: Any, now: datetime | None = None) -> list[Answer]:
    """One answer per query: `answers` itself where it keeps the contract, errors (blame "bug") where it does not.

    With `now`, timestamps further in the future than clocks may differ are errors as well.
    """
    if not isinstance(answers, list | tuple):
        given = _WORDS.get(type(answers), "something else")
        return [_bug(source, f'answered {given} instead of a list when it was asked for "{q.name}"') for q in queries]
    if len(answers) != len(queries):
        count = f"{len(answers)} {'answer' if len(answers) == 1 else 'answers'} to {len(queries)} queries"
        return [_bug(source, f'gave {count} when it was asked for "{query.name}"') for query in queries]
    latest = None if now is None else now + _AHEAD
    return [_checked_one(source, query, answer, latest) for query, answer in zip(queries, answers, strict=True)]


def error(source: str, given: AdapterError) -> AdapterError:
    """The error itself where it keeps the contract: a text, and somebody known to blame."""
    message, blame = getattr(given, "message", None), getattr(given, "blame", None)
    if not isinstance(message, str):
        return _bug(source, "gave an error without a text")
    if blame not in _BLAMES:
        return AdapterError(f'source "{source}" gave an error that does not say whose fault it is: {message}', "bug")
    return given


def raised(source: str, query: Query) -> AdapterError:
    """The answer to a query at which the adapter raised anything but an AdapterError."""
    what = "its adapter raised an exception, a bug of the adapter; the log says where"
    return AdapterError(f'source "{source}" cannot answer "{query.name}": {what}', "bug")


def not_too_old(source: str, answer: Answer, now: datetime, max_age: float | None) -> Answer:
    """The answer, or an error if it is older than `max_age` seconds (None: any age will do).

    A pod whose own value is too old counts as one without a value, as long as others have one.
    """
    if max_age is None or isinstance(answer, AdapterError):
        return answer
    oldest = now - timedelta(seconds=max_age)
    if isinstance(answer, PodSample) and answer.values:
        young = {pod: value for pod, value in answer.values.items() if value.timestamp >= oldest}
        newest = max(value.timestamp for value in answer.values.values())
        if len(young) == len(answer.values):
            return answer
        return msgspec.structs.replace(answer, values=young) if young else _aged(source, now - newest, max_age)
    return answer if answer.timestamp >= oldest else _aged(source, now - answer.timestamp, max_age)


def _aged(source: str, age: timedelta, max_age: float) -> AdapterError:
    seconds = int(age.total_seconds())
    return AdapterError(f'source "{source}": sample is {seconds}s old, older than max_age {max_age:g}s', lasting=True)


def _checked_one(source: str, query: Query, answer: Any, latest: datetime | None) -> Answer:
    if isinstance(answer, AdapterError):
        return answer
    expected = _SAMPLE_OF[query.type]
    if type(answer) is not expected:
        given, needed = _WORDS.get(type(answer), "something else"), _WORDS[expected]
        return _bug(source, f'answered {given} where the {query.type} metric "{query.name}" needs {needed}')
    fault = _fault(answer) or (None if latest is None else _premature(answer, latest))
    return answer if fault is None else _bug(source, f'answered {fault} for "{query.name}"')


def _fault(answer: Any) -> str | None:
    """What is wrong inside a sample of the right type: types are not checked at run time, so nothing is believed."""
    if not _is_time(answer.timestamp):
        return _time_fault(answer.timestamp)
    if isinstance(answer, ObjectSample):
        return _value_fault(answer.value)
    if isinstance(answer, ExternalSample):
        return _external_fault(answer)
    return _pods_fault(answer)


def _premature(answer: Any, latest: datetime) -> str | None:
    """A timestamp of the future: a clock that is wrong, or a number that is."""
    times = [answer.timestamp]
    if isinstance(answer, PodSample):
        times += [value.timestamp for value in answer.values.values()]
    newest = max(times)
    return None if newest <= latest else f"the timestamp {newest.isoformat()}, which lies in the future,"


def _external_fault(answer: Any) -> str | None:
    if not isinstance(answer.values, list | tuple):
        return "values that are no list"
    if not answer.values:
        return "no values at all (which would read as zero) instead of an AdapterError"
    return next(filter(None, map(_value_fault, answer.values)), None)


def _pods_fault(answer: Any) -> str | None:
    if not isinstance(answer.values, Mapping):
        return "values that name no pods"
    return next(filter(None, map(_pod_fault, answer.values.items())), None)


def _pod_fault(item: tuple[Any, Any]) -> str | None:
    pod, value = item
    if not isinstance(pod, str) or not isinstance(value, PodValue):
        return f"something else than the value of a pod for {shown(pod) if isinstance(pod, str) else 'no name'}"
    if not _is_time(value.timestamp):
        return f'{_time_fault(value.timestamp)} for pod "{pod}"'
    window: Any = value.window
    if not isinstance(window, timedelta):
        return f'a window that is no span of time for pod "{pod}"'
    return _value_fault(value.value)


def _value_fault(value: Any) -> str | None:
    if type(value) is not int:
        number = value if isinstance(value, str | bool | int | float | None) else "something else"
        return f"the value {shown(number)}, which is no whole number of thousandths"
    return None if value in _INT64 else f"the value {value}, which is beyond 64 bits"


def _time_fault(given: Any) -> str:
    return "a timestamp without a time zone" if isinstance(given, datetime) else "a timestamp that is no time"


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _bug(source: str, what: str) -> AdapterError:
    return AdapterError(f'source "{source}" {what}, a bug of its adapter', "bug")
