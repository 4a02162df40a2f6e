"""The size of a JSON text, counted before anything is made of it."""

import itertools
import tracemalloc

import pytest

from hpad.api import text as texts
from hpad.api.text import punctuation


def scanned(text: bytes) -> int:
    """Counts commas and brackets outside of strings, character by character."""
    count = position = 0
    within = False
    while position < len(text):
        step = 2 if text[position : position + 2] in (rb"\\", rb"\"") else 1
        character = text[position : position + step]
        within ^= character == b'"'
        count += not within and character in (b",", b"[")
        position += step
    return count


def test_marks_within_strings_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_CHUNK", 2)
    for characters in itertools.product(b'",[x\\', repeat=6):
        text = bytes(characters)
        assert punctuation(text, b",[", 0) == scanned(text), text


def test_few_marks_are_counted_with_those_in_strings() -> None:
    assert [punctuation(b'",,",', b",", most) for most in (2, 3)] == [1, 3]


@pytest.mark.parametrize("part", [r"\n", r"\"", '"",', '",",', '",,",', "x"])
def test_the_memory_is_a_few_times_that_of_the_text(part: str) -> None:
    text = b'["' + part.encode() * 300_000 + b"," * 10
    tracemalloc.start()
    try:
        punctuation(text, b",[{", 5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(text) + (8 << 20)
