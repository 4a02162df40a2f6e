"""Keeps the objects of a cluster in a file, so that they survive a restart.

Pods are left out, for their processes end with the cluster; so are events, and what the cluster makes itself.
"""

import asyncio
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from hpad import clock as clocks
from hpad.api.text import shown
from hpad.lab.cluster import resources
from hpad.lab.cluster.resources import Object, Resource
from hpad.lab.cluster.store import Store

LOG = logging.getLogger(__name__)
SAVE_SECONDS: Final = 2.0
_LEFT_OUT: Final = (resources.PODS, resources.EVENTS, resources.NODES)
_OF_NODE: Final = "kube-node-lease"


class SnapshotError(Exception):
    """The file of objects cannot be read."""


class _Entry(msgspec.Struct):
    group: str
    version: str
    plural: str
    object: Object


class _Content(msgspec.Struct):
    revision: int
    objects: list[_Entry]


@dataclass(eq=False, slots=True)
class Snapshot:
    """The objects of `store` in `file`, which is replaced at most every SAVE_SECONDS, and by `save`."""

    file: Path
    store: Store
    registry: resources.Registry
    clock: clocks.Clock
    _is_failing: bool = False
    _saved: int = -1

    async def restore(self) -> None:
        """Puts the objects of the file, if there is one, into the store; raises SnapshotError.

        What a controller counts of the pods of a workload is not restored. Objects of a kind that is not served any
        more are lost.
        """
        content = await asyncio.to_thread(self._read)
        if content is None:
            return
        self.store.continue_from(content.revision)
        # definitions first: they make the kinds of other objects known
        for entry in sorted(content.objects, key=lambda entry: entry.plural != resources.DEFINITIONS.plural):
            resource = self.registry.find(entry.group, entry.version, entry.plural)
            metadata = entry.object["metadata"]
            key = metadata.get("namespace", ""), metadata["name"]
            if resource is None or self.store.find(resource, *key) is not None:
                continue
            self.store.create(resource, _without_counts(resource, entry.object))

    async def run(self) -> None:
        """Saves the objects while they change, until cancelled."""
        while True:
            await self.clock.sleep(SAVE_SECONDS)
            await self.save()

    async def save(self) -> None:
        """Writes the file if an object has changed. Logs an error; the next call tries again."""
        revision = self.store.revision
        if revision == self._saved:
            return
        content = msgspec.json.encode(_Content(revision, list(self._entries())))
        try:
            await asyncio.to_thread(self._write, content)
        except OSError as error:
            if not self._is_failing:
                text = "a restart would lose changes of objects: %s cannot be written: %s"
                LOG.error(text, self.file, error.strerror or error)
            self._is_failing = True
        else:
            self._saved, self._is_failing = revision, False

    def _entries(self) -> Iterator[_Entry]:
        for resource, obj in self.store.everything():
            metadata = obj["metadata"]
            is_own = resource in _LEFT_OUT or metadata.get("namespace") == _OF_NODE
            if not is_own and "deletionTimestamp" not in metadata:
                yield _Entry(resource.group, resource.versions[0], resource.plural, obj)

    def _read(self) -> _Content | None:
        try:
            return msgspec.json.decode(self.file.read_bytes(), type=_Content)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            text = f"{self.file} cannot be read: {shown(str(error))}; without the file the cluster begins anew"
            raise SnapshotError(text) from error

    def _write(self, content: bytes) -> None:
        """Replaces the file as a whole; raises OSError. It may hold Secrets, so that only its owner may read it."""
        part = self.file.with_name(f".{self.file.name}")
        with open(part, "wb", opener=_for_owner) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.file)


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _without_counts(resource: Resource, obj: dict[str, Any]) -> Object:
    return {**obj, "status": {}} if resource.scale is not None and not resource.is_custom else obj
