"""HTTP/2 as bytes: frames of a gRPC server."""

from struct import pack

import hpack

DATA, HEADERS, _, _, SETTINGS = range(5)
END_STREAM, END_HEADERS = 1, 4
OK = b"\x88"
"""The headers of an answer: ":status: 200" in the static table (RFC 7541, appendix A)."""


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return pack(">L", len(content))[1:] + bytes((kind, flags)) + pack(">L", stream) + content


def settings(*values: tuple[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(pack(">HL", *each) for each in values))


def headers(stream: int, block: bytes = OK, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, block)


def data(stream: int, content: bytes, flags: int = END_STREAM) -> bytes:
    return frame(DATA, flags, stream, content)


def encoded(*fields: tuple[str, str], huffman: bool = True) -> bytes:
    """Headers as a server encodes them that was told to use no dynamic table."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return encoder.encode(fields, huffman=huffman)
