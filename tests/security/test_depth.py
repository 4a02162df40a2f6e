"""Deeply nested input is malformed input: no decoder ends with a RecursionError."""

import zlib
from collections.abc import Callable
from typing import Any

import pytest

from hpad.api.metadata import Key
from hpad.api.wire import UNDECODABLE, Meta
from hpad.kube import errors, hpas, pods, scale, watch
from hpad.store import record

NESTED = b"[" * 200_000
INSIDE = b'{"metadata": {"name": "a", "managedFields": ' + NESTED


@pytest.mark.parametrize("decode", [hpas.hpa, pods.pod, scale.target, scale.replication_controller])
def test_a_deeply_nested_object_is_undecodable(decode: Callable[[bytes], Any]) -> None:
    with pytest.raises(UNDECODABLE):
        decode(INSIDE)


def test_deeply_nested_metadata_is_empty() -> None:
    assert watch.meta(INSIDE) == Meta()


def test_a_deeply_nested_list_is_an_error() -> None:
    with pytest.raises(errors.ApiError, match="no list"):
        watch.page(INSIDE)


def test_a_deeply_nested_line_of_a_watch_is_an_error() -> None:
    with pytest.raises(errors.ApiError, match="no change"):
        watch.decode(b'{"type": "ADDED", "object": ' + INSIDE)


def test_a_deeply_nested_error_keeps_the_reason_of_its_status() -> None:
    assert errors.from_answer(404, INSIDE, {}).reason == "NotFound"


def test_a_deeply_nested_record_is_undecodable() -> None:
    body = b"\x9b" + b"\x91" * 200_000
    data = bytes((record.FORMAT,)) + zlib.crc32(body).to_bytes(4, "big") + body
    with pytest.raises(record.Undecodable):
        record.decode(Key("shop", "web"), data)
