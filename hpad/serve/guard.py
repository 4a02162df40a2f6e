"""Who may look: each way of showing who one is, tried in turn. Refusals say nothing but that they are refusals."""

from typing import Protocol

import structlog
from aiohttp import web

from hpad.clock import Clock, SystemClock
from hpad.kube import errors
from hpad.logs.episode import Episode
from hpad.serve import tokens
from hpad.serve.review import Reviewer, Verdict

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="hpad"'}


class Accepts(Protocol):
    """Knows tokens; `serve.tokens.Tokens` does."""

    def accept(self, token: str) -> bool: ...


class Guard:
    """`certificates`: a client certificate lets in (TLS has verified it, or refused the connection)."""

    def __init__(
        self, *, certificates: bool, known: Accepts | None, reviewer: Reviewer | None, clock: Clock | None = None
    ) -> None:
        self._certificates = certificates
        self._known = known
        self._reviewer = reviewer
        log = structlog.get_logger("hpad.serve")
        unknown = "the cluster cannot say whose a token is"
        self._unknown = Episode(log, clock or SystemClock(), unknown, "the cluster says whose tokens are again")

    @property
    def open(self) -> bool:
        """Whether nobody has to show anything."""
        return not self._certificates and self._known is None and self._reviewer is None

    async def admit(self, request: web.Request) -> None:
        """Return if the request may be answered; raises web.HTTPException: 401, 403, or 503 if that cannot be told."""
        if self.open or (self._certificates and _certified(request)):
            return
        token = _bearer(request)
        if token is None:
            raise web.HTTPUnauthorized(headers=_CHALLENGE)
        if self._known is not None and self._known.accept(token):
            return
        verdict = await self._review(token, request.path) if self._reviewer is not None else Verdict.UNKNOWN
        if verdict is Verdict.FORBIDDEN:
            raise web.HTTPForbidden
        if verdict is Verdict.UNKNOWN:
            raise web.HTTPUnauthorized(headers=_CHALLENGE)

    async def _review(self, token: str, path: str) -> Verdict:
        assert self._reviewer is not None
        try:
            verdict = await self._reviewer.review(token, path)
        except errors.ApiError as error:
            self._unknown.struck(error=error.message)
            raise web.HTTPServiceUnavailable from None
        self._unknown.over()
        return verdict


def _certified(request: web.Request) -> bool:
    return request.transport is not None and bool(request.transport.get_extra_info("peercert"))


def _bearer(request: web.Request) -> str | None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not 0 < len(token) <= tokens.LONGEST or not token.isascii():
        return None
    return token
