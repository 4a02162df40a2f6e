"""Answers with a number that a client works off, if nothing limits it: lengths, counts, exponents, levels, repetitions.

Each makes some client busy for many seconds, or fills its memory, though the answer itself is short.
"""

import struct
from collections.abc import Callable, Iterator, Mapping

from support.raw_http2 import data, encoded, frame, headers, settings

KIB = 1 << 10
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
_TIME = b'"2026-01-01T00:00:00Z"'
NUMBERS = {
    "a number of 400 digits": b"9" * 400,
    "a number of 5,000 digits": b"9" * 5000,
    "a huge exponent": b"1e999999999",
    "below 64 bits": b"-9223372036854775809",
}
BODIES: Mapping[str, bytes] = {
    "celery over rabbitmq": (
        b'{"page_count":N,"filtered_count":N,"items":[{"name":"mail","vhost":"/","messages":N,"messages_ready":N,'
        b'"messages_unacknowledged":N}]}'
    ),
    "custom-metrics": b'{"items":[{"describedObject":{"kind":"Pod","name":"a"},"timestamp":T,"value":"N"}]}',
    "external-metrics": b'{"items":[{"metricName":"depth","timestamp":T,"value":"N"}]}',
    "http-json": b'{"depth":N}',
    "kubernetes-workload": b'{"metadata":{"continue":"more","remainingItemCount":N},"items":[]}',
    "metrics-server": (
        b'{"items":[{"metadata":{"name":"a"},"timestamp":T,"window":"Ns","containers":[{"name":"c","usage":'
        b'{"cpu":"N"}}]}]}'
    ),
    "nats-jetstream": (
        b'{"server_id":"a","server_name":"a","account_details":[{"name":"$G","stream_detail":[{"name":"s","state":'
        b'{"messages":N},"consumer_detail":[{"name":"c","num_pending":N,"num_ack_pending":N}]}]}]}'
    ),
    "prometheus": b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[N,"N"]}]}}',
    "sqs": b'{"QueueUrl":"http://127.0.0.1:1/q","Attributes":{"ApproximateNumberOfMessages":"N"}}',
}
"""The answer of each source over HTTP, with N where it has a number and T where it has a time."""
_LISTS: Mapping[str, tuple[bytes, bytes]] = {
    "celery over rabbitmq": (b'{"page_count":1,"items":[', b"]}"),
    "custom-metrics": (b'{"items":[', b"]}"),
    "external-metrics": (b'{"items":[', b"]}"),
    "http-json": (b'{"depth":[', b"]}"),
    "kubernetes-workload": (b'{"metadata":{},"items":[', b"]}"),
    "metrics-server": (b'{"items":[', b"]}"),
    "nats-jetstream": (b'{"server_id":"a","account_details":[', b"]}"),
    "prometheus": (b'{"status":"success","data":{"resultType":"vector","result":[', b"]}}"),
    "sqs": (b'{"Attributes":[', b"]}"),
}
_SAME = {"rabbitmq": "celery over rabbitmq", "seasonal": "prometheus"}


def _with_length(body: bytes) -> bytes:
    return b"%bContent-Length: %d\r\n\r\n%b" % (_HEAD, len(body), body)


def _http(source: str) -> Iterator[tuple[str, bytes]]:
    chunked = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    yield "a length of 64 bits", _HEAD + b"Content-Length: 9223372036854775807\r\n\r\n{}"
    yield "a length of 5,000 digits", _HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n{}"
    yield "a chunk of 64 bits", chunked + b"7fffffffffffffff\r\n{}"
    yield "a chunk of 5,000 digits", chunked + b"f" * 5000 + b"\r\n{}"
    yield "many chunks", chunked + b"1\r\n \r\n" * (16 * KIB) + b"0\r\n\r\n"
    yield "many informational answers", b"HTTP/1.1 100 Continue\r\n\r\n" * (8 * KIB)
    yield "many headers", _HEAD + b"a: b\r\n" * (64 * KIB) + b"\r\n"
    yield "many redirects", b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    yield "many levels", _with_length(b"[" * 500_000)
    begin, end = _LISTS[_SAME.get(source, source)]
    yield "many elements", _with_length(begin + b"{}" + b",{}" * 2_999_999 + end)
    yield "many numbers", _with_length(begin + b"1" + b",1" * 399_999 + end)
    for name, number in NUMBERS.items():
        body = BODIES[_SAME.get(source, source)].replace(b"N", number).replace(b"T", _TIME)
        yield name, _with_length(body)


