"""Values in hpad's own messages: nothing of Python's notation."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpad.model.quoting import shown


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
def test_a_value_is_shown_as_a_person_wrote_it(value: Any, text: str) -> None:
    assert shown(value) == text


_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()


@given(st.recursive(_leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8))
def test_whatever_is_shown_is_one_line_that_moves_no_cursor_and_is_utf_8(value: Any) -> None:
    text = shown(value)
    assert not [character for character in text if ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0]
    assert len(text.splitlines()) <= 1
    text.encode()
