"""The paths of the stub server and their answers."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qs, unquote

import msgspec

from tools.bench.cluster import child, population
from tools.bench.cluster.population import Population
from tools.bench.cluster.stub import generic, http, watching
from tools.bench.cluster.stub.generic import Documents, refusal
from tools.bench.cluster.stub.http import Connection, Request
from tools.bench.cluster.stub.objects import DEPLOYMENTS, HPAS, PODS, Objects, compact
from tools.bench.cluster.stub.usage import Usage
from tools.bench.cluster.stub.watching import Change, Feed, Scope

METRICS: Final = "metrics.k8s.io"
VERSION: Final = b'{"major":"1","minor":"36","gitVersion":"v1.36.2","platform":"linux/amd64"}'
KINDS: Final = {
    HPAS: ("autoscaling/v2", "HorizontalPodAutoscaler"),
    PODS: ("v1", "Pod"),
    DEPLOYMENTS: ("apps/v1", "Deployment"),
    **generic.KINDS,
}
VERBS: Final = {"GET": "get", "PUT": "update", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
_DEFAULT_WATCH_SECONDS: Final = 1800.0


class _Versioned(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Written(msgspec.Struct, frozen=True):
    """The parts of a written object that are read."""

    metadata: _Versioned = _Versioned()
    status: msgspec.Raw = msgspec.Raw(b"{}")
    spec: msgspec.Raw = msgspec.Raw(b"{}")


_WRITTEN: Final = msgspec.json.Decoder(_Written)


class Api:
    """Answers the requests, and counts them by verb and resource, such as `update horizontalpodautoscalers/status`.

    `written` are the numbers of the HPAs whose status was written.
    """

    def __init__(self, of: Population) -> None:
        self.requests: Counter[str] = Counter()
        self.written: set[int] = set()
        self._objects = Objects(of)
        self._usage = Usage(of)
        self._feeds = {plural: Feed(*kind) for plural, kind in KINDS.items()}
        self._documents = {
            plural: Documents(plural, self._feeds[plural], self._objects.next_version) for plural in generic.KINDS
        }
        self._watches: set[asyncio.Task[None]] = set()

    def handle(self, connection: Connection, request: Request) -> bytes | None:
        parts = request.path.strip("/").split("/")
        group = parts[1] if parts[0] == "apis" and len(parts) > 1 else ""
        rest = parts[3:] if group else parts[2:]
        if not rest:
            return self._root(request)
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = unquote(rest[1]), rest[2:]
        plural, name, subresource = (*rest, "", "")[:3]
        verb = "watch" if "watch=" in request.query else "list" if request.method == "GET" and not name else ""
        verb = verb or VERBS.get(request.method, "")
        resource = f"{plural}.{METRICS}" if group == METRICS else f"{plural}/{subresource}" if subresource else plural
        self.requests[f"{verb} {resource}"] += 1
        if group == METRICS:
            return self._metrics(namespace)
        if plural not in KINDS:
            return refusal(404, "NotFound", "the server could not find the requested resource")
        if verb == "watch":
            return self._watch(connection, request, plural, namespace)
        if verb == "list":
            return self._list(request, plural, namespace)
        return self._object(request, plural, namespace, name, subresource)

    def _root(self, request: Request) -> bytes:
        """Answers discovery and other paths without a resource. Without aggregated discovery clients read no list."""
        self.requests["get other"] += 1
        if request.path == "/version":
            return http.answer(VERSION)
        if request.path in ("/readyz", "/livez", "/healthz"):
            return http.answer(b"ok")
        return refusal(404, "NotFound", "the server could not find the requested resource")

    def _metrics(self, namespace: str) -> bytes:
        number = population.index_of(namespace) if namespace else 0
        return http.answer(self._usage.list(number, self._objects.scaled))

    def _rendered(self, plural: str, namespace: str) -> Iterator[bytes]:
        """Yields the objects of a namespace, or of all of them ("")."""
        objects, of = self._objects, self._objects.population
        if plural in self._documents:
            yield from self._documents[plural].lines(namespace)
            return
        for number in of.numbers(population.index_of(namespace)) if namespace else range(of.hpas):
            if plural == HPAS:
                yield objects.hpa(number)
            elif plural == DEPLOYMENTS:
                yield objects.deployment(number)
            else:
                yield from (objects.pod(number, index) for index in range(objects.replicas(number)))

    def _list(self, request: Request, plural: str, namespace: str) -> bytes:
        """Answers a list, or the first objects of it; there are no further pages."""
        limit = int(parse_qs(request.query).get("limit", ["0"])[0])
        items = []
        for item in self._rendered(plural, namespace):
            items.append(item)
            if limit == 1:
                break
        version, kind = KINDS[plural]
        head = b'{"kind":"%bList","apiVersion":"%b","metadata":{"resourceVersion":"%d"},"items":[%b]}'
        listed = head % (kind.encode(), version.encode(), self._objects.version, b",".join(items))
        return http.answer(listed)

    def _watch(self, connection: Connection, request: Request, plural: str, namespace: str) -> bytes | None:
        query = {name: values[0] for name, values in parse_qs(request.query).items()}
        feed, version = self._feeds[plural], self._objects.version
        if query.get("sendInitialEvents") == "true":
            initial = self._initial(feed, plural, namespace, version)
        else:
            missed = feed.since(int(query.get("resourceVersion") or version))
            if missed is None:
                return refusal(410, "Expired", "too old resource version")
            initial = (change.line for change in missed if namespace in ("", change.namespace))
        connection.transport.write(http.stream_head())
        scope = Scope(namespace, float(query.get("timeoutSeconds", _DEFAULT_WATCH_SECONDS)))
        task = asyncio.create_task(feed.serve(connection, scope, initial, version))
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)
        return None

    def _initial(self, feed: Feed, plural: str, namespace: str, version: int) -> Iterator[bytes]:
        for document in self._rendered(plural, namespace):
            yield watching.line(b"ADDED", document)
        yield feed.bookmark(version, initial=True)

    def _object(self, request: Request, plural: str, namespace: str, name: str, subresource: str) -> bytes:
        if plural in self._documents:
            return self._documents[plural].answer(request, namespace, name)
        number = population.index_of(name)
        if plural == HPAS and subresource == "status" and request.method == "PUT":
            return self._write_status(number, request.body)
        if plural == DEPLOYMENTS and subresource == "scale" and request.method == "PUT":
            return self._write_scale(number, request.body)
        if request.method != "GET" or plural == PODS:
            return refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        if subresource == "scale":
            return http.answer(self._objects.scale(number))
        return http.answer(self._objects.hpa(number) if plural == HPAS else self._objects.deployment(number))

    def _write_status(self, number: int, body: bytes) -> bytes:
        """Stores a status; answers with the object, and sends it to the watches."""
        objects, written = self._objects, _WRITTEN.decode(body)
        if written.metadata.resource_version not in ("", str(objects.versions.get(number, 1000))):
            return _conflict("horizontalpodautoscalers.autoscaling", number)
        version = objects.versions[number] = objects.next_version()
        objects.statuses[number] = bytes(written.status)
        self.written.add(number)
        document = objects.hpa(number)
        change = Change(version, objects.population.namespace(number), watching.line(b"MODIFIED", document))
        self._feeds[HPAS].publish(change)
        return http.answer(document)

    def _write_scale(self, number: int, body: bytes) -> bytes:
        """Sets the replicas of a Deployment; its pods are there, or gone, at once."""
        objects, written = self._objects, _WRITTEN.decode(body)
        if written.metadata.resource_version not in ("", str(objects.target_versions.get(number, 1000))):
            return _conflict("deployments.apps", number)
        before, after = objects.replicas(number), int(json.loads(bytes(written.spec))["replicas"])
        namespace = objects.population.namespace(number)
        version = objects.target_versions[number] = objects.next_version()
        objects.scaled[number] = after
        self._usage.changed(population.index_of(namespace))
        deployment = watching.line(b"MODIFIED", objects.deployment(number))
        self._feeds[DEPLOYMENTS].publish(Change(version, namespace, deployment))
        for index in range(min(before, after), max(before, after)):
            kind = b"ADDED" if after > before else b"DELETED"
            pod = watching.line(kind, objects.pod(number, index))
            self._feeds[PODS].publish(Change(objects.next_version(), namespace, pod))
        return http.answer(objects.scale(number))


def _conflict(resource: str, number: int) -> bytes:
    message = f'Operation cannot be fulfilled on {resource} "{population.name(number)}": the object has been modified'
    return refusal(409, "Conflict", message)


def commands(api: Api) -> child.Commands:
    """Returns what the bench may ask for.

    `counts`: the requests, and the number of HPAs whose status was written since `mark`.
    """

    def counts() -> bytes:
        return compact({"requests": dict(api.requests), "reconciled": len(api.written)})

    def mark() -> bytes:
        api.written.clear()
        return counts()

    return {"counts": counts, "mark": mark}