def _redis() -> Iterator[tuple[str, bytes]]:
    yield "an array of 2^31 elements", b"*2147483647\r\n"
    yield "an array of 5,000 digits", b"*" + b"9" * 5000 + b"\r\n"
    yield "a text of 2^31 bytes", b"$2147483647\r\n"
    yield "a number of 5,000 digits", b":" + b"9" * 5000 + b"\r\n"
    yield "many levels", b"*1\r\n" * 100_000
    yield "many elements", b"*1000000\r\n" + b":1\r\n" * 100_000
    yield "many slots", b"+OK\r\n*100000\r\n" + b"*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\na\r\n:1\r\n" * 10_000
    yield "a redirection", b"+OK\r\n-MOVED 99999 " + b"9" * 60_000 + b":1\r\n"


def _postgresql() -> Iterator[tuple[str, bytes]]:
    yield "a message of 2^31 bytes", b"R\x7f\xff\xff\xff" + b"x" * 40
    yield "a negative length", b"R\xff\xff\xff\xf0" + b"x" * 40
    yield "many messages", b"N\0\0\0\5\0" * 100_000
    yield "many ways to authenticate", b"R" + struct.pack(">II", 8 + 60_000, 10) + b"a\0" * 30_000
    yield "iterations of SCRAM", b"R" + struct.pack(">II", 24, 11) + b"r=a,s=b,i=99999"


def _amqp() -> Iterator[tuple[str, bytes]]:
    start = b"\0\x0a\0\x0a\0\x09"
    levels = b""
    for _ in range(600):
        levels = b"\1aF" + struct.pack(">I", len(levels)) + levels
    table = struct.pack(">I", len(levels)) + levels
    yield "a frame of 4 GiB", b"\1\0\0\xff\xff\xff\xff" + start
    yield "many levels", b"\1\0\0" + struct.pack(">I", len(start + table)) + start + table + b"\xce"
    yield "a table of 4 GiB", b"\1\0\0\0\0\0\x0a" + start + b"\xff\xff\xff\xff\xce"
    yield "many frames", b"\x08\0\0\0\0\0\0\xce" * 100_000


def _kafka() -> Iterator[tuple[str, bytes]]:
    for size in (0, 1 << 31, (1 << 31) - 1):
        yield f"a response of {size} bytes", struct.pack(">I", size)
    for correlation in range(4):  # of the request that is answered
        array = struct.pack(">ihi", correlation, 0, (1 << 31) - 1)
        yield f"an array of 2^31 elements in answer {correlation}", struct.pack(">I", len(array)) + array


def _grpc() -> Iterator[tuple[str, bytes]]:
    opening = settings()
    body = headers(1, encoded((":status", "200"), ("content-type", "application/grpc")))
    informational = headers(1, encoded((":status", "100")) + b"\x91" * 1500)
    yield "a message of 4 GiB", opening + body + data(1, b"\0\xff\xff\xff\xff", 0)
    yield "many settings", opening + settings() * 100_000
    yield "many pings", opening + frame(6, 0, 0, b"12345678") * 100_000
    yield "many windows", opening + frame(8, 0, 0, b"\0\0\0\1") * 100_000
    yield "many parts", opening + body + data(1, b"", 0) * 100_000
    yield "many informational answers", opening + informational * 2000
    yield "many headers", opening + headers(1, encoded((":status", "200")) + b"\x91" * 16_000)


_PROTOCOLS: Mapping[str, Callable[[], Iterator[tuple[str, bytes]]]] = {
    "celery over redis": _redis,
    "kafka": _kafka,
    "keda-external": _grpc,
    "postgresql": _postgresql,
    "rabbitmq over amqp": _amqp,
    "redis": _redis,
    "redis cluster": _redis,
    "redis sentinel": _redis,
}


def answers(source: str) -> dict[str, bytes]:
    """Returns the answers for a source by what they count."""
    made = _PROTOCOLS.get(source)
    return dict(_http(source) if made is None else made())
