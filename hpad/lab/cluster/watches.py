"""Watch streams: initial events, changes, bookmarks, and the end of a stream."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, field

from hpad.lab.cluster import admission, attributes, errors, options, paths, reads, revisions, schemas, selectors
from hpad.lab.cluster.resources import Object
from hpad.lab.cluster.store import Change, Store

INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}
BOOKMARK_BEFORE_END = 2.0
"""Seconds between the last bookmark and the end of a stream."""


@dataclass(eq=False, slots=True)
class Stream:
    """One open watch: changes waiting to be sent; None ends it."""

    path: str
    queue: asyncio.Queue[Change | None] = field(default_factory=asyncio.Queue)


class Hub:
    """All open watches. While `flowing` is not set, no events are sent."""

    def __init__(self, store: Store, bookmark_seconds: float) -> None:
        self.store = store
        self.bookmark_seconds = bookmark_seconds
        self.streams: set[Stream] = set()
        self.flowing = asyncio.Event()
        self.flowing.set()

    def drop(self, chosen: Callable[[str], bool] = lambda _: True) -> int:
        """Ends the streams whose path is chosen, as a load balancer would; returns their number."""
        ended = [stream for stream in self.streams if chosen(stream.path)]
        for stream in ended:
            stream.queue.put_nowait(None)
        return len(ended)

    async def events(self, address: paths.Address, path: str, query: reads.Query) -> AsyncGenerator[Object, None]:
        """Yields the events of one watch, until its timeout or the end of the server.

        A resourceVersion older than the history gives one ERROR event with a Status of code 410.
        """
        stream = Stream(path)
        after = revisions.of_read(query.get("resourceVersion", ""))
        view = _View(address, reads.predicate(address, query), after)
        wants_bookmarks = attributes.is_true(query.get("allowWatchBookmarks"))
        timeout = reads.whole_number(query.get("timeoutSeconds") or "0") or random.uniform(1800, 3600)
        try:
            first = list(self._first(view, stream, query))
        except errors.ApiError as problem:
            yield {"type": "ERROR", "object": problem.status()}
            return
        # no await since the list was made: a change in between would be lost
        unsubscribe = self.store.subscribe(stream.queue.put_nowait)
        self.streams.add(stream)
        try:
            for event in first:
                yield event
            async for event in self._live(view, stream, timeout, wants_bookmarks):
                yield event
        finally:
            unsubscribe()
            self.streams.discard(stream)

    def _first(self, view: "_View", stream: Stream, query: reads.Query) -> Iterable[Object]:
        """Yields the current state, or the changes since the requested revision; raises ApiError 410 or 504."""
        revision = revisions.of_read(query.get("resourceVersion", ""))
        initial = options.wants_initial_events(query)
        if initial and revision > self.store.revision:
            raise errors.too_large_version(revision, self.store.revision)
        if initial or (not revision and "sendInitialEvents" not in query):
            for obj in self.store.objects(view.address.resource, view.address.namespace):
                if view.matches(obj):
                    yield view.event("ADDED", obj)
            if initial and attributes.is_true(query.get("allowWatchBookmarks")):
                yield view.bookmark(self.store.revision, INITIAL_EVENTS_END)
            return
        for change in self.store.since(revision or self.store.revision):
            if event := view.seen(change):
                yield event

    async def _live(
        self, view: "_View", stream: Stream, timeout: float, bookmarks: bool
    ) -> AsyncGenerator[Object, None]:
        now = asyncio.get_running_loop().time
        end = now() + timeout
        next_bookmark = now() + self.bookmark_seconds
        if timeout > BOOKMARK_BEFORE_END:
            next_bookmark = min(next_bookmark, end - BOOKMARK_BEFORE_END)
        while now() < end:
            until = min(end, next_bookmark) if bookmarks else end
            try:
                async with asyncio.timeout_at(until):
                    change = await stream.queue.get()
            except TimeoutError:
                if bookmarks and now() >= next_bookmark:
                    yield view.bookmark(self.store.revision)
                    next_bookmark = now() + self.bookmark_seconds
                continue
            if change is None:
                return
            if event := view.seen(change):
                yield event


@dataclass(frozen=True, slots=True)
class _View:
    """The objects that one client watches, their version, and the revision after which it watches."""

    address: paths.Address
    matches: selectors.Predicate
    after: int

    def seen(self, change: Change) -> Object | None:
        """Returns the event of a change: ADDED or DELETED also for an object that starts or stops matching."""
        if change.resource != self.address.resource or change.revision <= self.after:
            return None
        if self.address.namespace not in (None, "", change.object["metadata"].get("namespace", "")):
            return None
        after = change.type != "DELETED" and self.matches(change.object)
        before = change.previous is not None and self.matches(change.previous)
        if after:
            return self.event("MODIFIED" if before else "ADDED", change.object)
        return self.event("DELETED", change.object) if before else None

    def event(self, kind: str, obj: Object) -> Object:
        shown = admission.present(self.address.resource, obj, self.address.version)
        return {"type": kind, "object": shown}

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> Object:
        metadata: Object = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        resource = self.address.resource
        version = resource.group_version(self.address.version)
        head = {"kind": resource.kind, "apiVersion": version, "metadata": metadata}
        return {"type": "BOOKMARK", "object": {**head, **schemas.zero_of(version, resource.kind)}}
