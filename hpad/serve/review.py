"""Asking the cluster who a bearer token belongs to and what he may see, as controller-runtime's metrics endpoint does.

TokenReview says whose the token is, SubjectAccessReview whether that user may `get` the path as a non-resource URL.
hpad needs the rights of the ClusterRole system:auth-delegator for it.
"""

import asyncio
import hashlib
from collections import OrderedDict
from enum import Enum, auto
from typing import Any

import msgspec

from hpad.clock import Clock
from hpad.kube import errors
from hpad.kube.client import Client

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_ALLOWED_S = 60.0
_REFUSED_S = 30.0  # long enough to keep a scraper without rights from asking the cluster each time
_REMEMBERED = 1024
_AT_ONCE = 4
_TIMEOUT_S = 5.0


class Verdict(Enum):
    ALLOWED = auto()
    UNKNOWN = auto()
    """The token is nobody's."""
    FORBIDDEN = auto()


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


class Reviewer:
    """Remembers verdicts for up to a minute, a bounded number of them, by the token's digest and the path."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._held: OrderedDict[tuple[bytes, str], tuple[Verdict, float]] = OrderedDict()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def review(self, token: str, path: str) -> Verdict:
        """Whether the token's owner may see the path; raises errors.ApiError where the cluster cannot tell."""
        key = (hashlib.sha256(token.encode()).digest(), path)
        held = self._held.get(key)
        if held is not None and self._clock.monotonic() < held[1]:
            return held[0]
        async with self._turns:
            verdict = await self._ask(token, path)
        self._remember(key, verdict)
        return verdict

    async def _ask(self, token: str, path: str) -> Verdict:
        answer = await self._post(_TOKENS, "authentication.k8s.io/v1", "TokenReview", {"token": token})
        who = _read(answer, _TokenReview).status
        if not who.authenticated or not who.user.username:
            return Verdict.UNKNOWN
        spec = {
            "user": who.user.username,
            "uid": who.user.uid,
            "groups": who.user.groups,
            "extra": who.user.extra,
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        answer = await self._post(_ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        may = _read(answer, _AccessReview).status
        return Verdict.ALLOWED if may.allowed and not may.denied else Verdict.FORBIDDEN

    async def _post(self, path: str, version: str, kind: str, spec: dict[str, Any]) -> bytes:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        return await self._client.request("POST", path, body=body, timeout=_TIMEOUT_S)

    def _remember(self, key: tuple[bytes, str], verdict: Verdict) -> None:
        lasts = _ALLOWED_S if verdict is Verdict.ALLOWED else _REFUSED_S
        self._held[key] = (verdict, self._clock.monotonic() + lasts)
        self._held.move_to_end(key)
        while len(self._held) > _REMEMBERED:
            self._held.popitem(last=False)


def _read(answer: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        raise errors.ApiError(500, "InternalError", f"the review cannot be read: {error}") from None
