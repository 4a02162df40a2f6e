"""An estimate of the memory that a recorded reconcile holds, which counts the texts of authors and sources."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, enc_hook
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, ExternalSample, PodSample
from hpad.engine.turn import Reconcile
from hpad.records.format import Answer

_RECONCILE: Final = 6500
"""Bytes of a reconcile with short texts, one metric and no pods, whose HPA, spec and pods other reconciles share."""
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


def weight(done: Reconcile) -> int:
    """Returns the estimated bytes of a reconcile. O(pods)."""
    view, settlement = done.view, done.settlement
    scale = view.scale
    size = _RECONCILE + _of_hpa(view.hpa) + _of_pods(view.pods)
    size += sum([len(event.message) + len(event.detail) for event in settlement.events]) + len(settlement.error or "")
    size += sum([len(condition.message) for condition in settlement.status.conditions])
    size += sum(map(len, view.competing_hpas)) + (0 if scale is None else len(scale.status.selector))
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
