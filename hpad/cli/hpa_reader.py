"""Reads what a running hpad knows about one HPA, with errors that say what to do instead."""

import difflib
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from hpad.api.text import shown
from hpad.cli import output
from hpad.cli.fetch import HpadReader, Refusal
from hpad.cli.output import Failure

_PAGE: Final = 1000
_MOST_PAGES: Final = 100
_NEAR: Final = 3

Json = dict[str, Any]


class Hpa(NamedTuple):
    """One HPA at the hpad that `reader` asks. Its methods raise Failure."""

    reader: HpadReader
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def get(self, rest: str = "", query: Mapping[str, str] | None = None) -> Json:
        """Returns the answer to a path below that of the HPA."""
        path = f"/api/v1/hpas/{urllib.parse.quote(self.namespace)}/{urllib.parse.quote(self.name)}{rest}"
        try:
            found: Json = self.reader.get(f"{path}?{urllib.parse.urlencode(query)}" if query else path)
        except Refusal as refusal:
            if refusal.status == 404 and refusal.error == f"no HPA {self}":
                raise Failure(self._unknown()) from None
            if refusal.error:
                raise Failure(refusal.error) from None
            raise
        return found

    def latest(self) -> Json:
        """Returns the HPA with its last decision: of this hpad, else of the decision history."""
        found = self.get()
        if found.get("trace") is not None:
            return found
        try:
            return found | self.get("/decision")
        except Failure:
            raise Failure(self._undecided(found)) from None

    def entries(self, most: int, since: str | None = None) -> list[Json]:
        """Returns up to `most` past decisions, the newest first, those of `since` (RFC 3339) and later."""
        found: list[Json] = []
        query = {"since": since} if since else {}
        while True:
            page = self.get("/history", {**query, "limit": str(min(_PAGE, most - len(found)))})
            found += page["items"]
            query["continue"] = page.get("continue", "")
            if not query["continue"] or len(found) >= most:
                return found

    def _undecided(self, found: Json) -> str:
        replicas = self.reader.get("/api/v1/replicas")
        text = f"this replica of hpad has not decided for the HPA {self} yet"
        owner = found.get("owner", "")
        return f"{text}: {owner} does; ask that one" if owner and owner != replicas["self"] else text

    def _unknown(self) -> str:
        known = list(self._names())
        named = {key.partition("/")[2] for key in known}
        names = [self.name] if self.name in named else difflib.get_close_matches(self.name, named, n=_NEAR)
        near = [key for name in names for key in known if key.partition("/")[2] == name][:_NEAR]
        hint = f"did you mean {' or '.join(near)}?" if near else f"hpad has {output.counted(len(known), 'HPA')}"
        return f"there is no HPA {shown(str(self))}; {hint}"

    def _names(self) -> Iterator[str]:
        query = {"limit": str(_PAGE)}
        for _ in range(_MOST_PAGES):
            page = self.reader.get(f"/api/v1/hpas?{urllib.parse.urlencode(query)}")
            yield from (f"{each['namespace']}/{each['name']}" for each in page["items"])
            query["continue"] = page.get("continue", "")
            if not query["continue"]:
                return
