"""Past decisions that several replicas know: pages of the history of an HPA, and the decision in force at a time.

A replica gives its newest entries first, as many as `limit` says. The next page of several replicas begins before the
last entry of this page, wherever each replica is in its own history: its `continue` is that time.
"""

import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

_LIMIT: Final = 100
"""The number of entries of a page without `limit`."""
_TOKEN: Final = "before-"
_MOMENT: Final = timedelta(microseconds=1)

Page = Mapping[str, Any]


def is_page(path: str) -> bool:
    """Whether a path is that of a page of the history."""
    return path.partition("?")[0].endswith("/history")


def is_decision(path: str) -> bool:
    """Whether a path is that of the decision at a time."""
    return path.partition("?")[0].endswith("/decision")


def latest(answers: Sequence[Page]) -> Page:
    """Returns the decision that was in force: of those of several replicas, the one that began last."""
    return max(answers, key=_began)


def merged(path: str, ask: Callable[[str], Sequence[Page]]) -> Page:
    """Returns one page of the history of all replicas; `ask` returns what each answers to a path. Raises Failure."""
    place, _, text = path.partition("?")
    query = dict(urllib.parse.parse_qsl(text))
    token = query.get("continue", "")
    if token.startswith(_TOKEN):
        del query["continue"]
        query["until"] = token.removeprefix(_TOKEN)
    pages = ask(f"{place}?{urllib.parse.urlencode(query)}" if query else place)
    if len(pages) == 1:
        return pages[0]
    limit = int(query.get("limit", _LIMIT))
    items = sorted((item for page in pages for item in page["items"]), key=_began, reverse=True)
    shown = {"items": items[:limit]}
    if len(items) > limit or any(page.get("continue") for page in pages):
        before = _began(shown["items"][-1]) - _MOMENT
        return {**shown, "continue": f"{_TOKEN}{before.isoformat()}"}
    return shown


def _began(entry: Page) -> datetime:
    return datetime.fromisoformat(entry["began"])
