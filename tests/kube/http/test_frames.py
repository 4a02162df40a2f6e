"""Headers of requests as a server decodes them, and those of answers in each form in which a server encodes them."""

import hpack
import pytest
from support.raw_http2 import encoded

from hpad.kube.http import frames
from hpad.kube.http.exchange import Head
from hpad.kube.http.inflight import HeadedAnswer

LENGTHS = (0, 1, 126, 127, 128, 254, 255, 16383 + 127, 16384 + 127, 65536)


@pytest.mark.parametrize("length", LENGTHS)
def test_headers_of_a_request_are_decoded_by_the_server(length):
    value = "v" * length
    block = b"".join((
        frames.method("PUT"),
        frames.headers({":scheme": "https", ":authority": f"api{value}"}),
        frames.path(f"/{value}"),
        frames.headers({"user-agent": value}),
        Head({"Accept": value, "Authorization": f"Bearer ü{value}"}).block,
        frames.content_length(length),
    ))  # fmt: skip
    decoder = hpack.Decoder(max_header_list_size=2**20)
    assert [(str(name), str(text)) for name, text in decoder.decode(block)] == [
        (":method", "PUT"),
        (":scheme", "https"),
        (":authority", f"api{value}"),
        (":path", f"/{value}"),
        ("user-agent", value),
        ("accept", value),
        ("authorization", f"Bearer ü{value}"),
        ("content-length", str(length)),
    ]
    assert not decoder.header_table.dynamic_entries, "headers have no state"


STATUSES = [200, 204, 206, 304, 400, 404, 500, 201, 409, 410, 422, 429, 503, 103]


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("resized", [b"", b"\x20", b"\x20\x20"])
@pytest.mark.parametrize("huffman", [True, False])
def test_a_status_is_read_in_each_form(status, resized, huffman):
    """A server that reduces its dynamic table says so first: RFC 7541, section 4.2."""
    block = resized + encoded((":status", str(status)), ("retry-after", "7"), huffman=huffman)
    assert frames.status(block) == status
    assert HeadedAnswer(status, block, b"").headers == {"Retry-After": "7"}


@pytest.mark.parametrize("form", [b"\x48\x03409", b"\x08\x03409", b"\x18\x03409", b"\x00\x07:status\x03409"])
def test_a_literal_status_is_read_in_each_form(form):
    """With and without indexing, never indexed, and with its name (RFC 7541, section 6.2)."""
    assert frames.status(form) == 409


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x20",
        b"\x80",
        b"\x87",  # ":scheme: https"
        b"\xbe",  # the first entry of a dynamic table, which nothing has filled
        b"\x3f\xe1\x1f",  # a dynamic table of 4,096 bytes
        b"\x08\x03",
        b"\x08\x7f",
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x08\x00",
        b"\x08\x0220",
        b"\x08\x042000",
        b"\x08\x032x0",
        b"\x08\x03+20",
        b"\x08\x03000",
        b"\x08\x03099",
        b"\x08\x82\xff\xff",  # padding of Huffman coding that is too long
        b"\x00\x07:STATUS\x03200",
        b"\x8d\x88\xbe",
        b"\x8d" + b"\x00\x01a\x7f\x81\x07" * 2,
    ],
)
def test_headers_without_a_readable_status_are_malformed(block):
    with pytest.raises(frames.MalformedError):
        frames.status(block)


def test_headers_that_decode_to_more_than_is_allowed_are_malformed():
    """Huffman coding takes 5 bits for a frequent character, so a block of 64 KiB holds more than that."""
    block = encoded((":status", "500"), *((f"h{number}", "0" * 1000) for number in range(300)))
    with pytest.raises(frames.MalformedError, match="OversizedHeaderListError"):
        frames.status(block)


def test_headers_of_a_2xx_answer_that_cannot_be_read_are_none():
    answer = HeadedAnswer(200, b"\x88\xbe", b"{}")
    assert answer.headers == {}


def test_the_last_of_several_headers_counts_as_in_http_1():
    block = encoded((":status", "429"), ("retry-after", "1"), ("retry-after", " 2 "))
    assert HeadedAnswer(429, block, b"").headers["Retry-After"] == "2"


@pytest.mark.parametrize(
    ("content", "flags", "expected"),
    [
        (b"abc", 0, b"abc"),
        (b"\0abc", frames.PADDED, b"abc"),
        (b"\x02abc\0\0", frames.PADDED, b"abc"),
        (b"\x03\0\0\0", frames.PADDED, b""),
        (b"12345abc", frames.PRIORITY, b"abc"),
        (b"\x0112345abc\0", frames.PRIORITY | frames.PADDED, b"abc"),
    ],
)
def test_padding_and_priority_are_removed(content, flags, expected):
    assert frames.unpadded(content, flags, prioritized=True) == expected


@pytest.mark.parametrize(
    ("content", "flags"),
    [
        (b"", frames.PADDED),
        (b"\x01", frames.PADDED),
        (b"\x04\0\0\0", frames.PADDED),
        (b"1234", frames.PRIORITY),
        (b"\x0112345", frames.PRIORITY | frames.PADDED),
    ],
)
def test_more_padding_than_content_is_malformed(content, flags):
    with pytest.raises(frames.MalformedError):
        frames.unpadded(content, flags, prioritized=True)


def test_data_has_no_priority():
    assert frames.unpadded(b"12345", frames.PRIORITY) == b"12345"
