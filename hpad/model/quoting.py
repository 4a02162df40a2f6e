"""Texts as messages quote them: the API server's as Go does (`quoted`), hpad's own as a person wrote them (`shown`)."""

import re
from collections.abc import Mapping
from typing import Final

from hpad.model.harmless import CONTROLS

_INVISIBLE: Final = re.compile(f"[{CONTROLS}\t\n]")

_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f",
    "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def quoted(text: str) -> str:
    """A string as Go's `%q` quotes it."""
    return f'"{"".join(map(_escaped, text))}"' if not text.isalnum() else f'"{text}"'


def _escaped(character: str) -> str:
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
