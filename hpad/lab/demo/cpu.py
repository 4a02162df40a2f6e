"""First half of the demo: a web server scaled by the CPU usage of its processes (the Kubernetes HPA walkthrough)."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from hpad.lab.demo import DemoError, documents
from hpad.lab.demo.half import Half, Times
from hpad.lab.demo.report import Result
from hpad.lab.demo.screen import Screen
from hpad.lab.demo.stage import SAMPLING_SECONDS, Stage
from hpad.lab.demo.timing import Timing
from hpad.lab.servers import ports

NAME = "php-apache"
LOAD_GENERATOR = "hpad.lab.demo.workloads.load_generator"
TITLE = "hpad demo · a web server scaled by the CPU it uses"
RATE = 40.0
CPU_MS = 15
SEVERAL = 5
"""Minimum of replicas at the peak. 305 % over 50 % gives 7, but a busy machine leaves the server less CPU to use."""

BECAUSE = f"usage is measured over {SAMPLING_SECONDS:g} s, and the scale-up window is 3 s"


async def show(stage: Stage, screen: Screen, timing: Timing) -> Result:
    """Runs the half and deletes its objects and processes; a failure is the `problem` of the result."""
    half = Half(stage, screen, NAME, TITLE, "CPU", "%", timing.spans[0])
    half.aside = lambda: _processes(stage.processes(NAME))
    times, problem = Times(), ""
    try:
        await _play(stage, half, timing, times)
    except DemoError as error:
        problem = str(error)
    await stage.delete(NAME)
    return half.result("A web server scaled by CPU: replicas over time", times, problem, because=BECAUSE)


async def _play(stage: Stage, half: Half, timing: Timing, times: Times) -> None:
    (port,) = ports.free(1)
    environment = {"PORT": str(port), "CPU_MS": str(CPU_MS)}
    deployment, hpa = await asyncio.to_thread(documents.load, NAME, environment)
    await stage.apply([deployment])
    half.note("applied: Deployment php-apache (requests 200m of CPU)")
    async with _load_generator(port, RATE) as generator:
        await half.until(lambda moment: moment.processes == 1, timing.timeout, "one php-apache process")
        await stage.next_metrics(NAME)
        await stage.apply([hpa])
        half.note("its CPU is measured; applied: HPA php-apache (target 50 % of the request)")
        await half.until(
            lambda moment: moment.processes == 1 and moment.reading is not None,
            timing.timeout,
            "one php-apache process with a CPU reading",
        )
        await half.wait(timing.pause)
        await stage.next_metrics(NAME)
        await generator.begin()
        times.load = half.now
        half.note(f"load on: {RATE:g} requests a second, {CPU_MS} ms of CPU each")
        await half.until(
            lambda moment: moment.processes >= SEVERAL,
            timing.timeout,
            f"at least {SEVERAL} php-apache processes",
        )
        await half.wait(timing.peak)
        await generator.end()
    times.over = half.now
    half.note("load off")
    await half.until(
        lambda moment: moment.processes == 1 == moment.desired,
        timing.timeout,
        "one php-apache process again",
    )
    times.back = half.now
    half.note("back at 1 replica")
    await half.wait(timing.pause)


def _processes(pids: list[int]) -> str:
    if not pids:
        return ""
    return f"{len(pids)} real process{'' if len(pids) == 1 else 'es'}: pid {', '.join(map(str, pids))}"


class Load:
    """A running load generator, which sends requests from `begin` until `end`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def begin(self) -> None:
        """Starts the requests; raises DemoError when the process has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"go\n")
            await self._process.stdin.drain()
        except OSError:
            raise DemoError(f"the load generator ended with status {await self._process.wait()}") from None

    async def end(self) -> None:
        """Stops the requests; returns when the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        await self._process.wait()


@contextlib.asynccontextmanager
async def _load_generator(port: int, rate: float) -> AsyncIterator[Load]:
    """Starts a generator of `rate` requests per second to 127.0.0.1:`port`, and ends it with the context.

    It runs in its own session: Ctrl-C in the terminal must reach the demo only, which stops everything in order.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", LOAD_GENERATOR, str(port), str(rate)),
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
