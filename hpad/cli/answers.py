"""What the commands read of the answers of hpad's API, by path. Members that no command reads may have any type.

The API's own types (`hpad.serve.api_types`) import the engine, which would triple the start of `kubectl hpad status`.
"""

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A float holds it, so that fractions of it can be worked out."""


class _Part(msgspec.Struct, rename="camel"):
    """The base of the parts of answers."""


class _Target(_Part):
    kind: str
    name: str


class _Metric(_Part):
    address: str
    current: str | None = None
    target: str | None = None


class _LastDecision(_Part):
    time: Moment
    sentence: str
    held_by: str | None = None


class _Summary(_Part):
    namespace: str
    name: str
    target: _Target
    min_replicas: int
    max_replicas: int
    current_replicas: int
    desired_replicas: int
    states: list[str]
    metrics: list[_Metric]
    kind: str = ""
    last_scale_time: Moment | None = None
    last_decision: _LastDecision | None = None


class _HpaList(_Part):
    items: list[_Summary]
    continue_: str = msgspec.field(name="continue", default="")


class _Trace(_Part):
    time: Moment


class _Detail(_Part):
    sentence: str
    trace: _Trace | None = None
    owner: str = ""
    dry_run: bool = False
    notes: list[str] = []


class _Entry(_Part):
    began: Moment
    ended: Moment
    turns: int
    sentence: str
    current: int | None = None
    desired: int | None = None
    error: str | None = None


class _EntryList(_Part):
    items: list[_Entry]
    continue_: str = msgspec.field(name="continue", default="")


class _DecisionAt(_Entry):
    trace: _Trace | None = None
    notes: list[str] = []


class _Recording(_Part):
    began: Moment
    ended: Moment
    decisions: int
    scenarios: list[Any]


class _Source(_Part):
    name: str
    adapter: str
    state: str
    latency: float | None = None
    asked: Count = 0
    hits: Count = 0
    last_error: str | None = None
    last_error_at: Moment | None = None


class _SourceList(_Part):
    items: list[_Source]


class _Replica(_Part):
    identity: str
    role: str


class _ReplicaList(_Part):
    items: list[_Replica]
    self_: str = msgspec.field(name="self")


class _Version(_Part):
    version: str
    commit: str = ""
    build_date: str = ""
    kubernetes: str = ""


_OF_ALL: Final = {"hpas": _HpaList, "sources": _SourceList, "replicas": _ReplicaList, "version": _Version}
_OF_HPA: Final = {"": _Detail, "history": _EntryList, "decision": _DecisionAt, "recording": _Recording}


def check(path: str, found: Any) -> None:
    """Raises msgspec.ValidationError if the JSON is no answer to `/api/v1/NAME` or `/api/v1/hpas/NAMESPACE/NAME/REST`.

    The path may have a query.
    """
    name, *of_hpa = path.partition("?")[0].removeprefix("/api/v1/").split("/")
    msgspec.convert(found, _OF_HPA["".join(of_hpa[2:])] if of_hpa else _OF_ALL[name])
