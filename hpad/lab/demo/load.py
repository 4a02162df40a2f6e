"""The load generator as a process, ready to begin at a moment of our choosing."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from hpad.lab.demo.errors import DemoError

MODULE = "hpad.lab.demo.workloads.load_generator"


class Load:
    """A started generator that waits for `begin`; it ends with the context that made it, or by `end`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def begin(self) -> None:
        """Let the requests flow; raises DemoError where the generator is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"go\n")
            await self._process.stdin.drain()
        except OSError:
            raise DemoError(f"the load generator ended with status {await self._process.wait()}") from None

    async def end(self) -> None:
        """No further request; returns when the process is gone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        await self._process.wait()


@contextlib.asynccontextmanager
async def ready(port: int, rate: float) -> AsyncIterator[Load]:
    """A generator of `rate` requests a second to 127.0.0.1:`port`, out of reach of the terminal's Ctrl-C."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", MODULE, str(port), str(rate)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    load = Load(process)
    try:
        yield load
    finally:
        await load.end()
