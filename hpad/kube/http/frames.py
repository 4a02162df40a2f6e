"""The bytes of HTTP/2 (RFC 9113): frames, and the headers of requests and answers (HPACK, RFC 7541).

Neither side uses the dynamic table of HPACK: requests send literals, and SETTINGS forbids it to the server. So no
header depends on earlier ones, and those of an answer need to be decoded only when they are read.
"""

import functools
from collections.abc import Iterable, Mapping
from struct import Struct, error
from typing import Final

PROTOCOL: Final = "h2"
"""The name of HTTP/2 in ALPN."""
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, PRIORITY = 0x4, 0x8, 0x20
NO_ERROR, REFUSED_STREAM, CANCEL, INADEQUATE_SECURITY, HTTP_1_1_REQUIRED = 0, 7, 8, 12, 13
_ERRORS: Final = (
    *("NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED"),
    *("FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM"),
    *("INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED"),
)

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 2, 3, 4, 5
DEFAULT_WINDOW: Final = 2**16 - 1
DEFAULT_FRAME: Final = 2**14
LARGEST_WINDOW: Final = 2**31 - 1
LAST_STREAM: Final = 2**31 - 1
HEAD_SIZE: Final = 9

_HEAD: Final = Struct(">HBBBL")
_SETTING: Final = Struct(">HL")
_NUMBER: Final = Struct(">L")
read_head: Final = _HEAD.unpack_from
"""Takes bytes and a position; returns the length by 256, the rest of the length, the type, the flags, the stream."""
read_number: Final = _NUMBER.unpack_from
number: Final = _NUMBER.pack

_STATUSES: Final = {0x88: 200, 0x89: 204, 0x8A: 206}
"""By the byte that names the entry of the static table (RFC 7541, appendix A). The headers of others are read."""
_LARGEST_LIST: Final = 2**18
_ALLOWED: Final = {INITIAL_WINDOW_SIZE: (0, LARGEST_WINDOW), MAX_FRAME_SIZE: (DEFAULT_FRAME, 2**24 - 1)}
"""The values of settings (RFC 9113, section 6.5.2)."""
NO_TABLE: Final = b"\x20"
"""Begins the first headers of a connection: the dynamic table has the size 0 (RFC 7541, section 6.3).

A server that allows less than the default of 4,096 bytes expects that from its peer, and refuses headers without it.
"""
_PSEUDO: Final = {":authority": 1, ":method": 2, ":path": 4, ":scheme": 6}
"""Their indices in the static table."""


class MalformedError(ValueError):
    """The peer sent something that is not HTTP/2."""


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """Returns a frame."""
    return _HEAD.pack(len(content) >> 8, len(content) & 0xFF, kind, flags, stream) + content


def settings(values: Mapping[int, int]) -> bytes:
    """Returns a SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(name, value) for name, value in values.items()))


def read_settings(content: bytes) -> Iterable[tuple[int, int]]:
    """Returns identifiers and values. Raises MalformedError."""
    try:
        values = list(_SETTING.iter_unpack(content))
    except error:
        raise MalformedError("a SETTINGS frame of a wrong size") from None
    for name, value in values:
        low, high = _ALLOWED.get(name, (0, value))
        if not low <= value <= high:
            raise MalformedError(f"a setting {name} of {value}")
    return values


def error_text(code: int) -> str:
    """Names the error of a RST_STREAM or GOAWAY frame (RFC 9113, section 7)."""
    return f"HTTP/2 error {_ERRORS[code] if code < len(_ERRORS) else code}"


def unpadded(content: bytes, flags: int, *, prioritized: bool = False) -> bytes:
    """Returns the content of a DATA or HEADERS frame without padding and priority. Raises MalformedError."""
    begin, end = 0, len(content)
    if flags & PADDED:
        begin, end = 1, end - (content[0] if content else end)
    if prioritized and flags & PRIORITY:
        begin += 5
    if begin > end:
        raise MalformedError("a frame with more padding than content")
    return content[begin:end]


def headers(fields: Mapping[str, str]) -> bytes:
    """Encodes headers of a request as literals that neither the server nor a proxy keeps: a token may be among them."""
    parts = []
    for name, value in fields.items():
        index = _PSEUDO.get(name)
        # 4 bits of the first byte hold the index, 0 announces a name, and 0x10 forbids a proxy to keep the value.
        parts.append(bytes((index,)) if index is not None else b"\x10" + _text(name.lower().encode("ascii")))
        parts.append(_text(value.encode("utf-8", "surrogateescape")))
    return b"".join(parts)


@functools.cache
def method(name: str) -> bytes:
    """Encodes the header `:method`."""
    return headers({":method": name})


def path(value: str) -> bytes:
    """Encodes the header `:path`, which is in ASCII."""
    return b"\x04" + _text(value.encode("ascii"))


def content_length(size: int) -> bytes:
    """Encodes the header `content-length`."""
    return b"\x0f\x0d" + _text(b"%d" % size)


def _text(value: bytes) -> bytes:
    """Encodes a text without Huffman coding, with its length before it (RFC 7541, sections 5.1 and 5.2)."""
    length = len(value)
    if length < 127:
        return bytes((length,)) + value
    prefix, length = bytearray((127,)), length - 127
    while length >= 128:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + value


def status(block: bytes) -> int:
    """Returns the status code in the headers of an answer. Raises MalformedError."""
    try:
        known = _STATUSES.get(block[0] if block[0] != 0x20 else block[1])  # 0x20: the size of the dynamic table, 0
        if known is not None:
            return known
        code = dict(decoded(block))[b":status"]
        if len(code) == 3 and code.isdigit() and code >= b"100":
            return int(code)
    except (IndexError, KeyError):
        pass
    raise MalformedError("an answer without a status")


def decoded(block: bytes) -> list[tuple[bytes, bytes]]:
    """Decodes headers. Raises MalformedError."""
    import hpack  # takes 3 ms, and most answers do without

    decoder = hpack.Decoder(max_header_list_size=_LARGEST_LIST)
    decoder.max_allowed_table_size = 0
    decoder.header_table_size = 0
    try:
        return [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
    except hpack.HPACKError as problem:
        # Not its text, in which there may be an address of memory: equal errors are logged once.
        raise MalformedError(f"headers that cannot be read ({type(problem).__name__})") from None
