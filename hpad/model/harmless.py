"""Texts of others, such as metric sources, made fit for terminals and pages: the one place that says which characters
are not passed on.

Those are the controls of terminals (C0, DEL, C1; ECMA-48), which can erase, forge and retitle; the line and paragraph
separators; the controls of direction, which show a text in another order than it has (Unicode Standard Annex 9); and
halves of surrogate pairs, which no UTF-8 can say. Each is written as JSON escapes it, so that JSON keeps its meaning.
"""

import re
from typing import Final

CONTROLS: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""For a character class; tabs and line breaks are not among them."""
_IN_LINES: Final = re.compile(f"[{CONTROLS}]")
_IN_ONE_LINE: Final = re.compile(f"[{CONTROLS}\t\n]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def harmless(text: str) -> str:
    """The text in one line: control characters, tabs and line breaks among them, are escaped."""
    return text if text.isascii() and text.isprintable() else _IN_ONE_LINE.sub(_escaped, text)


def harmless_lines(text: str) -> str:
    """As `harmless`, but tabs and line breaks (not carriage returns) stay."""
    return text if text.isascii() and text.isprintable() else _IN_LINES.sub(_escaped, text)


def harmless_json(body: bytes) -> bytes:
    """JSON that means the same, and may be shown as it is."""
    if body.isascii() and b"\x7f" not in body:
        return body
    return harmless_lines(body.decode("utf-8", "surrogatepass")).encode()


def _escaped(found: re.Match[str]) -> str:
    return _SHORT.get(found[0], f"\\u{ord(found[0]):04x}")
