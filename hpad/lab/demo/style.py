"""Colours of the terminal."""

import os
from collections.abc import Mapping
from typing import NamedTuple, TextIO


class Style(NamedTuple):
    """Adds ANSI colours to a text, or returns it unchanged if colour is off.

    Apply after cutting and padding, since the escape sequences have no width on the terminal.
    """

    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str] = os.environ, *, enabled: bool = True) -> "Style":
        """Uses colour if `enabled`, on a terminal, unless NO_COLOR is set (https://no-color.org) or TERM is dumb."""
        supported = stream.isatty() and environ.get("TERM") != "dumb" and not environ.get("NO_COLOR")
        return cls(enabled and supported)

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
