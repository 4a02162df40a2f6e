"""What commands print, without control characters of others: standard output and error while a command runs.

Much of it is said by metric sources, API servers and files; `model.harmless` says what is escaped.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from hpad.api.text import harmless_lines


class Plain:
    """A text stream before another one, to which it gives all that is written, but for control characters."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """As of the stream."""
        self.stream.write(harmless_lines(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """As of the stream."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def printing() -> Iterator[None]:
    """Inside, `print` and whatever else writes to standard output and error goes by way of Plain."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream and cast(TextIO, Plain(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def raw(stream: TextIO) -> TextIO:
    """The stream behind it, for a command that moves the cursor itself."""
    return stream.stream if isinstance(stream, Plain) else stream


def print_document(text: str) -> None:
    """Print a manifest: on a terminal like all else, into a file or pipe to the character."""
    stream = sys.stdout if sys.stdout.isatty() else raw(sys.stdout)
    stream.write(text)
