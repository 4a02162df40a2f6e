"""Texts inside messages: quoting as Go does (`quoted`) or for people (`shown`), and escaping of control characters.

Texts from outside, such as those of metric sources, are escaped before they reach a terminal or a page. Escaped are:
the control characters of terminals (C0, DEL, C1; ECMA-48), which can erase and forge output; line and paragraph
separators; the bidirectional formatting characters (Unicode Standard Annex 9); and unpaired surrogates, which UTF-8
cannot encode. The escapes are those of JSON, so that JSON keeps its meaning.

Of JSON, what Python's decoder does not look at: how much a text holds, and texts that UTF-8 cannot encode.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

CONTROLS: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""For a character class; tabs and line breaks are not among them."""
_IN_LINES: Final = re.compile(f"[{CONTROLS}]")
_IN_ONE_LINE: Final = re.compile(f"[{CONTROLS}\t\n]")
_MOST_COMPARED: Final = 1000
_LONGEST_COMPARED: Final = 100
_CHUNK: Final = 1 << 16
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def harmless(text: str) -> str:
    """Returns the text on one line, with control characters, tabs and line breaks escaped."""
    return text if text.isascii() and text.isprintable() else _IN_ONE_LINE.sub(_escaped, text)


def harmless_lines(text: str) -> str:
    """Escapes control characters as `harmless` does, but keeps tabs and line feeds."""
    return text if text.isascii() and text.isprintable() else _IN_LINES.sub(_escaped, text)


def harmless_json(body: bytes) -> bytes:
    """Returns equivalent JSON that is safe to print."""
    if body.isascii() and b"\x7f" not in body:
        return body
    return harmless_lines(body.decode("utf-8", "surrogatepass")).encode()


def _escaped(found: re.Match[str]) -> str:
    return _SHORT.get(found[0], f"\\u{ord(found[0]):04x}")


_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f",
    "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def quoted(text: str) -> str:
    """Returns the text as Go's `%q` quotes it."""
    return f'"{text}"' if text.isalnum() else f'"{"".join(map(_go_escaped, text))}"'


def _go_escaped(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shown(value: object) -> str:
    """Returns a value from a user as it was written: 'web', 3, true, null, {queue: 'orders'}.

    For messages of hpad. Control characters are shown by their pictures (␊ for a line break), invalid characters as �.
    """
    if isinstance(value, str):
        return _in_quotes(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, bytes | bytearray):
        return _in_quotes(value.decode("utf-8", "replace"))
    if isinstance(value, Mapping):
        names = [visible(name) if isinstance(name, str) else shown(name) for name in value]
        return f"{{{', '.join(f'{name}: {shown(entry)}' for name, entry in zip(names, value.values(), strict=True))}}}"
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{', '.join(map(shown, value))}]"
    return visible(str(value))


def begin(text: str, longest: int = 100) -> str:
    """Returns the begin of a text, at most so many characters; with an ellipsis if that is not all."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def visible(text: str) -> str:
    """Returns the text on one line, with pictures in place of control characters."""
    return _IN_ONE_LINE.sub(_picture, text)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "�"


def _in_quotes(text: str) -> str:
    quote = '"' if "'" in text and '"' not in text else "'"
    return f"{quote}{visible(text)}{quote}"


def meant(name: str, known: Iterable[str]) -> str:
    """Returns ` (did you mean "x"?)` for the most similar known name, "" if none is similar.

    Long names are compared with none, since that takes as long as both are, and of the known ones the first thousand.
    """
    few = islice(known, _MOST_COMPARED) if len(name) <= _LONGEST_COMPARED else ()
    close = difflib.get_close_matches(name, [each for each in few if len(each) <= _LONGEST_COMPARED], n=1)
    return f' (did you mean "{close[0]}"?)' if close else ""


def hint(name: Any, known: tuple[str, ...]) -> str:
    """Returns a suggestion for a misspelt name, else the list of known names."""
    return near(name, known) or f"; there are {', '.join(known)}"


def near(name: Any, known: tuple[str, ...]) -> str:
    """Returns a suggestion for a misspelt name, or ""."""
    close = closest(name, known)
    return f"; did you mean {shown(close)}?" if close else ""


def closest(name: Any, known: tuple[str, ...]) -> str | None:
    """Returns the known name most similar to `name`, None if none is similar."""
    return next(iter(difflib.get_close_matches(str(name), known, n=1)), None)


_WORDS: Final = {
    "ConnectionRefusedError": "connection refused",
    "ConnectionResetError": "connection reset",
    "ConnectionError": "connection broken",
    "gaierror": "host name not known",
    "ClientConnectorDNSError": "host name not known",
    "SSLCertVerificationError": "certificate not trusted",
    "SSLError": "TLS connection failed",
    "ClientSSLError": "TLS connection failed",
    "ServerDisconnectedError": "connection closed without an answer",
    "ClientPayloadError": "answer broken off",
    "EOFError": "connection closed",
    "TimeoutError": "no answer in time",
    "FileNotFoundError": "no such file",
    "PermissionError": "permission denied",
    "IsADirectoryError": "it is a directory",
    "YAMLError": "not valid YAML",
    "UnicodeError": "not UTF-8",
}


def reason(error: BaseException) -> str:
    """Returns the cause of an error in a few words: "connection refused".

    An error that wraps another one (`os_error` of aiohttp, or a cause) is described by the inner one. Unknown classes
    are described by the words of their names.
    """
    for each in (getattr(error, "os_error", None), error.__cause__, error):
        for kind in type(each).__mro__:
            if kind.__name__ in _WORDS:
                return _WORDS[kind.__name__]
    name = re.sub(r"(Error|Exception)$", "", type(error).__name__)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower() or "failed"


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
