"""Asks the API server for its version and clock, and for reviews of tokens and rights."""

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import msgspec

from hpad.kube import errors
from hpad.kube.client import Client

_TIMEOUT_SECONDS = 10.0
_NOT_KUBERNETES = "NotKubernetes"
_RETRY_SECONDS, _REFRESH_SECONDS = 2.0, 600.0


class VersionProbe(NamedTuple):
    """`version` as in "v1.36.0"; `date` is the server's clock in whole seconds, None if the answer has no Date."""

    version: str
    date: datetime | None


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


async def probe_version(client: Client) -> VersionProbe:
    """Reads /version. Raises ApiError."""
    answer = await client.answer("/version", _TIMEOUT_SECONDS)
    try:
        version = msgspec.json.decode(answer.body, type=_Version).git_version
    except errors.UNREADABLE:
        raise errors.ApiError(0, _NOT_KUBERNETES, f"{client.config.server} is no Kubernetes API server") from None
    return VersionProbe(version, _parsed(answer.headers.get("Date")))


def numbers(version: str) -> tuple[int, int] | None:
    """Returns major and minor number of a version such as "v1.36.0" or "v1.37.0-gke.100"; None for other texts."""
    found = re.match(r"v?(\d{1,9})\.(\d{1,9})", version)
    return None if found is None else (int(found[1]), int(found[2]))


def _parsed(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text).astimezone(UTC) if text is not None else None
    except (ValueError, OverflowError):
        return None


class VersionFollower:
    """Polls the version of the API server, which may be upgraded while hpad runs.

    `known` is set after the first answer, even one without a version. `found` is called with the major and minor number
    of each version higher than all before: during an upgrade of the control plane both versions answer.
    """

    def __init__(self, client: Client, found: Callable[[tuple[int, int]], None]) -> None:
        self.known = asyncio.Event()
        self._client = client
        self._found = found
        self._highest = (0, 0)

    async def run(self) -> None:
        """Polls until cancelled: every 2 seconds until a server answers, then every 10 minutes."""
        while True:
            answered = await self._probe()
            if answered:
                self.known.set()
            await self._client.clock.sleep(_REFRESH_SECONDS if answered else _RETRY_SECONDS)

    async def _probe(self) -> bool:
        """Reads the version; returns whether the server answered."""
        try:
            version = numbers((await probe_version(self._client)).version)
        except errors.ApiError as error:
            return error.status != 0 or error.reason == _NOT_KUBERNETES
        if version is not None and version > self._highest:
            self._highest = version
            self._found(version)
        return True


class Right(NamedTuple):
    """One verb on one resource; `namespace` "" means all namespaces, `name` "" any object."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        group = f".{self.group}" if self.group else ""
        name = f" {self.name}" if self.name else ""
        where = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        return f"{self.verb} {resource}{group}{name} {where}"


class ReviewedUser(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class ReviewStatus(msgspec.Struct):
    """The status of a TokenReview (`authenticated`, `user`) or an access review (`allowed`, `denied`)."""

    authenticated: bool = False
    user: ReviewedUser = msgspec.field(default_factory=ReviewedUser)
    allowed: bool = False
    denied: bool = False


class _Review(msgspec.Struct):
    status: ReviewStatus = msgspec.field(default_factory=ReviewStatus)


_REVIEW = msgspec.json.Decoder(_Review)


async def review(
    client: Client, version: str, kind: str, spec: Mapping[str, Any], timeout: float | None = None
) -> ReviewStatus:
    """Has the API server review `spec`. Raises ApiError."""
    body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
    answer = await client.request("POST", f"/apis/{version}/{kind.lower()}s", body=body, timeout=timeout)
    return errors.decoded(_REVIEW, answer, f"the answer is no {kind}").status


async def allowed(client: Client, right: Right) -> bool:
    """Returns whether hpad has the right. Raises ApiError."""
    attributes = {field: value for field, value in right._asdict().items() if value}
    spec = {"resourceAttributes": attributes}
    status = await review(client, "authorization.k8s.io/v1", "SelfSubjectAccessReview", spec)
    return status.allowed and not status.denied
