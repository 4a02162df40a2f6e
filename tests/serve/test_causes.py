"""Causes of failures without what differs from HPA to HPA."""

import pytest

from hpad.serve.summary import group_of


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        ("rabbitmq: no queue 'a' in vhost \"b\"", "rabbitmq: no queue '…' in vhost \"…\""),
        ("GET http://rabbit:15672/api/queues/%2F/a: refused", "GET http://rabbit:15672/…: refused"),
        ('no series for up{pod="a"} in the last 5m', "no series for up{…} in the last …m"),
        ("sample is 75.5s old", "sample is …s old"),
        ("\U0001f40c" * 1000, "\U0001f40c" * 150),
        ("a\nb", "a\\nb"),
        ("x" * 1000 + "://", "x" * 300),
        ("HTTP 503 from 10.0.0.7:9090", "HTTP 503 from …:9090"),
    ],
)
def test_causes_that_differ_in_names_and_numbers_only_are_one(cause: str, expected: str) -> None:
    assert group_of(cause) == expected
