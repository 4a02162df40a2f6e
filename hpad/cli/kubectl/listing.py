"""The HPAs that a command is about, read from hpad page by page."""

import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any, Final

from hpad.cli.fetch import Reader
from hpad.cli.kubectl.names import Named
from hpad.cli.output import Failure

_PAGE: Final = 500
_MOST_PAGES: Final = 1000

Summary = dict[str, Any]


def summaries(reader: Reader, namespace: str | None, search: str = "", selector: str = "") -> Iterator[Summary]:
    """Yields the HPAs of a namespace (None: all), sorted by namespace and name; raises Failure."""
    filters = {"namespace": namespace, "search": search, "selector": selector}
    query = {"limit": str(_PAGE), **{name: value for name, value in filters.items() if value}}
    for _ in range(_MOST_PAGES):
        page = reader.get(f"/api/v1/hpas?{urllib.parse.urlencode(query)}")
        yield from page["items"]
        query["continue"] = page.get("continue", "")
        if not query["continue"]:
            return


def chosen(reader: Reader, namespace: str | None, named: Sequence[Named], selector: str = "") -> list[Summary]:
    """Returns the HPAs with these names, in their order; without names those that the selector matches.

    Raises Failure for a missing one.
    """
    if not named:
        return list(summaries(reader, namespace, selector=selector))
    found: list[Summary] = []
    for each in named:
        matching = [summary for summary in summaries(reader, namespace, each.name) if each.matches(summary)]
        if not matching:
            raise Failure(f"no HPA {'of ' if each.kind else ''}{each} {_where(namespace)}")
        found += matching
    return found


def _where(namespace: str | None) -> str:
    return "in any namespace" if namespace is None else f"in namespace {namespace}"


def only(reader: Reader, namespace: str | None, named: Named) -> tuple[str, str]:
    """Returns namespace and name of one HPA; raises Failure if there is none or more than one."""
    found = chosen(reader, namespace, [named])
    if len(found) > 1:
        listed = ", ".join(f"{each['namespace']}/{each['name']}" for each in found)
        raise Failure(f"several HPAs match {named}: {listed}; name one of them with its namespace (-n)")
    return found[0]["namespace"], found[0]["name"]
