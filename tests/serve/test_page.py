"""The status page: legible in both schemes and on a phone, and true where nothing could be decided."""

import re
from typing import Any

import pytest

from hpad import __version__
from hpad.serve import page

LEAST_CONTRAST = 4.5
"""WCAG 2.2, success criterion 1.4.3: for text of normal size."""


def row(current: int, desired: int, *, error: str | None = None, **conditions: str) -> dict[str, Any]:
    return {
        **{"namespace": "shop", "name": "web", "target": {"kind": "Deployment", "name": "web"}},
        **{"minReplicas": 1, "maxReplicas": 9, "currentReplicas": current, "desiredReplicas": desired},
        "conditions": [{"type": kind, "status": status} for kind, status in conditions.items()],
        "lastDecision": {"time": "2026-01-02T03:04:05.123456Z", "sentence": "keep 2", "error": error},
    }


def colours(text: str) -> dict[str, str]:
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", text))


def style() -> str:
    found = re.search(r"<style>(.*)</style>", page.render([], []), re.DOTALL)
    assert found is not None
    return found[1]


def schemes() -> list[dict[str, str]]:
    """The colours of the light scheme, and of the dark one."""
    light, dark = re.findall(r":root \{(.*?)\}", style(), re.DOTALL)
    return [colours(light), colours(light) | colours(dark)]


def luminance(colour: str) -> float:
    """WCAG 2.2, "relative luminance"."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_computed_as_defined() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert contrast("#0000ee", "#14191f") < LEAST_CONTRAST, "a browser's own links on the dark page"


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["text", "quiet", "link", "trouble"])
def test_every_text_stands_out_from_the_page(scheme: int, name: str) -> None:
    held = schemes()[scheme]
    assert contrast(held[name], held["back"]) >= LEAST_CONTRAST


def test_no_text_has_a_colour_of_its_own() -> None:
    """So that those above are all there are; links are named, since browsers colour them otherwise."""
    used = set(re.findall(r"[ {;]color: ([^;} ]+)", style()))
    assert used == {"var(--text)", "var(--quiet)", "var(--link)", "var(--trouble)"}
    assert "a, a:visited { color: var(--link) }" in style()


def test_a_phone_shows_it_at_its_own_width() -> None:
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page.render([], [])


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (row(2, 3, AbleToScale="True", ScalingActive="True"), "2 → 3"),
        (row(2, 2, AbleToScale="True", ScalingActive="True"), "2"),
        (row(1, 0, AbleToScale="True", ScalingActive="True"), "1 → 0"),
        (row(2, 0, error="no answer", AbleToScale="True", ScalingActive="False"), "2"),
        (row(2, 5, error="no answer", AbleToScale="True", ScalingActive="False"), "2"),
        (row(2, 0, error="forbidden", AbleToScale="False"), "2"),
        (row(2, 5, error="forbidden", AbleToScale="False", ScalingActive="True"), "2"),
        (row(2, 0), "2"),
        (row(0, 0), "?"),
        (row(0, 0, error="not found", AbleToScale="False"), "?"),
        (row(0, 0, AbleToScale="True", ScalingActive="False"), "0"),
    ],
)
def test_an_arrow_means_that_a_count_was_decided(given: dict[str, Any], shown: str) -> None:
    assert f'data-label="replicas">{shown}</td>' in page.render([given], [])


def test_the_mode_is_shown() -> None:
    mode = page.Mode(doing="Standing by: another leads", facts=("standby", "HPAs of the API server", "version 1"))
    text = page.render([], [], mode)
    assert "Standing by: another leads" in text
    assert "standby &middot; HPAs of the API server &middot; version 1" in text
    assert "dry run" not in text
    assert "dry run: hpad decides, but writes nothing to the cluster" in page.render([], [], page.Mode(dry_run=True))
    assert f"version {__version__}" in page.render([], [])


def test_when_it_was_decided_is_shown() -> None:
    assert (
        '<time datetime="2026-01-02T03:04:05.123456Z" title="2026-01-02T03:04:05.123456Z">03:04:05Z</time>keep 2'
        in page.render([row(2, 2)], [])
    )


def test_without_an_hpa_the_page_says_so() -> None:
    assert "No HPA yet." in page.render([], [])
