"""GETs over a connection of http.client, limited in bytes, and what a running hpad answers about one HPA."""

import contextlib
import difflib
import functools
import http.client
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from hpad.api.text import shown
from hpad.cli import output
from hpad.cli.output import Failure, WrongUse

MAX_BYTES: Final = 64 * 2**20
"""More than 10,000 HPAs with their traces take."""
_CHUNK: Final = 2**16
ANOTHER: Final = "that is no hpad, or one of another version"


class HpadReader(Protocol):
    """Where the JSON of a running hpad comes from."""

    def get(self, path: str) -> Any:
        """GETs a path with its query, such as `/api/v1/hpas?limit=10`, and returns the decoded JSON; raises Failure."""
        ...


class Refusal(Failure):
    """hpad answered with another status than 200. `error` is what hpad says about it, "" if nothing."""

    def __init__(self, message: str, status: int, error: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.error = error


class Answer(NamedTuple):
    """An answer of an HTTP server."""

    status: int
    reason: str
    body: bytes

    def json(self) -> Any:
        """Returns the decoded body. Raises ValueError if it is not JSON, RecursionError if it is nested too deep."""
        return msgspec.json.decode(self.body)

    @property
    def error(self) -> str:
        """The text of an error of hpad's API, `{"error": "..."}`; "" for any other body."""
        try:
            content = self.json()
        except (ValueError, RecursionError):
            return ""
        text = content.get("error") if isinstance(content, dict) else None
        return text if isinstance(text, str) else ""


def fetch(connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str], seconds: float) -> Answer:
    """Sends a GET, reads the answer, and closes the connection.

    Raises OSError (TimeoutError after `seconds` without a byte), http.client.HTTPException, and ValueError if the body
    is longer than MAX_BYTES. Follows no redirect, so a token in `headers` reaches no other server.
    """
    body = bytearray()
    connection.timeout = seconds
    with contextlib.closing(connection):
        connection.request("GET", path, headers=dict(headers))
        response = connection.getresponse()
        while chunk := response.read1(_CHUNK):
            body += chunk
            if len(body) > MAX_BYTES:
                raise ValueError(f"the answer is longer than {MAX_BYTES} bytes")
        return Answer(response.status, response.reason, bytes(body))


Json = dict[str, Any]
_PAGE: Final = 1000
WATCH_SECONDS = 2.0
T = TypeVar("T")


def pages(get: Callable[[dict[str, str]], Json], query: Mapping[str, str], most: int | None = None) -> Iterator[Json]:
    """Yields the items of a list, page by page, `most` at most (None: all). `get` returns the page for a query."""
    left, asked = most, dict(query)
    while left is None or left > 0:
        page = get({"limit": str(_PAGE if left is None else min(_PAGE, left)), **asked})
        yield from page["items"]
        left = None if left is None else left - len(page["items"])
        asked["continue"] = page.get("continue", "")
        if not asked["continue"]:
            return


def summaries(reader: HpadReader, **filters: str | None) -> Iterator[Json]:
    """Yields the HPAs that match the filters (namespace, search, selector), sorted by namespace and name."""
    query = {name: value for name, value in filters.items() if value}
    return pages(lambda asked: reader.get(f"/api/v1/hpas?{urllib.parse.urlencode(asked)}"), query)


def looks(look: Callable[[], T], tell: Callable[[str], None]) -> Iterator[T]:
    """Yields what `look` returns every two seconds, until Ctrl-C. Tells once of a Failure, and looks again."""
    trouble = ""
    while True:
        time.sleep(WATCH_SECONDS)
        try:
            found = look()
        except Failure as failure:
            if str(failure) != trouble:
                tell(f"{failure}; trying again")
            trouble = str(failure)
            continue
        trouble = ""
        yield found
        sys.stdout.flush()


# What a running hpad knows about one HPA, with errors that say what to do instead.

_NEAR: Final = 3
AUTOSCALER: Final = "Autoscaler"
AUTOSCALERS: Final = ("autoscaler", "autoscalers", "asr")
"""How kubectl takes the kind."""
NAMES: Final = "the HPA, as NAME or NAMESPACE/NAME; an Autoscaler as autoscaler/NAME or NAMESPACE/autoscaler/NAME"


