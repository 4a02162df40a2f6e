"""Logs of containers: of the current run and of the previous one.

Source: Kubernetes 1.36, pkg/kubelet/kubelet_pods.go: validateContainerLogStatus.
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
    """Opens an empty log for a new run of a container, and keeps that of the run before as the previous log. Blocks."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.log"
    if path.exists():
        path.replace(_previous(path))
    return path.open("ab")


def _previous(path: Path) -> Path:
    """Returns the path of the previous log. Names of containers have no dots, so it cannot be that of another one."""
    return path.with_name(f"{path.stem}.previous.log")


def chosen(pod: Object, name: str, folder: Path, query: Mapping[str, str]) -> Path:
    """Returns the path of the requested log; raises ApiError 400 if the container had no such run.

    While a container waits for its restart, its last run is also the previous one.
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


def run_number(pod: Object | None, name: str) -> int | None:
    """Returns the number of restarts of a running container, which identifies its run; None if it is not running."""
    statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or []
    return next(
        (each["restartCount"] for each in statuses if each["name"] == name and "running" in each["state"]), None
    )


def container(pod: Object, query: Mapping[str, str]) -> str:
    """Returns the name of the requested container; raises ApiError 400 if it is ambiguous or unknown."""
    names = [each["name"] for each in pod["spec"]["containers"]]
    requested, name = query.get("container", ""), pod["metadata"]["name"]
    if requested and requested not in names:
        raise errors.bad_request(f"container {requested} is not valid for pod {name}")
    if not requested and len(names) > 1:
        raise errors.bad_request(
            f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
        )
    return requested or str(names[0])


async def written(
    path: Path, query: Mapping[str, str], clock: clocks.Clock, runs: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yields the last `tailLines` of a log; with `follow`, also what is appended while `runs` returns True."""
    file = await asyncio.to_thread(_opened, path)
    if file is None:
        return
    try:
        content = await asyncio.to_thread(file.read)
        yield _tail(content, reads.whole_number(query.get("tailLines") or "-1"))
        goes_on = query.get("follow") == "true"
        while goes_on:
            goes_on = runs()  # asked before the pause, so that output until the end of the run is still read
            await clock.sleep(_PAUSE)
            more = await asyncio.to_thread(file.read)
            if more:
                yield more
    finally:
        file.close()


def _opened(path: Path) -> BinaryIO | None:
    """Opens a log, None if there is none. The open file stays valid when it is renamed to the previous log."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _tail(content: bytes, lines: int) -> bytes:
    if lines < 0:
        return content
    return b"".join(content.splitlines(keepends=True)[-lines:]) if lines else b""
