"""The headers of requests and answers in HTTP/2 (HPACK, RFC 7541), for the stub server."""

from collections.abc import Mapping
from typing import Final

import hpack

from hpad.kube.http import frames

Head = tuple[str, str, str, bytes]
"""Method, path, query, and the headers in a form in which their values stand in plain text."""

_METHOD, _PATH = (2, 3), (4, 5)
"""Indices in the static table, which has an entry for each of two values (appendix A)."""
_KNOWN: Final = {2: b"GET", 3: b"POST", 4: b"/", 5: b"/index.html"}
_STATIC: Final = 61
_STATUSES: Final = {200: b"\x88", 204: b"\x89", 206: b"\x8a", 304: b"\x8b", 400: b"\x8c", 404: b"\x8d", 500: b"\x8e"}
_STATUS: Final = b"\x08\x03%d"
_INDEXED, _KEPT_OR_SIZE, _HUFFMAN = 0x80, 0x60, 0x80


def plain(block: bytes) -> Head | None:
    """Reads headers as hpad sends them, which takes a tenth of the time; None if they have any other form.

    These are entries of the static table, and literals that are neither kept nor in Huffman's code. They leave the
    state of a decoder as it is.
    """
    at, end, method, target = 0, len(block), b"", b""
    try:
        while at < end:
            first = block[at]
            at += 1
            if first & _INDEXED:
                index = first & 0x7F
                if not 0 < index <= _STATIC:
                    return None
                value = _KNOWN.get(index, b"")
            else:
                if first & _KEPT_OR_SIZE:
                    return None
                index, at = _integer(block, at, first & 0xF, 0xF)
                if not index:
                    _, at = _text(block, at)
                value, at = _text(block, at)
            if index in _METHOD:
                method = value
            elif index in _PATH:
                target = value
    except (IndexError, ValueError):
        return None
    return _head(method, target, block) if at == end else None


def stateful(decoder: hpack.Decoder, block: bytes) -> Head:
    """Reads headers in any form. Raises HPACKError."""
    fields = [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
    named = dict(fields)
    return _head(named.get(b":method", b""), named.get(b":path", b""), b"\r\n".join(map(b": ".join, fields)))


def answer(status: int, fields: Mapping[str, str]) -> bytes:
    """Encodes the headers of an answer."""
    return _STATUSES.get(status, _STATUS % status) + frames.headers(fields)


def _head(method: bytes, target: bytes, block: bytes) -> Head:
    path, _, query = target.decode("latin-1").partition("?")
    return method.decode("latin-1"), path, query, block


def _integer(block: bytes, at: int, value: int, most: int) -> tuple[int, int]:
    """Returns an integer that begins with `value`, and where it ends (RFC 7541, section 5.1)."""
    if value < most:
        return value, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    """Returns a text, and where it ends. Raises ValueError if it is in Huffman's code."""
    first = block[at]
    if first & _HUFFMAN:
        raise ValueError("a text in Huffman's code")
    length, at = _integer(block, at + 1, first, 0x7F)
    return block[at : at + length], at + length
