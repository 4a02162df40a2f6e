"""The paths of the stub server and their answers."""

import asyncio
import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qs, unquote

import msgspec

from tools.bench.cluster import population
from tools.bench.cluster.population import Population
from tools.bench.cluster.stub import generic, watching
from tools.bench.cluster.stub.generic import Documents, refusal
from tools.bench.cluster.stub.http import Answer, Channel, Request
from tools.bench.cluster.stub.objects import AUTOSCALERS, DEPLOYMENTS, HPAS, PODS, Objects
from tools.bench.cluster.stub.traffic import Traffic
from tools.bench.cluster.stub.usage import Usage
from tools.bench.cluster.stub.watching import Change, Feed, Scope

METRICS: Final = "metrics.k8s.io"
VERSION: Final = b'{"major":"1","minor":"36","gitVersion":"v1.36.2","platform":"linux/amd64"}'
KINDS: Final = {
    HPAS: ("autoscaling/v2", "HorizontalPodAutoscaler"),
    AUTOSCALERS: ("hpad.io/v1", "Autoscaler"),
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
_MEASURED: Final = b'"ValidMetricFound"'
"""The reason of the condition ScalingActive in the status of an HPA whose metrics could be read."""


class Api:
    """Answers the requests, and counts them by verb and resource, such as `update horizontalpodautoscalers/status`.

    `metrics_fail`: lists of metrics are refused.
    """

    def __init__(self, of: Population) -> None:
        self.traffic = Traffic()
        self.objects = Objects(of)
        self.usage = Usage(of)
        self._scaled = AUTOSCALERS if of.autoscalers else HPAS
        self.feeds = {plural: Feed(*kind) for plural, kind in KINDS.items()}
        self.metrics_fail = False
        self._documents = {
            plural: Documents(plural, self.feeds[plural], self.objects.next_version) for plural in generic.KINDS
        }
        self._watches: set[asyncio.Task[None]] = set()

    def handle(self, channel: Channel, request: Request) -> Answer | None:
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
        self.traffic.asked(f"{verb} {resource}")
        if group == METRICS:
            return self._metrics(namespace)
        if plural not in KINDS:
            return refusal(404, "NotFound", "the server could not find the requested resource")
        if verb == "watch":
            return self._watch(channel, request, plural, namespace)
        if verb == "list":
            return self._list(request, plural, namespace)
        return self._object(request, plural, namespace, name, subresource)

    def _root(self, request: Request) -> Answer:
        """Answers discovery and other paths without a resource. Without aggregated discovery clients read no list."""
        self.traffic.asked("get other")
        if request.path == "/version":
            return Answer(VERSION)
        if request.path in ("/readyz", "/livez", "/healthz"):
            return Answer(b"ok")
        return refusal(404, "NotFound", "the server could not find the requested resource")

    def _metrics(self, namespace: str) -> Answer:
        if self.metrics_fail:
            return refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request")
        number = population.index_of(namespace) if namespace else 0
        return Answer(self.usage.list(number, self.objects.pods))

    def _rendered(self, plural: str, namespace: str, selector: str = "") -> Iterator[bytes]:
        """Yields the objects of a namespace, or of all of them (""); Leases and the like by their labels."""
        objects = self.objects
        if plural in self._documents:
            yield from self._documents[plural].lines(namespace, selector)
            return
        if plural in (HPAS, AUTOSCALERS) and plural != self._scaled:
            return
        for number in objects.numbers(namespace):
            if plural == self._scaled:
                yield objects.hpa(number)
            elif plural == DEPLOYMENTS:
                yield objects.deployment(number)
            else:
                yield from (objects.pod(number, index) for index in objects.indexes(number))

    def _list(self, request: Request, plural: str, namespace: str) -> Answer:
        """Answers a list, or the first objects of it; there are no further pages."""
        query = parse_qs(request.query)
        limit = int(query.get("limit", ["0"])[0])
        items = []
        for item in self._rendered(plural, namespace, query.get("labelSelector", [""])[0]):
            items.append(item)
            if limit == 1:
                break
        version, kind = KINDS[plural]
        head = b'{"kind":"%bList","apiVersion":"%b","metadata":{"resourceVersion":"%d"},"items":[%b]}'
        listed = head % (kind.encode(), version.encode(), self.objects.version, b",".join(items))
        return Answer(listed)

    def _watch(self, channel: Channel, request: Request, plural: str, namespace: str) -> Answer | None:
        query = {name: values[0] for name, values in parse_qs(request.query).items()}
        feed, version = self.feeds[plural], self.objects.version
        seconds = float(query.get("timeoutSeconds", _DEFAULT_WATCH_SECONDS))
        scope = Scope(namespace, seconds)
        if query.get("sendInitialEvents") == "true":
            initial = self._initial(feed, plural, namespace, version)
        else:
            missed = feed.since(int(query.get("resourceVersion") or version))
            if missed is None:
                return refusal(410, "Expired", "too old resource version")
            initial = (change.line for change in missed if scope.includes(change))
        channel.begin()
        # Opened here, not by the task: changes before its first step would reach neither the watch nor the list.
        task = asyncio.create_task(feed.serve(feed.open(channel, scope), initial, version))
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)
        return None

    def _initial(self, feed: Feed, plural: str, namespace: str, version: int) -> Iterator[bytes]:
        for document in self._rendered(plural, namespace):
            yield watching.line(b"ADDED", document)
        yield feed.bookmark(version, initial=True)

    def _object(self, request: Request, plural: str, namespace: str, name: str, subresource: str) -> Answer:
        if plural in self._documents:
            return self._documents[plural].answer(request, namespace, name)
        if namespace in self.objects.gone:
            return refusal(404, "NotFound", f'{plural} "{name}" not found')
        number = population.index_of(name)
        if plural == self._scaled and subresource == "status" and request.method == "PUT":
            return self._write_status(number, request.body)
        if plural == DEPLOYMENTS and subresource == "scale" and request.method == "PUT":
            return self._write_scale(number, request.body)
        if request.method != "GET" or plural == PODS:
            return refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        if subresource == "scale":
            return Answer(self.objects.scale(number))
        return Answer(self.objects.hpa(number) if plural == self._scaled else self.objects.deployment(number))

    def _write_status(self, number: int, body: bytes) -> Answer:
        """Stores a status; answers with the object, and sends it to the watches."""
        objects, written = self.objects, _WRITTEN.decode(body)
        if written.metadata.resource_version not in ("", str(objects.versions.get(number, 1000))):
            return _conflict(self._scaled, number)
        version = objects.write(number, bytes(written.status))
        self.traffic.wrote(number, measured=_MEASURED in objects.statuses[number])
        document = objects.hpa(number)
        change = Change(version, objects.population.namespace(number), watching.line(b"MODIFIED", document))
        self.feeds[self._scaled].publish(change)
        return Answer(document)

    def _write_scale(self, number: int, body: bytes) -> Answer:
        """Sets the replicas of a Deployment; its pods are there, or gone, at once."""
        objects, written = self.objects, _WRITTEN.decode(body)
        if written.metadata.resource_version not in ("", str(objects.target_versions.get(number, 1000))):
            return _conflict("deployments.apps", number)
        before, count = objects.indexes(number), int(json.loads(bytes(written.spec))["replicas"])
        namespace = objects.population.namespace(number)
        version = objects.target_versions[number] = objects.next_version()
        after = objects.pods[number] = range(before.start, before.start + count)
        self.usage.changed(population.index_of(namespace))
        deployment = watching.line(b"MODIFIED", objects.deployment(number))
        self.feeds[DEPLOYMENTS].publish(Change(version, namespace, deployment))
        for index in range(min(before.stop, after.stop), max(before.stop, after.stop)):
            self.publish_pod(b"ADDED" if index in after else b"DELETED", number, index)
        return Answer(objects.scale(number))

    def publish_pod(self, kind: bytes, number: int, index: int) -> None:
        """Sends a change of a pod to the watches."""
        version = self.objects.next_version()
        pod = watching.line(kind, self.objects.pod(number, index, version))
        self.feeds[PODS].publish(Change(version, self.objects.population.namespace(number), pod))


def _conflict(resource: str, number: int) -> Answer:
    message = f'Operation cannot be fulfilled on {resource} "{population.name(number)}": the object has been modified'
    return refusal(409, "Conflict", message)
