"""Values and causes of errors in messages: never in Python's notation."""

import ast
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpad.api.text import meant, reason, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("web", "'web'"),
        ("it's", '"it\'s"'),
        ("""'a' or "b\"""", """''a' or "b"'"""),
        ("C:\\temp", "'C:\\temp'"),
        ("two\nlines\t\x1b[31m", "'two␊lines␉␛[31m'"),
        ("a\udc80b\x9b\u202e", "'a�b��'"),
        (b"ab\xff", "'ab�'"),
        (None, "null"),
        (True, "true"),
        (0.25, "0.25"),
        ({"queue": "orders", "limits": [1, None]}, "{queue: 'orders', limits: [1, null]}"),
        (Path("/etc/hpad"), "/etc/hpad"),
    ],
)
def test_a_value_is_shown_in_the_notation_of_yaml(value: Any, text: str) -> None:
    assert shown(value) == text


_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()


@given(st.recursive(_leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8))
def test_shown_values_are_one_line_of_utf_8_without_control_characters(value: Any) -> None:
    text = shown(value)
    assert not [character for character in text if ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0]
    assert len(text.splitlines()) <= 1
    text.encode()


ROOT = Path(__file__).parents[2]
FOR_PROGRAMMERS = {"hpad/testing/contract.py"}
"""Files whose messages describe the Python code of an adapter to its author."""


def _conversions(path: Path) -> list[int]:
    """Returns the lines of f-strings with `!r`, except those in `__repr__`."""
    text = path.read_text()
    if "!r" not in text:
        return []
    tree = ast.parse(text)
    own = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name == "__repr__"
        for node in ast.walk(function)
    }
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FormattedValue) and id(node) not in own]
    return [node.lineno for node in found if node.conversion == ord("r")]


def test_no_message_shows_a_value_in_the_notation_of_python() -> None:
    files = [path for folder in ("hpad", "adapters") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    found = {
        str(path.relative_to(ROOT)): lines
        for path in files
        if (lines := _conversions(path)) and str(path.relative_to(ROOT)) not in FOR_PROGRAMMERS
    }
    assert found == {}


class OddThingError(Exception):
    pass


class Carrier(Exception):
    os_error = ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)")


def caused() -> Exception:
    error = OddThingError()
    error.__cause__ = ssl.SSLCertVerificationError()
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
        (Carrier(), "connection refused"),
        (caused(), "certificate not trusted"),
        (BrokenPipeError(), "connection broken"),
        (socket.gaierror(-2, "Name or service not known"), "host name not known"),
        (TimeoutError(), "no answer in time"),
        (FileNotFoundError(2, "No such file"), "no such file"),
        (OddThingError("a secret"), "odd thing"),
    ],
)
def test_the_cause_of_an_error_is_described_in_words(error: Exception, text: str) -> None:
    assert reason(error) == text


def test_a_long_name_is_compared_with_no_other():
    """The comparison takes as long as both names are, and the author of an HPA chooses one of them."""
    known = ["orders", "x" * 100_000]
    assert meant("order", known) == ' (did you mean "orders"?)'
    assert meant("x" * 99_999, known) == ""
    assert meant("x" * 100, known) == ""
