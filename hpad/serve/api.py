"""The JSON API v1: paths under /api/v1/, read-only."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from hpad import build
from hpad.api.hpa import KINDS, HorizontalPodAutoscaler, enc_hook, key_of, kind_of, titled
from hpad.api.metadata import Key
from hpad.api.problem import Invalid
from hpad.api.text import harmless_json
from hpad.clock import Clock
from hpad.election import owner
from hpad.election.leader import KnownReplica
from hpad.engine import annotations, controls
from hpad.engine.outlook import outlook
from hpad.engine.turn import Reconcile
from hpad.records import recent
from hpad.records.history import DecisionHistory, PastDecision
from hpad.records.recent import RecentReconciles
from hpad.serve import api_types, operations, parameters, stream, summary
from hpad.serve.api_types import (
    DecisionAt,
    Detail,
    EntryList,
    Error,
    Recording,
    ReplicaList,
    SourceList,
    Status,
    Summary,
    Version,
)
from hpad.serve.listing import listed
from hpad.serve.operations import OPERATIONS, PREFIX
from hpad.sources.limits import SourceReport
from hpad.store.store import Store

KUBERNETES: Final = "1.36"
"""The version of Kubernetes whose HPA controller hpad follows."""
_ENCODER: Final = msgspec.json.Encoder(enc_hook=enc_hook)


Asked = Mapping[str, Any]
"""The values of the query parameters by name."""
Answering = Callable[[web.Request, Asked], Awaitable[web.StreamResponse]]


class Shown(NamedTuple):
    """What the API shows. `decisions` and `recent` are the past decisions and the last reconciles, None: none are kept.

    `reports` returns the state of the metric sources, and `replicas` the known processes, this one first.
    """

    source: summary.ShownHpas
    store: Store
    decisions: DecisionHistory | None = None
    recent: RecentReconciles | None = None
    reports: Callable[[], Sequence[SourceReport]] = tuple
    replicas: Callable[[], Sequence[KnownReplica]] = owner.alone


class Api:
    """The handlers of the paths. `streams` has the clients that follow the decisions.

    `status` returns what this process does, and `dry_run` whether it writes nothing.
    """

    def __init__(
        self, shown: Shown, *, clock: Clock, status: Callable[[], Status], dry_run: Callable[[], bool]
    ) -> None:
        self._shown = shown
        self._decisions = decisions = shown.decisions or DecisionHistory()
        self._clock = clock
        self._status = status
        self._dry_run = dry_run
        self._answers: dict[str, bytes] = {}
        self.streams = stream.Streams(decisions, self._summary, encode)

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes."""
        handlers: Mapping[str, Answering] = {
            "version": self._version,
            "status": self._present,
            "hpas": self._hpas,
            "hpa": self._hpa,
            "history": self._history,
            "decision": self._decision,
            "recording": self._recording,
            "decisions": self.streams.answer,
            "sources": self._sources,
            "replicas": self._known_replicas,
            "openapi": self._openapi,
        }
        return [
            *(web.get(each.path, _checked(handlers[each.id], each.parameters)) for each in OPERATIONS),
            web.get(f"{PREFIX}{{path:.*}}", _nothing),
        ]

    async def _version(self, request: web.Request, asked: Asked) -> web.Response:
        return await self._constant("version", lambda: encode(_version()))

    async def _openapi(self, request: web.Request, asked: Asked) -> web.Response:
        return await self._constant("openapi", lambda: msgspec.json.encode(operations.document()))

    async def _constant(self, name: str, make: Callable[[], bytes]) -> web.Response:
        """Answers what never changes; it is made once, on a thread."""
        if name not in self._answers:
            self._answers[name] = await asyncio.to_thread(make)
        return _response(self._answers[name])

    async def _present(self, request: web.Request, asked: Asked) -> web.Response:
        return await respond(self._status())

    async def _hpas(self, request: web.Request, asked: Asked) -> web.Response:
        hpas, dry_run = self._asked_for(asked["hpa"]), self._dry_run()
        return await respond_with(lambda: listed([self._row(hpa, dry_run) for hpa in hpas], asked))

    def _asked_for(self, keys: Sequence[Key]) -> list[HorizontalPodAutoscaler]:
        """Returns the HPAs of these names; all without names."""
        if not keys:
            return list(self._shown.source.values())
        found = map(self._shown.source.get, dict.fromkeys(keys))
        return [hpa for hpa in found if hpa is not None]

    async def _hpa(self, request: web.Request, asked: Asked) -> web.Response:
        hpa = self._found(request, asked)
        return await respond_with(lambda: self._detail(hpa))

    async def _history(self, request: web.Request, asked: Asked) -> web.Response:
        key, limit = self._found(request, asked).key, asked["limit"]
        found = await self._decisions.entries(
            key,
            since=asked["since"],
            until=asked["until"],
            before=asked["continue"],
            limit=limit + 1,
            traces=asked["traces"],
        )
        items = tuple(found[:limit])
        token = str(items[-1].number) if len(found) > limit else ""
        return await respond_with(lambda: EntryList(items=items, continue_=token))

    async def _decision(self, request: web.Request, asked: Asked) -> web.Response:
        key, at = self._found(request, asked).key, asked["at"]
        found = await self._decisions.at(key, self._clock.now() if at is None else at)
        if found is None:
            raise web.HTTPNotFound(text=await self._no_decision(key))
        return await respond_with(lambda: self._decision_at(found))

    def _decision_at(self, found: PastDecision) -> DecisionAt:
        """Returns a past decision with all that is said of it. Call it on a thread."""
        done, notes = found.done, (found.note,) if found.note else ()
        trace, next_ = (None, ()) if done is None else (self._decisions.trace(done), outlook(done))
        return DecisionAt(**msgspec.structs.asdict(found.entry) | {"trace": trace}, outlook=next_, notes=notes)

    async def _recording(self, request: web.Request, asked: Asked) -> web.Response:
        key = self._found(request, asked).key
        kept = self._shown.recent
        if kept is None or not kept.is_on:
            raise web.HTTPNotFound(text="the last decisions are not kept: record_recent is off")
        reconciles = kept.of(key)
        if not reconciles:
            text = f"no decision for the {titled(key)} is in memory"
            _, *others = self._shown.replicas()  # this process is the first one
            owner = next((each.identity for each in others if each.decides), "")
            raise web.HTTPNotFound(text=f"{text}; {owner} decides for it" if owner else text)
        return await respond_with(lambda: _recorded(reconciles))

    async def _no_decision(self, key: Key) -> str:
        begin = await self._decisions.reaches(key)
        if begin is None:
            return f"there is no decision for the {titled(key)} yet"
        return f"the decision history of the {titled(key)} begins at {begin.isoformat().replace('+00:00', 'Z')}"

    async def _sources(self, request: web.Request, asked: Asked) -> web.Response:
        return await respond(SourceList(items=tuple(self._shown.reports())))

    async def _known_replicas(self, request: web.Request, asked: Asked) -> web.Response:
        return await respond(_replica_list(self._shown.replicas(), len(self._shown.source.keys())))

    def _summary(self, key: Key) -> Summary | None:
        hpa = self._shown.source.get(key)
        return None if hpa is None else summary.summary(self._row(hpa, self._dry_run()))

    def _found(self, request: web.Request, asked: Asked) -> HorizontalPodAutoscaler:
        """Returns the HPA that the path and the parameter `kind` name. Raises web.HTTPNotFound."""
        key = key_of(request.match_info["namespace"], request.match_info["name"], asked["kind"])
        hpa = self._shown.source.get(key)
        if hpa is None:
            raise web.HTTPNotFound(text=f"no {titled(key)}{self._of_other_kind(key)}")
        return hpa

    def _of_other_kind(self, key: Key) -> str:
        """Returns how to ask for the object of the same name and the other kind; "" if there is none."""
        others = (key_of(key.namespace, key.name, kind) for kind in KINDS)
        other = next((each for each in others if each != key and self._shown.source.get(each) is not None), None)
        return "" if other is None else f"; did you mean {other} (kind={kind_of(other)})?"

    def _row(self, hpa: HorizontalPodAutoscaler, dry_run: bool) -> summary.Row:
        return summary.Row(hpa, self._shown.store.get(hpa.key), self._decisions.last(hpa.key), dry_run)

    def _detail(self, hpa: HorizontalPodAutoscaler) -> Detail:
        row = self._row(hpa, self._dry_run())
        return Detail(
            **msgspec.structs.asdict(summary.summary(row)),
            sentence="" if row.done is None else row.done.sentence,
            spec_metrics=hpa.spec.metrics,
            current_metrics=summary.current_metrics(row),
            conditions=row.status.conditions,
            troubles=summary.troubles(row),
            annotation_errors={
                controls.written(error.path, hpa.kind): error.text for error in annotations.PLAIN.of(hpa).errors
            },
            outlook=() if row.done is None else outlook(row.done),
            owner=next((each.identity for each in self._shown.replicas() if each.decides), ""),
            behavior=hpa.spec.behavior,
            trace=None if row.done is None else self._decisions.trace(row.done),
        )


