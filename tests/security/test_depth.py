"""An answer that is nested without end is a bad answer, like any other: nobody's recursion gives way."""

import zlib
from collections.abc import Callable
from typing import Any

import pytest

from hpad.api.metadata import Key
from hpad.kube import codec, errors, watch
from hpad.store import record

DEEP = b"[" * 200_000
INSIDE = b'{"metadata": {"name": "a", "managedFields": ' + DEEP


@pytest.mark.parametrize("decode", [codec.hpa, codec.pod, codec.target, codec.replication_controller])
def test_an_object_nested_without_end_is_undecodable(decode: Callable[[bytes], Any]) -> None:
    with pytest.raises(codec.UndecodableError):
        decode(INSIDE)


def test_metadata_nested_without_end_is_empty() -> None:
    assert codec.meta(INSIDE) == codec.Meta()


def test_a_list_nested_without_end_is_no_list() -> None:
    with pytest.raises(errors.ApiError, match="no list"):
        codec.page(INSIDE)


def test_a_line_of_a_watch_nested_without_end_is_no_change() -> None:
    with pytest.raises(errors.ApiError, match="no change"):
        watch.decode(b'{"type": "ADDED", "object": ' + INSIDE)


def test_an_error_nested_without_end_is_an_unexplained_one() -> None:
    assert errors.from_answer(404, INSIDE, {}).reason == "NotFound"


def test_a_record_nested_without_end_is_undecodable() -> None:
    body = b"\x9b" + b"\x91" * 200_000
    data = bytes((record.FORMAT,)) + zlib.crc32(body).to_bytes(4, "big") + body
    with pytest.raises(record.Undecodable):
        record.decode(Key("shop", "web"), data)
