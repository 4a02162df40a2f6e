"""Readiness probes: exec, httpGet and tcpSocket, against local processes."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from hpad import clock as clocks


async def results(
    probe: Mapping[str, Any], clock: clocks.Clock, variables: Mapping[str, str], directory: Path
) -> AsyncIterator[bool]:
    """Ready or not, after each probe, for ever; thresholds as in the API (1 success, 3 failures)."""
    await clock.sleep(float(probe.get("initialDelaySeconds", 0)))
    period, timeout = float(probe.get("periodSeconds", 10)), float(probe.get("timeoutSeconds", 1))
    needed = {True: int(probe.get("successThreshold", 1)), False: int(probe.get("failureThreshold", 3))}
    ready, last, streak = False, False, 0
    while True:
        try:
            async with asyncio.timeout(timeout):
                passed = await _once(probe, variables, directory)
        except (OSError, TimeoutError, ValueError, IndexError):
            passed = False
        streak = streak + 1 if passed is last else 1
        last = passed
        if streak >= needed[passed]:
            ready = passed
        yield ready
        await clock.sleep(period)


async def _once(probe: Mapping[str, Any], variables: Mapping[str, str], directory: Path) -> bool:
    if "exec" in probe:
        return await _exec(probe["exec"]["command"], variables, directory)
    if "httpGet" in probe:
        return await _http_get(probe["httpGet"])
    if "tcpSocket" in probe:
        _, writer = await _connect(probe["tcpSocket"])
        writer.close()
        return True
    return True


async def _exec(command: list[str], variables: Mapping[str, str], directory: Path) -> bool:
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(directory), **variables}
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, env=env, cwd=str(directory), stdin=quiet, stdout=quiet, stderr=quiet
    )
    try:
        return await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _http_get(target: Mapping[str, Any]) -> bool:
    reader, writer = await _connect(target)
    try:
        request = f"GET {target.get('path', '/')} HTTP/1.0\r\nHost: localhost\r\nUser-Agent: kube-probe\r\n\r\n"
        writer.write(request.encode())
        status_line = await reader.readline()
        return 200 <= int(status_line.split()[1]) < 400
    finally:
        writer.close()


async def _connect(target: Mapping[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(target.get("host") or "127.0.0.1", int(target["port"]))
