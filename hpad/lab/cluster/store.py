"""The storage of the cluster: objects, one global revision, and a history of changes for watches."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from hpad.lab.cluster import errors, revisions
from hpad.lab.cluster.resources import Object, Resource

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of one write. `type` is ADDED, MODIFIED or DELETED; `previous` is None for ADDED."""

    revision: int
    type: str
    resource: Resource
    object: Object
    previous: Object | None = None


def key_of(obj: Object) -> Key:
    """Returns namespace and name of an object."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


class Store:
    """Objects by resource and key. Returned objects are shared: copy them before changing them.

    Each write takes the next revision and calls the subscribers synchronously. The history keeps `history_limit`
    changes; older ones are lost, as after a compaction of etcd.
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
        """Returns an object; raises ApiError 404."""
        found = self.find(resource, namespace, name)
        if found is None:
            raise errors.not_found(resource, name)
        return found

    def objects(self, resource: Resource, namespace: str | None = None) -> list[Object]:
        """Returns all objects of a resource, or those in one namespace, sorted by key."""
        return _sorted(self._objects.get(resource, {}), namespace)

    def everything(self) -> list[tuple[Resource, Object]]:
        """Returns all objects with their resources."""
        return [(resource, obj) for resource, objects in self._objects.items() for obj in objects.values()]

    def of_kind(self, kind: str) -> Iterator[tuple[Resource, Object]]:
        """Yields all objects of a kind, of any group, with their resources. The store must not change meanwhile."""
        for resource, objects in self._objects.items():
            if resource.kind == kind:
                for obj in objects.values():
                    yield resource, obj

    def owned(self, uid: str) -> list[tuple[Resource, Object]]:
        """Returns all objects with an owner reference to this uid, and their resources."""
        return [(resource, self._objects[resource][key]) for resource, key in self._owned.get(uid, ())]

    def objects_at(self, resource: Resource, revision: int, namespace: str | None = None) -> list[Object]:
        """Returns the objects as of an earlier `revision`; raises ApiError 410 when the history does not reach back."""
        objects = dict(self._objects.get(resource, {}))
        for change in self.since(revision, newest_first=True):
            if change.resource != resource:
                continue
            if change.previous is None:
                objects.pop(key_of(change.object), None)
            else:
                objects[key_of(change.object)] = change.previous
        return _sorted(objects, namespace)

    def since(self, revision: int, *, newest_first: bool = False) -> Iterable[Change]:
        """Returns the changes after `revision`; raises ApiError 410 when some of them are lost."""
        if revision < self._floor:
            raise errors.expired(f"too old resource version: {revision} ({self._floor})")
        changes = [change for change in self._history if change.revision > revision]
        return reversed(changes) if newest_first else changes

    def create(self, resource: Resource, obj: Object) -> Object:
        """Stores a new object; raises ApiError 409 when the name is taken."""
        namespace, name = key_of(obj)
        if self.find(resource, namespace, name) is not None:
            raise errors.already_exists(resource, name)
        return self._record("ADDED", resource, obj, None)

    def update(self, resource: Resource, obj: Object) -> Object:
        """Replaces an object; does nothing if the content is equal. Raises ApiError 404, 409 (stale version) or 500."""
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
        """Removes an object; raises ApiError 404."""
        old = self.get(resource, namespace, name)
        return self._record("DELETED", resource, old, old)

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Calls `callback` within each write from now on; returns a function that ends this."""
        token = self._next_subscriber
        self._next_subscriber += 1
        self._subscribers[token] = callback

        def unsubscribe() -> None:
            self._subscribers.pop(token, None)

        return unsubscribe

    def continue_from(self, revision: int) -> None:
        """Continues an earlier store: its resourceVersions were up to `revision`, and older ones get 410."""
        self.revision = self._floor = revision

    def compact(self) -> None:
        """Drops the history, so that an older resourceVersion gets 410."""
        self._history.clear()
        self._floor = self.revision

    def _record(self, kind: str, resource: Resource, obj: Object, previous: Object | None) -> Object:
        self.revision += 1
        self._index(resource, obj, previous)
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        objects = self._objects.setdefault(resource, {})
        if kind == "DELETED":
            del objects[key_of(obj)]
            self._index(resource, None, obj)
        else:
            objects[key_of(obj)] = obj
        if len(self._history) == self._history.maxlen:
            self._floor = self._history[0].revision
        change = Change(self.revision, kind, resource, obj, previous)
        self._history.append(change)
        for callback in list(self._subscribers.values()):
            callback(change)
        return obj

    def _index(self, resource: Resource, obj: Object | None, previous: Object | None) -> None:
        """Replaces `previous` by `obj` in the index of owners."""
        for uid in _owners(previous):
            self._owned[uid].pop((resource, key_of(previous or {})), None)
            if not self._owned[uid]:
                del self._owned[uid]
        for uid in _owners(obj):
            self._owned.setdefault(uid, {})[resource, key_of(obj or {})] = None


class DryRunStore(Store):
    """Reads from another store and checks writes, but changes nothing (dryRun=All)."""

    def __init__(self, store: Store) -> None:
        self.__dict__.update(store.__dict__)  # shares the containers of the other store

    def _record(self, kind: str, resource: Resource, obj: Object, previous: Object | None) -> Object:
        return obj


def _sorted(objects: Mapping[Key, Object], namespace: str | None) -> list[Object]:
    return [objects[key] for key in sorted(objects) if namespace in (None, key[0])]


def _owners(obj: Object | None) -> set[str]:
    return {ref["uid"] for ref in obj["metadata"].get("ownerReferences") or []} if obj else set()
