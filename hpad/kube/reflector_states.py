"""What a reflector does, how each step of that may end, and what follows."""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class State(Enum):
    """What a reflector does."""

    IDLE = "idle"
    STREAMING = "listing as a stream"
    PAGING = "listing in pages"
    WATCHING = "watching"
    CHECKING = "checking whether the server still knows the last version"
    STOPPED = "stopped"


class Outcome(Enum):
    """How a step ended."""

    DONE = "done"
    FAILED = "failed"
    UNSUPPORTED = "not supported by the server"
    LOST = "connection lost, or ended by the server before its time"
    EXPIRED = "the version is not known to the server"
    CANCELLED = "cancelled"


TRANSITIONS: Final[Mapping[tuple[State, Outcome], State]] = {
    (State.IDLE, Outcome.DONE): State.STREAMING,
    (State.STOPPED, Outcome.DONE): State.STREAMING,
    (State.STREAMING, Outcome.DONE): State.WATCHING,
    (State.STREAMING, Outcome.UNSUPPORTED): State.PAGING,
    (State.STREAMING, Outcome.FAILED): State.PAGING,
    (State.PAGING, Outcome.DONE): State.WATCHING,
    (State.PAGING, Outcome.FAILED): State.PAGING,
    (State.WATCHING, Outcome.DONE): State.WATCHING,
    (State.WATCHING, Outcome.FAILED): State.WATCHING,
    (State.WATCHING, Outcome.LOST): State.CHECKING,
    (State.WATCHING, Outcome.EXPIRED): State.STREAMING,
    (State.CHECKING, Outcome.DONE): State.WATCHING,
    (State.CHECKING, Outcome.EXPIRED): State.STREAMING,
    **{(state, Outcome.CANCELLED): State.STOPPED for state in State if state not in {State.IDLE, State.STOPPED}},
}
