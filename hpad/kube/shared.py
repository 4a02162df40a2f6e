"""Objects that many HPAs and pods have in common, kept once: equal texts, times, requests and metrics.

Each cache is bounded in bytes: authors choose the length of the texts.
"""

import functools
from datetime import datetime
from typing import Final

import msgspec

from hpad.api import quantity
from hpad.api.hpa import MetricSpec, dec_hook
from hpad.api.kept import kept
from hpad.api.pod import ContainerRequests

_SHARED: Final = 1 << 14
_LONGEST: Final = 512
"""Characters of a text that is shared; the key of a label has at most 317."""
_DECODED: Final = 10
"""What a decoded object takes for each byte of its JSON."""
_METRICS: Final = msgspec.json.Decoder(tuple[MetricSpec, ...], dec_hook=dec_hook)
_AMOUNTS: Final = msgspec.json.Decoder(dict[str, str | int | float] | None)


def interned(text: str) -> str:
    """Returns the same object for equal texts. Unlike sys.intern, it does not keep every text for ever."""
    return short(text) if len(text) <= _LONGEST else text


@functools.lru_cache(maxsize=_SHARED)
def short(text: str) -> str:
    """Returns the same object for equal texts whose length the API server limits, such as keys of labels."""
    return text


@kept(lambda text: 2 * len(text))
def message(text: str) -> str:
    """Returns the same object for equal messages of conditions; those with errors may be long."""
    return text


@kept(lambda encoded: _DECODED * len(encoded))
def metrics(encoded: bytes) -> tuple[MetricSpec, ...]:
    """Returns the metrics of a spec; HPAs with the same metrics in text share the tuple."""
    return _METRICS.decode(encoded)


@functools.lru_cache(maxsize=_SHARED)
def shared_time(time: datetime | None) -> datetime | None:
    """Returns the same object for equal times: pods of one rollout often start in the same second."""
    return time


@kept(lambda raw: _DECODED * len(raw))
def amounts(raw: bytes) -> dict[str, int]:
    """Decodes requests into milli-units; containers with equal requests share the dict."""
    amounts = _AMOUNTS.decode(raw) or {}
    return {interned(name): quantity.parse_milli(str(value)) for name, value in amounts.items()}


@kept(lambda parts: _DECODED * sum([len(name) + len(requests) for name, requests in parts]))
def containers(parts: tuple[tuple[str, bytes], ...]) -> tuple[ContainerRequests, ...]:
    return tuple(ContainerRequests(interned(name), amounts(requests)) for name, requests in parts)
