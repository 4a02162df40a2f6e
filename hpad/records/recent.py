"""The last reconciles of all HPAs in memory, to be saved as a recording on request.

The entries refer to inputs and results that the reconcile has made anyway. They are encoded only when they are saved.
Two bounds hold: the age of a reconcile, and an estimate of the memory of all of them (`weight`), which counts the texts
of authors and sources.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, enc_hook
from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, Answer, ExternalSample, PodSample
from hpad.clock import Clock
from hpad.engine.turn import Reconcile
from hpad.records.encode import LINE_END, Progress, encode_start

MEMORY: Final = 4 << 20
"""The most bytes of all reconciles, by the same estimate: ten minutes of 17 HPAs with a period of 15 s. More belongs in
a folder of recordings."""
_RECONCILE: Final = 6500
"""Bytes of a reconcile with short texts, one metric and no pods, whose HPA, spec and pods other reconciles share."""
_MEMBER: Final = 16
"""Of an HPA that shares the budget: most are the objects of the turn before."""
_POD: Final = 300
"""Of the value of a pod."""
_VALUE: Final = 40
_LABEL: Final = 200
_REFERENCE: Final = 8
_COMPILED: Final = 8
"""Bytes of a spec with its compiled form, for each byte of its JSON."""
_SHARED: Final = 1000
"""Bytes of a spec that are counted with the reconcile: reconciles in a row share their spec."""
_CACHED: Final = "recorded bytes"


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """A reconcile, the monotonic time of its end in seconds, and its estimated bytes."""

    at: float
    size: int
    done: Reconcile


class RecentReconciles:
    """Keeps the reconciles of the last `seconds` (0: none), at most `memory` bytes in all."""

    def __init__(self, clock: Clock, *, seconds: float, memory: int = MEMORY) -> None:
        self._clock = clock
        self._seconds = seconds
        self._memory = memory
        self._entries: deque[_Entry] = deque()
        self.size = 0
        """The estimated bytes of all reconciles."""

    @property
    def is_on(self) -> bool:
        """Whether reconciles are kept."""
        return self._seconds > 0

    def retune(self, *, seconds: float) -> None:
        """Changes how long reconciles are kept. Drops older ones."""
        self._seconds = seconds
        if not self.is_on:
            self._entries.clear()
            self.size = 0
        self._drop(self._clock.monotonic())

    def note(self, done: Reconcile) -> None:
        """Adds a reconcile, and drops the oldest ones of all HPAs that are beyond the bounds."""
        if not self.is_on:
            return
        now, size = self._clock.monotonic(), weight(done)
        self._entries.append(_Entry(now, size, done))
        self.size += size
        self._drop(now)

    def all(self) -> list[Reconcile]:
        """Returns the reconciles of all HPAs, the oldest first."""
        self._drop(self._clock.monotonic())
        return [entry.done for entry in self._entries]

    def of(self, key: Key) -> list[Reconcile]:
        """Returns the reconciles of one HPA, the oldest first."""
        return [done for done in self.all() if done.view.key == key]

    def _drop(self, now: float) -> None:
        oldest, entries = now - self._seconds, self._entries
        while entries and (entries[0].at <= oldest or self.size > self._memory):
            self.size -= entries.popleft().size


def lines(reconciles: Sequence[Reconcile]) -> Iterator[bytes]:
    """Yields the scenarios of one HPA's reconciles, NAME-0, NAME-1 and so on, a line each: most often there is one."""
    key = reconciles[0].view.key
    name = f"{quote(key.namespace, safe='')}.{quote(key.local, safe='')}"
    last, line, scenarios = Progress(), bytearray(), 0
    for done in reconciles:
        if last.continued_by(done):
            line += b"," + last.step(done)
        else:
            if line:
                yield bytes(line + LINE_END)
            last = Progress()
            line = bytearray(encode_start(done, f"{name}-{scenarios}") + last.step(done))
            scenarios += 1
        last.add(done)
    if line:
        yield bytes(line + LINE_END)


def weight(done: Reconcile) -> int:
    """Returns the estimated bytes of a reconcile. O(pods)."""
    view, settlement = done.view, done.settlement
    scale = view.scale
    size = _RECONCILE + _of_hpa(view.hpa) + _of_pods(view.pods)
    size += sum([len(event.message) + len(event.detail) for event in settlement.events]) + len(settlement.error or "")
    size += sum([len(condition.message) for condition in settlement.status.conditions])
    size += 0 if done.shares is None else _MEMBER * len(done.shares.members)
    size += sum(map(len, view.overlapping_hpas)) + (0 if scale is None else len(scale.status.selector))
    return size + sum(map(_of_answer, done.answers if done.work is None else (*done.answers, *done.work)))


def _of_hpa(hpa: HorizontalPodAutoscaler) -> int:
    metadata = hpa.metadata
    return _of_spec(hpa.spec) + _of_texts(metadata.labels) + _of_texts(metadata.annotations)


def _of_spec(spec: HorizontalPodAutoscalerSpec) -> int:
    """Returns what a spec takes beyond that of an ordinary HPA; kept in the spec, which is encoded once."""
    kept = spec.__dict__
    found: int | None = kept.get(_CACHED)
    if found is None:
        size = len(msgspec.json.encode(spec, enc_hook=enc_hook))
        found = kept[_CACHED] = _COMPILED * max(0, size - _SHARED)
    return found


def _of_texts(texts: Mapping[str, str] | None) -> int:
    return sum([_LABEL + len(name) + len(text) for name, text in texts.items()]) if texts else 0


def _of_pods(pods: Sequence[Pod]) -> int:
    """Returns what the list takes, and the labels: pods that are gone live on in it."""
    size, labels = _REFERENCE * len(pods), None
    for pod in pods:
        if pod.labels is not labels:  # replicas share one mapping
            labels = pod.labels
            size += _LABEL * len(labels)
    return size


def _of_answer(answer: Answer) -> int:
    if isinstance(answer, PodSample):
        return _POD * len(answer.values)
    if isinstance(answer, AdapterError):
        return len(answer.message)
    return _VALUE * len(answer.values) + len(answer.note) if isinstance(answer, ExternalSample) else 0
