"""`celery_head_age` over Redis: how long the oldest waiting task has waited.

A message of Celery has no time by default (celery/app/amqp.py: as_task_v2), so its publisher has to write one: the
property `timestamp`, as RabbitMQ has it, or a header.

Workers take tasks from the right end of a list (kombu/transport/redis.py: Channel._brpop_start), which is read. The
times stand behind the body, so that a part of the message is not enough. A script sends none beyond MOST_BYTES.
"""

import math
from datetime import UTC, datetime
from typing import Any

import msgspec

from hpad.adapter import AdapterError, shown
from hpad_adapters.ages import age
from hpad_adapters.redis_servers import RedisRequest, Reply, ReplyError

MOST_BYTES = 1 << 20
"""The longest message that is read."""
_SCRIPT = (
    "local v = redis.call('LINDEX', KEYS[1], -1) "
    "if v and string.len(v) > tonumber(ARGV[1]) then return string.len(v) end "
    "return v"
)
_WRITE = (
    "the application has to write it, as in "
    "`@before_task_publish.connect def sent(properties, **_): properties['timestamp'] = int(time.time())`"
)


class _Properties(msgspec.Struct, frozen=True):
    timestamp: Any = None


class _Headers(msgspec.Struct, frozen=True, rename={"sentry": "sentry-task-enqueued-time"}):
    """Headers by which applications and libraries say when a task was sent; the first one that a task has counts."""

    timestamp: Any = None
    sent_at: Any = None
    published_at: Any = None
    sentry: Any = None


class _Message(msgspec.Struct, frozen=True):
    headers: _Headers = _Headers()
    properties: _Properties = _Properties()


_DECODER = msgspec.json.Decoder(_Message)


def oldest(key: str) -> RedisRequest:
    """Returns the request for the oldest task of a list."""
    return RedisRequest(key, (("TYPE", key), ("EVAL", _SCRIPT, "1", key, str(MOST_BYTES))))


def age_of(key: str, reply: Reply, now: datetime) -> float:
    """Returns the seconds since the task was sent; raises AdapterError where it does not tell, and what to write."""
    if isinstance(reply, ReplyError):
        raise AdapterError(f"EVAL of the key {shown(key)}: {reply}")
    if isinstance(reply, int):
        raise AdapterError(f"{_task(key)} has {reply} bytes, and at most {MOST_BYTES} are read", "spec")
    try:
        found = _DECODER.decode(str(reply))
    except msgspec.MsgspecError:
        raise AdapterError(f"{_task(key)} is no message of Celery", "spec") from None
    headers = msgspec.structs.astuple(found.headers)
    stamp = next((each for each in (found.properties.timestamp, *headers) if each is not None), None)
    if stamp is None:
        raise AdapterError(f"{_task(key)} does not tell when it was sent: {_WRITE}", "spec")
    try:
        if not math.isfinite(number := _number(stamp)):
            raise ValueError("is no time")
        return age(number, now)
    except (ValueError, OverflowError) as error:
        raise AdapterError(f"the time {shown(str(stamp))} of {_task(key)} {error}", "spec") from None


def _task(key: str) -> str:
    return f"the oldest task of the list {shown(key)}"


def _number(stamp: Any) -> float:
    """Returns a number as it is, and the seconds since 1970 of a date and time; raises ValueError."""
    if isinstance(stamp, int | float) and not isinstance(stamp, bool):
        return float(stamp)
    if not isinstance(stamp, str):
        raise ValueError("is neither a number nor a text")
    try:
        return float(stamp)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        raise ValueError("is neither a number nor a time such as 2026-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        raise ValueError("has no time zone: write it in UTC, such as 2026-01-31T12:00:00Z")
    return moment.astimezone(UTC).timestamp()
