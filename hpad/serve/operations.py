"""The paths of the JSON API v1: what each takes and answers. Routes and OpenAPI document come from this table."""

from typing import Final, NamedTuple

import msgspec

from hpad.serve import api_types, parameters, stream
from hpad.serve.parameters import Parameter

PREFIX: Final = "/api/v1/"
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"


class Operation(NamedTuple):
    """A GET of one path. `answer` is the type of the JSON, or of the data of each event; None: the OpenAPI document."""

    id: str
    path: str
    text: str
    answer: type[msgspec.Struct] | None
    parameters: tuple[Parameter, ...] = ()
    media: str = JSON

    @property
    def names_hpa(self) -> bool:
        """Whether the path names an HPA, which may not exist."""
        return "{name}" in self.path


_HPA: Final = f"{PREFIX}hpas/{{namespace}}/{{name}}"
OPERATIONS: Final = (
    Operation(
        "version",
        f"{PREFIX}version",
        "The version of hpad, and the build it is from.",
        api_types.Version,
    ),
    Operation(
        "status",
        f"{PREFIX}status",
        "What the answering process does at present, and its problems.",
        api_types.Status,
    ),
    Operation(
        "hpas",
        f"{PREFIX}hpas",
        "The HPAs with their states and last decisions, filtered, sorted and in pages. A page begins after the last "
        "HPA of the previous one, so HPAs that come and go meanwhile move no other HPA to another page.",
        api_types.HpaList,
        parameters.HPAS,
    ),
    Operation(
        "hpa",
        _HPA,
        "One HPA with its spec, its status, and the trace of its last decision.",
        api_types.Detail,
    ),
    Operation(
        "history",
        f"{_HPA}/history",
        "The decision history of an HPA, the newest first. An entry is a stretch of turns with the same decision for "
        "the same reason.",
        api_types.EntryList,
        parameters.HISTORY,
    ),
    Operation(
        "decision",
        f"{_HPA}/decision",
        "The decision that was in force at a time, with its trace. 404 with the begin of the history for an earlier "
        "time.",
        api_types.DecisionAt,
        parameters.DECISION,
    ),
    Operation(
        "recording",
        f"{_HPA}/recording",
        "The last decisions of an HPA with all their inputs, as far as they are in memory (setting record_recent). "
        "404 if they are not kept, or none has been made.",
        api_types.Recording,
    ),
    Operation(
        "decisions",
        stream.PATH,
        "Server-sent events: one event `decision` for each HPA whose decision or its reason changes, and a comment "
        "every 15 seconds. Events are not stored, and `Last-Event-ID` has no effect: after a (re)connect, first wait "
        "for the head of the answer, then read the list of HPAs, then apply the events. A client that does not read is "
        "disconnected, and a stream ends after 15 minutes.",
        api_types.Summary,
        parameters.STREAM,
        EVENTS,
    ),
    Operation(
        "sources",
        f"{PREFIX}sources",
        "The state of the metric sources.",
        api_types.SourceList,
    ),
    Operation(
        "replicas",
        f"{PREFIX}replicas",
        "The processes of hpad, as far as the answering one knows. A leader does not know the standbys.",
        api_types.ReplicaList,
    ),
    Operation(
        "openapi",
        f"{PREFIX}openapi.json",
        "This document.",
        None,
    ),
)
