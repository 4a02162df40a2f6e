"""What containers have written, as `kubectl logs` asks for it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from hpad import clock as clocks
from hpad.lab.cluster import errors, reads
from hpad.lab.cluster.resources import Object

_PAUSE = 0.2


def container(pod: Object, query: Mapping[str, str]) -> str:
    """Whose log is asked for; raises ApiError 400 where that is not clear or not there."""
    names = [each["name"] for each in pod["spec"]["containers"]]
    asked, name = query.get("container", ""), pod["metadata"]["name"]
    if asked and asked not in names:
        raise errors.bad_request(f"container {asked} is not valid for pod {name}")
    if not asked and len(names) > 1:
        raise errors.bad_request(
            f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
        )
    return asked or str(names[0])


async def written(
    path: Path, query: Mapping[str, str], clock: clocks.Clock, exists: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The content in pieces: the last `tailLines`, with `follow` what comes after, while the pod `exists`."""
    content = await asyncio.to_thread(_read, path, 0)
    at = len(content)
    yield _tail(content, reads.whole_number(query.get("tailLines") or "-1"))
    while query.get("follow") == "true" and exists():
        await clock.sleep(_PAUSE)
        more = await asyncio.to_thread(_read, path, at)
        at += len(more)
        if more:
            yield more


def _read(path: Path, start: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read()
    except FileNotFoundError:
        return b""


def _tail(content: bytes, lines: int) -> bytes:
    if lines < 0:
        return content
    return b"".join(content.splitlines(keepends=True)[-lines:]) if lines else b""
