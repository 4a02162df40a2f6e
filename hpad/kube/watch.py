"""Reads lists and watches of the API server: their pages, lines and changes, and the metadata of the objects in them.

Only the fields that are read are decoded, directly from bytes: HPAs in `hpas`, pods in `hpad.api.pod_json`, targets in
`scale`.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Final, Generic, Literal, TypeVar

import msgspec

from hpad.api.metadata import Key
from hpad.api.wire import Meta
from hpad.kube import errors
from hpad.kube.client import Client

T = TypeVar("T")
TOGETHER: Final = 0.1
"""Seconds from the arrival of changes to their reading: those that arrive meanwhile are read together, and answers to
own writes are read before the changes that they cause."""
BATCH: Final = 64
"""Objects that are handled before other tasks run: one or two milliseconds."""
_BATCH_BYTES: Final = 1 << 19
_OBJECT: Final = _BATCH_BYTES // BATCH
"""What an object counts beside its bytes: 64 small objects make a batch, and one of a megabyte does."""
ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
BOOKMARK: Final = "BOOKMARK"


class ObjectVersion(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The fields of metav1.ObjectMeta that tell which version of an object this is; cheaper than Meta."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Headed(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: Meta = Meta()


class Placed(msgspec.Struct, frozen=True, gc=False):
    """An object of which nothing else is read."""

    metadata: ObjectVersion = ObjectVersion()


class Original(msgspec.Struct, frozen=True, gc=False):
    """The bytes of an HPA as received that a write of its status needs.

    `metadata` is without resourceVersion and managedFields, `status` without the fields that hpad writes, and `rest`
    are the fields of the object beside these and `spec`; each is a JSON object. `status_writers` maps each other client
    that writes the status to the time of its last write (see `managed_fields.writers_of_status`).
    """

    metadata: bytes
    spec: bytes
    status: bytes
    rest: bytes
    status_writers: Mapping[str, str]


class DecodedObject(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One object of the API server. `version` is its resourceVersion.

    For HPAs from the API server `original` is set.
    """

    key: Key
    version: str
    value: T
    original: Original | None = None


Decode = Callable[[bytes | msgspec.Raw], DecodedObject[T]]
"""Decodes the bytes of one object; raises UNDECODABLE."""


class ListPage(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One page of a list. `items` are decoded one by one, so that one unreadable object does not affect the others."""

    metadata: Meta = Meta()
    items: list[msgspec.Raw] | None = None


_HEADED = msgspec.json.Decoder(_Headed)
_PAGE = msgspec.json.Decoder(ListPage)


def page(body: bytes) -> ListPage:
    """Decodes an answer to a list. Raises ApiError with status 0 for anything else, even an empty object."""
    answer = errors.decoded(_PAGE, body, "the answer is no list")
    if not answer.metadata.resource_version:  # an empty list would remove all objects from a cache
        raise errors.ApiError(0, "BadAnswer", "the answer is no list: it has no resourceVersion")
    return answer


def meta(raw: bytes | msgspec.Raw) -> Meta:
    """Decodes the metadata of any object or bookmark; empty if it is unreadable."""
    try:
        return errors.skimmed(_HEADED, raw).metadata
    except errors.UNREADABLE:
        return Meta()


class WatchChange(msgspec.Struct, frozen=True):
    """One line of a watch, with the object not decoded yet; the object of an ERROR is a Status.

    `object` shares the memory of the line, and keeps all of it while it exists.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class Heading(msgspec.Struct, frozen=True, gc=False):
    """The parts of a line that tell whether the rest of it need be read."""

    type: str
    object: Placed


_CHANGE = msgspec.json.Decoder(WatchChange)
_HEADING = msgspec.json.Decoder(Heading)


class Lines:
    """Splits chunks of bytes into lines. An unfinished last line is kept, and never returned."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Returns the lines that this chunk completes, of any length, without empty ones."""
        if b"\n" not in chunk:  # a line of many chunks is searched once, not again with each chunk
            self._rest += chunk
            return []
        *lines, rest = (bytes(self._rest) + chunk if self._rest else chunk).split(b"\n")
        self._rest = bytearray(rest)
        return [line for line in lines if line.strip()]


class Batches:
    """Tells after which objects other tasks are to run: authors choose how large an object is."""

    def __init__(self) -> None:
        self._left = _BATCH_BYTES

    def ends(self, raw: bytes | msgspec.Raw) -> bool:
        """Counts an object that was handled; returns whether the batch ends with it."""
        self._left -= _OBJECT + len(raw)
        if self._left > 0:
            return False
        self._left = _BATCH_BYTES
        return True


def decode(line: bytes) -> WatchChange:
    """Decodes a line. Raises ApiError: the server's error in an ERROR line, or status 0 for a line that is no change.

    The error is `gone` if the version where the watch started has expired: list again.
    """
    change = errors.decoded(_CHANGE, line, "the watch received a line that is no change")
    if change.type == "ERROR":
        raise errors.from_event(bytes(change.object))
    return change


def heading(line: bytes) -> Heading | None:
    """Decodes the heading of a line; None for a line that is no change."""
    try:
        return errors.skimmed(_HEADING, line)
    except errors.UNREADABLE:
        return None


async def pages(
    client: Client, path: str, params: Mapping[str, str], limit: int, timeout: float | None = None
) -> AsyncGenerator[ListPage, None]:
    """Yields the pages of a list, of `limit` objects each (0: all at once). Raises ApiError.

    `timeout` bounds the request of a page in seconds; None: as for other requests. The error is `gone` if the list took
    so long that the server has forgotten the version of the first page.
    """
    asked = {**params, **({"limit": str(limit)} if limit else {})}
    while True:
        found = page(await client.request("GET", path, params=asked, timeout=timeout))
        yield found
        if not found.metadata.continue_:
            return
        asked["continue"] = found.metadata.continue_


async def lines(
    client: Client, path: str, params: Mapping[str, str], silence: float, together: float = 0.0
) -> AsyncGenerator[list[bytes], None]:
    """Yields the lines of a watch of a collection, with bookmarks, as they arrive, until the server ends the watch.

    `params` name the version where the watch starts and its duration; lines are read `together` seconds after they have
    arrived. Raises ApiError if the watch failed or received nothing for `silence` seconds (watch again). An error that
    the server sends in a line is raised by `decode`. An incomplete last line is dropped.
    """
    splitter = Lines()
    watch_params = {**params, "watch": "true", "allowWatchBookmarks": "true"}
    async with aclosing(client.stream(path, watch_params, silence, together)) as chunks:
        async for chunk in chunks:
            if found := splitter.feed(chunk):
                yield found
