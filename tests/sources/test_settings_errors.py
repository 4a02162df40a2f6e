"""Errors in the settings of the built-in adapters, at any depth."""

import msgspec
import pytest

from hpad import settings
from hpad.adapter import AdapterError
from hpad.api import settings_errors
from hpad.sources import plugins

URL = "http://broker:15672"
VARIABLES = (
    "Container, GroupBy, HPA, HPALabels, Kind, LabelMatchers, LabelValuesByName, Labels, Metric, Namespace, Object, "
    "PodMatchers, Target, TargetKind"
)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"urll": URL}, "urll: unknown field; did you mean 'url'? (value: 'http://broker:15672')"),
        ({}, "url: is missing"),
        ({"url": 5}, "url: 5 is not text or a list"),
        ({"url": [URL, 5]}, "url[1]: 5 is not text"),
        ({"url": URL, "page_size": "x"}, "page_size: 'x' is not a whole number"),
        ({"url": URL, "on_missing_queue": "hold"}, "on_missing_queue: 'hold' is not one of error, zero"),
        (
            {"url": URL, "metrics": {"good": {"queue": "q"}, "bad": {"queue": "q", "mode": "size"}}},
            "metrics.bad.mode: 'size' is not one of ack_rate, consumers, ",
        ),
        (
            {"url": URL, "metrics": {"good": {"queue": "q"}, "bad": {"queu": "q"}}},
            "metrics.bad.queu: unknown field; did you mean 'queue'? (value: 'q')",
        ),
        ({"url": URL, "metrics": {"bad": {"queue_regex": "("}}}, "metrics.bad.queue_regex: '(' is not a regular exp"),
        ({"url": URL, "oauth2": {"client_id": "x"}}, "oauth2.token_url: is missing"),
        (
            {"url": URL, "headers": {"X-Key": {"fil": "/secret"}}},
            "headers.X-Key.fil: unknown field; did you mean 'file",
        ),
        ({"url": URL, "headers": {"X-Key": 987}}, "headers.X-Key: is not text or a mapping"),
        ({"url": URL, "password": 987}, "password: is not text"),
        ({"url": URL, "pasword": "987"}, "pasword: unknown field; did you mean 'password'?"),
        (
            {"url": URL, "oauth2": {"token_url": URL, "cliend_sercet": "987"}},
            "oauth2.cliend_sercet: unknown field; did",
        ),
        (
            {"url": URL, "oauth": {"token_url": URL, "client_secret": "987"}},
            "oauth: unknown field; did you mean 'oauth2'?",
        ),
        ({"url": URL, "page_size": {"key": "987"}}, "page_size: is not a whole number"),
        ({"url": URL, 5: 6}, "5: unknown field; there are ca, "),
        ({"url": URL, "metrics": {5: {}}}, "metrics: the key 5 is not text"),
    ],
)
def test_an_error_has_place_value_and_expected_form(values: dict[str, object], expected: str) -> None:
    source = settings.SourceSettings(name="mine", adapter="rabbitmq", settings=values)
    with pytest.raises(AdapterError) as caught:
        plugins.decode(source, plugins.adapter_class("rabbitmq").Settings)
    assert caught.value.message.startswith(f'source "mine" (adapter "rabbitmq"): {expected}')
    assert "987" not in caught.value.message
    assert "`" not in caught.value.message
    assert "/secret" not in caught.value.message


@pytest.mark.parametrize(
    ("adapter", "values", "expected"),
    [
        (
            "prometheus",
            {"url": URL, "tls": {"ca": "x"}},
            "tls: is written as ca, cert, key, server_name and insecure now",
        ),
        (
            "http-json",
            {"metrics": {}, "header_files": {}},
            "header_files: is written as headers: {NAME: {file: …}} now",
        ),
    ],
)
def test_an_old_field_name_is_an_error_with_its_replacement(
    adapter: str, values: dict[str, object], expected: str
) -> None:
    source = settings.SourceSettings(name="mine", adapter=adapter, settings=values)
    with pytest.raises(AdapterError) as caught:
        plugins.decode(source, plugins.adapter_class(adapter).Settings)
    assert caught.value.message == f'source "mine" (adapter "{adapter}"): {expected}'


