"""When a task was sent, by what its message says."""

from datetime import UTC, datetime

import msgspec
import pytest

from hpad.adapter import AdapterError
from hpad_adapters.celery.over_redis import age_of

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
STAMP = NOW.timestamp() - 90


def age(headers: dict[str, object], **properties: object) -> float:
    return age_of("mail", msgspec.json.encode({"headers": headers, "properties": properties}).decode(), NOW)


@pytest.mark.parametrize(
    "stamp", [STAMP, int(STAMP), int(STAMP * 1000), str(STAMP), "2026-01-31T11:58:30Z", "2026-01-31T12:58:30+01:00"]
)
@pytest.mark.parametrize("header", ["timestamp", "sent_at", "published_at", "sentry-task-enqueued-time"])
def test_a_header_tells_when_a_task_was_sent(header: str, stamp: object) -> None:
    assert age({"task": "mail.send", header: stamp}) == pytest.approx(90.0)


def test_the_property_comes_first() -> None:
    assert age({"sent_at": STAMP - 1000}, timestamp=STAMP) == pytest.approx(90.0)


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"task": "mail.send", "sent_at": None}, "does not tell when it was sent: .*before_task_publish"),
        ({"sent_at": "noon"}, "the time 'noon' of the oldest task of the list 'mail' is neither a number nor a time"),
        ({"sent_at": "2026-01-31T11:58:30"}, "has no time zone"),
        ({"sent_at": ["x"]}, "is neither a number nor a text"),
        ({"sent_at": True}, "is neither a number nor a text"),
        ({"sent_at": "nan"}, "is no time"),
        ({"sent_at": "inf"}, "is no time"),
        ({"sent_at": 5}, "is no time since 2001"),
        ({"sent_at": STAMP + 4000}, "is 3910s ahead of hpad's clock"),
    ],
)
def test_a_task_that_does_not_tell_is_an_error(headers: dict[str, object], error: str) -> None:
    with pytest.raises(AdapterError, match=error) as caught:
        age(headers)
    assert caught.value.blame == "spec"


@pytest.mark.parametrize(
    "task",
    ["", "text", "[]", "5", '{"headers": 5}', '{"a": ' + "[" * 9_999],
    ids=["empty", "text", "list", "number", "headers", "deep"],
)
def test_what_is_no_message_of_celery_is_an_error(task: str) -> None:
    with pytest.raises(AdapterError, match="the oldest task of the list 'mail' is no message of Celery"):
        age_of("mail", task, NOW)
