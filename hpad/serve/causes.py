"""Causes of failures without what differs from HPA to HPA: those that fail alike have the same group."""

import re
from typing import Final

from hpad.api.text import harmless

_READ: Final = 300
"""Characters that tell causes apart."""
_LONGEST: Final = 600
"""Bytes of a group: the `continue` of a page contains it, and a request line has 2,048."""
_PATHS: Final = re.compile(r"(\b\w+://[^\s/]+)/\S*?(?=[:;,.]?(?:\s|\Z))")
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'|\{[^}]*\}")
_NUMBERS: Final = re.compile(r"(?<![\w:.-])[0-9]+(?:(?:\.[0-9]+)+|(?=(?:ms|[smhd%])\b))")


def group(cause: str) -> str:
    """Returns the cause without paths of URLs, quoted names, selectors, durations and addresses."""
    text = _PATHS.sub(r"\1/…", harmless(cause[:_READ]))
    text = _QUOTED.sub(lambda found: f"{found[0][0]}…{found[0][-1]}", text)
    return _NUMBERS.sub("…", text).encode()[:_LONGEST].decode(errors="ignore")
