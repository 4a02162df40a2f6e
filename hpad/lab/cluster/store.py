"""The cluster's memory: objects, one global revision, and the changes that watches replay."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hpad.lab.cluster import errors, revisions
from hpad.lab.cluster.resources import Object, Resource

Key = tuple[str, str]
"""Namespace (empty for cluster-wide kinds) and name."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one write did. `type` is ADDED, MODIFIED or DELETED; `previous` is None for ADDED."""

    revision: int
    type: str
    resource: Resource
    object: Object
    previous: Object | None = None


def key_of(obj: Object) -> Key:
    """Namespace and name of an object."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


class Store:
    """Objects by resource and key. Whatever it hands out is shared: copy before changing it.

    Every write takes the next revision, tells the subscribers synchronously and stays in a history of
    `history_limit` changes; what is older is gone, as after compaction of etcd.
    """

    def __init__(self, history_limit: int = 20_000) -> None:
        self.revision = 1
        self._objects: dict[Resource, dict[Key, Object]] = {}
        self._owned: dict[str, dict[tuple[Resource, Key], None]] = {}
        self._history: deque[Change] = deque(maxlen=history_limit)
        self._floor = 0
        self._subscribers: dict[int, Callable[[Change], None]] = {}
        self._next_subscriber = 0

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self._objects.get(resource, {}).get((namespace, name))

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """The object; raises ApiError 404."""
        found = self.find(resource, namespace, name)
        if found is None:
            raise errors.not_found(resource, name)
        return found

    def objects(self, resource: Resource, namespace: str | None = None) -> list[Object]:
        """All objects, or those of a namespace, in the order of their keys."""
        held = self._objects.get(resource, {})
        return [held[key] for key in sorted(held) if namespace in (None, key[0])]

    def everything(self) -> list[tuple[Resource, Object]]:
        """Every object of every resource."""
        return [(resource, obj) for resource, held in self._objects.items() for obj in held.values()]

    def owned(self, uid: str) -> list[tuple[Resource, Object]]:
        """Everything with an owner reference to this uid."""
        return [(resource, self._objects[resource][key]) for resource, key in self._owned.get(uid, ())]

    def objects_at(self, resource: Resource, revision: int, namespace: str | None = None) -> list[Object]:
        """The list as it was at `revision`; raises ApiError 410 when the history no longer reaches back."""
        held = dict(self._objects.get(resource, {}))
        for change in self.since(revision, newest_first=True):
            if change.resource != resource:
                continue
            if change.previous is None:
                held.pop(key_of(change.object), None)
            else:
                held[key_of(change.object)] = change.previous
        return [held[key] for key in sorted(held) if namespace in (None, key[0])]

    def since(self, revision: int, *, newest_first: bool = False) -> Iterable[Change]:
        """Changes after `revision`; raises ApiError 410 when some of them are forgotten."""
        if revision < self._floor:
            raise errors.expired(f"too old resource version: {revision} ({self._floor})")
        changes = [change for change in self._history if change.revision > revision]
        return reversed(changes) if newest_first else changes

    def create(self, resource: Resource, obj: Object) -> Object:
        """Store a new object under the next revision; raises ApiError 409 when the name is taken."""
        namespace, name = key_of(obj)
        if self.find(resource, namespace, name) is not None:
            raise errors.already_exists(resource, name)
        return self._record("ADDED", resource, obj, None)

    def update(self, resource: Resource, obj: Object) -> Object:
        """Replace an object. Same content: nothing happens. A stale resourceVersion: ApiError 409, a bad one: 500."""
        namespace, name = key_of(obj)
        old = self.get(resource, namespace, name)
        version = revisions.of_object(obj["metadata"].get("resourceVersion"))
        current = old["metadata"]["resourceVersion"]
        if version and version != int(current):
            raise errors.conflict(resource, name)
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": current}}
        if obj == old:
            return old
        return self._record("MODIFIED", resource, obj, old)

    def remove(self, resource: Resource, namespace: str, name: str) -> Object:
        """Forget an object; raises ApiError 404."""
        old = self.get(resource, namespace, name)
        return self._record("DELETED", resource, old, old)

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call `callback` within each write from now on; the result ends that."""
        token = self._next_subscriber
        self._next_subscriber += 1
        self._subscribers[token] = callback
        return lambda: self._drop(token)

    def _drop(self, token: int) -> None:
        self._subscribers.pop(token, None)

    def compact(self) -> None:
        """Forget the history, so that any older resourceVersion answers 410."""
        self._history.clear()
        self._floor = self.revision

    def _record(self, kind: str, resource: Resource, obj: Object, previous: Object | None) -> Object:
        self.revision += 1
        self._index(resource, obj, previous)
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        held = self._objects.setdefault(resource, {})
        if kind == "DELETED":
            del held[key_of(obj)]
            self._index(resource, None, obj)
        else:
            held[key_of(obj)] = obj
        if len(self._history) == self._history.maxlen:
            self._floor = self._history[0].revision
        change = Change(self.revision, kind, resource, obj, previous)
        self._history.append(change)
        for callback in list(self._subscribers.values()):
            callback(change)
        return obj

    def _index(self, resource: Resource, obj: Object | None, previous: Object | None) -> None:
        """Keep the owner index: `previous` out, `obj` in."""
        for uid in _owners(previous):
            self._owned[uid].pop((resource, key_of(previous or {})), None)
            if not self._owned[uid]:
                del self._owned[uid]
        for uid in _owners(obj):
            self._owned.setdefault(uid, {})[resource, key_of(obj or {})] = None


class Rehearsal(Store):
    """Sees what another store holds and checks what it would check, but changes nothing: for dryRun=All."""

    def __init__(self, store: Store) -> None:
        self.__dict__.update(store.__dict__)

    def _record(self, kind: str, resource: Resource, obj: Object, previous: Object | None) -> Object:
        return obj


def _owners(obj: Object | None) -> set[str]:
    return {ref["uid"] for ref in obj["metadata"].get("ownerReferences") or []} if obj else set()
