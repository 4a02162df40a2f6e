"""The HTTP server: an aiohttp application that answers as a kube-apiserver does."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from hpad import clock as clocks
from hpad.lab.cluster import (
    attributes,
    authenticator,
    bodies,
    documents,
    errors,
    faults,
    options,
    ownership,
    patches,
    patching,
    paths,
    podlogs,
    portforward,
    proxying,
    reads,
    rendering,
    reviews,
    revisions,
    usage,
    users,
    watches,
    writes,
)
from hpad.lab.cluster.resources import PODS, Object, Registry
from hpad.lab.cluster.store import Store, key_of

_STREAMS = ("log", "proxy", "portforward")
_TO_PODS = {"proxy": proxying.answer, "portforward": portforward.answer}
_WRITING = ("create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True, slots=True)
class Write:
    """One writing request. `status` is the HTTP code of the response."""

    time: datetime
    verb: str
    resource: str
    subresource: str
    path: str
    user_agent: str
    status: int


class RequestLog:
    """`writes` in order, and `requests` by (verb, resource, subresource), e.g. ("get", "deployments", "scale")."""

    def __init__(self, *, keeps_writes: bool = True) -> None:
        self.keeps_writes = keeps_writes
        self.writes: list[Write] = []
        self.requests: Counter[tuple[str, str, str]] = Counter()

    def count(self, verb: str | None = None, resource: str | None = None, subresource: str | None = None) -> int:
        """Counts matching requests; None matches every value, `""` means no subresource."""
        query = (verb, resource, subresource)
        return sum(
            number
            for key, number in self.requests.items()
            if all(expected in (None, actual) for expected, actual in zip(query, key, strict=True))
        )

    def clear(self) -> None:
        self.writes.clear()
        self.requests.clear()


@dataclass(frozen=True, slots=True)
class Server:
    """The components that handle requests."""

    store: Store
    registry: Registry
    writer: writes.Writer
    hub: watches.Hub
    usage: usage.Usage
    log: RequestLog
    faults: faults.Faults
    clock: clocks.Clock
    folder: Callable[[Object], Path | None]
    authenticator: authenticator.Authenticator

    def application(self) -> web.Application:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self.handle)
        app.on_response_prepare.append(_set_headers)
        return app

    def release(self) -> None:
        """Ends all watches, also those that a fault stalls."""
        self.faults.clear()
        self.hub.drop()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answers one request; an ApiError becomes a Status object."""
        address, verb = None, ""
        try:
            user = self._authenticated(request)
            address = paths.parse(self.registry, request.path)
            if address is not None:
                watch = attributes.is_true(request.query.get("watch"))
                verb = paths.verb(request.method, address, watch=watch)
                self.log.requests[verb, address.resource.plural, address.subresource] += 1
            is_stream = verb == "watch" or (address is not None and address.subresource in _STREAMS)
            async with asyncio.timeout(None if is_stream else options.seconds(request.query)):
                response = await self.faults.inject(request)
                if response is None:
                    response = await self._answer(request, address, verb, user)
        except errors.ApiError as problem:
            response = _refusal(problem)
        except TimeoutError:
            response = _refusal(errors.timed_out())
        if address is not None and verb in _WRITING and self.log.keeps_writes:
            self._log_write(request, address, verb, response.status)
        return response

    def _authenticated(self, request: web.Request) -> users.User:
        """Returns the user of an authorized request; raises ApiError 400, 401 or 403."""
        certificate = request.transport.get_extra_info("peercert") if request.transport else None
        what = attributes.of(request.method, request.path, request.query)
        return self.authenticator.authenticate(request.headers, certificate, what)

    def _log_write(self, request: web.Request, address: paths.Address, verb: str, status: int) -> None:
        self.log.writes.append(
            Write(
                time=self.clock.now(),
                verb=verb,
                resource=address.resource.plural,
                subresource=address.subresource,
                path=request.path,
                user_agent=request.headers.get("User-Agent", ""),
                status=status,
            )
        )

    async def _answer(
        self, request: web.Request, address: paths.Address | None, verb: str, user: users.User
    ) -> web.StreamResponse:
        if refused := documents.refusal(self.store, self.registry, request.path):
            return web.Response(status=503, text=refused)
        if address is None:
            return self._non_resource(request)
        if address.subresource in _TO_PODS:
            return await _TO_PODS[address.subresource](self.store, request, address)
        if address.resource in reviews.KINDS:
            reviewer, body = reviews.Reviewer(self.authenticator, self.clock), await self._body(request, address)
            answer = reviewer.answer(address.resource, address.namespace or "", user, body.object)
            return _json(answer, status=201)
        if address.resource.virtual:
            return _json(self.usage.answer(self.store, address, request.query))
        if verb == "watch":
            return await self._watch(request, address)
        if verb == "list":
            found = reads.page(self.store, address, request.query)
            return _json(self._form(request, address).many(found))
        if verb == "create":
            return await self._create(request, address)
        if verb == "deletecollection":
            return await self._delete_collection(request, address)
        return await self._on_object(request, address, verb)

    def _form(self, request: web.Request, address: paths.Address) -> rendering.Renderer:
        form = rendering.form(request.headers.get("Accept", ""))
        return rendering.Renderer(address, form, request.query.get("includeObject", ""), self.clock.now)

    def _non_resource(self, request: web.Request) -> web.StreamResponse:
        parts = [part for part in request.path.split("/") if part]
        if parts and parts[0] in ("healthz", "readyz", "livez"):
            return web.Response(text="ok")
        return documents.response(self.registry, self.store, request)

    async def _watch(self, request: web.Request, address: paths.Address) -> web.StreamResponse:
        # a bad parameter gets an error status, which is no longer possible once the stream has begun
        reads.predicate(address, request.query)
        options.check_watch(request.query)
        revisions.of_read(request.query.get("resourceVersion", ""))
        reads.whole_number(request.query.get("timeoutSeconds") or "0")
        form = self._form(request, address)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        first = True
        with contextlib.suppress(ConnectionResetError):  # the client has closed the watch
            await response.prepare(request)
            async with contextlib.aclosing(self.hub.events(address, request.path_qs, request.query)) as events:
                async for event in events:
                    await self.hub.flowing.wait()
                    await response.write(msgspec.json.encode(form.event(event, first=first)) + b"\n")
                    first = False
            await response.write_eof()
        return response

    def _writer(self, request: web.Request, address: paths.Address, applied: Object | None = None) -> writes.Writer:
        """Returns a writer for the field manager of the request: its `fieldManager`, else the User-Agent's program."""
        query = request.query
        name = query.get("fieldManager") or request.headers.get("User-Agent", "").partition("/")[0]
        version = address.resource.group_version(address.version)
        author = ownership.Author(name, version, applied, is_forced=attributes.is_true(query.get("force")))
        writer = self.writer.by(author)
        return writer.dry() if query.get("dryRun") == "All" else writer

    async def _create(self, request: web.Request, address: paths.Address) -> web.StreamResponse:
        options.check_write("create", request.query)
        body = await self._body(request, address)
        namespace = address.namespace or ("" if not address.resource.namespaced else "default")
        created = self._writer(request, address).create(address.resource, namespace, body.object)
        shown = self._form(request, address).one(created)
        return _json(shown, status=201, headers=body.warnings)

    async def _on_object(self, request: web.Request, address: paths.Address, verb: str) -> web.StreamResponse:
        if verb in ("update", "patch"):
            options.check_write(verb, request.query)
        if verb == "patch" and request.content_type == patches.APPLY:
            return await self._server_side_apply(request, address)
        obj = self.store.get(address.resource, address.namespace or "", address.name)
        if verb == "delete":
            return await self._delete(request, address, obj)
        if address.subresource == "log":
            return await self._log(request, obj)
        if verb == "get":
            reads.check_not_ahead(self.store, request.query)
            return self._shown(address, obj) if address.subresource else _json(self._form(request, address).one(obj))
        raw = await request.read()
        # the object may have changed while the body arrived
        old = self.store.get(address.resource, address.namespace or "", address.name)
        new, warnings = self._changed(request, address, old, raw)
        return self._shown(address, new, headers=warnings)

    async def _log(self, request: web.Request, pod: Object) -> web.StreamResponse:
        name, folder = podlogs.container(pod, request.query), self.folder(pod)
        path = podlogs.chosen(pod, name, folder, request.query) if folder is not None else None
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        if path is not None:
            run = podlogs.run_number(pod, name)
            pieces = podlogs.written(
                path, request.query, self.clock, lambda: run is not None and self._run_number(pod, name) == run
            )
            with contextlib.suppress(ConnectionResetError):
                async for piece in pieces:
                    await response.write(piece)
        await response.write_eof()
        return response

    def _run_number(self, pod: Object, name: str) -> int | None:
        found = self.store.find(PODS, *key_of(pod))
        same = found is not None and found["metadata"]["uid"] == pod["metadata"]["uid"]
        return podlogs.run_number(found, name) if same else None

    def _changed(
        self, request: web.Request, address: paths.Address, old: Object, raw: bytes
    ) -> tuple[Object, CIMultiDict[str]]:
        """Applies a PUT or PATCH; returns the new object and warnings. Raises ApiError."""
        writer, resource, sub = self._writer(request, address), address.resource, address.subresource
        if request.method == "PATCH":
            live = writer.live(resource, old, address.version, sub)
            body = patching.patched(request.content_type, raw, address, live, request.query)
            return writer.patched(resource, old, body.object, sub), body.warnings
        body = bodies.read(request.content_type, raw, address, request.query)
        if sub == "scale":
            return writer.rescale(resource, old, body.object), body.warnings
        return writer.update(resource, old, body.object, sub), body.warnings

    def _shown(
        self, address: paths.Address, obj: Object, status: int = 200, headers: CIMultiDict[str] | None = None
    ) -> web.Response:
        return _json(
            self.writer.live(address.resource, obj, address.version, address.subresource),
            status=status,
            headers=headers,
        )

    async def _server_side_apply(self, request: web.Request, address: paths.Address) -> web.StreamResponse:
        """Applies a configuration; creates the object if it does not exist."""
        options.check_apply(request.query)
        patch = patching.applied(await request.read(), address)
        writer = self._writer(request, address, patch)
        obj = self.store.find(address.resource, address.namespace or "", address.name)
        if obj is None:
            made = writer.create(address.resource, address.namespace or "", patch)
            return self._shown(address, made, 201)
        return self._shown(address, writer.apply(address.resource, obj, address.version, patch, address.subresource))

    async def _delete(self, request: web.Request, address: paths.Address, obj: Object) -> web.StreamResponse:
        options.check_write("delete", request.query)
        how = bodies.delete_options(request.query, await request.read())
        writer = self.writer.dry() if how.dry_run else self.writer
        remaining = writer.delete(address.resource, obj, how)
        if remaining is not None or address.resource.is_shown_when_deleted:
            return self._shown(address, remaining or obj)
        details = {**errors.named(address.resource, address.name), "uid": obj["metadata"]["uid"]}
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return _json(status)

    async def _delete_collection(self, request: web.Request, address: paths.Address) -> web.StreamResponse:
        how = bodies.delete_options(request.query, await request.read())
        found = reads.page(self.store, address, request.query)
        writer = self.writer.dry() if how.dry_run else self.writer
        for obj in found.items:
            writer.delete(address.resource, obj, how)
        return _json(reads.render(address, found))

    async def _body(self, request: web.Request, address: paths.Address) -> bodies.Body:
        return bodies.read(request.content_type, await request.read(), address, request.query)


def _json(value: Object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, headers=headers, content_type="application/json"
    )


def _refusal(problem: errors.ApiError) -> web.Response:
    return _json(problem.status(), status=problem.code, headers=problem.headers)


async def _set_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Sets the headers of all responses: Content-Type without a charset for JSON, and Cache-Control."""
    if response.content_type == "application/json":
        response.headers["Content-Type"] = response.headers["Content-Type"].removesuffix("; charset=utf-8")
    response.headers.setdefault("Cache-Control", "no-cache, private")
