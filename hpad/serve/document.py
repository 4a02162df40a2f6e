"""The status page as one document: `hpad/serve/web` with its styles and scripts inside, and its security policy.

The scripts are one module, in the order of SCRIPTS. All data comes from the JSON API v1. The policy names the SHA-256
of the style and of the script. A browser runs nothing else, whatever names of HPAs and texts of metric sources are.
"""

import base64
import functools
import hashlib
import urllib.parse
from importlib import resources
from typing import Final, NamedTuple

STYLES: Final = ("base.css", "list.css", "hpa.css", "chart.css")
SCRIPTS: Final = (
    "dom.js",
    "format.js",
    "api.js",
    "model.js",
    "row.js",
    "rowview.js",
    "list.js",
    "series.js",
    "chart.js",
    "pods.js",
    "cascade.js",
    "shell.js",
    "sources.js",
    "hpa.js",
    "main.js",
)
_ENDS: Final = ("</script", "</style", "<!--")
"""Texts that would end the script or style within the document."""


class Document(NamedTuple):
    """The page and its Content-Security-Policy."""

    page: bytes
    policy: str


@functools.cache
def document() -> Document:
    """Reads and joins the files. Blocks. Raises ValueError if a file cannot be part of a document."""
    style, script = _joined(STYLES), _joined(SCRIPTS)
    page = _read("index.html")
    page = page.replace("icon.svg", f"data:image/svg+xml,{urllib.parse.quote(_read('icon.svg').strip())}")
    page = page.replace("<!-- styles -->", f"<style>{style}</style>")
    page = page.replace("<!-- scripts -->", f'<script type="module">{script}</script>')
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Document(page.encode(), policy)


def _joined(names: tuple[str, ...]) -> str:
    text = "\n".join(map(_read, names))
    for end in _ENDS:
        if end in text:
            raise ValueError(f"hpad/serve/web: {end} ends the script or style of the page")
    return text


def _read(name: str) -> str:
    return (resources.files("hpad.serve") / "web" / name).read_text("utf-8")


def _digest(text: str) -> str:
    """Returns the source expression of CSP (W3C, "Content Security Policy Level 3", hash-source)."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
