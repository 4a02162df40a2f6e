"""Adapters come from installed packages; an error names source, field and value."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from hpad import settings, testing
from hpad.adapter import AdapterError
from hpad.sources import plugins


def source(adapter: str = "good", **values: object) -> settings.SourceSettings:
    return settings.SourceSettings(name="mine", adapter=adapter, settings=values)


def test_the_built_in_adapters_are_found_without_being_imported():
    assert {"metrics-server", "rabbitmq"} <= set(plugins.names())


@pytest.mark.usefixtures("outsider")
def test_a_foreign_adapter_is_found_by_its_entry_point():
    assert "good" in plugins.names()
    assert plugins.adapter_class("good").__name__ == "Good"


def test_an_adapter_is_found_once_its_package_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    os.utime(tmp_path, (0, 0))
    assert "late" not in plugins.names()
    (info := tmp_path / "late-1.0.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hpad.adapters]\nlate = late:Late\n")
    assert "late" in plugins.names()


@pytest.mark.usefixtures("outsider")
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("rabitmq", 'there is no adapter "rabitmq"; installed: .*rabbitmq'),
        ("broken", r'adapter "broken" \(outsider_broken:Good\) cannot be imported: half installed'),
        ("absent", "cannot be imported: module .* has no attribute"),
        ("no-module", "cannot be imported: No module named"),
        ("function", r"is not a class with a method answer\(\)"),
        ("no-serves", "serves must be a frozenset of some of Resource, "),
        ("no-settings", "Settings must be a msgspec.Struct"),
    ],
)
def test_the_error_names_what_is_wrong_with_an_adapter(name, complaint):
    with pytest.raises(AdapterError, match=complaint):
        plugins.adapter_class(name)


@pytest.mark.usefixtures("outsider")
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "url: is missing"),
        ({"url": 5}, "url: 5 is not text"),
        ({"url": ["http://u:pw@h"]}, "url: is not text"),
        ({"url": "x", "hots": 1}, "hots: unknown field; there are url, password, depth, broker (value: 1)"),
        ({"url": "x", "dept": 1}, "dept: unknown field; did you mean 'depth'? (value: 1)"),
        ({"url": "x", "passwrd": 12345}, "passwrd: unknown field; did you mean 'password'?"),
        ({"url": "x", "password": 12345}, "password: is not text"),
        ({"url": "x", "depth": -1}, "depth: must not be negative"),
        ({"url": "x", "broker": {"host": "h", "port": "a"}}, "broker.port: 'a' is not a whole number"),
    ],
)
def test_wrong_settings_name_source_field_and_value(values, message):
    with pytest.raises(AdapterError) as caught:
        plugins.decode(source(**values), plugins.adapter_class("good").Settings)
    assert caught.value.blame == "spec"
    text = caught.value.message
    assert text.startswith(f'source "mine" (adapter "good"): {message}')
    assert "12345" not in text
    assert "pw" not in text


@pytest.mark.usefixtures("outsider")
async def test_an_adapter_whose_set_up_fails_is_an_error_without_its_text():
    adapter = await asyncio.to_thread(plugins.adapter_class, "good")
    async with testing.context("mine") as context:
        with pytest.raises(AdapterError) as caught:
            plugins.instance(source(url="boom"), adapter, context)
    refusal = 'source "mine": adapter "good" could not be set up: it raised an exception, a bug of the adapter'
    assert caught.value == AdapterError(refusal, "bug")


@pytest.mark.usefixtures("outsider")
def test_several_instances_of_one_adapter_have_settings_of_their_own():
    schema = plugins.adapter_class("good").Settings
    first, second = (plugins.decode(source(url=url), schema) for url in ("a", "b"))
    assert (msgspec.structs.asdict(first)["url"], msgspec.structs.asdict(second)["url"]) == ("a", "b")


@pytest.mark.parametrize(
    ("metrics", "offered"),
    [
        (("queue_*",), ("queue_*",)),
        (["a", "b"], ("a", "b")),
        ({"External": ["a"]}, {"External": ("a",)}),
        ("queue_*", None),
        (None, None),
        ({"External": "a"}, None),
    ],
)
def test_the_metrics_of_an_adapter_are_patterns_or_an_error(metrics, offered):
    class Mine:
        def __init__(self):
            self.metrics = metrics

    if offered is not None:
        assert plugins.offered("mine", Mine()) == offered
        return
    with pytest.raises(AdapterError, match=r'source "mine".*not a tuple of patterns') as raised:
        plugins.offered("mine", Mine())
    assert raised.value.blame == "bug"
