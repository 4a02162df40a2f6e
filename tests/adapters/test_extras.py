"""Adapters whose packages come with an extra: without it the error names the command that installs it."""

import sys
from typing import Any

import msgspec
import pytest

from hpad import testing
from hpad.adapter import Adapter, AdapterError
from hpad_adapters import extras
from hpad_adapters.celery import Celery
from hpad_adapters.kafka import Kafka
from hpad_adapters.keda_external import KedaExternal
from hpad_adapters.postgresql import PostgreSQL
from hpad_adapters.rabbitmq import RabbitMQ
from hpad_adapters.redis import Redis
from hpad_adapters.sqs import Sqs


def hide(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Makes a package impossible to import, and forgets what has imported it."""
    for name in tuple(sys.modules):
        if name.partition(".")[0] == package or name.startswith("hpad_adapters."):
            monkeypatch.delitem(sys.modules, name)

    class Absent:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if name.partition(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])


@pytest.mark.parametrize(
    ("adapter", "settings", "package", "extra"),
    [
        (KedaExternal, {"address": "h:1", "metrics": {"depth": {}}}, "grpclib", "keda-external"),
        (Kafka, {"bootstrap_servers": ["h"]}, "aiokafka", "kafka"),
        (Sqs, {}, "aiobotocore", "sqs"),
        (Redis, {"url": "redis://r"}, "redis", "redis"),
        (Celery, {"redis": {"url": "redis://r"}}, "redis", "redis"),
        (Celery, {"redis": {"url": "redis://r"}, "workers": {}}, "kombu", "celery"),
    ],
)
async def test_without_the_extra_the_error_names_the_command(
    monkeypatch: pytest.MonkeyPatch, adapter: type[Adapter], settings: dict[str, Any], package: str, extra: str
) -> None:
    made = msgspec.convert(settings, adapter.Settings)
    hide(monkeypatch, package)
    async with testing.context("source") as context:
        with pytest.raises(AdapterError, match=rf"\"{package}\" is missing: pip install '\.\[{extra}\]'") as raised:
            adapter(made, context)
    assert raised.value.blame == "spec"


@pytest.mark.parametrize(
    ("adapter", "settings", "package", "extra"),
    [
        (KedaExternal, {"address": "h:1", "metrics": {"depth": {}}}, "grpclib", "keda-external"),
        (Kafka, {"bootstrap_servers": ["h"]}, "aiokafka", "kafka"),
        (Sqs, {}, "aiobotocore", "sqs"),
        (
            PostgreSQL,
            {"host": "h", "database": "d", "username": "u", "metrics": {"a": {"query": "SELECT 1"}}},
            "asyncpg",
            "postgresql",
        ),
        (RabbitMQ, {"url": "amqp://r", "source": "amqp"}, "aiormq", "amqp"),
        (Celery, {"rabbitmq": {"url": "amqp://r", "source": "amqp"}}, "aiormq", "amqp"),
        (Celery, {"redis": {"url": "redis://r"}}, "redis", "redis"),
        (Redis, {"url": "redis://r"}, "redis", "redis"),
    ],
)
def test_what_is_missing_is_known_without_a_source(
    monkeypatch: pytest.MonkeyPatch, adapter: Any, settings: dict[str, Any], package: str, extra: str
) -> None:
    made = msgspec.convert(settings, adapter.Settings)
    assert adapter.lacks(made) == ""
    hide(monkeypatch, package)
    install = f"pip install '.[{extra}]' in a clone of hpad"
    assert adapter.lacks(made) == f'the Python package "{package}" is missing: {install}'


@pytest.mark.parametrize(
    ("adapter", "settings"),
    [
        (RabbitMQ, {"url": "http://r"}),
        (Celery, {"rabbitmq": {"url": "http://r"}}),
        (Celery, {"redis": {"url": "redis://r"}}),
    ],
)
def test_without_amqp_no_package_is_missing(
    monkeypatch: pytest.MonkeyPatch, adapter: Any, settings: dict[str, Any]
) -> None:
    hide(monkeypatch, "aiormq")
    assert adapter.lacks(msgspec.convert(settings, adapter.Settings)) == ""


def test_a_fault_of_our_own_is_not_a_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError):
        extras.load("hpad_adapters.no_such_module", "kafka")


@pytest.mark.parametrize("adapter", [KedaExternal, Kafka, Sqs])
def test_a_source_without_its_extra_takes_no_metric_of_other_sources(adapter: Any) -> None:
    """The class says what it answers, since no instance can: without `metrics` it would be all names."""
    assert "redis_list_length" not in adapter.metrics
    assert "*" not in adapter.metrics
