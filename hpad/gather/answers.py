"""What an adapter may answer. Anything else is its bug, and the answer to that query says so."""

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

_SAMPLE_OF: Mapping[str, type[PodSample] | type[ObjectSample] | type[ExternalSample]] = {
    RESOURCE: PodSample,
    CONTAINER_RESOURCE: PodSample,
    PODS: PodSample,
    OBJECT: ObjectSample,
    EXTERNAL: ExternalSample,
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
        return [_bug(source, f"answered {type(answers).__name__}, not a list")] * len(queries)
    if len(answers) != len(queries):
        return [_bug(source, f"gave {len(answers)} answers to {len(queries)} queries")] * len(queries)
    latest = None if now is None else now + _AHEAD
    return [_checked_one(source, query, answer, latest) for query, answer in zip(queries, answers, strict=True)]


def error(source: str, given: AdapterError) -> AdapterError:
    """The error itself where it keeps the contract: a text, and somebody known to blame."""
    message, blame = getattr(given, "message", None), getattr(given, "blame", None)
    if not isinstance(message, str):
        return _bug(source, f"gave an AdapterError whose message is {type(message).__name__}, not a text")
    if blame not in _BLAMES:
        return _bug(source, f"gave an AdapterError that blames none of {', '.join(_BLAMES)}: {message}")
    return given


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
        return _bug(source, f"answered {type(answer).__name__} where {query.type} metrics need {expected.__name__}")
    fault = _fault(answer) or (None if latest is None else _premature(answer, latest))
    return answer if fault is None else _bug(source, f'answered {fault} for "{query.name}"')


def _fault(answer: Any) -> str | None:
    """What is wrong inside a sample of the right type: types are not checked at run time, so nothing is believed."""
    if not _is_time(answer.timestamp):
        return f"the timestamp {answer.timestamp!r}, not an aware datetime"
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
        return f"the values {answer.values!r}, not a tuple"
    if not answer.values:
        return "no values at all (which would read as zero) instead of an AdapterError"
    return next(filter(None, map(_value_fault, answer.values)), None)


def _pods_fault(answer: Any) -> str | None:
    if not isinstance(answer.values, Mapping):
        return f"the values {type(answer.values).__name__}, not a mapping"
    return next(filter(None, map(_pod_fault, answer.values.items())), None)


def _pod_fault(item: tuple[Any, Any]) -> str | None:
    pod, value = item
    if not isinstance(pod, str) or not isinstance(value, PodValue):
        return f"{pod!r}: {type(value).__name__}, not a pod's name and a PodValue"
    if not _is_time(value.timestamp) or not isinstance(value.window, timedelta):
        return f'the timestamp {value.timestamp!r} and window {value.window!r} of pod "{pod}"'
    return _value_fault(value.value)


def _value_fault(value: Any) -> str | None:
    if type(value) is not int:
        return f"the value {value!r}, not an int of milli-units"
    return None if value in _INT64 else f"the value {value}, which is beyond 64 bits"


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _bug(source: str, what: str) -> AdapterError:
    return AdapterError(f'source "{source}" {what}', "bug")
