"""The fakes of a run of `crashing`: its clocks, its pipe to the parent, its storage, and the cluster of a step."""

import asyncio
import base64
import json
import os
import signal
import time
from collections.abc import Collection, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from e2e import crash_troubles
from support.asked import Gathering

from hpad.api.metadata import Key
from hpad.api.sample import Sample
from hpad.clock import SystemClock
from hpad.engine.turn import Reconcile
from hpad.kube import errors
from hpad.records.format import Step
from hpad.store.store import Backend


class StepClock:
    """A clock with the time of the step and real sleeps; its monotonic time is the number of the step."""

    def __init__(self) -> None:
        self.step: datetime = datetime(2000, 1, 1, tzinfo=UTC)
        self.number = 0

    def now(self) -> datetime:
        return self.step

    def monotonic(self) -> float:
        return self.number

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class StoreClock(SystemClock):
    """A monotonic clock for the store, in steps: real seconds are scaled down, so that a run stays within one step."""

    def __init__(self, step: float) -> None:
        self._step = step
        self._started = time.monotonic()

    def monotonic(self) -> float:
        return self._step + (time.monotonic() - self._started) / 1e6


class Pulse:
    """Writes signs of life and notes to the parent, and kills the child at sign (or with `between`, rest) `doom`.

    With `late` the child ends that many seconds after the sign, wherever it is by then.
    """

    def __init__(self, pipe: int, doom: int, *, between: bool = False, late: float = 0.0) -> None:
        self._pipe = pipe
        self._remaining = doom
        self._between = between
        self._late = late

    def moment(self) -> None:
        os.write(self._pipe, b".\n")
        if self._between:
            return
        self._remaining -= 1
        if self._remaining == 0 and self._late:
            signal.setitimer(signal.ITIMER_REAL, self._late)  # nothing handles its signal, which ends the process
        elif self._remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def rest(self) -> None:
        """Marks a moment between two turns, when everything is saved."""
        if self._remaining > 0 and self._between:
            self._remaining -= 1
            if self._remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def note(self, line: str) -> None:
        rest = f"{line}\n".encode()
        while rest:
            rest = rest[os.write(self._pipe, rest) :]


class World(Gathering):
    """The cluster and metrics of the current step; each call is a moment at which the child may be killed."""

    def __init__(self, pulse: Pulse) -> None:
        self.number = 0
        self.step: Step
        self.refusals: list[str] = []
        self.wrote: int | None = None
        self.pods = self
        self.event_recorder = self
        self._pulse = pulse

    def select(self, namespace: str, selector: Any) -> list[Any]:
        return list(self.step.selected())

    def record(self, hpa: Any, event: Any, allowed: Any) -> None:
        self._pulse.moment()

    def competitors(self, hpa: Any) -> tuple[Any, ...]:
        return ()

    def replicas_set_by(self, namespace: str, ref: Any) -> str:
        return ""

    async def read_scale(self, namespace: str, ref: Any, kind: str = "") -> Any:
        self._pulse.moment()
        if self.step.scale_error is not None:
            raise errors.ApiError(404, "NotFound", self.step.scale_error)
        return self.step.scale

    fresh_scale = read_scale

    async def write_scale(self, namespace: str, ref: Any, scale: Any, allowed: Any) -> Any:
        allowed()
        self._pulse.moment()
        if self.refusals:
            refusal = self.refusals.pop(0)
            conflict = refusal == "conflict"
            raise errors.ApiError(409 if conflict else 500, "Conflict" if conflict else "", refusal)
        self._pulse.note(f"w {self.number} {scale.spec.replicas}")
        self.wrote = scale.spec.replicas
        self._pulse.moment()
        return scale

    async def write_status(self, hpa: Any, status: Any, allowed: Any) -> Any:
        raise AssertionError("statuses are kept in the store here")

    async def gather(self, queries: Sequence[Any], **how: Any) -> list[Sample | Any]:
        self._pulse.moment()
        return self.step.answer(queries)

    def note(self, done: Reconcile) -> None:
        """Implements the recorder of the reconciler: notes the history that a decision was made with."""
        self._pulse.note(f"h {self.number} {json.dumps(str(done.view.history))}")


class Witness:
    """A storage backend that notes all loads and saves for the parent."""

    def __init__(self, backend: Backend, pulse: Pulse, trouble: crash_troubles.Trouble) -> None:
        self.name = backend.name
        self._trouble = trouble
        self._backend = backend
        self._pulse = pulse

    def group(self, key: Key) -> Hashable:
        return self._backend.group(key)

    async def load(self) -> tuple[list[tuple[Key, bytes]], str | None]:
        rows, trouble = await self._backend.load()
        self._pulse.note(f"l {json.dumps({'rows': _as_text(dict(rows)), 'trouble': trouble})}")
        self._pulse.moment()
        return rows, trouble

    async def save(self, changes: Mapping[Key, bytes | None]) -> Mapping[Key, str]:
        if self._trouble.strikes():
            self._pulse.note("x all")
        self._pulse.note(f"s {json.dumps(_as_text(changes))}")
        self._pulse.moment()
        failed = await self._backend.save(changes)
        self._pulse.moment()
        self._pulse.note(f"a {json.dumps({str(key): why for key, why in failed.items()})}")
        return failed

    async def quarantine(self, keys: Collection[Key]) -> None:
        await self._backend.quarantine(keys)

    def emptied(self) -> bool:
        return self._backend.emptied()

    async def size(self) -> int:
        return await self._backend.size()

    async def close(self) -> None:
        await self._backend.close()


def _as_text(records: Mapping[Key, bytes | None]) -> dict[str, str | None]:
    return {str(key): None if data is None else base64.b64encode(data).decode() for key, data in records.items()}