def local_name(found: Mapping[str, Any]) -> str:
    """Returns the name of an HPA of the API within its namespace: `web`, or `autoscaler/web`."""
    return f"autoscaler/{found['name']}" if found.get("kind") == AUTOSCALER else str(found["name"])


class NoHpa(Failure):
    """There is no HPA of that name. `other`: there is an Autoscaler of it."""

    def __init__(self, message: str, *, other: bool) -> None:
        super().__init__(message)
        self.other = other


class Hpa(NamedTuple):
    """One HPA at the hpad that `reader` asks. Its methods raise Failure; NoHpa where it does not exist.

    `kind` is HorizontalPodAutoscaler or Autoscaler; "" is the HorizontalPodAutoscaler as well.
    """

    reader: HpadReader
    namespace: str
    name: str
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{local_name(self._asdict())}"

    @property
    def titled(self) -> str:
        """The HPA in a message: `HPA shop/web`, or `Autoscaler shop/web`."""
        return f"{AUTOSCALER if self.kind == AUTOSCALER else 'HPA'} {self.namespace}/{self.name}"

    def get(self, rest: str = "", query: Mapping[str, str] | None = None) -> Json:
        """Returns the answer to a path below that of the HPA."""
        path = f"/api/v1/hpas/{urllib.parse.quote(self.namespace)}/{urllib.parse.quote(self.name)}{rest}"
        # Only hpads that know the kind take the parameter.
        asked = {**(query or {}), **({"kind": self.kind} if self.kind == AUTOSCALER else {})}
        try:
            found: Json = self.reader.get(f"{path}?{urllib.parse.urlencode(asked)}" if asked else path)
        except Refusal as refusal:
            if refusal.status == 404 and refusal.error.partition(";")[0] == f"no {self.titled}":
                raise self._unknown() from None
            if refusal.error:
                raise Failure(refusal.error) from None
            raise
        return found

    def converted(self, part: Any, to: type[T]) -> T:
        """Returns a part of an answer as a type of this version of hpad; raises Failure if it is of another one."""
        try:
            return msgspec.convert(part, to)
        except msgspec.ValidationError as error:
            raise Failure(f"{self.reader} did not answer as hpad does ({error}): {ANOTHER}") from None

    def latest(self) -> Json:
        """Returns the HPA with its last decision: of this hpad, else of the decision history."""
        found = self.get()
        if found.get("trace") is not None:
            return found
        try:
            found.update(self.get("/decision"))
        except Failure:
            raise Failure(self._undecided(found)) from None
        return found

    def entries(self, most: int, since: str | None = None) -> list[Json]:
        """Returns up to `most` past decisions, the newest first, those of `since` (RFC 3339) and later."""
        return list(pages(functools.partial(self.get, "/history"), {"since": since} if since else {}, most))

    def _undecided(self, found: Json) -> str:
        replicas = self.reader.get("/api/v1/replicas")
        text = f"this replica of hpad has not decided for the {self.titled} yet"
        owner = found.get("owner", "")
        return f"{text}: {owner} does; ask that one" if owner and owner != replicas["self"] else text

    def _unknown(self) -> NoHpa:
        known = list(summaries(self.reader))
        named = {each["name"] for each in known}
        names = [self.name] if self.name in named else difflib.get_close_matches(self.name, named, n=_NEAR)
        near = [f"{each['namespace']}/{local_name(each)}" for name in names for each in known if each["name"] == name]
        hint = f"did you mean {' or '.join(near[:_NEAR])}?" if near else f"hpad has {output.counted(len(known), 'HPA')}"
        other = str(self._replace(kind=AUTOSCALER))
        return NoHpa(f"there is no HPA {shown(str(self))}; {hint}", other=not self.kind and other in near)


def parsed(text: str) -> tuple[str, str, str]:
    """Returns namespace, name and kind of `[NAMESPACE/][autoscaler/]NAME`, "" for what is not given. Raises WrongUse.

    A word before the name that can be the kind is the kind.
    """
    before, _, name = text.rpartition("/")
    place, _, kind = before.rpartition("/")
    if kind not in AUTOSCALERS:
        place, kind = before, ""
    if "/" in place or not name or text.startswith("/"):
        forms = "NAME, NAMESPACE/NAME, autoscaler/NAME or NAMESPACE/autoscaler/NAME"
        raise WrongUse(f"NAME: {shown(text)} is not of the form {forms}")
    return place, name, AUTOSCALER if kind else ""
