"""Readiness probes of local processes: exec, httpGet and tcpSocket.

The messages of failures are those of Kubernetes 1.36, pkg/probe.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from hpad import clock as clocks

_LONGEST_OUTPUT: Final = 1024


class _Failed(Exception):
    """A failed probe; the text is the reason."""


async def results(
    probe: Mapping[str, Any], clock: clocks.Clock, variables: Mapping[str, str], directory: Path
) -> AsyncIterator[tuple[bool, str]]:
    """Yields readiness after each probe, endlessly, and why this probe failed ("" if it passed).

    Readiness changes after `successThreshold` or `failureThreshold` equal results in a row (default: 1 and 3).
    """
    await clock.sleep(float(probe.get("initialDelaySeconds", 0)))
    period, timeout = float(probe.get("periodSeconds", 10)), float(probe.get("timeoutSeconds", 1))
    needed = {True: int(probe.get("successThreshold", 1)), False: int(probe.get("failureThreshold", 3))}
    ready, last, streak = False, False, 0
    while True:
        problem = await _problem(probe, timeout, variables, directory)
        passed = not problem
        streak = streak + 1 if passed is last else 1
        last = passed
        if streak >= needed[passed]:
            ready = passed
        yield ready, problem
        await clock.sleep(period)


async def _problem(probe: Mapping[str, Any], timeout: float, variables: Mapping[str, str], directory: Path) -> str:
    """Runs one probe; returns why it failed, "" if it passed."""
    try:
        async with asyncio.timeout(timeout):
            await _once(probe, variables, directory)
    except TimeoutError:
        return f"no answer within {timeout:g}s"
    except (_Failed, ValueError, IndexError) as error:
        return str(error) or "no answer that a probe understands"
    except OSError as error:
        return (os.strerror(error.errno) if error.errno else str(error) or type(error).__name__).lower()
    return ""


async def _once(probe: Mapping[str, Any], variables: Mapping[str, str], directory: Path) -> None:
    if "exec" in probe:
        await _exec(probe["exec"]["command"], variables, directory)
    elif "httpGet" in probe:
        await _http_get(probe["httpGet"])
    elif "tcpSocket" in probe:
        _, writer = await _connect(probe["tcpSocket"])
        writer.close()


async def _exec(command: list[str], variables: Mapping[str, str], directory: Path) -> None:
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(directory), **variables}
    pipe, quiet = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, env=env, cwd=str(directory), stdin=quiet, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await process.communicate()
        if process.returncode:
            text = output[:_LONGEST_OUTPUT].decode("utf-8", "replace").strip()
            raise _Failed(text or f"the command exits with {process.returncode}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _http_get(target: Mapping[str, Any]) -> None:
    reader, writer = await _connect(target)
    try:
        request = f"GET {target.get('path', '/')} HTTP/1.0\r\nHost: localhost\r\nUser-Agent: kube-probe\r\n\r\n"
        writer.write(request.encode())
        status = int((await reader.readline()).split()[1])
        if not 200 <= status < 400:
            raise _Failed(f"HTTP probe failed with statuscode: {status}")
    finally:
        writer.close()


async def _connect(target: Mapping[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(target.get("host") or "127.0.0.1", int(target["port"]))
