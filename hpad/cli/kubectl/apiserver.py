"""GET requests to the API server through `kubectl proxy`, which listens on a Unix socket that only this user can reach.

One kubectl serves all requests of a command, so credential plugins run once. It passes on GET requests only.
"""

import contextlib
import http.client
import re
import socket
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hpad.api.text import harmless
from hpad.cli.client import reason
from hpad.cli.fetch import Answer, fetch
from hpad.cli.kubectl.children import Child, Kubectl
from hpad.cli.output import Failure

_SERVING: Final = re.compile("^Starting to serve on ")
_REFUSED_METHODS: Final = "^(POST|PUT|PATCH|DELETE|OPTIONS|CONNECT|TRACE)$"
_FIRST_SECONDS: Final = 60.0
"""The limit of the first request, in which a credential plugin may wait for a login in a browser."""
_SECONDS: Final = 20.0


class StatusError(Failure):
    """The API server answered with a `Status` object: HTTP status `code`, and its message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"the API server answered {code}: {message}")
        self.code = code
        self.message = message


class Timeout(Failure):
    """There was no answer in time."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class ApiServer:
    """The API server that kubectl uses."""

    def __init__(self, path: Path, child: Child) -> None:
        self._path = path
        self._child = child
        self._first = True

    def objects(self, path: str, **query: str) -> Any:
        """GETs objects; raises StatusError, or Failure if the API server cannot be reached."""
        answer = self.get(f"{path}?{urllib.parse.urlencode(query)}" if query else path)
        try:
            if answer.status == 200:
                return answer.json()
        except ValueError:
            pass
        raise Failure(f"the API server answered {answer.status} {answer.reason}: {_line(answer.body)}")

    def get(self, path: str, seconds: float = _SECONDS) -> Answer:
        """GETs a path, which may lead through the API server to a pod; then the answer may be that of the pod.

        Raises StatusError for a Status object, Timeout, and Failure if the API server cannot be reached.
        """
        limit = max(seconds, _FIRST_SECONDS) if self._first else seconds
        try:
            answer = fetch(_UnixConnection(self._path), path, {"Accept": "application/json"}, limit)
        except TimeoutError:
            raise Timeout(f"no answer within {limit:g}s{self._hint()}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Failure(f"kubectl proxy does not answer: {reason(error)}{self._hint()}") from None
        self._first = False
        status = _status(answer)
        if status is not None:
            raise StatusError(answer.status, harmless(str(status.get("message") or answer.reason)))
        return answer

    def _hint(self) -> str:
        said = self._child.said()
        return f" ({said})" if said else ""


def _status(answer: Answer) -> Mapping[str, Any] | None:
    """Returns the Status object of the API server; None for any other answer."""
    if answer.status < 400:
        return None
    try:
        content = answer.json()
    except (ValueError, RecursionError):
        return None
    is_status = isinstance(content, dict) and content.get("kind") == "Status" and content.get("apiVersion") == "v1"
    return content if is_status else None


def _line(body: bytes) -> str:
    lines = body[:1000].decode("utf-8", "replace").strip().splitlines()
    return harmless(lines[0]) if lines else "without a text"


@contextlib.contextmanager
def opened(kubectl: Kubectl) -> Iterator[ApiServer]:
    """Starts `kubectl proxy`, and ends it with the block; raises Failure."""
    with tempfile.TemporaryDirectory(prefix="kubectl-hpad-") as folder:  # mode 0700
        path = Path(folder) / "api"
        arguments = (
            "proxy",
            f"--unix-socket={path}",
            f"--reject-methods={_REFUSED_METHODS}",
            "--accept-paths=^/api/v1/",
        )
        with kubectl.serving(*arguments, ready=_SERVING) as (child, _):
            yield ApiServer(path, child)
