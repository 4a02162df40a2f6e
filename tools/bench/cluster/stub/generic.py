"""Leases, ConfigMaps and Events of the stub server: plain documents that clients create, read, replace and delete."""

import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

from tools.bench.cluster.stub.http import Answer, Request
from tools.bench.cluster.stub.objects import compact
from tools.bench.cluster.stub.watching import Change, Feed, line

Document = dict[str, Any]
KINDS: Final = {
    "leases": ("coordination.k8s.io/v1", "Lease"),
    "configmaps": ("v1", "ConfigMap"),
    "events": ("v1", "Event"),
    "replicasets": ("apps/v1", "ReplicaSet"),
    "statefulsets": ("apps/v1", "StatefulSet"),
    "replicationcontrollers": ("v1", "ReplicationController"),
}
_NOT_KEPT: Final = "events"


def refusal(status: int, reason: str, message: str) -> Answer:
    """Returns an answer with a Status."""
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return Answer(compact({**body, "message": message, "reason": reason, "code": status}), status)


class Documents:
    """The documents of one resource. `next_version` returns a new resourceVersion."""

    def __init__(self, plural: str, feed: Feed, next_version: Callable[[], int]) -> None:
        self.plural = plural
        self._feed = feed
        self._next_version = next_version
        self._documents: dict[tuple[str, str], Document] = {}

    def lines(self, namespace: str, selector: str = "") -> list[bytes]:
        """Returns the documents of a namespace, or of all of them (""), with these labels, such as `a=b,c=d`."""
        wanted = dict(each.split("=", 1) for each in selector.split(",") if each).items()
        return [
            compact(each)
            for (own, _), each in sorted(self._documents.items())
            if namespace in ("", own) and wanted <= each["metadata"].get("labels", {}).items()
        ]

    def answer(self, request: Request, namespace: str, name: str) -> Answer:
        """Answers a request for one document, or one that creates a document."""
        name = unquote(name)
        stored = self._documents.get((namespace, name))
        if request.method == "POST":
            return self._create(namespace, json.loads(request.body))
        if self.plural == _NOT_KEPT and request.method == "PATCH":
            return Answer(self._published(b"MODIFIED", _patched(json.loads(request.body), namespace, name)))
        if stored is None:
            return refusal(404, "NotFound", f'{self.plural} "{name}" not found')
        if request.method == "GET":
            return Answer(compact(stored))
        if request.method == "DELETE":
            del self._documents[namespace, name]
            return Answer(self._published(b"DELETED", stored))
        if request.method == "PUT":
            return self._replace(stored, json.loads(request.body))
        return refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _create(self, namespace: str, document: Document) -> Answer:
        metadata = document["metadata"] = {"namespace": namespace, **document.get("metadata", {})}
        metadata.setdefault("name", f"{metadata.get('generateName', '')}{self._next_version()}")
        key = namespace, metadata["name"]
        if key in self._documents:
            return refusal(409, "AlreadyExists", f'{self.plural} "{key[1]}" already exists')
        metadata["uid"] = f"{self.plural}-{self._next_version()}"
        if self.plural != _NOT_KEPT:
            self._documents[key] = document
        return Answer(self._published(b"ADDED", document), 201)

    def _replace(self, stored: Document, document: Document) -> Answer:
        metadata, own = document["metadata"], stored["metadata"]
        if metadata.get("resourceVersion", own["resourceVersion"]) != own["resourceVersion"]:
            return refusal(409, "Conflict", f'{self.plural} "{own["name"]}": the object has been modified')
        document["metadata"] = {**metadata, "uid": own["uid"]}
        self._documents[own["namespace"], own["name"]] = document
        return Answer(self._published(b"MODIFIED", document))

    def _published(self, kind: bytes, document: Document) -> bytes:
        """Gives the document a new version, and tells the watches."""
        version = self._next_version()
        document["metadata"]["resourceVersion"] = str(version)
        body = compact(document)
        self._feed.publish(Change(version, document["metadata"]["namespace"], line(kind, body)))
        return body


def _patched(patch: Document, namespace: str, name: str) -> Document:
    """Returns a document that is not kept after a merge patch: what the patch says of it."""
    return {**patch, "metadata": {**patch.get("metadata", {}), "namespace": namespace, "name": name}}
