"""Mutates inputs; the result depends on the random generator only."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

_LONGEST: Final = 1 << 16
_BYTES: Final = (
    b"\x00", b"\xff", b"\xc3\x28", b"\n", b"\r\n", b"-", b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"%", b"'",
    b"<script>", b"\x1b[31m", b"null", b"1e999", b"NaN", b"-1", b"9" * 25, b"9" * 5000, "ü".encode(), "\u2028".encode(),
    b"- ? " * 30, b"[" * 300, b'{"a":' * 300,
)  # fmt: skip
_VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 0.5, 1e308, -1e308, 5e-324, "", "x", "0", "1e400",
    "-5m", "999999h", "NaN", "+Inf", "1Ei", "9" * 400, "\x00", "ü" * 70, "a" * 300, "2024-13-45",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59-23:00", "a=b,c in (d)", "../../etc/passwd", "%2e%2e%2f", "</td>", [], {}, [None], [[]],
    {"": ""}, {"name": None}, {"value": "3"},
)  # fmt: skip


def mutated(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Returns the input with one to four changes, at most 64 KiB."""
    for _ in range(rng.randint(1, 4)):
        data = rng.choice(_CHANGES)(data, seeds, rng)[:_LONGEST]
    return data


def _flip(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    if not data:
        return rng.randbytes(4)
    place = rng.randrange(len(data))
    return data[:place] + bytes((data[place] ^ (1 << rng.randrange(8)),)) + data[place + 1 :]


def _insert(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    place = rng.randint(0, len(data))
    return data[:place] + rng.choice(_BYTES) + data[place:]


def _cut(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    begin, end = _span(data, rng)
    return data[:begin] + data[end:]


def _truncate(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    return data[: rng.randint(0, len(data))]


def _repeat(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Repeats a part many times, which shows code that is not linear in its input."""
    begin, end = _span(data, rng)
    times = min(rng.choice((2, 10, 1000, 20_000)), _LONGEST // max(1, end - begin))
    return data[:begin] + data[begin:end] * times + data[end:]


def _splice(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    other = rng.choice(seeds)
    begin, end = _span(other, rng)
    place = rng.randint(0, len(data))
    return data[:place] + other[begin:end] + data[place:]


def _digits(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Replaces a number."""
    places = [place for place, byte in enumerate(data) if 48 <= byte < 58]
    if not places:
        return data
    begin = end = rng.choice(places)
    while end < len(data) and 48 <= data[end] < 58:
        end += 1
    number = rng.choice((b"0", b"-1", b"1e308", b"1e-320", b"99999999999999999999", b"0.0000000001", b"1" * 400))
    return data[:begin] + number + data[end:]


def _value(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Changes a value or a name in a JSON document."""
    try:
        root = [json.loads(data)]
    except (ValueError, RecursionError):
        return _insert(data, seeds, rng)
    places: list[tuple[Any, Any]] = []
    rest: list[Any] = [root]
    while rest:
        here = rest.pop()
        found = [(here, name) for name in (here if isinstance(here, dict) else range(len(here)))]
        places += found
        rest += [held[name] for held, name in found if isinstance(held[name], dict | list)]
    held, name = rng.choice(places)
    if isinstance(held, dict) and rng.random() < 0.3:
        held[rng.choice((name + "x", name.upper(), ""))] = held.pop(name)
    elif isinstance(held, dict) and rng.random() < 0.2:
        del held[name]
    else:
        held[name] = rng.choice(_VALUES)
    return json.dumps(root[0]).encode()


def _span(data: bytes, rng: random.Random) -> tuple[int, int]:
    begin = rng.randint(0, len(data))
    return begin, rng.randint(begin, min(len(data), begin + 64))


_CHANGES: Final[tuple[Callable[[bytes, Sequence[bytes], random.Random], bytes], ...]] = (
    _flip, _insert, _cut, _truncate, _repeat, _splice, _digits, _value, _value, _value,
)  # fmt: skip
