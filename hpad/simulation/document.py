"""The HTML document of a report: one file that asks for nothing, with its style and script inside."""

import base64
import functools
import hashlib
import html
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources

from hpad.api.text import visible


def document(title: str, body: Iterable[str], files: Sequence[str] = ()) -> Iterator[str]:
    """Yields a page in parts. `body` is HTML with one main element; `files` are styles and scripts of its own.

    They are names in `web`; each page has `page.css`.
    """
    style = "".join(map(_read, ("page.css", *(name for name in files if name.endswith(".css")))))
    code = "".join(_read(name) for name in files if name.endswith(".js"))
    allowed = f"'{_digest(code)}'" if code else "'none'"
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src {allowed}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    yield f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{escaped(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
"""
    yield from body
    if code:
        yield f"<script>{code}</script>\n"
    yield "</body>\n</html>\n"


@functools.cache
def _read(name: str) -> str:
    """Returns the text of a file in `web`. Blocks."""
    return (resources.files("hpad.simulation") / "web" / name).read_text("utf-8")


def _digest(text: str) -> str:
    """Returns the source expression of CSP (W3C, "Content Security Policy Level 3", hash-source)."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def escaped(text: str) -> str:
    """Returns a text from outside as HTML, also for attributes in double quotes."""
    return html.escape(visible(text))


def prose(text: str) -> str:
    """Returns a sentence as HTML, with an arrow for "->", and no line break between a number and its percent sign."""
    return escaped(text).replace("-&gt;", "\u2192").replace(" %", "\u00a0%")


def escaped_code(text: str) -> str:
    """Returns code from outside as HTML that keeps its lines."""
    return "\n".join(map(escaped, text.splitlines()))
