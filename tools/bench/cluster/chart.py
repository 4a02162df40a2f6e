"""Draws the figures of a bench as an SVG: a panel of horizontal bars for each of a few figures, a bar for each run."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from tools.bench.cluster.controllers import HPAD
from tools.bench.cluster.measure import Figures

_LABELS, _BARS, _NUMBERS = 190, 260, 70
_WIDTH: Final = _LABELS + _BARS + _NUMBERS + 20
_ROW, _TITLE, _GAP = 22, 34, 14
_COLOURS: Final = {HPAD: "#2f6fbf", "servers": "#b9c4d0"}
_OTHER_COLOUR: Final = "#c96f2b"


class Panel(NamedTuple):
    """A title, and for each run the parts of its bar: names and sizes. Sizes that are None are not drawn."""

    title: str
    rows: Sequence[Sequence[tuple[str, float | None]]]

    @property
    def height(self) -> int:
        return _TITLE + _ROW * len(self.rows) + _GAP


def drawn(found: Sequence[Figures]) -> str:
    """Returns the document."""
    labels = [f"{each.hpas:,} HPAs, {_name(each.controller)}" for each in found]
    panels = (
        Panel("CPU-seconds per 1,000 reconciles: controller and servers", [_cpu(each) for each in found]),
        Panel("period held, seconds", [[(each.controller, each.period)] for each in found]),
        Panel("from planned time to decision, p99, milliseconds", [[(each.controller, _late(each))] for each in found]),
        Panel("requests per reconcile", [[(each.controller, each.requests_each)] for each in found]),
        Panel("resident memory, MiB", [[(each.controller, each.resident[each.controller])] for each in found]),
    )
    body, top = [], _GAP
    for panel in panels:
        body.append(_panel(panel, labels, top))
        top += panel.height
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top}" font-family="sans-serif" '
    return f'{head}font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{"".join(body)}</svg>\n'


def _name(controller: str) -> str:
    return controller if controller == HPAD else "original"


def _cpu(each: Figures) -> list[tuple[str, float | None]]:
    servers = sum(seconds for name, seconds in each.cpu.items() if name != each.controller)
    return [(each.controller, each.cpu[each.controller]), ("servers", servers)]


def _late(each: Figures) -> float | None:
    return None if each.late.p99 is None else each.late.p99 * 1000


def _panel(panel: Panel, labels: Sequence[str], top: int) -> str:
    largest = max((sum(size or 0.0 for _, size in row) for row in panel.rows), default=0.0) or 1.0
    lines = [f'<text x="10" y="{top + 18}" font-weight="bold">{escape(panel.title)}</text>\n']
    for index, (label, row) in enumerate(zip(labels, panel.rows, strict=True)):
        y = top + _TITLE + _ROW * index - 6
        lines.append(f'<text x="{_LABELS - 6}" y="{y + 13}" text-anchor="end">{escape(label)}</text>\n')
        x, sizes = float(_LABELS), []
        for name, size in row:
            if size is not None:
                width = _BARS * size / largest
                colour = _COLOURS.get(name, _OTHER_COLOUR)
                lines.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 5}" fill="{colour}"/>\n')
                sizes.append(f"{size:.2f}" if largest < 100 else f"{size:,.0f}")
                x += width
        lines.append(f'<text x="{x + 5:.1f}" y="{y + 13}">{" + ".join(sizes) or "not known"}</text>\n')
    return "".join(lines)
