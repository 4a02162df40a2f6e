"""Colour, or none of it: each method gives the text back as it is where colour is off."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True)
class Style:
    """ANSI colours; apply them after cutting and padding, as they add characters that take no room."""

    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str] = os.environ, *, wanted: bool = True) -> "Style":
        """Colour on a terminal, unless NO_COLOR is set to anything (no-color.org), TERM is dumb, or nobody wants it."""
        able = stream.isatty() and environ.get("TERM") != "dumb" and not environ.get("NO_COLOR")
        return cls(wanted and able)

    def bold(self, text: str) -> str:
        return self._sgr("1", text)

    def dim(self, text: str) -> str:
        return self._sgr("2", text)

    def bar(self, text: str) -> str:
        return self._sgr("36", text)

    def reading(self, text: str) -> str:
        return self._sgr("33", text)

    def good(self, text: str) -> str:
        return self._sgr("32", text)

    def bad(self, text: str) -> str:
        return self._sgr("31", text)

    def _sgr(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text
