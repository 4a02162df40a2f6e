"""Lines of text whose parts have a style. A terminal shows styles as colors; anywhere else the text is the same."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

PLAIN: Final = ""
STRONG: Final = "strong"
QUIET: Final = "quiet"
GOOD: Final = "good"
WARN: Final = "warn"
BAD: Final = "bad"


class Span(NamedTuple):
    """A part of a line."""

    text: str
    style: str = PLAIN


class Line(NamedTuple):
    """One line; where it is wrapped, the lines that follow are indented by `hang` columns."""

    spans: tuple[Span, ...]
    hang: int = 0

    def __str__(self) -> str:
        return "".join(span.text for span in self.spans).rstrip()


Cell = Span | str


def line(*cells: Cell, hang: int = 0) -> Line:
    """Returns a line of these parts."""
    return Line(tuple(cell if isinstance(cell, Span) else Span(cell) for cell in cells), hang)


BLANK: Final = line()


def labelled(label: str, *cells: Cell, indent: int = 0, width: int) -> Line:
    """Returns "label:   text", the text `width` columns after the indent."""
    head = f"{' ' * indent}{f'{label}:'.ljust(width)}"
    return line(Span(head, STRONG if indent == 0 else PLAIN), *cells, hang=len(head))


def table(rows: Sequence[Sequence[Cell]], indent: int) -> Iterator[Line]:
    """Yields rows with columns two spaces apart, wrapped under their last column."""
    cells = [[cell if isinstance(cell, Span) else Span(cell) for cell in row] for row in rows]
    widths = [max(len(cell.text) for cell in column) for column in zip(*cells, strict=True)]
    hang = indent + sum(widths[:-1]) + 2 * (len(widths) - 1)
    for row in cells:
        yield Line((Span(" " * indent), *_padded(row, widths)), hang)


def _padded(row: Iterable[Span], widths: Sequence[int]) -> Iterator[Span]:
    *first, last = zip(row, widths, strict=True)
    for cell, width in first:
        yield cell
        yield Span(" " * (width - len(cell.text) + 2))
    yield last[0]
