"""`hpad adapters`: the schema of an adapter's settings as documentation."""

from typing import Annotated, Literal

import msgspec
import pytest

from hpad.cli import adapters, main
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


def test_every_field_has_type_default_and_meaning():
    assert "\n".join(adapters._struct(Settings, "")).splitlines() == [
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


def test_all_that_are_installed_are_listed(capsys):
    assert main(["adapters", "list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == ["NAME", *plugins.names()]


@pytest.mark.parametrize("name", plugins.names())
def test_every_adapter_can_describe_itself(name, capsys):
    assert main(["adapters", "describe", name]) == 0
    shown = capsys.readouterr().out
    adapter = plugins.adapter_class(name)
    for field in adapter.Settings.__struct_encode_fields__:
        assert f"\n  {field}: " in shown
    assert f"serves:   {', '.join(sorted(adapter.serves))}" in shown


def test_an_adapter_that_is_not_there(capsys):
    assert main(["adapters", "describe", "rabitmq"]) == 1
    assert 'there is no adapter "rabitmq"; installed: ' in capsys.readouterr().err


def test_without_an_action_all_are_listed_in_columns(capsys):
    assert main(["adapters"]) == 0
    alone = capsys.readouterr().out
    assert main(["adapters", "list"]) == 0
    assert capsys.readouterr().out == alone
    head, *rows = alone.splitlines()
    assert head.split() == ["NAME", "SERVES", "ANSWERS"]
    assert all(row[head.index(name) - 1] == " " != row[head.index(name)] for row in rows for name in head.split()[1:])
