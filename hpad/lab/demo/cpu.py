"""First half: a web server, scaled by the CPU that its processes really use (the Kubernetes HPA walkthrough)."""

import asyncio

from hpad.lab.demo import documents, load
from hpad.lab.demo.errors import DemoError
from hpad.lab.demo.half import Half, Times
from hpad.lab.demo.pace import Pace
from hpad.lab.demo.report import Result
from hpad.lab.demo.screen import Screen
from hpad.lab.demo.stage import SAMPLING_SECONDS, Stage
from hpad.lab.servers import ports

NAME = "php-apache"
TITLE = "hpad demo · a web server scaled by the CPU it uses"
RATE = 40.0
CPU_MS = 15
SEVERAL = 5
"""The formula gives 7 for 305 % over 50 %; a machine that is busy with other things may leave less CPU to measure."""

BECAUSE = f"usage is measured over {SAMPLING_SECONDS:g} s, and the scale-up window is 3 s"


async def show(stage: Stage, screen: Screen, pace: Pace) -> Result:
    """Run it; what goes wrong is the result's problem. Leaves no object and no process behind."""
    half = Half(stage, screen, NAME, TITLE, "CPU", "%", pace.spans[0])
    half.aside = lambda: _processes(stage.processes(NAME))
    times, problem = Times(), ""
    try:
        await _play(stage, half, pace, times)
    except DemoError as error:
        problem = str(error)
    await stage.delete(NAME)
    return half.result("A web server scaled by CPU: replicas over time", times, problem, because=BECAUSE)


async def _play(stage: Stage, half: Half, pace: Pace, times: Times) -> None:
    (port,) = ports.free(1)
    environment = {"PORT": str(port), "CPU_MS": str(CPU_MS)}
    deployment, hpa = await asyncio.to_thread(documents.load, NAME, environment)
    await stage.apply([deployment])
    half.note("applied: Deployment php-apache (requests 200m of CPU)")
    async with load.ready(port, RATE) as generator:
        await half.until(lambda moment: moment.processes == 1, pace.patience, "one php-apache was to run")
        await stage.next_metrics(NAME)
        await stage.apply([hpa])
        half.note("its CPU is measured; applied: HPA php-apache (goal 50 % of the request)")
        await half.until(
            lambda moment: moment.processes == 1 and moment.reading is not None,
            pace.patience,
            "one php-apache with a CPU reading was to be there",
        )
        await half.wait(pace.rest)
        await stage.next_metrics(NAME)
        await generator.begin()
        times.load = half.now
        half.note(f"load on: {RATE:g} requests a second, {CPU_MS} ms of CPU each")
        await half.until(
            lambda moment: moment.processes >= SEVERAL,
            pace.patience,
            f"at least {SEVERAL} php-apache were to run",
        )
        await half.wait(pace.hold)
        await generator.end()
    times.over = half.now
    half.note("load off")
    await half.until(
        lambda moment: moment.processes == 1 == moment.wanted,
        pace.patience,
        "php-apache was to be back at 1",
    )
    times.back = half.now
    half.note("back at 1 replica")
    await half.wait(pace.rest)


def _processes(pids: list[int]) -> str:
    if not pids:
        return ""
    return f"{len(pids)} real process{'' if len(pids) == 1 else 'es'}: pid {', '.join(map(str, pids))}"
