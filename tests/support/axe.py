"""axe-core judges the accessibility of pages. `tests/packages.sh` fetches it; it is not part of the repository."""

from pathlib import Path
from typing import Any

from support.browser import Page

VERSION = "4.14.1"
SCRIPT = Path(__file__).resolve().parents[2] / ".cache" / f"axe-core-{VERSION}" / "axe.min.js"
ABSENT = "axe-core is missing: `make packages` fetches it"


async def findings(page: Page) -> list[str]:
    """Returns what violates the rules of WCAG and the best practices of axe-core: rule, impact and element."""
    if not await page.value("'axe' in window"):
        await page.value(f"{SCRIPT.read_text('utf-8')};0")
    found: list[dict[str, Any]] = await page.value(
        "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations.flatMap("
        "({id, impact, nodes}) => nodes.map(({html}) => ({id, impact, html: html.slice(0, 300)}))))"
    )
    return [f"{each['id']} ({each['impact']}): {each['html']}" for each in found]
