"""What the pages of `hpad advise` and `hpad backtest` share: the document."""

import html
from collections.abc import Iterable, Iterator

from hpad.api.text import visible


def document(title: str, body: Iterable[str]) -> Iterator[str]:
    """Yields a page in parts; `body` is HTML."""
    yield f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{escaped(title)}</title>
</head>
<body>
<main>
<h1>{escaped(title)}</h1>
"""
    yield from body
    yield "</main>\n</body>\n</html>\n"


def escaped(text: str) -> str:
    """Returns a text from outside as HTML, also for attributes."""
    return html.escape(visible(text))
