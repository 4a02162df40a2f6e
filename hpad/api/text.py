"""Texts as messages quote them: the API server's as Go does (`quoted`), hpad's own as a person wrote them (`shown`).

Texts of others, such as metric sources, made fit for terminals and pages: the one place that says which characters
are not passed on.

Those are the controls of terminals (C0, DEL, C1; ECMA-48), which can erase, forge and retitle; the line and paragraph
separators; the controls of direction, which show a text in another order than it has (Unicode Standard Annex 9); and
halves of surrogate pairs, which no UTF-8 can say. Each is written as JSON escapes it, so that JSON keeps its meaning.

What was probably meant by a name that is not known.

The failure of a connection or a file in words, instead of the name of its class.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
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


_INVISIBLE: Final = re.compile(f"[{CONTROLS}\t\n]")

_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f",
    "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def quoted(text: str) -> str:
    """A string as Go's `%q` quotes it."""
    return f'"{"".join(map(_quoting_escaped, text))}"' if not text.isalnum() else f'"{text}"'


def _quoting_escaped(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shown(value: object) -> str:
    """A value that was given, as a person wrote it: 'web', 3, true, null, {queue: 'orders'}.

    For messages of hpad's own, where Python's or Go's escapes would say nothing to the reader: a control character is
    shown by its picture (␊ for a line break), and what is no character at all by �.
    """
    if isinstance(value, str):
        return _in_quotes(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, bytes | bytearray):
        return _in_quotes(value.decode("utf-8", "replace"))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_bare(name)}: {shown(entry)}' for name, entry in value.items())}}}"
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{', '.join(map(shown, value))}]"
    return visible(str(value))


def visible(text: str) -> str:
    """The text with pictures in place of control characters, all on one line."""
    return _INVISIBLE.sub(lambda found: _picture(found[0]), text)


def _bare(name: object) -> str:
    return visible(name) if isinstance(name, str) else shown(name)


def _in_quotes(text: str) -> str:
    quote = '"' if "'" in text and '"' not in text else "'"
    return f"{quote}{visible(text)}{quote}"


def _picture(character: str) -> str:
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "�"


def meant(name: str, known: Iterable[str]) -> str:
    """` (did you mean "x"?)` for the known name that comes nearest, empty where none comes near."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f' (did you mean "{close[0]}"?)' if close else ""


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
    """What went wrong, in a few words: "connection refused".

    An error that carries another (aiohttp's `os_error`, or a cause) is told by that one. For classes that are not known
    here the words of their names are used.
    """
    for each in (getattr(error, "os_error", None), error.__cause__, error):
        for kind in type(each).__mro__:
            if kind.__name__ in _WORDS:
                return _WORDS[kind.__name__]
    name = re.sub(r"(Error|Exception)$", "", type(error).__name__)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower() or "failed"
