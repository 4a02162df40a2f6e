"""The first thing to ask an API server: which version it is, and what time it has."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import aiohttp
import msgspec

from hpad.kube import errors
from hpad.kube.client import Client

_SECONDS = 10.0


class Greeting(NamedTuple):
    """`version` as in "v1.36.0"; `date` has whole seconds, and is None where the server (or a proxy) gave none."""

    version: str
    date: datetime | None


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


async def greet(client: Client) -> Greeting:
    """Raises ApiError."""
    headers = {"Accept": "application/json", **await client.config.identity.headers(client.clock)}
    limits = aiohttp.ClientTimeout(total=_SECONDS)
    async with client._answer("GET", "/version", None, headers, None, limits) as answer:
        body, date = await client._body(answer, "GET", "/version"), answer.headers.get("Date")
    try:
        version = msgspec.json.decode(body, type=_Version).git_version
    except msgspec.MsgspecError:
        raise errors.ApiError(0, "NotKubernetes", f"{client.config.server} is no Kubernetes API server") from None
    return Greeting(version, _moment(date))


def _moment(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text).astimezone(UTC) if text is not None else None
    except (ValueError, OverflowError):
        return None
