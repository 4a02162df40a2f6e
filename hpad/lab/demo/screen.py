"""Shows frames: redraws them in place on a terminal, else prints blocks on changes."""

import shutil
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from hpad.lab.demo import view
from hpad.lab.demo.style import Style
from hpad.lab.demo.view import Frame, Note

SECONDS_BETWEEN_BLOCKS = 3.0
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
ERASE_REST = "\x1b[K"
WIDEST = 110

Size = Callable[[], tuple[int, int]]


def terminal_size() -> tuple[int, int]:
    """Returns columns and lines of the terminal, 80 by 24 if unknown. More columns than `WIDEST` are hard to read."""
    size = shutil.get_terminal_size()
    return max(40, min(size.columns, WIDEST)), max(10, size.lines)


def up(lines: int) -> str:
    """Returns the escape sequence that moves the cursor up to the start of a line; `""` for 0 lines."""
    return f"\x1b[{lines}F" if lines else ""


class Screen(Protocol):
    """Shows the frames of the demo."""

    def show(self, frame: Frame) -> None:
        """Shows a frame."""
        ...

    def clear(self) -> None:
        """Removes the shown frame, so that plain text can follow."""
        ...


class Terminal:
    """Redraws the last frame in place."""

    def __init__(self, out: TextIO, style: Style, size: Size = terminal_size) -> None:
        self._out, self._style, self._size = out, style, size
        self._drawn = 0

    def show(self, frame: Frame) -> None:
        width, height = self._size()
        lines = view.live(frame, width, height, self._style)
        self._redraw(HIDE_CURSOR, lines)
        self._drawn = len(lines)

    def clear(self) -> None:
        self._redraw(SHOW_CURSOR, [])
        self._drawn = 0

    def _redraw(self, cursor: str, lines: Sequence[str]) -> None:
        """Overwrites line by line: erasing the screen would flicker, and fill the scrollback of some terminals."""
        spare = max(0, self._drawn - len(lines))
        text = up(self._drawn) + "".join(f"{line}{ERASE_REST}\n" for line in lines)
        self._out.write(cursor + text + f"{ERASE_REST}\n" * spare + up(spare))
        self._out.flush()


class Blocks:
    """Prints new notes, and the table when readings, replicas or decision have changed, at most every 3 s."""

    def __init__(self, out: TextIO, style: Style, size: Size = terminal_size) -> None:
        self._out, self._style, self._size = out, style, size
        self._title = ""
        self._noted: tuple[Note, ...] = ()
        self._printed_at = 0.0
        self._printed: object = None

    def show(self, frame: Frame) -> None:
        width, _ = self._size()
        lines: list[str] = []
        if frame.title != self._title:
            self._title, self._noted, self._printed = frame.title, (), None
            lines += ["", self._style.bold(frame.title)]
        lines += [view.note(note, width, self._style) for note in frame.notes[len(self._noted) :]]
        self._noted = tuple(frame.notes)
        content = [row[:-1] for row in frame.rows], frame.decision  # without the age, which changes all the time
        due = self._printed is None or frame.at - self._printed_at >= SECONDS_BETWEEN_BLOCKS
        if frame.rows and content != self._printed and due:
            self._printed, self._printed_at = content, frame.at
            lines += view.change(frame, width, self._style)
        if lines:
            self._out.write("\n".join(lines) + "\n")
            self._out.flush()

    def clear(self) -> None:
        """Does nothing: printed blocks stay."""


def of(out: TextIO, style: Style) -> Screen:
    """Returns the screen for a stream, by whether it is a terminal."""
    return Terminal(out, style) if out.isatty() else Blocks(out, style)
