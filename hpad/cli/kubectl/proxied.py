"""hpad through the API server: the subresource `proxy` of its pods, or of its Service.

The API server keeps the Authorization header for itself, so an hpad that asks for tokens refuses requests that come
this way. Source: Kubernetes 1.36, apiserver/pkg/endpoints/filters/authentication.go.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from hpad.cli.fetch import Answer, Refusal
from hpad.cli.kubectl.apiserver import ApiServer, StatusError, Timeout
from hpad.cli.kubectl.discovery import Pod, Service
from hpad.cli.kubectl.fleet import REPLICAS_PATH, combined, is_decided
from hpad.cli.output import Failure

FIRST_SECONDS: Final = 5.0
"""The limit of the answer about the replicas, which tells whether hpad can be reached."""
_SECONDS: Final = 20.0
_ATTEMPTS: Final = 8
_ADVICE: Final = {
    401: "hpad asks for a token or certificate, which the API server does not pass on",
    403: "hpad refuses the request",
    421: "hpad listens on loopback only",
}


@dataclass
class Patience:
    """Whether further pods are asked after one has not answered in time, and whether this has happened.

    If a NetworkPolicy drops the packets of the API server, it drops them to each pod.
    """

    endless: bool = True
    over: bool = False


@dataclass(frozen=True)
class Proxied:
    """A Reader of one pod, or of any pod of a Service."""

    api: ApiServer
    place: Pod | Service
    patience: Patience = field(default_factory=Patience)

    def __str__(self) -> str:
        return str(self.place)

    def get(self, path: str) -> Any:
        """See Reader.get."""
        if self.patience.over:
            raise Failure(f"{self} is not asked, since the API server gets no answer from hpad")
        try:
            answer = self.api.get(f"{self.place.path}{path}", FIRST_SECONDS if path == REPLICAS_PATH else _SECONDS)
        except Timeout as failure:
            self.patience.over = not self.patience.endless
            raise Failure(f"{self}: {failure}") from None
        except StatusError as error:
            raise Failure(f"{self}: {error.message}") from None
        except Failure as failure:
            raise Failure(f"{self}: {failure}") from None
        if answer.status != 200:
            raise self._refusal(answer)
        try:
            return answer.json()
        except (ValueError, RecursionError):
            raise Failure(f"{self} did not answer with JSON: is it hpad?") from None

    def _refusal(self, answer: Answer) -> Refusal:
        error = "" if answer.status in _ADVICE else answer.error
        text = error or f"{self} answered {answer.status} {answer.reason}: {_ADVICE.get(answer.status, 'is it hpad?')}"
        return Refusal(text, answer.status, error)


@dataclass(frozen=True)
class Sampled:
    """A Reader of a Service with several pods, of which the API server picks one for each request.

    Asks up to eight times, until the answer is that of a replica that decides.
    """

    service: Proxied

    def __str__(self) -> str:
        return str(self.service)

    def get(self, path: str) -> Any:
        """See Reader.get."""
        found: list[Any] = []
        refused: list[Refusal] = []
        for _ in range(_ATTEMPTS):
            try:
                found.append(self.service.get(path))
            except Refusal as refusal:
                if refusal.status != 404:
                    raise
                refused.append(refusal)
                continue
            answer = combined(found)
            if is_decided(answer):
                return answer
        if not found:
            raise refused[0]
        return combined(found)