@pytest.mark.parametrize(
    ("adapter", "values", "expected"),
    [
        (
            "prometheus",
            {"url": "ftp://h", "concurrency": "x", "metrics": {"a": {"query": 5}, "b": {"querry": "up", "span": "x"}}},
            [
                "metrics.a.query: 5 is not text",
                "metrics.b.querry: unknown field; did you mean 'query'? (value: 'up')",
                "concurrency: 'x' is not a whole number",
            ],
        ),
        (
            "kafka",
            {"bootstrap_servers": ["h"], "sasl": "plain"},
            ["sasl: 'plain' is not one of OAUTHBEARER, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"],
        ),
        (
            "rabbitmq",
            {"url": [URL, 5], "page_size": "x", "headers": {"A": {"fil": "x"}, "B": 5}},
            [
                "url[1]: 5 is not text",
                "headers.A.fil: unknown field; did you mean 'file'?",
                "headers.B: is not text or a mapping",
                "page_size: 'x' is not a whole number",
            ],
        ),
        (
            "cron",
            {"metrics": {"a": {"start": "0 8 * * *", "end": "bad", "replicas": -1}}},
            [
                "metrics.a.replicas: -1 is not a whole number >= 0",
            ],
        ),
        (
            "cron",
            {"metrics": {"a": {"start": "0 8 * * *", "end": "bad", "replicas": 1}, "b": {"start": "0 8 * * *"}}},
            [
                "metrics.a.end: 'bad' is not a schedule; write something like \"0 8 * * 1-5\"",
                "metrics.b.end: is missing",
                "metrics.b.replicas: is missing",
            ],
        ),
        (
            "prometheus",
            {"query_timeout": "0s", "metrics": {"a": {"query": "sum(<<.Nmespace>>"}}},
            [
                "url: is missing",
                f'metrics.a.query: there is no variable .Nmespace (did you mean "Namespace"?); there are {VARIABLES}',
                "metrics.a.query: the brackets do not match: a ( is never closed",
            ],
        ),
        ("prometheus", {"url": "ftp://h", "cert": 5, "key": "k"}, ["cert: 5 is not text"]),
        (
            "prometheus",
            {"url": "ftp://h", "key": "k"},
            ["url: 'ftp://h' is not of the form \"http://prometheus:9090\"", "key: there is a key, but no cert for it"],
        ),
        (
            "prometheus",
            {"url": URL, "query_timeout": "0s", "discovery_ttl": "-1s", "key": "k"},
            [
                "key: there is a key, but no cert for it",
                "query_timeout: '0s' is not a duration above zero",
                "discovery_ttl: '-1s' is not a duration above zero",
            ],
        ),
    ],
)
def test_errors_of_fields_are_found_at_once_then_those_of_fields_together(
    adapter: str, values: dict[str, object], expected: list[str]
) -> None:
    source = settings.SourceSettings(name="mine", adapter=adapter, settings=values)
    assert sorted(error.text for error in plugins.check_settings(source)) == sorted(expected)
    with pytest.raises(AdapterError) as caught:
        plugins.decode(source, plugins.adapter_class(adapter).Settings)
    assert all(each in caught.value.message for each in expected)


def test_keys_of_another_type_than_text_are_valid_if_the_schema_has_them() -> None:
    class Schema(msgspec.Struct):
        weights: dict[int, int]

    assert settings_errors.check({"weights": {1: 2}}, Schema) == []
    [error] = settings_errors.check({"weights": {1: "x"}}, Schema)
    assert error.text == "weights.1: 'x' is not a whole number"


@pytest.mark.parametrize(
    "field",
    [{"pw": "hidden1"}, {"pwd": "hidden1"}, {"dsn": "hidden1"}, {"urll": "http://u:hidden1@h/?sig=hidden1&x=hidden1"}],
)
def test_no_unknown_field_shows_what_may_be_a_credential(field: dict[str, str]) -> None:
    source = settings.SourceSettings(name="x", adapter="http-json", settings={**field, "metrics": {}})
    errors = [error.text for error in plugins.check_settings(source)]
    assert any("unknown field" in error for error in errors)
    assert not [error for error in errors if "hidden1" in error]
