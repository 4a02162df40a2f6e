"""What containers have written, as `kubectl logs` asks for it: of a container's last life, and of the one before.

Source of what is shown when: Kubernetes, kubelet_pods.go: validateContainerLogStatus.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from hpad import clock as clocks
from hpad.lab.cluster import errors, reads
from hpad.lab.cluster.resources import Object

_PAUSE = 0.2


def begin(directory: Path, name: str) -> BinaryIO:
    """The log of a container's new life, empty; that of the life before stays as the previous one. This blocks."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.log"
    if path.exists():
        path.replace(_previous(path))
    return path.open("ab")


def _previous(path: Path) -> Path:
    """Where the log of the life before is; no container's name has a dot."""
    return path.with_name(f"{path.stem}.previous.log")


def chosen(pod: Object, name: str, folder: Path, query: Mapping[str, str]) -> Path:
    """The log that is asked for; raises ApiError 400 where there has been no such life of the container.

    While a container waits for its restart, its last life is the previous one, too.
    """
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    status: Object = next((each for each in statuses if each["name"] == name), {})
    state, path = status.get("state") or {}, folder / f"{name}.log"
    started = bool(status.get("lastState")) or "running" in state or "terminated" in state
    if query.get("previous") == "true":
        if not status.get("lastState"):
            raise errors.bad_request(
                f'previous terminated container "{name}" in pod "{pod["metadata"]["name"]}" not found'
            )
        return path if "waiting" in state else _previous(path)
    if not started:
        reason = (state.get("waiting") or {}).get("reason", "ContainerCreating")
        raise errors.bad_request(f'container "{name}" in pod "{pod["metadata"]["name"]}" is waiting to start: {reason}')
    return path


def life(pod: Object | None, name: str) -> int | None:
    """Which life of the container runs, by its number of restarts; None for none."""
    statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or []
    return next(
        (each["restartCount"] for each in statuses if each["name"] == name and "running" in each["state"]), None
    )


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
    path: Path, query: Mapping[str, str], clock: clocks.Clock, runs: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The content in pieces: the last `tailLines`, with `follow` what comes after, while the container `runs`."""
    file = await asyncio.to_thread(_opened, path)
    if file is None:
        return
    try:
        content = await asyncio.to_thread(file.read)
        yield _tail(content, reads.whole_number(query.get("tailLines") or "-1"))
        goes_on = query.get("follow") == "true"
        while goes_on:
            goes_on = runs()  # before the pause: what is written until it ends is still read
            await clock.sleep(_PAUSE)
            more = await asyncio.to_thread(file.read)
            if more:
                yield more
    finally:
        file.close()


def _opened(path: Path) -> BinaryIO | None:
    """The file itself, which stays the same when it becomes the previous log; None where there is none."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _tail(content: bytes, lines: int) -> bytes:
    if lines < 0:
        return content
    return b"".join(content.splitlines(keepends=True)[-lines:]) if lines else b""