def _recorded(reconciles: Sequence[Reconcile]) -> Recording:
    return Recording(
        began=reconciles[0].view.now,
        ended=reconciles[-1].view.now,
        decisions=len(reconciles),
        scenarios=tuple(map(msgspec.Raw, recent.lines(reconciles))),
    )


def _checked(answer: Answering, known: Sequence[parameters.Parameter]) -> Handler:
    """Returns the handler that reads the query parameters first, and answers 400 if one is wrong."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            asked = parameters.read(request.query, known)
        except Invalid as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        return await answer(request, asked)

    return handle


async def _nothing(request: web.Request) -> web.Response:
    raise web.HTTPNotFound(text=f"no path {request.path}; {PREFIX}openapi.json describes all")


def _version() -> Version:
    found = build.read()
    return Version(version=found.version, commit=found.commit, build_date=found.date, kubernetes=KUBERNETES, api="v1")


def _replica_list(replicas: Sequence[KnownReplica], hpas: int) -> ReplicaList:
    items = tuple(
        api_types.Replica(identity=each.identity, role=each.role, owned=hpas if each.decides else 0)
        for each in replicas
    )
    return ReplicaList(items=items, self_=items[0].identity)


def error(text: str, status: int) -> web.Response:
    """Returns the answer for an error."""
    return _response(encode(Error(error=text.strip())), status)


async def respond(answer: msgspec.Struct) -> web.Response:
    """Encodes an answer on a thread."""
    return _response(await asyncio.to_thread(encode, answer))


async def respond_with(make: Callable[[], msgspec.Struct]) -> web.Response:
    """Makes and encodes an answer on a thread, so that thousands of HPAs do not block the event loop."""
    return _response(await asyncio.to_thread(lambda: encode(make())))


def encode(answer: msgspec.Struct) -> bytes:
    """Returns JSON that is safe to print on a terminal."""
    return harmless_json(_ENCODER.encode(answer))


def _response(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
