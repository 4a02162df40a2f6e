"""One GET over a connection of http.client, limited in time and bytes, and the JSON of its answer."""

import contextlib
import http.client
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from hpad.cli.output import Failure
from hpad.clock import SystemClock

MAX_BYTES: Final = 64 * 2**20
"""More than 10,000 HPAs with their traces take."""
_CHUNK: Final = 2**16


class HpadReader(Protocol):
    """Where the JSON of a running hpad comes from."""

    def get(self, path: str) -> Any:
        """GETs a path with its query, such as `/api/v1/hpas?limit=10`, and returns the decoded JSON; raises Failure."""
        ...


class Refusal(Failure):
    """hpad answered with another status than 200. `error` is what hpad says about it, "" if nothing."""

    def __init__(self, message: str, status: int, error: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.error = error


class Answer(NamedTuple):
    """An answer of an HTTP server."""

    status: int
    reason: str
    body: bytes

    def json(self) -> Any:
        """Returns the decoded body; raises ValueError if it is not JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The text of an error of hpad's API, `{"error": "..."}`; "" for any other body."""
        try:
            content = self.json()
        except (ValueError, RecursionError):
            return ""
        text = content.get("error") if isinstance(content, dict) else None
        return text if isinstance(text, str) else ""


def fetch(connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str], seconds: float) -> Answer:
    """Sends a GET, reads the answer, and closes the connection.

    Raises OSError (TimeoutError after `seconds` for the connection, for the head and for the body),
    http.client.HTTPException, and ValueError if the body is longer than MAX_BYTES. Follows no redirect, so a token in
    `headers` reaches no other server.
    """
    clock, body = SystemClock(), bytearray()
    connection.timeout = seconds
    with contextlib.closing(connection):
        connection.request("GET", path, headers=dict(headers))
        response = connection.getresponse()
        deadline = clock.monotonic() + seconds
        while chunk := response.read1(_CHUNK):
            body += chunk
            if len(body) > MAX_BYTES:
                raise ValueError(f"the answer is longer than {MAX_BYTES} bytes")
            if clock.monotonic() > deadline:
                raise TimeoutError("timed out")
        return Answer(response.status, response.reason, bytes(body))
