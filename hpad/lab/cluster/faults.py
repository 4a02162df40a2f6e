"""Fault injection: makes chosen requests fail in the ways of networks and servers."""

import re
from dataclasses import dataclass, field

from aiohttp import web

from hpad import clock as clocks
from hpad.lab.cluster import errors
from hpad.lab.cluster.watches import Hub

_REASONS = {
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "injected failure 403"),
    404: ("NotFound", "injected failure 404"),
    409: ("Conflict", "injected failure 409"),
    410: ("Expired", "injected failure 410"),
    429: ("TooManyRequests", "Too many requests, please try again later."),
    500: ("InternalError", "injected failure 500"),
    503: ("ServiceUnavailable", "injected failure 503"),
    504: ("Timeout", "injected failure 504"),
}


@dataclass(eq=False, slots=True)
class Fault:
    """One rule, for `times` requests, or for all if that is None; `hits` counts the matched requests.

    After `delay` seconds the server either resets the connection (`reset`), sends a body that ends before its
    Content-Length (`truncate`), answers with `status` (and Retry-After of `retry_after` seconds), or answers with 200
    and `body`. With none of these it handles the request, late.
    """

    method: re.Pattern[str]
    path: re.Pattern[str]
    times: int | None = 1
    status: int | None = None
    retry_after: int | None = None
    delay: float = 0.0
    reset: bool = False
    body: str | None = None
    truncate: bool = False
    hits: int = 0

    def matches(self, method: str, path: str) -> bool:
        exhausted = self.times is not None and self.hits >= self.times
        return not exhausted and bool(self.method.fullmatch(method) and self.path.search(path))


@dataclass(slots=True)
class Faults:
    """The active rules; the first that matches a request is applied."""

    hub: Hub
    clock: clocks.Clock
    rules: list[Fault] = field(default_factory=list)

    def add(
        self,
        *,
        method: str = ".*",
        path: str = "",
        times: int | None = 1,
        status: int | None = None,
        retry_after: int | None = None,
        delay: float = 0.0,
        reset: bool = False,
        body: str | None = None,
        truncate: bool = False,
    ) -> Fault:
        """Adds a rule for requests whose method and path (with its query) match these regular expressions."""
        rule = Fault(re.compile(method), re.compile(path), times, status, retry_after, delay, reset, body, truncate)
        self.rules.append(rule)
        return rule

    def clear(self) -> None:
        """Removes all rules, and resumes stalled watches."""
        self.rules.clear()
        self.hub.flowing.set()

    def drop_watches(self, path: str = "") -> int:
        """Ends the open watch streams whose path matches the regular expression; returns their number."""
        pattern = re.compile(path)
        return self.hub.drop(lambda stream: bool(pattern.search(stream)))

    def stall_watches(self) -> None:
        """Keeps all watch streams open without sending changes, until `clear`."""
        self.hub.flowing.clear()

    async def inject(self, request: web.Request) -> web.StreamResponse | None:
        """Applies the rule for this request; returns None if the request is to be handled. Raises ApiError."""
        rule = next((r for r in self.rules if r.matches(request.method, request.path_qs)), None)
        if rule is None:
            return None
        rule.hits += 1
        if rule.delay:
            await self.clock.sleep(rule.delay)
        if rule.reset:
            return _reset(request)
        if rule.truncate:
            return await _truncated(request)
        if rule.status is not None:
            raise _failure(rule.status, rule.retry_after)
        if rule.body is not None:
            return web.Response(text=rule.body, content_type="application/json")
        return None


def _failure(status: int, retry_after: int | None) -> errors.ApiError:
    reason, message = _REASONS.get(status, ("", f"injected failure {status}"))
    if retry_after is None:
        return errors.ApiError(status, reason, message)
    details = {"retryAfterSeconds": retry_after}
    return errors.ApiError(status, reason, message, details=details, headers={"Retry-After": str(retry_after)})


def _reset(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def _truncated(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "4096"})
    await response.prepare(request)
    await response.write(b'{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"meta')
    if request.transport is not None:
        request.transport.close()
    return response
