"""`hpad adapters`: the schema of an adapter's settings as documentation."""

import json
import textwrap
from typing import Annotated, Literal

import msgspec
import pytest

from hpad.cli import main
from hpad.sources import plugins


class Inner(msgspec.Struct):
    """One queue.

    name: what it is called.
    """

    name: str


class Settings(msgspec.Struct):
    url: Annotated[str, msgspec.Meta(description="where it is")]
    queues: dict[str, Inner] = {}
    names: list[str] = []
    mode: Literal["a", "b"] = "a"
    limit: int | None = None
    plain: bool = False


class Example:
    serves = frozenset({"External"})
    Settings = Settings

    async def answer(self, queries):
        return []


def test_every_field_has_type_default_and_meaning(monkeypatch, capsys):
    monkeypatch.setattr(plugins, "adapter_class", lambda name: Example)
    assert main(["adapters", "describe", "example"]) == 0
    described = textwrap.dedent(capsys.readouterr().out.partition("fallback):\n\n")[2])
    assert described.splitlines() == [
        "url: text (required)  where it is",
        "queues: mapping of text to Inner (default: {})",
        "names: list of text (default: [])",
        'mode: a | b (default: "a")',
        "limit: whole number or nothing",
        "plain: true or false (default: false)",
        "",
        "Inner:",
        "  name: text (required)",
        "",
        "  One queue.",
        "",
        "  name: what it is called.",
    ]


def test_lists_all_installed_adapters(capsys):
    assert main(["adapters", "list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == ["NAME", *plugins.names()]


@pytest.mark.parametrize("name", plugins.names())
def test_describes_every_installed_adapter(name, capsys):
    assert main(["adapters", "describe", name]) == 0
    shown = capsys.readouterr().out
    adapter = plugins.adapter_class(name)
    for field in adapter.Settings.__struct_encode_fields__:
        assert f"\n  {field}: " in shown
    assert f"serves:   {', '.join(sorted(adapter.serves))}" in shown


@pytest.mark.parametrize("name", ["http-json", "prometheus", "cron"])
def test_an_adapter_that_takes_no_metric_by_itself_is_described_so(name, capsys):
    assert main(["adapters", "describe", name]) == 0
    assert "\nmetrics:  only metrics that its settings or a `match` name\n" in capsys.readouterr().out


def test_lists_and_describes_as_json(monkeypatch, capsys):
    assert main(["adapters", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["items"]
    assert [each["name"] for each in listed] == list(plugins.names())
    static = next(each for each in listed if each["name"] == "static")
    assert static["serves"] == sorted(plugins.adapter_class("static").serves)
    assert "error" not in static
    assert main(["adapters", "list", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == listed
    monkeypatch.setattr(plugins, "names", lambda: ["static", "none"])
    assert main(["adapters", "-o", "json"]) == 1
    assert "none" in json.loads(capsys.readouterr().out)["items"][1]["error"]


@pytest.mark.parametrize("before", [True, False], ids=["before the action", "behind it"])
@pytest.mark.parametrize("name", plugins.names())
def test_describes_every_adapter_as_json(name, before, capsys):
    flag = ["-o", "json"]
    action = ["describe", name]
    assert main(["adapters", *flag, *action] if before else ["adapters", *action, *flag]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["serves"]) == (name, sorted(plugins.adapter_class(name).serves))
    reference = found["settings"]["$ref"].rpartition("/")[2]
    fields = found["settings"]["$defs"][reference]["properties"]
    assert set(fields) == {each.encode_name for each in msgspec.structs.fields(plugins.adapter_class(name).Settings)}


def test_unknown_adapter_is_an_error(capsys):
    assert main(["adapters", "describe", "rabitmq"]) == 1
    assert 'there is no adapter "rabitmq"; installed: ' in capsys.readouterr().err


def test_without_an_action_lists_all_adapters_in_columns(capsys):
    assert main(["adapters"]) == 0
    alone = capsys.readouterr().out
    assert main(["adapters", "list"]) == 0
    assert capsys.readouterr().out == alone
    head, *rows = alone.splitlines()
    assert head.split() == ["NAME", "SERVES", "ANSWERS"]
    assert all(row[head.index(name) - 1] == " " != row[head.index(name)] for row in rows for name in head.split()[1:])


def test_the_settings_of_another_adapter_are_named_and_not_repeated(capsys):
    assert main(["adapters", "describe", "celery"]) == 0
    described = capsys.readouterr().out
    assert (
        "\n  RabbitMQBroker: the settings of the adapter rabbitmq; see `hpad adapters describe rabbitmq`\n" in described
    )
    assert "on_stalled" not in described
    assert "unacked_key" in described  # of RedisBroker, which has fields that no other adapter has
