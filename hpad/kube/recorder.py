"""Events as Kubernetes' own clients write them: best effort, in the background, never in anybody's way."""

import asyncio
from collections import deque
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import structlog

from hpad.api.hpa import API_VERSION, KIND, HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.engine.conditions import Event
from hpad.kube import correlate, errors, paths
from hpad.kube.client import Client
from hpad.logs.episode import Episode, Episodes

COMPONENT = "horizontal-pod-autoscaler"
_QUEUED = 1000
_TRIES = 12
_BETWEEN_S = 10.0
_NAMESPACES = 1024
"""So many namespaces whose events are refused are told apart in the log."""
_MERGE_PATCH = "application/merge-patch+json"


class _Waiting(NamedTuple):
    about: correlate.About
    event: Event
    at: datetime


class Recorder:
    """Takes events at once and writes them from `run`. `dropped` counts those that never reach the server."""

    def __init__(self, client: Client, *, component: str = COMPONENT) -> None:
        self.dropped = 0
        self._client = client
        self._clock = client.clock
        self._component = component
        self._correlator = correlate.Correlator()
        self._queue: deque[_Waiting] = deque()
        self._filled = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        log = structlog.get_logger("hpad.kube", component=component)
        full = "too many events wait for the API server: new ones are dropped"
        self._full = Episode(log, self._clock, full, "events are taken again")
        self._refused = Episodes(log, self._clock, "event refused", "events are written again", most=_NAMESPACES)
        self._bugs = Episode(
            log, self._clock, "bug: an event cannot be written", "events can be written again", level="error"
        )

    def record(self, hpa: HorizontalPodAutoscaler, event: Event) -> None:
        """Take an event about an HPA; where too many wait already it is dropped, as client-go drops it."""
        self.note(_about(hpa), event)

    def note(self, about: correlate.About, event: Event) -> None:
        """Take an event about any object."""
        if len(self._queue) >= _QUEUED:
            self.dropped += 1
            self._full.struck(waiting=_QUEUED)
            return
        self._queue.append(_Waiting(about, event, self._clock.now()))
        self._written.clear()
        self._filled.set()

    def forget(self, hpa: HorizontalPodAutoscaler) -> None:
        """The HPA is gone: nothing more will be told of it, so no count of its events needs to be known."""
        self._correlator.forget(_about(hpa))

    async def flush(self) -> None:
        """Wait until everything recorded so far has been written or given up."""
        await self._written.wait()

    async def run(self) -> None:
        """Write what is recorded, in order, for ever."""
        while True:
            await self._filled.wait()
            while self._queue:
                await self._try(self._queue.popleft())
            self._full.over()  # only now: with room for one event it would begin again with the next
            self._filled.clear()
            self._written.set()

    async def _try(self, waiting: _Waiting) -> None:
        try:
            await self._handle(waiting)
        except Exception as error:  # noqa: BLE001  # one event must not end the caches
            self.dropped += 1
            self._bugs.struck(error=f"{type(error).__name__}: {error}", reason=waiting.event.reason)

    async def _handle(self, waiting: _Waiting) -> None:
        event = waiting.event
        verdict = self._correlator.judge(waiting.about, event.type, event.reason, event.message, waiting.at)
        if verdict is None:
            self.dropped += 1
            return
        namespace = waiting.about.namespace
        for _ in range(_TRIES):
            try:
                await self._write(verdict)
                self._refused.over(of=namespace, namespace=namespace)
                self._bugs.over()
                return
            except errors.ApiError as error:
                if error.status:  # an answer, whichever: others wait behind this event
                    self._refused.struck(
                        of=namespace, cause=error.status, namespace=namespace, error=str(error), reason=event.reason
                    )
                    break
            await self._clock.sleep(_BETWEEN_S)
        self.dropped += 1

    async def _write(self, verdict: correlate.Verdict) -> None:
        event = verdict.event
        key = Key(event.about.namespace, event.name)
        if verdict.exists:
            try:
                body = msgspec.json.encode(counted(event))
                await self._client.request("PATCH", paths.EVENTS.object(key), body=body, content_type=_MERGE_PATCH)
                return
            except errors.ApiError as error:
                if not error.not_found:
                    raise
        body = msgspec.json.encode(created(event, self._component))
        await self._client.request("POST", paths.EVENTS.collection(key.namespace), body=body)


def _about(hpa: HorizontalPodAutoscaler) -> correlate.About:
    meta = hpa.metadata
    return correlate.About(KIND, meta.namespace, meta.name, meta.uid, API_VERSION, meta.resource_version)


def created(event: correlate.Occurrence, component: str) -> dict[str, Any]:
    """The core/v1 Event to POST. A combined one names no reporting component, as client-go leaves it out there."""
    about = event.about
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": event.name, "namespace": about.namespace},
        "involvedObject": {
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
            "apiVersion": about.api_version,
            "resourceVersion": about.resource_version,
        },
        "reason": event.reason,
        "message": event.message,
        "source": {"component": component},
        "firstTimestamp": _seconds(event.first),
        "lastTimestamp": _seconds(event.last),
        "count": event.count,
        "type": event.type,
        "eventTime": None,
        "reportingComponent": "" if event.message.startswith(correlate.COMBINED) else component,
        "reportingInstance": "",
    }


def counted(event: correlate.Occurrence) -> dict[str, Any]:
    """The patch for an event that happened once more."""
    return {"count": event.count, "lastTimestamp": _seconds(event.last), "message": event.message}


def _seconds(moment: datetime) -> str:
    """RFC 3339 to the second, as metav1.Time is written."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
