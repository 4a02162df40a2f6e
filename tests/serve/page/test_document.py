"""The status page as a document: its security policy, its parts, and the contrast of its colors."""

import base64
import hashlib
import re
from pathlib import Path

import pytest
from support import http_server

import hpad.serve
from hpad.serve import document
from hpad.settings.model import Serving

WEB = Path(hpad.serve.__file__).parent / "web"
LEAST_CONTRAST = 4.5
"""WCAG 2.2, success criterion 1.4.3: for text of normal size."""
STATES = ("failing", "atMax", "limited", "fallback", "competing")


def page() -> str:
    return document.document().page.decode()


def part(tag: str) -> str:
    """Returns the content of the only element of its kind."""
    (found,) = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", page(), re.DOTALL)
    return str(found)


async def test_the_policy_allows_the_style_and_the_script_by_their_hashes_and_nothing_else() -> None:
    directives = dict(each.strip().split(" ", 1) for each in document.document().policy.split(";"))
    for directive, tag in (("style-src", "style"), ("script-src", "script")):
        digest = base64.b64encode(hashlib.sha256(part(tag).encode()).digest()).decode()
        assert directives.pop(directive) == f"'sha256-{digest}'"
    assert directives.pop("connect-src") == "'self'"
    assert directives.pop("img-src") == "data:", "the icon, which is part of the document"
    assert set(directives) == {"default-src", "base-uri", "form-action", "frame-ancestors"}
    assert set(directives.values()) == {"'none'"}


async def test_the_server_sends_the_page_with_its_policy() -> None:
    async with (
        http_server.opened(Serving()) as server,
        http_server.session() as session,
        session.get(server.url) as answer,
    ):
        assert (answer.status, answer.content_type) == (200, "text/html")
        assert answer.headers["Content-Security-Policy"] == document.document().policy
        assert await answer.text() == page()


def test_every_file_is_part_of_the_page() -> None:
    files = {path.name for path in WEB.iterdir()}
    assert files == {"index.html", "icon.svg", *document.STYLES, *document.SCRIPTS}
    for name in (*document.STYLES, *document.SCRIPTS):
        assert (WEB / name).read_text("utf-8").strip() in page()


def test_a_file_that_would_end_the_script_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_read", lambda name: "const text = '</script>';")
    document.document.cache_clear()
    with pytest.raises(ValueError, match="ends the script or style of the page"):
        document.document()
    document.document.cache_clear()


def test_nothing_is_loaded_from_elsewhere_and_no_text_becomes_markup() -> None:
    text = page()
    assert re.findall(r"https?://[^\"'\s]*", text) == ["http://www.w3.org/2000/svg"], "the namespace of SVG"
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text)
    markup = text.replace(part("script"), "").replace(part("style"), "")
    assert not re.search(r"\son\w+=|\sstyle=|javascript:", markup)


def test_without_javascript_the_page_leads_to_the_api_and_the_command() -> None:
    note = part("noscript")
    for path in ("api/v1/hpas", "api/v1/sources", "api/v1/openapi.json"):
        assert f'href="{path}"' in note
    assert "hpad explain" in note


def test_a_phone_shows_the_page_at_its_own_width() -> None:
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page()


def colors(scheme: int) -> dict[str, str]:
    """Returns the colors of the light scheme (0) or the dark one (1) by name."""
    pairs = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", part("style"))
    assert len(pairs) > 20
    return {name: pair[scheme] for name, *pair in pairs}


def luminance(color: str) -> float:
    """WCAG 2.2, "relative luminance"."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_computed_as_defined() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("text", ["text", "soft", "quiet", "accent", "ok", *STATES])
def test_texts_have_enough_contrast_on_every_surface(scheme: int, text: str) -> None:
    found = colors(scheme)
    for surface in ("back", "card", "raised", "hover", "accent-soft"):
        assert contrast(found[text], found[surface]) >= LEAST_CONTRAST, surface


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("state", STATES)
def test_badges_have_enough_contrast(scheme: int, state: str) -> None:
    found = colors(scheme)
    assert contrast(found[state], found[f"{state}-soft"]) >= LEAST_CONTRAST


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_lines_of_the_chart_stand_out(scheme: int) -> None:
    """WCAG 2.2, success criterion 1.4.11: graphical objects need a contrast of 3."""
    found = colors(scheme)
    lines = [found[name] for name in found if name == "fill" or re.fullmatch(r"line-\d", name)]
    assert len(lines) == 7
    assert all(contrast(line, found["card"]) >= 3 for line in lines)
