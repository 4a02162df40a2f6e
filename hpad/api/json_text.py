"""What Python's decoder of JSON does not look at: how much a text holds, and texts that UTF-8 cannot encode."""

import json
from typing import Any, Final

_CHUNK: Final = 1 << 16


def punctuation(text: bytes, marks: bytes, most: int) -> int:
    """Returns how many of the `marks` a JSON text has outside of its strings.

    Marks within strings count as well unless there are more than `most`: to leave strings out takes ten times as long.
    Time is linear, and memory a few times the text, whatever it holds.
    """
    count = sum(map(text.count, marks))
    if count <= most:
        return count
    others = bytes(set(range(256)) - {*marks, *b'"'})
    rest = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, others)
    count = within = 0
    for start in range(0, len(rest), _CHUNK):
        parts = rest[start : start + _CHUNK].split(b'"')
        count += sum(map(len, parts[within::2]))
        within = (within + len(parts) - 1) % 2  # each quote begins or ends a string
    return count


def refuse_halves(value: Any, text: str) -> None:
    """Raises ValueError if the value of a JSON text holds half of a surrogate pair (Unicode Standard, 3.8).

    UTF-8 has no such text, so nothing can be written of it.
    """
    if "\\u" not in text:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise ValueError(f"{half} is half of a surrogate pair, and no character") from None
